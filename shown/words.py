"""States as people read them: one word and one lamp each, the same on every page."""

from __future__ import annotations

from typing import NamedTuple


class Word(NamedTuple):
    """`lamp` is a class of components.css: waiting, preparing, running, failed, rest."""

    text: str
    lamp: str


STATES = {
    "QUEUED": Word("Queued", "waiting"),
    "STARTING": Word("Starting", "preparing"),
    "ASSIGNED": Word("Assigned", "preparing"),
    "LAUNCHED": Word("Launched", "preparing"),
    "RUNNING": Word("Running", "running"),
    "READY": Word("Ready", "running"),
    "STOPPING": Word("Stopping", "preparing"),
    "PAUSING": Word("Pausing", "preparing"),
    "SAVING": Word("Saving", "preparing"),
    "CANCELING": Word("Canceling", "preparing"),
    "KILLING": Word("Killing", "preparing"),
    "MOVING": Word("Moving", "preparing"),
    "ENDING": Word("Ending", "preparing"),
    "TERMINATING": Word("Stopping", "preparing"),
    "TERMINATED": Word("Ended", "rest"),
    "ENDED": Word("Ended", "rest"),
    "ACTIVE": Word("Active", "running"),
    "PAUSED": Word("Paused", "rest"),
    "STOPPING_COMPLETED": Word("Completing", "preparing"),
    "STOPPING_CANCELED": Word("Stopping and saving", "preparing"),
    "STOPPING_KILLED": Word("Killing", "preparing"),
    "STOPPING_ERROR": Word("Stopping after an error", "failed"),
    "COMPLETED": Word("Completed", "rest"),
    "STOPPED_EARLY": Word("Stopped early", "rest"),
    "CANCELED": Word("Canceled", "rest"),
    "ERROR": Word("Failed", "failed"),
    "DELETING": Word("Deleting", "preparing"),
    "DELETE_FAILED": Word("Not deleted", "failed"),
    "PARTIAL": Word("Uploading", "preparing"),
    "PARTIALLY_DELETED": Word("Partly deleted", "rest"),
    "DELETED": Word("Deleted", "rest"),
}

#: a state's code -> how pages call it
TEXTS = {code: word.text for code, word in STATES.items()}

HOST_STATES = {
    "admitting": Word("Being added", "preparing"),
    "unknown": Word("Not contacted yet", "preparing"),
    "ready": Word("Ready", "running"),
    "silent": Word("Silent", "failed"),
    "suspended": Word("Suspended", "failed"),
    "disabled": Word("Disabled", "rest"),
    "draining": Word("Draining", "preparing"),
    "failed": Word("Not added", "failed"),
    "lost": Word("Lost", "failed"),
    "removed": Word("Removed", "rest"),
    "reachable": Word("Reachable", "running"),
}


ROUTES = {
    "url": "Configured address",
    "seen": "Direct",
    "tunnel": "SSH tunnel",
}


def word_of(kind: str, code: str) -> str:
    """A state in the running text of a timeline, in lower case."""
    if not code:
        return ""
    word = host_state(code) if kind == "host" else state(code)
    return word.text.lower()


def state(code: str) -> Word:
    return STATES.get(code, Word(code.replace("_", " ").capitalize(), "rest"))


def host_state(code: str) -> Word:
    return HOST_STATES.get(code, Word(code.capitalize(), "rest"))

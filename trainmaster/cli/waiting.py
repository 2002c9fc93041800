"""What a job waits for, said where its log has nothing to show yet."""

from __future__ import annotations

import time
from typing import Callable, Optional

from trainmaster.cli.output import SHORT_ID, say
from trainmaster.client import Client
from trainmaster.http import Answered, Later, Unreachable

START_SECONDS = 3.0  # within which a job starts when nothing is in its way
ASK_SECONDS = 5.0  # between two looks at the reason
_POLL_SECONDS = 1.0  # once it has waited for a while
REPEAT_SECONDS = 60.0  # the reason is said again after so long, changed or not


def tell_what_it_waits_for(
    client: Client,
    queued_job: Callable[[], Optional[str]],
    poll_seconds: float = 0.3,
    start_seconds: float = START_SECONDS,
    ask_seconds: float = ASK_SECONDS,
    repeat_seconds: float = REPEAT_SECONDS,
) -> None:
    """Until it is not queued, say why: after a moment, when the reason changes, and else once a minute.

    `queued_job`: the id of the job while it is queued. A server that is away for long is left to what comes next,
    which follows the log and is the more patient.
    """
    ask_at = time.monotonic() + start_seconds
    said: Optional[str] = None
    repeat_at = 0.0
    while True:
        now = time.monotonic()
        try:
            job_id = queued_job()
            reason = _reason(client, job_id) if job_id is not None and now > ask_at else None
        except (Unreachable, Later):
            return
        if job_id is None:
            return
        if now > ask_at:
            ask_at = now + ask_seconds
            if reason is not None and (reason != said or now > repeat_at):
                _say(reason, job_id, again=said is not None)
                said, repeat_at = reason, now + repeat_seconds
        time.sleep(poll_seconds if said is None else max(_POLL_SECONDS, poll_seconds))


def say_what_it_waits_for(client: Client, job_id: str) -> None:
    """Say it once, if the server gives a reason."""
    reason = _reason(client, job_id)
    if reason is not None:
        say(f"Waiting: {reason}. All reasons: trainmaster job explain {job_id[:SHORT_ID]}", "yellow")


def _say(reason: str, job_id: str, again: bool) -> None:
    if again:
        say(f"Still waiting: {reason}. Press Ctrl-C to leave it in the queue.", "yellow")
        return
    say(
        f"Waiting: {reason}. Press Ctrl-C to leave it in the queue. "
        f"All reasons: trainmaster job explain {job_id[:SHORT_ID]}",
        "yellow",
    )


def _reason(client: Client, job_id: str) -> Optional[str]:
    """The first reason; None where the server gives none: it has started or ended meanwhile, or is an older one."""
    try:
        tasks = client.explain_job(job_id)["tasks"]
    except Answered as error:
        if error.status == 404:
            return None
        raise
    return next(
        (str(blocker["sentence"]) for task in tasks[:1] for blocker in task.get("blockers") or []), None
    )

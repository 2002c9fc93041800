"""A host that cannot start anything: after so many tasks in a row that failed there, the server drains it.

What runs there continues. When a person enables the host again, it begins with a clean slate.
"""

from __future__ import annotations

import uuid

from django.conf import settings

from hosts import transitions
from hosts.models import Host
from hosts.pools import mark_dirty

#: The reason of the event that a drained host leaves.
REASON = "failed_starts"
_SENTENCE_CHARACTERS = 500


def note(host_id: uuid.UUID, task_id: str, sentence: str) -> int:
    """Note that the host could not start the task, and drain it if that was one too many.

    Returns the era of the host in which it failed: once the host is drained for it, the failure is the host's alone.
    """
    host = Host.with_machines.select_for_update(no_key=True).get(pk=host_id)
    era = host.failed_starts_era
    others = [failed for failed in host.failed_starts if failed["task"] != task_id]
    host.failed_starts = [*others, {"task": task_id, "sentence": sentence[:_SENTENCE_CHARACTERS]}]
    if len(host.failed_starts) >= settings.HOST_FAILED_STARTS:
        host.failed_starts_era += 1
        host.failed_starts = host.failed_starts[-settings.HOST_FAILED_STARTS :]
        if host.enabled and (not host.draining or host.drain_cause == Host.Drain.CLEANUP):
            _drain(host)
    host.save(update_fields=[*FIELDS, "draining", "drain_cause", "drain_reason"])
    return era


def _drain(host: Host) -> None:
    tasks = len(host.failed_starts)
    host.draining, host.drain_cause = True, Host.Drain.FAILED_STARTS
    host.drain_reason = (
        f"The server is draining it because it could not start {tasks} {'tasks' if tasks > 1 else 'task'} in a row. "
        f"The last failure: {host.failed_starts[-1]['sentence'].rstrip('.')}. Fix that, then enable the host."
    )
    transitions.note(host, REASON, "server", {"name": host.name, "sentence": host.drain_reason})
    mark_dirty(host.pool_id)


def forget(host: Host) -> None:
    """The host has started something: what failed there before was not in a row with what fails next."""
    if host.failed_starts and host.drain_cause != Host.Drain.FAILED_STARTS:
        rows = Host.with_machines.filter(pk=host.pk).exclude(drain_cause=Host.Drain.FAILED_STARTS)
        rows.update(failed_starts=[])
        host.failed_starts = []


def clear(host: Host) -> None:
    """A clean slate, for the host and for all tasks that avoid it. The caller has locked the row and saves FIELDS."""
    host.failed_starts = []
    host.failed_starts_era += 1


#: what `clear` changes
FIELDS = ["failed_starts", "failed_starts_era"]

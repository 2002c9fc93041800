"""What a runner says of itself every few seconds: it is there, this is its spool, and so are its ranks.

A thousand runners do so two hundred times a second, so a heartbeat is two statements, and waits for no disk: should
the database crash, the next one makes the last one good.
"""

from __future__ import annotations

import json
from typing import Any

from django.db import connection

from dispatch.runs.intake import Intake, Over, orders
from events.announce import announce
from hosts import observe
from jobs import leaving, transitions
from jobs.states import AllocationState, MemberState
from logs import pulse

#: The host's row is left alone while somebody else has it, so nobody holds a member and waits for a host.
_KEEP = f"""
WITH heard AS (
  UPDATE jobs_member member SET heartbeat_at = statement_timestamp(), spool = %(spool)s::jsonb
  FROM jobs_allocation allocation
  WHERE member.id = %(member)s AND allocation.id = member.allocation_id AND allocation.state <> %(over)s
  RETURNING member.id, member.host_id, member.state, allocation.id AS allocation_id,
    allocation.stop_kind, allocation.stop_reason, allocation.stop_grace_seconds
), host AS ({observe.HEARTBEAT.format(host_id="(SELECT host_id FROM heard)")})
SELECT heard.state, heard.allocation_id, coalesce(stream."offset", 0),
  heard.stop_kind, heard.stop_reason, heard.stop_grace_seconds, set_config('synchronous_commit', 'off', true)
FROM heard LEFT JOIN logs_stream stream ON stream.member_id = heard.id
"""


#: of a number that every reader of JSON keeps as it is
_MOST = 2**53


def _bytes(value: object) -> int:
    """The runner's number; 0 for anything else: the run's account may have sent it."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST
    return int(value) if is_number else 0  # type: ignore[call-overload]  # a number


def heartbeat(member_id: int, body: dict[str, Any]) -> Intake:
    """The runner is there; keep its account of the spool and of its ranks. Raises Over."""
    spool = {key: _bytes(body.get(key)) for key in ("spool_bytes", "unshipped_bytes", "dropped_bytes")}
    wanted: dict[str, Any] = {
        "member": member_id,
        "spool": json.dumps(spool),
        "over": AllocationState.TERMINATED.value,
    }
    with connection.cursor() as cursor:
        cursor.execute(_KEEP, wanted)
        row = cursor.fetchone()
    if row is None:
        raise Over("The run is over: its allocation has ended, or was deleted.")
    state, allocation_id, offset, *stop, _ = row
    if body.get("preempt") is True and not stop[0]:
        leaving.asked_by_slurm(allocation_id)
    pulse.keep(member_id, body.get("pulse"))
    begins = str(body.get("state")) == "running" and state != MemberState.RUNNING
    if begins and transitions.member_running(member_id):
        announce(f"allocation:{allocation_id}")
    return Intake(offset, *orders(*stop))

"""The program's own fault: it failed of the same exception, at the same step, on different hosts.

Trying again would only use up the hours of its slots, so a trial ends then although restarts are left.
"""

from __future__ import annotations

import logging
import re
import time
from typing import Any

from django.conf import settings
from django.db import OperationalError, transaction

from experiments.models import Trial
from jobs import rank_ends
from jobs.models import Allocation
from jobs.states import Reason
from logs import last_words, tracebacks
from logs.lines import shown

log = logging.getLogger(__name__)

_CAUSE_CHARACTERS = 500
#: what differs between two exceptions of one fault: addresses, sizes, process ids
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")


def note(trial: Trial, allocation: Allocation) -> None:
    """Keep of a failed attempt, whose rows are locked, what it is compared by: its exception and its step."""
    detail = allocation.exit_detail
    if (
        "sentence" in detail or not trial.steps_completed
    ):  # of a hook; or before it trained, where a download may fail
        return
    until = time.monotonic() + last_words.READ_SECONDS
    try:
        with transaction.atomic():
            said = last_words.of(
                allocation, detail.get("rank"), allocation.exit_code, detail.get("signal"), until=until
            )
            if said.cause and not tracebacks.is_of_a_peer(said.cause):
                kept = {"cause": shown(said.cause)[:_CAUSE_CHARACTERS], "steps": trial.steps_completed}
                rank_ends.correct(allocation, {**detail, **kept})
    except OperationalError:
        raise
    except Exception:  # whatever its lines may hold, the end is settled
        log.exception("how %s failed is not kept", allocation.pk)


def repeated(trial: Trial) -> dict[str, Any] | None:
    """{"cause", "steps", "attempts", "hosts"} if the newest SAME_FAILURES attempts failed alike; else None.

    On one host alone they never do: it may be the host.
    """
    most = settings.SAME_FAILURES
    rows = trial.task.allocations.order_by("-number").values_list("exit_reason", "exit_detail")[:most]
    details = [detail for reason, detail in rows if reason == Reason.RANK_FAILED and detail.get("cause")]
    hosts = sorted({str(detail.get("host")) for detail in details})
    if not most or len(details) < most or len(hosts) < 2 or len({_alike(detail) for detail in details}) > 1:
        return None
    return {"cause": details[0]["cause"], "steps": details[0]["steps"], "attempts": most, "hosts": hosts}


def _alike(detail: dict[str, Any]) -> tuple[str, int]:
    return _NUMBER.sub("#", detail["cause"]), detail["steps"]

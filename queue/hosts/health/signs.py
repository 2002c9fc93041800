"""The signs of faults that hosts have told, each kept once with its verdict.

What a host says is taken as a claim: so many lines, of such a length, each read here again. A host can spoil nothing
but its own list.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from hosts.health import verdicts
from hosts.health.verdicts import Verdict
from hosts.models import Host, HostSign, Slot
from trainmaster.kernel_signs import LONGEST_LINE, Sign, sign_of

#: of one answer, and of one host in all: the oldest are forgotten
MOST_LINES = 100
MOST_SIGNS = 1_000
_MOST_US = 2**62


@dataclass(frozen=True)
class Judged:
    """A new sign: its row, the verdict, and the slots of the GPU that it names (several with MIG)."""

    row: HostSign
    verdict: Verdict
    slots: tuple[Slot, ...]


def question(host: Host) -> dict[str, Any]:
    """What to add to a `status` request."""
    known = host.kernel_log
    return {"kernel": {"boot": known.get("boot", ""), "until": known.get("until", 0)}}


@transaction.atomic
def take_in(host_id: uuid.UUID, answer: Mapping[str, Any]) -> list[Judged]:
    """Keep what the host answered to `question`; returns the signs that were not known."""
    told = answer.get("kernel")
    if not isinstance(told, dict):
        return []
    host = Host.objects.select_for_update(no_key=True).filter(pk=host_id).first()
    if host is None:
        return []
    _remember(host, told)
    lines = told.get("lines")
    found = [_read(line) for line in lines[-MOST_LINES:]] if isinstance(lines, list) else []
    signs = [each for each in found if each is not None]
    if not signs:
        return []
    by_device = _slots_by_device(host)
    rows = [_row(host, at, line, sign, by_device.get(sign.device, ())) for at, line, sign in signs]
    same = HostSign.objects.filter(host=host, boot_id=host.kernel_log["boot"])
    times = [row.kernel_us for row in rows]
    known = set(same.filter(kernel_us__in=times).values_list("kernel_us", "line"))
    new = {(row.kernel_us, row.line): row for row in rows if (row.kernel_us, row.line) not in known}
    HostSign.objects.bulk_create(new.values())
    _forget_oldest(host)
    return [
        Judged(row, verdicts.of(sign), by_device.get(sign.device, ()))
        for row in new.values()
        if (sign := sign_of(row.line)) is not None
    ]


def _remember(host: Host, told: Mapping[str, Any]) -> None:
    """How far the log is known now, and whether it may be read at all."""
    until = told.get("until")
    heard = {
        "boot": str(told.get("boot", ""))[:64],
        "until": until if isinstance(until, int) and 0 <= until < _MOST_US else 0,
        "source": str(told.get("source", ""))[:16],
        "denied": str(told.get("denied", ""))[:500],
    }
    if heard != host.kernel_log:
        host.kernel_log = heard
        host.save(update_fields=["kernel_log"])


def _read(told: object) -> tuple[int, str, Sign] | None:
    if not (isinstance(told, list) and len(told) == 2):
        return None
    at, text = told
    if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at < _MOST_US or not isinstance(text, str):
        return None
    line = "".join(letter for letter in text[:LONGEST_LINE] if letter.isprintable())
    sign = sign_of(line)
    return None if sign is None else (at, line, sign)


def _slots_by_device(host: Host) -> dict[str, tuple[Slot, ...]]:
    """PCI address -> the slots of that GPU, by what the last probe found."""
    rows = {slot.uuid: slot for slot in host.slots.filter(missing=False).exclude(uuid="")}
    found: dict[str, tuple[Slot, ...]] = {}
    for gpu in host.facts.get("gpus") or []:
        uuids = [instance.get("uuid") for instance in gpu.get("mig") or []] or [gpu.get("uuid")]
        if gpu.get("pci"):
            found[gpu["pci"]] = tuple(rows[each] for each in uuids if each in rows)
    return found


def _row(host: Host, at: int, line: str, sign: Sign, slots: tuple[Slot, ...]) -> HostSign:
    verdict = verdicts.of(sign)
    return HostSign(
        host=host,
        slot=slots[0] if slots else None,
        boot_id=host.kernel_log["boot"],
        kernel_us=at,
        line=line,
        kind=sign.kind,
        code=sign.code,
        device=sign.device[:64],
        action=verdict.action,
        sentence=verdict.sentence,
    )


def _forget_oldest(host: Host) -> None:
    last = HostSign.objects.filter(host=host).values_list("pk", flat=True)[MOST_SIGNS : MOST_SIGNS + 1]
    if oldest := list(last):
        HostSign.objects.filter(host=host, pk__lte=oldest[0]).delete()

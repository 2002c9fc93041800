"""The signs of faults that hosts have told, each kept once with its verdict.

What a host says is taken as a claim: so many lines, of such a length, each read here again; so many numbers, compared
here. A host can spoil nothing but its own list.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Case, F, When
from django.utils import timezone

from hosts.health import faults, measured, verdicts
from hosts.health.faults import Found
from hosts.health.measured import Look, printable
from hosts.health.verdicts import Scope, Verdict
from hosts.models import Host, HostSign, Slot
from trainmaster.kernel_signs import LONGEST_LINE, Sign, sign_of

#: of one answer, and of one host in all: the oldest are forgotten
MOST_LINES = 100
SLOW = "host_slow"
MOST_SIGNS = 1_000
_MOST_US = 2**62


def question(host: Host) -> dict[str, Any]:
    """What to ask of the kernel's log, to be added to a `status` request."""
    known = host.kernel_log
    return {"kernel": {"boot": known.get("boot", ""), "until": known.get("until", 0)}}


def gpus_of(host: Host) -> dict[str, str]:
    """UUID -> PCI address of the GPUs that the last probe found; the host may have answered anything."""
    gpus = host.facts.get("gpus")
    found = [gpu for gpu in gpus[: measured.MOST] if isinstance(gpu, dict)] if isinstance(gpus, list) else []
    pairs = [(gpu.get("uuid"), gpu.get("pci")) for gpu in found]
    return {
        uuid: pci for uuid, pci in pairs if isinstance(uuid, str) and isinstance(pci, str) and uuid and pci
    }


@transaction.atomic
def take_in(host_id: uuid.UUID, told: object) -> None:
    """Keep what the host answered to `question`."""
    host = Host.objects.select_for_update(no_key=True).filter(pk=host_id).first()
    if host is None or not isinstance(told, dict):
        return
    _remember(host, told)
    if not (signs := read(told.get("lines"))):
        return
    by_device = slots_by_device(host)
    boot = host.kernel_log["boot"]
    _keep(
        host, [_row(host, boot, at, line, sign, by_device.get(sign.device, ())) for at, line, sign in signs]
    )


@transaction.atomic
def compare(host_id: uuid.UUID, look: Look) -> None:
    """Compare what a host has measured with its looks before, and keep what is a sign."""
    host = Host.objects.select_for_update(no_key=True).filter(pk=host_id).first()
    if host is None:
        return
    use = _use(host) if host.condition.get("boot") != look.boot else faults.Use()
    step = faults.step(host.condition, look, log_is_read=bool(host.kernel_log.get("source")), use=use)
    if step.kept != host.condition:
        host.condition = step.kept
        host.save(update_fields=["condition"])
    for kind, device in step.over:
        if not verdicts.heals(kind):  # it waits for a person, or for room in its pool
            continue
        HostSign.objects.filter(host=host, kind=kind, device=device, settled=False).update(
            settled=True, done="It was over before anything was done."
        )
    if step.told:
        by_device = slots_by_device(host)
        _keep(host, [_measured(host, look, each, by_device.get(each.device, ())) for each in step.told])


def _use(host: Host) -> faults.Use:
    """What is out of use in the boot that was looked at last."""
    out = {slot.pk for slot in host.slots.exclude(quarantine={})}
    devices = [device for device, slots in slots_by_device(host).items() if out & {slot.pk for slot in slots}]
    waits: set[tuple[str, str]] = set()
    if not is_overruled(host):
        open_ones = HostSign.objects.filter(host=host, boot_id=host.condition.get("boot", ""), settled=False)
        waits = set(open_ones.values_list("kind", "device"))
    return faults.Use(bool(host.quarantine), frozenset(devices), frozenset(waits))


def is_overruled(row: Host | Slot) -> bool:
    """Whether a person has decided that it stays in use, and that still holds."""
    return bool(row.overruled) and datetime.fromisoformat(row.overruled["until"]) > timezone.now()


@transaction.atomic
def tell_slow(host_id: uuid.UUID, evidence: str, since: datetime) -> None:
    """Keep that a host is slower than its peers, unless that was told since then."""
    host = Host.objects.select_for_update(no_key=True).filter(pk=host_id).first()
    if host is None or HostSign.objects.filter(host=host, kind=SLOW, at__gt=since).exists():
        return
    row = _row(host, host.boot_id, 0, evidence[:LONGEST_LINE], Sign(SLOW), ())
    row.source = HostSign.Source.MEASURED
    _keep(host, [row])


def verdict_on(row: HostSign) -> Verdict | None:
    """By the rules of today; None if its line is no sign any more, since a pattern has changed."""
    if row.source == HostSign.Source.MEASURED:
        return verdicts.of(Sign(row.kind, 0, row.device))
    return verdicts.of_line(row.line)


def unsettled(host_id: uuid.UUID) -> list[HostSign]:
    """Signs of its boot that ask for something and were not judged, or could not be acted on; the oldest first."""
    rows = HostSign.objects.filter(host=host_id, settled=False, boot_id=F("host__boot_id"))
    return list(rows.order_by("pk"))


def _remember(host: Host, told: Mapping[str, Any]) -> None:
    """How far the log is known now, and whether it may be read at all."""
    until = told.get("until")
    words = {name: printable(str(told.get(name, "")))[:most] for name, most in _WORDS.items()}
    heard = {**words, "until": until if isinstance(until, int) and 0 <= until < _MOST_US else 0}
    if heard != host.kernel_log:
        host.kernel_log = heard
        host.save(update_fields=["kernel_log"])


#: what a host says beside its lines, with the length that is kept
_WORDS = {"boot": 64, "source": 16, "denied": 500}


def read(told: object) -> list[tuple[int, str, Sign]]:
    """The signs among lines that somebody tells: [[microseconds since boot, text]]; what is none is left out."""
    found = [_read(line) for line in told[-MOST_LINES:]] if isinstance(told, list) else []
    return [each for each in found if each is not None]


def _read(told: object) -> tuple[int, str, Sign] | None:
    if not (isinstance(told, list) and len(told) == 2):
        return None
    at, text = told
    if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at < _MOST_US or not isinstance(text, str):
        return None
    line = printable(text[:LONGEST_LINE])
    sign = sign_of(line)
    return None if sign is None else (at, line, sign)


def slots_by_device(host: Host) -> dict[str, tuple[Slot, ...]]:
    """PCI address -> the slots of that GPU (several with MIG), by what the last probe found."""
    rows = {slot.uuid: slot for slot in host.slots.filter(missing=False).exclude(uuid="")}
    found: dict[str, tuple[Slot, ...]] = {}
    for gpu in host.facts.get("gpus") or []:
        uuids = [instance.get("uuid") for instance in gpu.get("mig") or []] or [gpu.get("uuid")]
        if gpu.get("pci"):
            found[gpu["pci"]] = tuple(rows[each] for each in uuids if each in rows)
    return found


def _measured(host: Host, look: Look, found: Found, slots: tuple[Slot, ...]) -> HostSign:
    row = _row(
        host, look.boot, look.at_us, found.line[:LONGEST_LINE], Sign(found.kind, 0, found.device), slots
    )
    row.source = HostSign.Source.MEASURED
    return row


def _row(host: Host, boot: str, at: int, line: str, sign: Sign, slots: tuple[Slot, ...]) -> HostSign:
    verdict = verdicts.of(sign)
    return HostSign(
        host=host,
        slot=slots[0] if slots else None,
        boot_id=boot,
        kernel_us=at,
        line=line,
        kind=sign.kind,
        code=sign.code,
        device=sign.device[:64],
        action=verdict.action,
        scope=verdict.scope,
        sentence=verdict.sentence,
        settled=verdict.scope == Scope.NONE,
    )


def _keep(host: Host, rows: Iterable[HostSign]) -> None:
    once = {(row.kernel_us, row.line): row for row in rows}
    HostSign.objects.bulk_create(once.values(), ignore_conflicts=True)
    _forget_oldest(host)


def _forget_oldest(host: Host) -> None:
    """Those that ask for nothing first: a loop of crashes hides no fault."""
    kept = HostSign.objects.filter(host=host).order_by(Case(When(scope="", then=1), default=0), "-pk")
    too_many = list(kept.values_list("pk", flat=True)[MOST_SIGNS:])
    HostSign.objects.filter(pk__in=too_many).delete()

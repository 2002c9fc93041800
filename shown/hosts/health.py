"""The health of a host as it is shown: what is out of use because of a fault, and the signs of faults there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from hosts.health import probation
from hosts.models import Host, HostSign, Slot

#: of one page or answer; `MOST_SIGNS` of hosts.health.signs are kept
MOST_SHOWN = 50


@dataclass(frozen=True)
class OutOfUse:
    """A host, or one slot of it, in quarantine. `slot` None: the whole host. `returns`: how it comes back."""

    slot: int | None
    sentence: str
    since: datetime
    returns: str


@dataclass(frozen=True)
class Overruled:
    """What stays in use until then whatever is reported of it. `slot` None: the whole host."""

    slot: int | None
    until: datetime
    reason: str
    by: str


@dataclass(frozen=True)
class Health:
    """`denied`: what cannot be read there and why; empty where all can, or where nobody has looked yet.

    `source`: where the kernel's log is read.
    """

    out: list[OutOfUse]
    overruled: list[Overruled]
    signs: list[HostSign]
    denied: str
    source: str

    @property
    def word(self) -> str:
        """One word or two for a list of hosts."""
        if not self.out:
            return "not known" if self.denied or not self.source else "ok"
        if any(each.slot is None for each in self.out):
            return "quarantined"
        return f"{len(self.out)} slot{'s' * (len(self.out) != 1)} quarantined"


def of(host: Host, signs: int = MOST_SHOWN) -> Health:
    """`host` with its slots; `signs`: how many of the newest are read, 0 for none."""
    slots = [slot for slot in host.slots.all() if slot.quarantine and not slot.missing]
    out = [_out(host, None)] if host.quarantine else []
    out += [_out(host, slot) for slot in slots]
    in_use: list[Host | Slot] = []
    if host.enabled and not host.draining:
        in_use = [host, *(slot for slot in host.slots.all() if slot.enabled and not slot.draining)]
    overruled = [decided for each in in_use if (decided := _overruled(each)) is not None]
    found = list(host.signs.select_related("slot")[:signs]) if signs else []
    denied = [host.kernel_log.get("denied", ""), *host.condition.get("denied", [])]
    return Health(out, overruled, found, " ".join(filter(None, denied)), host.kernel_log.get("source", ""))


def _out(host: Host, slot: Slot | None) -> OutOfUse:
    kept: dict[str, Any] = host.quarantine if slot is None else slot.quarantine
    return OutOfUse(
        slot=None if slot is None else slot.index,
        sentence=kept["sentence"],
        since=datetime.fromisoformat(kept["at"]),
        returns=_returns(kept),
    )


def _overruled(row: Host | Slot) -> Overruled | None:
    kept = row.overruled
    if not kept or (until := datetime.fromisoformat(kept["until"])) <= timezone.now():
        return None
    return Overruled(None if isinstance(row, Host) else row.index, until, kept["reason"], kept["by"])


def _returns(kept: dict[str, Any]) -> str:
    by_a_sign, returns = kept.get("sign") is not None, int(kept.get("released") or 0)
    if not probation.ends_by_itself(by_a_sign=by_a_sign, returns=returns):
        again = ", since it failed again within a week" if returns else ""
        return f"until someone releases it{again}"
    if kept.get("heals"):
        return "until someone releases it, or once it is over"
    return "until someone releases it, or a day after a reboot without another fault"

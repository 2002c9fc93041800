"""The windows of a pool: hosts, or a number of slots, that are taken for a time. The one writer of this rule.

Without a group a window is maintenance: nobody uses its hosts then. With one it is a reservation: only that group does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.db import transaction
from django.utils import timezone

from accounts.models import Group
from accounts.refusals import Code, FieldRefusals, Refusal
from hosts import pool_edits, registry
from hosts.models import ResourcePool
from hosts.pools import mark_dirty
from scheduling.window_times import Times
from scheduling.world import WindowView

FIELDS = ("name", "starts", "ends", "time_zone", "weekly", "hosts", "slots", "group")
#: reasons of the events of windows
WINDOW_EDITS = ("window_added", "window_changed", "window_removed")
#: no window starts or ends later than this from now
MOST_YEARS = 5
_EXAMPLE = "2026-12-01T06:00"


@dataclass(frozen=True)
class Window:
    """As it is stored; `starts` and `ends` are what the clock shows in `time_zone`, for a weekly one its first time.

    `chosen`: (start in epoch seconds, names of the hosts that were chosen for this time), empty until that is settled.
    """

    name: str
    starts: str
    ends: str
    time_zone: str = "UTC"
    weekly: bool = False
    hosts: tuple[str, ...] = ()
    slots: int | None = None
    group: str = ""
    chosen: tuple[float, tuple[str, ...]] | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Window:
        settled = record.get("chosen")
        chosen = (settled[0], tuple(settled[1])) if settled else None
        return cls(**{**record, "hosts": tuple(record.get("hosts") or ()), "chosen": chosen})

    @property
    def times(self) -> Times:
        starts, ends = datetime.fromisoformat(self.starts), datetime.fromisoformat(self.ends)
        return Times(starts, ends, self.time_zone, self.weekly)

    def record(self) -> dict[str, Any]:
        """What people say of it, without what was chosen."""
        return {field: getattr(self, field) for field in FIELDS} | {"hosts": list(self.hosts)}

    def stored(self) -> dict[str, Any]:
        chosen = [self.chosen[0], list(self.chosen[1])] if self.chosen else None
        return self.record() | ({"chosen": chosen} if chosen else {})


def of_pool(pool: ResourcePool, now: float | None = None) -> list[Window]:
    """The windows that are not over, in the order in which they come."""
    at = timezone.now().timestamp() if now is None else now
    found = [Window.of(record) for record in pool.windows]
    coming = [(span, window) for window in found if (span := window.times.coming(at))]
    return [window for _, window in sorted(coming, key=lambda one: (one[0], one[1].name))]


def views(pool: ResourcePool, now: float) -> tuple[WindowView, ...]:
    """The windows as a pass sees them: the time of each that is now or comes next."""
    found = []
    for window in of_pool(pool, now) if pool.windows else ():
        if span := window.times.coming(now):
            chosen = window.chosen[1] if window.chosen and window.chosen[0] == span[0] else ()
            hosts = frozenset(window.hosts or chosen)
            again = window.times.coming(span[1]) if window.weekly else None
            view = WindowView(window.name, *span, hosts, window.slots or 0, window.group)
            found.append(replace(view, again=again[0]) if again else view)
    return tuple(found)


def settle(pool: ResourcePool, choices: Mapping[str, tuple[float, list[str]]]) -> None:
    """Keep which hosts were chosen for the next time of windows (by name), unless a user has edited windows since.

    From then on, the choice stays the same whatever is drained or ends.
    """
    windows = [
        {**each, "chosen": choices[each["name"]]} if each["name"] in choices else each
        for each in pool.windows
    ]
    ResourcePool.objects.filter(pk=pool.pk, windows=pool.windows).update(windows=windows)


@transaction.atomic
def save(pool_name: str, values: Mapping[str, Any], *, actor: str, replaces: str = "") -> Window:
    """Add a window, or change the one named `replaces`: what is not given stays. Raises FieldRefusals or Refusal."""
    pool = pool_edits.locked(pool_name)
    before = _named(pool, replaces) if replaces else None
    window = _read({**(before.record() if before else {}), **values})
    others = [each for each in of_pool(pool) if each.name != replaces]
    if errors := _wrong(pool, window, others):
        raise FieldRefusals(errors)
    reason = "window_changed" if before else "window_added"
    detail = {"window": window.record()} | ({"was": before.record()} if before else {})
    others = [replace(each, chosen=None) if _takes_its_hosts(window, each) else each for each in others]
    _keep(pool, [*others, window], reason, actor, detail)
    return window


@transaction.atomic
def remove(pool_name: str, name: str, *, actor: str) -> None:
    """Take a window out. Raises Refusal."""
    pool = pool_edits.locked(pool_name)
    window = _named(pool, name)
    others = [each for each in of_pool(pool) if each.name != name]
    _keep(pool, others, "window_removed", actor, {"window": window.record()})


def _keep(pool: ResourcePool, windows: list[Window], reason: str, actor: str, detail: dict[str, Any]) -> None:
    pool.windows = [window.stored() for window in windows]
    pool.save(update_fields=["windows"])
    pool_edits.changed(pool, reason, actor, detail)


def _takes_its_hosts(window: Window, other: Window) -> bool:
    """Does the window name a host that was chosen for the other?"""
    return other.chosen is not None and not set(window.hosts).isdisjoint(other.chosen[1])


def _named(pool: ResourcePool, name: str) -> Window:
    for window in of_pool(pool):
        if window.name == name:
            return window
    raise Refusal(f"Pool {pool.name} has no window {name}.", Code.NOT_FOUND)


def _read(values: Mapping[str, Any]) -> Window:
    """The window that these values say. Raises FieldRefusals with all that is wrong with them."""
    errors = {
        field: f"Unknown window field {field}; allowed: {', '.join(FIELDS)}."
        for field in values.keys() - set(FIELDS)
    }
    name, zone = values.get("name"), values.get("time_zone") or "UTC"
    if fault := registry.name_fault(name if isinstance(name, str) else "", 64):
        errors["name"] = fault
    times = {}
    try:
        clock = ZoneInfo(str(zone))
    except (KeyError, ValueError, OSError):
        errors["time_zone"] = f"Found {zone!r}; allowed: the name of a time zone, such as Europe/Berlin."
    else:
        for field in ("starts", "ends"):
            times[field] = _local(values.get(field), clock)
            if not values.get(field):
                errors[field] = f"{field.rstrip('s').capitalize()} time is required, such as {_EXAMPLE}."
            elif not times[field]:
                errors[field] = f"Found {values.get(field)!r}; allowed: a date and time, such as {_EXAMPLE}."
    hosts, slots = values.get("hosts") or [], values.get("slots")
    if not isinstance(hosts, list | tuple) or not all(isinstance(host, str) for host in hosts):
        errors["hosts"] = f"Found {hosts!r}; allowed: a list of names of hosts."
    elif bool(hosts) == (slots is not None):
        errors["hosts"] = "Name either hosts or a number of slots."
    if slots is not None and (not isinstance(slots, int) or isinstance(slots, bool) or slots < 1):
        errors["slots"] = f"Found {slots!r}; allowed: a whole number of 1 or more."
    if not isinstance(values.get("weekly", False), bool):
        errors["weekly"] = f"Found {values.get('weekly')!r}; allowed: true or false."
    if not isinstance(group := values.get("group") or "", str):
        errors["group"] = f"Found {group!r}; allowed: the name of a group, or nothing for maintenance."
    if errors:
        raise FieldRefusals(errors)
    weekly = bool(values.get("weekly"))
    return Window(str(name), times["starts"], times["ends"], str(zone), weekly, tuple(hosts), slots, group)


def _local(value: object, zone: ZoneInfo) -> str:
    """What the clock of the zone shows then; empty if that is not a time."""
    if not isinstance(value, str):
        return ""
    try:
        time = datetime.fromisoformat(value)
        local = time.astimezone(zone).replace(tzinfo=None) if time.tzinfo else time
        local.replace(tzinfo=zone).astimezone(UTC)  # it must be a time in UTC too
    except (ValueError, OverflowError):
        return ""
    return local.isoformat(timespec="minutes")


def _wrong(pool: ResourcePool, window: Window, others: list[Window]) -> dict[str, str]:
    """Field -> what a window has against itself, the pool or its other windows."""
    now, times = timezone.now().timestamp(), window.times
    if times.ends <= times.starts:
        return {"ends": f"The window ends at {window.ends}, not after its start at {window.starts}."}
    last = (timezone.now() + timedelta(days=365 * MOST_YEARS)).replace(tzinfo=None)
    for field in ("starts", "ends"):
        if (found := getattr(times, field)) > last:
            return {field: f"Found {found:%Y-%m-%d}; allowed: at most {MOST_YEARS} years ahead."}
    if window.weekly and (times.ends - times.starts).days >= 7:
        return {"ends": "A weekly window must be shorter than a week."}
    starts, ends = times.at(0)
    if starts == ends and not window.weekly:
        return {"ends": f"The clock of {window.time_zone} skips this time. Choose a later end."}
    if times.coming(now) is None:
        return {
            "ends": f"The window is over: it ends at {window.ends} ({window.time_zone}). Choose a later time."
        }
    if any(each.name == window.name for each in others):
        return {"name": f"Pool {pool.name} has a window {window.name} already. Choose another name."}
    if window.group and not Group.objects.filter(name=window.group).exists():
        return {"group": f"There is no group {window.group}."}
    has = dict.fromkeys(registry.present().filter(pool=pool).values_list("name", flat=True))
    if unknown := [host for host in window.hosts if host not in has]:
        return {
            "hosts": f"Pool {pool.name} has no host {unknown[0]}; it has {', '.join([*has][:20]) or 'none'}."
        }
    meeting = [each for each in others if each.times.meets(times, now)]
    for other in meeting:
        if both := sorted(set(other.hosts) & set(window.hosts)):
            return {
                "hosts": f"Window {other.name} takes {both[0]} at the same time. Change that one, or its time."
            }
    slots = registry.present_slots().filter(host__pool=pool)
    named = {host for each in [*meeting, window] for host in each.hosts}
    left = slots.exclude(host__name__in=named).count()
    asked = sum(each.slots or 0 for each in [*meeting, window])
    if asked > left:
        taken = f" beside {', '.join(each.name for each in meeting)}" if meeting else ""
        return {
            "slots"
            if window.slots
            else "hosts": f"Windows take {asked} slots; pool {pool.name} has {left}{taken}."
        }
    return {}


def group_changed(was: str, now: str, **_: object) -> None:
    """Reservations follow a new name; a group that has one is not deleted. Raises Refusal."""
    for pool in ResourcePool.objects.select_for_update(no_key=True).exclude(windows=[]):
        if not was or not any(window.group == was for window in of_pool(pool)):
            continue
        if not now:
            raise Refusal(
                f"Group {was} cannot be deleted: pool {pool.name} has a reservation for it. Remove that first.",
                Code.CONFLICT,
            )
        pool.windows = [{**each, "group": now} if each["group"] == was else each for each in pool.windows]
        pool.save(update_fields=["windows"])
        mark_dirty(pool.pk)

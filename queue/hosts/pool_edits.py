"""What admins decide about resource pools: create, edit, remove. The one writer of a pool's rules.

Pages, CLI and REST give the same values here and show the same sentences. Every change leaves an event and marks
the pool dirty, so that the next pass follows the new rules; what already runs is judged by them too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import ProtectedError

from accounts.refusals import Code, FieldRefusals, Refusal
from events.announce import announce, wake
from events.models import Event
from events.record import record
from hosts import group_shares, pool_access, registry, slurm_pool
from hosts.login_accounts import JUDGE_ACCOUNTS
from hosts.models import BurnInAction, BurnInRule, HangAction, ResourcePool
from hosts.pools import default_pool, mark_dirty, named
from hosts.registry import NewHost
from hosts.slurm import settings as slurm_settings
from scheduling import policies
from scheduling.written_times import HANG_LEAST_SECONDS

Check = Callable[[object], str | None]

ROLES = ("editor", "admin")
_NAME_CHARACTERS = 64
_INTERFACE = re.compile(r"[A-Za-z0-9_.-]{1,15}")  # Linux names no longer ones
_MOST = 2**31 - 1  # of the database's integers


def _whole(least: int, most: int = _MOST, *, or_none: str = "") -> Check:
    """A whole number within bounds; with `or_none`, which says what it means, also None."""
    also = f", or none: {or_none}" if or_none else ""
    bounds = (
        f"a whole number from {least} to {most}" if most < _MOST else f"a whole number of {least} or more"
    )

    def check(value: object) -> str | None:
        if value is None and or_none:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return None
        return f"allowed: {bounds}{also}"

    return check


def _one_of(*allowed: str) -> Check:
    return lambda value: None if value in allowed else f"allowed: {' or '.join(allowed)}"


def _switch(value: object) -> str | None:
    return None if isinstance(value, bool) else "allowed: true or false"


def _text(most: int) -> Check:
    allowed = f"allowed: at most {most} characters"
    return lambda value: None if isinstance(value, str) and len(value) <= most else allowed


def _floors(value: object) -> str | None:
    within = _whole(1, 99)
    if isinstance(value, dict) and all(
        role in ROLES and within(floor) is None for role, floor in value.items()
    ):
        return None
    return 'allowed: a priority from 1 to 99 for editor and admin, such as {"editor": 20}'


def _min_runtime(value: object) -> str | None:
    priority = {str(number) for number in range(1, 100)}
    seconds = _whole(0)
    if isinstance(value, dict) and all(
        first in priority and seconds(least) is None for first, least in value.items()
    ):
        return None
    return 'allowed: seconds from a priority (1 to 99) on, such as {"1": 600, "50": 0}'


def _interface(value: object) -> str | None:
    if value == "" or (isinstance(value, str) and _INTERFACE.fullmatch(value)):
        return None
    return "allowed: the name of one network interface, such as ens5, or empty"


def _lost_after(value: object) -> str | None:
    return _whole(int(settings.HOST_SILENT_AFTER_SECONDS), or_none="only a user declares a host lost")(value)


#: field -> what is wrong with a value of it
CHECKS: dict[str, Check] = {
    "description": _text(1000),
    "scheduler": _one_of(*(name for name, _ in policies.CHOICES)),
    "fitting": _one_of(*ResourcePool.Fitting.values),
    "preemption": _switch,
    "allow_heterogeneous_fits": _switch,
    "default_priority": _whole(1, 99),
    "priority_floor": _floors,
    "strict": _switch,
    "default_max_time_seconds": _whole(1, or_none="no limit"),
    "longest_max_time_seconds": _whole(1, or_none="no limit"),
    "unpreemptible_slots": _whole(0, or_none="all of them"),
    "min_runtime_seconds": _min_runtime,
    "spare_hosts": _whole(0),
    "patience_seconds": _whole(0, or_none="hosts are reserved for a gang from its turn on"),
    "group_shares": group_shares.fault,
    "open_to": pool_access.fault,
    "usage_half_life_seconds": _whole(0),
    "launch_error": _switch,
    "aux_per_host": _whole(0),
    "slurm": slurm_settings.fault,
    "host_lost_after_seconds": _lost_after,
    "hang_after_seconds": _whole(HANG_LEAST_SECONDS, or_none="nobody looks at trainings that hang"),
    "hang_do": _one_of(*HangAction.values),
    "burn_in": _one_of(*BurnInRule.values),
    "burn_in_do": _one_of(*BurnInAction.values),
    "shared_account": _switch,
    "allow_login_account": _switch,
    "network_interface": _interface,
    "default_compute": _switch,
    "default_aux": _switch,
}
_ACCOUNTS = {"shared_account", "allow_login_account", "strict"}
#: One pool at a time is the default for work that names none, so a default is handed over, never switched off.
_DEFAULTS = {"default_compute": "compute", "default_aux": "aux"}


@transaction.atomic
def create(name: str, values: dict[str, Any], *, actor: str, route: NewHost | None = None) -> ResourcePool:
    """A new pool; fields that are not given get the model's defaults. Raises FieldRefusals.

    A removed pool of that name comes back with its history and with new rules. The login node of a Slurm pool is added
    with it. `route`: how that one is reached, if the caller knows more than the name in the settings.
    """
    default_pool()  # the first pool of all is the default one, so that a later one need not be
    fault = registry.name_fault(name, _NAME_CHARACTERS)
    errors = {"name": fault} if fault else {}
    pool = ResourcePool.with_removed.select_for_update().filter(name=name).first()
    if pool and not pool.removed:
        errors["name"] = f"A pool named {name!r} already exists. Choose another name, or edit that pool."
    fresh = ResourcePool(name=name)
    errors |= _wrong(fresh, values)
    if errors:
        raise FieldRefusals(errors, Code.TAKEN if pool and not pool.removed else Code.INVALID)
    if pool:
        fresh.pk, fresh._state.adding = pool.pk, False
    _take_defaults(fresh, values, actor)
    _assign(fresh, values)
    fresh.save()
    changed(fresh, "created", actor, {"rules": values})
    if fresh.slurm:
        slurm_pool.begin(fresh, route, actor=actor)
    return fresh


@transaction.atomic
def edit(name: str, values: dict[str, Any], *, actor: str) -> list[str]:
    """Change the given fields, all or none; the names of those that are new. Raises FieldRefusals."""
    pool = locked(name)
    if errors := _wrong(pool, values):
        raise FieldRefusals(errors)
    changes = {field: [getattr(pool, field), value] for field, value in values.items()}
    changes = {field: pair for field, pair in changes.items() if pair[0] != pair[1]}
    if changes:
        _take_defaults(pool, values, actor)
        _assign(pool, values)
        pool.save(update_fields=list(changes))
        if (_ACCOUNTS | {"slurm"}) & changes.keys():  # the doctor's reports say who may harm whom
            wake(JUDGE_ACCOUNTS)
        if "slurm" in changes:
            slurm_pool.changed(pool, changes["slurm"][0], actor=actor)
        changed(pool, "changed", actor, {"changes": changes})
    return list(changes)


def _assign(pool: ResourcePool, values: dict[str, Any]) -> None:
    for field, value in values.items():
        setattr(pool, field, value)


def _take_defaults(pool: ResourcePool, values: dict[str, Any], actor: str) -> None:
    """The pools that were the defaults hand them over."""
    for field in _DEFAULTS:
        if values.get(field):
            for other in ResourcePool.objects.filter(**{field: True}).exclude(pk=pool.pk):
                ResourcePool.objects.filter(pk=other.pk).update(**{field: False})
                _record(other, "changed", actor, {"changes": {field: [True, False]}})


@transaction.atomic
def remove(name: str, *, actor: str) -> None:
    """Take the pool out. Its row stays, hidden, as long as history points at it.

    Raises Refusal while hosts or unfinished jobs are in it, and for a default pool.
    """
    pool = locked(name)
    if pool.slurm:
        slurm_pool.end(pool, actor=actor)
    if sentence := _needed(pool):
        raise Refusal(sentence, Code.CONFLICT)
    _record(pool, "removed", actor, {})
    try:
        with transaction.atomic():
            pool.delete()
    except ProtectedError:
        pool.removed = True
        pool.save(update_fields=["removed"])


def _needed(pool: ResourcePool) -> str:
    """Why the pool cannot be removed now, or nothing."""
    if hosts := list(registry.present().filter(pool=pool).values_list("name", flat=True)):
        shown = ", ".join(hosts[:3]) + (f" and {len(hosts) - 3} more" if len(hosts) > 3 else "")
        return f"Pool {pool.name} cannot be removed: it has {shown}. Move its hosts to another pool, or remove them."
    if jobs := pool.jobs.exclude(state="ENDED").count():
        them = "1 unfinished job is" if jobs == 1 else f"{jobs} unfinished jobs are"
        return f"Pool {pool.name} cannot be removed: {them} in it. Move or end them first, paused ones too."
    roles = [word for field, word in _DEFAULTS.items() if getattr(pool, field)]
    if roles:
        return (
            f"Pool {pool.name} cannot be removed: it is the default {' and '.join(roles)} pool. "
            "Make another pool the default first."
        )
    return ""


def locked(name: str) -> ResourcePool:
    """The pool, while its rules change. Raises Refusal."""
    named(name)
    pool = ResourcePool.objects.select_for_update().filter(name=name).first()
    if pool is None:
        raise Refusal(f"There is no resource pool {name}.", Code.NOT_FOUND)
    return pool


def _wrong(pool: ResourcePool, values: dict[str, Any]) -> dict[str, str]:
    """Field -> sentence, of the fields alone and of those that contradict each other."""
    errors = {}
    for field, value in values.items():
        if field not in CHECKS:
            errors[field] = f"Unknown pool field {field}; allowed: {', '.join(CHECKS)}."
        elif allowed := CHECKS[field](value):
            found = "" if field == "slurm" else f"Found {value!r}; "  # which names the setting that is wrong
            errors[field] = f"{found}{allowed}."
    if errors:
        return errors
    if "slurm" in values and not pool._state.adding and bool(values["slurm"]) != bool(pool.slurm):
        return {"slurm": slurm_pool.wrong_kind(pool)}
    after = {field: values.get(field, getattr(pool, field)) for field in CHECKS}
    return _contradictions(pool, after)


def _contradictions(pool: ResourcePool, after: dict[str, Any]) -> dict[str, str]:
    errors = {}
    usual, longest = after["default_max_time_seconds"], after["longest_max_time_seconds"]
    if usual and longest and usual > longest:
        errors["default_max_time_seconds"] = (
            f"The default time limit ({usual} s) must not be longer than the longest allowed ({longest} s)."
        )
    floor = after["priority_floor"].get("editor", 1)
    if after["default_priority"] < floor:
        errors["default_priority"] = (
            f"The default priority {after['default_priority']} is above the limit for editors, {floor}: "
            f"choose {floor} to 99, or change the limit."
        )
    if after["shared_account"] and after["slurm"].get("accounts") == "own":
        errors["shared_account"] = (
            "A shared account contradicts accounts=own of the Slurm settings: choose one of the two."
        )
    spares, given = after["spare_hosts"], after["group_shares"]
    if spares != pool.spare_hosts and (sentence := _too_many_spares(pool, spares, bool(after["slurm"]))):
        errors["spare_hosts"] = sentence
    changed_shares = (given, spares) != (pool.group_shares, pool.spare_hosts)
    if changed_shares and (sentence := group_shares.contradiction(pool, given, spares)):
        errors["spare_hosts" if given == pool.group_shares else "group_shares"] = sentence
    for field, word in _DEFAULTS.items():
        if getattr(pool, field) and not after[field]:
            errors[field] = (
                f"{pool.name} is the default {word} pool, and one is required: make another pool the default instead."
            )
    return errors


def _too_many_spares(pool: ResourcePool, spares: int, is_slurm: bool) -> str:
    """Why the pool cannot keep so many hosts, or nothing."""
    if spares and is_slurm:
        return f"Found {spares!r}; allowed: 0. The hosts of a Slurm pool are nodes that Slurm gives away."
    hosts = registry.present().filter(pool=pool, slots__isnull=False).distinct().count() if pool.pk else 0
    if spares < max(1, hosts):
        return ""
    most = max(0, hosts - 1)
    has = {0: "no hosts", 1: "1 host"}.get(hosts, f"{hosts} hosts")
    return (
        f"Found {spares!r}; allowed: at most {most}. The pool has {has} with slots, and at least one must be left for "
        "all work. Add hosts first, or keep fewer."
    )


def changed(pool: ResourcePool, reason: str, actor: str, detail: dict[str, Any]) -> None:
    """Note that its rules have changed: an event, and a pass that follows them."""
    _record(pool, reason, actor, detail)
    mark_dirty(pool.pk)


def _record(pool: ResourcePool, reason: str, actor: str, detail: dict[str, Any]) -> None:
    detail = {"name": pool.name, **detail}
    record(Event.Kind.POOL, pool.pk, reason=reason, actor=actor, detail=detail, pools=[pool.pk])
    announce("pools", "hosts")

"""What a person chooses for a host that the doctor has looked at: pool, interpreter and slots, all or nothing."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django.db import transaction

from accounts.refusals import Code, Refusal
from hosts import pool_edits, registry, slots
from hosts.models import Host, ResourcePool
from hosts.pools import mark_dirty
from hosts.slots import SLOTS_MAX
from hosts.transitions import note


@dataclass(frozen=True)
class Choice:
    """`python` by path, or `activate`, a script that is sourced before jobs; of both the script counts.

    `count`: how many slots a host without GPUs has; `only`: the indexes of the slots that get work. None: as it is.
    `allow_login_account`: the pool's rule of that name is switched on as well.
    """

    pool: ResourcePool
    python: str
    activate: str = ""
    count: int | None = None
    only: frozenset[int] | None = None
    allow_login_account: bool = False


def is_being_added(host: Host) -> bool:
    """Whether its interpreter and slots are still to be chosen."""
    return host.drain_cause == Host.Drain.ADDING


def has_gpus(host: Host) -> bool:
    """Whether its slots are devices; else they are shares of its cores, as many as someone wants."""
    return any(slot.uuid for slot in host.slots.all())


@transaction.atomic
def settle(host_id: uuid.UUID, choice: Choice, *, actor: str) -> Host:
    """Apply the choice. An interpreter that the doctor has not found there is tried first, by a new admission.

    Raises Refusal with the field that is wrong: nothing is changed then.
    """
    registry.locked(host_id)  # whatever changes a host locks it before its pool
    if choice.allow_login_account:
        pool_edits.edit(choice.pool.name, {"allow_login_account": True}, actor=actor)
    registry.change_pool(host_id, choice.pool, actor=actor)
    chosen = {"activate": choice.activate} if choice.activate else {"python": choice.python, "activate": ""}
    host = registry.choose_interpreter(host_id, **chosen, actor=actor)
    if choice.count is not None:
        _share_cores(host_id, choice.count, actor)
    if choice.only is not None:
        for slot in host.slots.filter(missing=False):
            registry.switch_slot(slot.pk, enabled=slot.index in choice.only, actor=actor)
    return host


@transaction.atomic
def join(host_id: uuid.UUID, choice: Choice, *, actor: str) -> bool:
    """The last word on a host that is being added: with this choice it gets work. Whether it does already.

    It does not while a new interpreter is still being tried there: someone confirms it again afterward.
    """
    if choice.only is not None and not choice.only:
        raise Refusal("Choose at least one slot, or cancel.", field="only")
    host = settle(host_id, choice, actor=actor)
    if host.admission != Host.Admission.READY:
        return False
    registry.enable(host_id, actor=actor)
    return True


def _share_cores(host_id: uuid.UUID, count: int, actor: str) -> None:
    if not 0 <= count <= SLOTS_MAX:
        raise Refusal(f"The number of slots is {count}; allowed: 0 to {SLOTS_MAX}.", field="count")
    host = Host.objects.select_for_update().get(pk=host_id)
    if host.transport in {Host.Transport.LOGIN, Host.Transport.SLURM}:
        raise Refusal(
            f"{host.name} cannot be given a number of slots: they are as Slurm says. Edit slots_per_node of pool "
            f"{host.pool.name} instead.",
            Code.CONFLICT,
            field="count",
        )
    if has_gpus(host) or host.slots.filter(missing=False).count() == count:
        return
    registry.refuse_live(host, "given another number of slots", field="count")
    host.wanted_slots = count
    host.save(update_fields=["wanted_slots"])
    slots.register(host, slots.cpu_shares(count))
    note(host, "slots_chosen", actor, {"name": host.name, "slots": count})
    mark_dirty(host.pool_id)

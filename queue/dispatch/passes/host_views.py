"""The hosts of a pool as the planner sees them, with their slots."""

from __future__ import annotations

from collections import defaultdict
from operator import itemgetter

from dispatch.passes.kept_rows import Kept, OfHost
from dispatch.passes.pool_rows import PoolRows, Row
from hosts.models import ResourcePool
from jobs.labels import label_of
from scheduling.world import HostView, SlotView

_slot_index = itemgetter(2)


def of(rows: PoolRows, pool: ResourcePool, kept: Kept | None) -> tuple[HostView, ...]:
    """All hosts; those that are kept where no row around them has changed."""
    aux: dict[str, int] = defaultdict(int)
    for host_id, _, ended in rows.aux:
        aux[host_id] += not ended
    around = (rows.cleaned, pool.allow_login_account, pool.aux_per_host)
    former = kept.hosts if kept is not None and kept.around_hosts == around else {}
    changed = kept.changed_hosts() if former and kept else frozenset()
    made = {
        row[0]: known
        for row in rows.hosts
        if (known := former.get(row[0])) and row[0] not in changed and known[:2] == (row, aux[row[0]])
    }
    if len(made) < len(rows.hosts):
        holders = {slot: allocation_id for _, allocation_id, ids, _ in rows.holds for slot in ids}
        cleaned = {slot_id: label_of(kind, entity_id) for slot_id, kind, entity_id in rows.cleaned}
        slots: dict[str, list[SlotView]] = defaultdict(list)
        mine = [row for row in rows.slots if row[0] not in made]
        for host_id, slot_id, index, enabled, draining, outside in sorted(mine, key=_slot_index):
            held_by = holders.get(slot_id)
            view = SlotView(slot_id, index, enabled, draining, held_by, outside, cleaned.get(slot_id))
            slots[host_id].append(view)
        for row in rows.hosts:
            if row[0] not in made:
                held = aux[row[0]]
                made[row[0]] = OfHost(row, held, _host(row, tuple(slots[row[0]]), held, pool))
    if kept is not None:
        kept.hosts, kept.around_hosts = made, around
    return tuple([made[row[0]].view for row in rows.hosts])


def _host(row: Row, slots: tuple[SlotView, ...], aux_held: int, pool: ResourcePool) -> HostView:
    host_id, name, enabled, draining, silent, suspended, failed, _, may_become_root = row
    return HostView(
        id=host_id,
        name=name,
        slots=slots,
        enabled=enabled,
        draining=draining,
        silent=silent,
        suspended=suspended,
        failed_starts=failed,
        needs_account=may_become_root and not pool.allow_login_account,
        aux_capacity=pool.aux_per_host,
        aux_held=aux_held,
    )

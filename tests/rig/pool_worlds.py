"""A pool in virtual time for tests of the planner: submit, tick, let runs end. No clock, no database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from scheduling import reasons
from scheduling.plan import applied, decide, ended
from scheduling.reasons import Reason
from scheduling.spares import freed_for
from scheduling.world import HostView, Placement, Plan, PoolView, Request, SlotView, Snapshot, all_but

#: why a task is blocked, of many reasons one
UPLOADED = reasons.blocked("its newest checkpoint is still being uploaded")


def host(number: int, slots: int, **kind: Any) -> HostView:
    """gpu-<number> with slot ids number * 100 …; `outside` may be a map of slot index -> user."""
    outside = kind.pop("outside", {})
    views = tuple(SlotView(number * 100 + i, i, outside=outside.get(i)) for i in range(slots))
    return HostView(f"h{number}", f"gpu-{number}", views, **kind)


def check(snapshot: Snapshot, plan: Plan) -> None:
    """What every plan must obey, whatever the snapshot."""
    requests = {request.task_id: request for request in snapshot.requests}
    hosts = {view.id: view for view in snapshot.hosts}
    free = {
        slot.id
        for view in snapshot.hosts
        if view.off is None
        for slot in view.slots
        if slot.usable and slot.held_by is None
    }
    assert len({start.task_id for start in plan.starts}) == len(plan.starts)
    for start in plan.starts:
        request = requests[start.task_id]
        assert request.running is None and request.blocked is None
        ids = [slot_id for _, host_slots in start.hosts for slot_id in host_slots]
        assert len(ids) == len(set(ids)) == request.slots
        assert set(ids) <= free
        free -= set(ids)
        sizes = {len(host_slots) for _, host_slots in start.hosts}
        assert len(sizes) == 1 or snapshot.pool.allow_heterogeneous_fits
        for host_id, host_slots in start.hosts:
            view = hosts[host_id]
            assert view.off is None and not {view.id, view.name} & request.avoid_hosts
            assert not request.only_hosts or view.name in request.only_hosts
            if len(start.hosts) > 1:
                assert len(host_slots) == sum(slot.usable for slot in view.slots)
        assert len(start.hosts) == 1 or not request.single_host
    for release in plan.releases:
        run = requests[release.task_id]
        assert run.preemptible and run.running is not None and not run.running.stopping
        assert release.for_task_id is None or requests[release.for_task_id].running is None
        _check_is_old(snapshot, run, requests.get(release.for_task_id or ""))
    _check_limits(snapshot, plan)
    started = {start.task_id for start in plan.starts}
    assert set(plan.waits) == {r.task_id for r in snapshot.requests if r.running is None} - started
    assert sorted(plan.order) == sorted(requests)


def _check_is_old(snapshot: Snapshot, run: Request, asker: Request | None) -> None:
    """It has run for the pool's minimum, or a user wants it, or it was lent the slots of a gang."""
    least, running = snapshot.pool.min_runtime_of(run.priority), run.running
    assert running is not None
    moved = max((each.moved_at or 0.0 for each in (run, asker) if each), default=0.0)
    lent = running.on_sufferance and snapshot.pool.scheduler == "priority"
    if asker is not None and least and not lent and moved <= running.started_at:
        assert running.running_since is not None and snapshot.now >= running.running_since + least


def _check_limits(snapshot: Snapshot, plan: Plan) -> None:
    started = {start.task_id for start in plan.starts}
    held = Counter[str]()
    for request in snapshot.requests:
        if request.running is not None or request.task_id in started:
            held[request.job_id] += request.slots
    for request in snapshot.requests:
        if request.task_id in started and request.max_slots is not None and request.slots:
            assert held[request.job_id] <= request.max_slots


class World:
    """One pool. Names are labels; each submit is a job of its own unless `job` says otherwise."""

    def __init__(self, hosts: Iterable[HostView], **pool: Any) -> None:
        self.now = 0.0
        self._snapshot = Snapshot(0.0, PoolView(**pool), tuple(hosts), ())
        self.plan = Plan()
        self.released: list[str] = []

    @property
    def snapshot(self) -> Snapshot:
        return replace(self._snapshot, now=self.now)

    def submit(self, label: str, slots: int, **fields: Any) -> None:
        self.now += 1
        fields = {
            "position": self.now,
            "submitted_at": self.now,
            "job_id": fields.pop("job", label),
            **fields,
        }
        request = Request(task_id=label, label=label, slots=slots, **fields)
        self._snapshot = replace(self._snapshot, requests=(*self._snapshot.requests, request))

    def allow(self, label: str, *names: str) -> None:
        """Its config allows the hosts of these names only."""
        others = all_but(self._snapshot.hosts, names)
        self.edit(label, only_hosts=frozenset(names), avoid_hosts=self[label].avoid_hosts | others)

    def edit(self, label: str, **fields: Any) -> None:
        self.now += 1
        requests = tuple(replace(r, **fields) if r.task_id == label else r for r in self._snapshot.requests)
        self._snapshot = replace(self._snapshot, requests=requests)

    def edit_host(self, host_id: str, slots: tuple[int, ...] = (), **fields: Any) -> None:
        """Change fields of a host, or of its slots with these indexes."""
        self.now += 1
        hosts = list(self._snapshot.hosts)
        place = next(place for place, view in enumerate(hosts) if view.id == host_id)
        view = hosts[place]
        if slots:
            fields = {"slots": tuple(replace(s, **fields) if s.index in slots else s for s in view.slots)}
        hosts[place] = replace(view, **fields)
        self._snapshot = replace(self._snapshot, hosts=tuple(hosts))

    def move_ahead(self, label: str, of: str) -> None:
        """As the queue's edit does it: the anchor's priority, a position just before, and the time of the move."""
        anchor = self[of]
        self.edit(label, priority=anchor.priority, position=anchor.position - 1e-6, moved_at=self.now + 1)

    def host_of(self, label: str) -> str:
        """Id of the host where it runs, of a gang the first."""
        running = self[label].running
        assert running is not None
        return next(iter(running.slots))

    def __getitem__(self, label: str) -> Request:
        return next(request for request in self._snapshot.requests if request.task_id == label)

    def tick(self) -> Plan:
        """One pass, checked and applied."""
        self.now += 1
        snapshot = self.snapshot
        self.plan = decide(snapshot)
        check(snapshot, self.plan)
        self.released += [release.task_id for release in self.plan.releases]
        self._snapshot = applied(snapshot, self.plan)
        if snapshot.pool.spare_hosts:
            self.rules(promised=freed_for(snapshot, self.plan))
        return self.plan

    def rules(self, **rules: Any) -> None:
        """Change rules of the pool."""
        self._snapshot = replace(self._snapshot, pool=replace(self._snapshot.pool, **rules))

    def place(
        self, label: str, slots: Mapping[str, tuple[int, ...]], started_at: float, **fields: Any
    ) -> None:
        """It runs, whoever decided that."""
        self.edit(label, running=Placement(f"{label}.0", slots, started_at, **fields))
        self._snapshot = ended(self.snapshot, [], False, self.now)

    @property
    def stopping(self) -> dict[str, str | None]:
        """The runs that are stopping, and for whom."""
        return {
            r.task_id: r.running.stopping_for
            for r in self._snapshot.requests
            if r.running and r.running.stopping
        }

    def stops_end(self, *labels: str, waits_again: bool = True) -> bool:
        """What was stopped (all, or these) has ended and waits again; whether there was any."""
        over = [self[label].running for label in labels or self.stopping]
        ids = [running.allocation_id for running in over if running is not None]
        self._snapshot = ended(self.snapshot, ids, waits_again, self.now)
        return bool(ids)

    def settle(self) -> None:
        """Ticks until nothing changes any more."""
        for _ in range(200):
            plan = self.tick()
            if not (plan.starts or plan.releases) and not self.stops_end():
                return
        raise AssertionError("the pool never comes to rest")

    def finish(self, *labels: str) -> None:
        """These runs end for good."""
        over = [r.running.allocation_id for r in self._snapshot.requests if r.running and r.task_id in labels]
        assert len(over) == len(labels)
        self._snapshot = ended(self.snapshot, over, False, self.now)

    def cancel(self, label: str) -> None:
        left = tuple(r for r in self._snapshot.requests if r.task_id != label)
        self._snapshot = replace(self._snapshot, requests=left)

    @property
    def running(self) -> set[str]:
        return {r.task_id for r in self._snapshot.requests if r.running and not r.running.stopping}

    @property
    def backfilled(self) -> set[str]:
        return {r.task_id for r in self._snapshot.requests if r.running and r.running.on_sufferance}

    def why(self, label: str) -> Reason:
        return self.plan.waits[label]

    def held_by_job(self) -> Counter[str]:
        held = Counter[str]()
        for request in self._snapshot.requests:
            if request.running and not request.running.stopping:
                held[request.job_id] += request.slots
        return held

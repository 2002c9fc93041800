"""What a pass reads and what it answers: plain frozen values, no framework, no clock.

Times are seconds since the epoch (float). Ids of hosts, tasks, jobs and allocations are strings, ids of
slots are integers; the pass only compares them for equality.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from math import inf
from typing import Literal

from scheduling.reasons import Reason, part_of_job
from scheduling.values import value


@value
class SlotView:
    """One GPU (or CPU share). `held_by`: an allocation. `outside`: who else uses it, as last seen.

    `cleaning`: the label of the run that is over and of which processes may live there.
    """

    id: int
    index: int
    enabled: bool = True
    draining: bool = False
    held_by: str | None = None
    outside: str | None = None
    cleaning: str | None = None

    @property
    def usable(self) -> bool:
        """May something new be placed here, once nobody holds it?"""
        return self.enabled and not self.draining and self.outside is None and self.cleaning is None


@value
class HostView:
    """One host of the pool. `aux_held` counts the zero-slot runs that it has now."""

    id: str
    name: str
    slots: tuple[SlotView, ...] = ()
    enabled: bool = True
    draining: bool = False
    silent: bool = False
    suspended: bool = False
    #: draining because it could not start what was placed there
    failed_starts: bool = False
    #: its login may become other accounts, and the pool does not allow work to run as such a login
    needs_account: bool = False
    aux_capacity: int = 100
    aux_held: int = 0

    @property
    def off(self) -> str | None:
        """The word for why nothing new is placed here, or None."""
        if self.suspended:
            return "suspended"
        if not self.enabled:
            return "disabled"
        if self.draining:
            return "draining after failed starts" if self.failed_starts else "draining"
        return "silent" if self.silent else None


@value
class GroupShare:
    """What a pool gives a group of people: slots that it gets whenever it asks, at most so many, and a weight.

    The weight counts for what nobody has a guarantee for. `parent`: the department of a team. `usage`: slots that it
    has held on average lately, as the pool's half-life weighs them.
    """

    guarantee: int = 0
    limit: int | None = None
    weight: float = 1.0
    parent: str = ""
    usage: float = 0.0


@value
class WindowView:
    """Hosts that are taken from `starts` to `ends`: for a group, or for nobody (maintenance) if `group` is empty.

    `hosts`: their names. Without any, the planner chooses hosts with this many `slots` (`windows.Closings`).
    `again`: when a weekly window starts the next time after this.
    """

    name: str
    starts: float
    ends: float
    hosts: frozenset[str] = frozenset()
    slots: int = 0
    group: str = ""
    again: float = inf


@value
class PoolView:
    """The pool's rules. `scheduler`: the name of its policy (`scheduling.policies`), which may ignore `preemption`.

    `bad_pairs`: pairs of host ids whose ranks cannot meet; no gang has both. `unpreemptible_slots`: what work
    that may not be stopped may hold together. `longest_max_time`: seconds; requests that ask more never start.
    `shared_account`: all work runs as the login account of its host. `min_runtime`: (priority, seconds), by priority:
    work of this priority and of lower ones, down to the next entry, is left alone until it has run for so long.
    `unready`: names of hosts that are not in the snapshot, as they are still being added, or lost.
    `shares`: group -> what the pool gives it; empty, and groups count for nothing here.
    `windows`: of each window the time that is now or comes next. `overrun`: seconds that work may run beyond its limit.
    `window_ahead`: so many seconds before a window, work that can neither end nor save in time no longer starts.
    `patience`: seconds before its start from which hosts may be kept for a gang (`scheduling.patience`); None: always.
    `reserved`: tasks for which the last pass kept hosts; only pools with patience need it.
    `spare_hosts`: so many hosts are kept for what recovers from a fault (`scheduling.spares`). `promised`: task ->
    names of hosts that were being freed for it when the last pass was made; only pools with spares need it.
    """

    name: str = "default"
    scheduler: str = "priority"
    fitting: Literal["best", "worst"] = "best"
    preemption: bool = True
    allow_heterogeneous_fits: bool = False
    #: so many waiting gangs have hosts reserved at once; the next gets its own when one of them starts
    max_reservations: int = 64
    bad_pairs: frozenset[frozenset[str]] = frozenset()
    unpreemptible_slots: int | None = None
    longest_max_time: float | None = None
    shared_account: bool = False
    unready: frozenset[str] = frozenset()
    min_runtime: tuple[tuple[int, float], ...] = ()
    shares: Mapping[str, GroupShare] = field(default_factory=dict)
    windows: tuple[WindowView, ...] = ()
    overrun: float = 0.0
    window_ahead: float = 86400.0
    patience: float | None = None
    reserved: frozenset[str] = frozenset()
    spare_hosts: int = 0
    promised: Mapping[str, Collection[str]] = field(default_factory=dict)

    def min_runtime_of(self, priority: int) -> float:
        """Seconds for which work of this priority may run before others may stop it."""
        return next((seconds for first, seconds in reversed(self.min_runtime) if first <= priority), 0.0)


@value
class Placement:
    """Where a request runs. `slots`: host id -> slot ids (empty tuple for zero-slot work).

    An allocation that is ending for any reason is `stopping`; `stopping_for` is the task it was stopped for, and
    `waits_again` says that its task waits again afterwards: others, a window or its job's limit need the slots.
    `started_at`: when it was given its slots; `running_since`: when its processes began, None before that.
    `ends`: (earliest, latest) between which it ends with 80 % probability (`durations.ends_of`), None when unknown.
    """

    allocation_id: str
    slots: Mapping[str, tuple[int, ...]]
    started_at: float
    stopping: bool = False
    stopping_for: str | None = None
    on_sufferance: bool = False
    last_saved_at: float | None = None
    asked_preempt: bool = False
    ends: tuple[float, float] | None = None
    running_since: float | None = None
    waits_again: bool = False


@value
class Request:
    """One task that asks for slots or runs. Paused and finished tasks are not in a snapshot.

    `position`: lower stands first within a priority. `moved_at`: the job's last move by a user.
    `avoid_hosts`: names or ids. `has_account`: it runs under an account of its owner; otherwise `avoid_hosts` has the
    ids of all hosts that need one. `only_hosts`: names that its config allows, empty for all; `avoid_hosts` has the ids
    of the others (`all_but`). `failed_hosts`: names of those where it could not be started; it avoids them only
    while it can run elsewhere (`prospects`). `blocked`: why the task may not be placed although it waits. `label`: how
    sentences call it ("exp 152"). `lasts`: (shortest, longest) seconds that it will run with 80 % probability once it
    has started (`durations.lasts_of`), None when unknown; `tenths`: equally likely run times between and beyond, where
    similar work has run (`durations.tenths_of`). `max_time`: its time limit in seconds. `deadline`: when its owner
    wants it to have ended. `usual_position`: its position before its deadline moved it ahead; None: it did not.
    `groups`: those of its owner, the department first. `time_left`: what this attempt may use of its limit. `notice`:
    seconds after which it has saved and is gone at the latest, once it was asked to. Only pools with windows need these
    two. `at_once`: (so many, of so many) elements of its array run at once, None for what is no element or has no such
    limit; `max_slots` has it in slots. `is_element`: its job is an array. `yields`: it gets only what
    nobody else wants: nothing is stopped or reserved for it, and all other work may stop it. `recovers`: its last
    attempt has lost its host, or had to leave it for a fault, and it begins again.
    """

    task_id: str
    job_id: str
    label: str
    slots: int
    priority: int = 42
    position: float = 0.0
    submitted_at: float = 0.0
    moved_at: float | None = None
    weight: float = 1.0
    max_slots: int | None = None
    preemptible: bool = True
    single_host: bool = False
    avoid_hosts: frozenset[str] = frozenset()
    has_account: bool = True
    only_hosts: frozenset[str] = frozenset()
    failed_hosts: frozenset[str] = frozenset()
    running: Placement | None = None
    blocked: Reason | None = None
    lasts: tuple[float, float] | None = None
    tenths: tuple[float, ...] = ()
    max_time: float | None = None
    deadline: float | None = None
    usual_position: float | None = None
    groups: tuple[str, ...] = ()
    time_left: float | None = None
    notice: float = 0.0
    at_once: tuple[int, int] | None = None
    is_element: bool = False
    yields: bool = False
    recovers: bool = False

    def called_to(self, job_id: str | None) -> str:
        """How a sentence about a request of this job names it."""
        return f"another {part_of_job(self.is_element)}" if self.job_id == job_id else self.label


def all_but(hosts: Iterable[HostView], only: Collection[str]) -> frozenset[str]:
    """Ids of the hosts that a request avoids whose config allows those named `only`; without names it avoids none."""
    return frozenset(host.id for host in hosts if host.name not in only) if only else frozenset()


@value
class Snapshot:
    """One pool at one moment."""

    now: float
    pool: PoolView
    hosts: tuple[HostView, ...]
    requests: tuple[Request, ...]


@value
class Start:
    """Start this task now. `hosts`: (host id, slot ids) by member, in rank order; no ids for zero slots."""

    task_id: str
    hosts: tuple[tuple[str, tuple[int, ...]], ...]
    on_sufferance: bool = False


@value
class Release:
    """Stop this allocation (it saves first) so that `for_task_id` starts, or for a window, of which this is the name.

    Without either, its job holds more than it may.
    """

    allocation_id: str
    task_id: str
    for_task_id: str | None = None
    window: str = ""


@value
class Spare:
    """A host that is kept for recoveries: `free` of its slots now, the others once `runs` (labels) have ended."""

    host_id: str
    name: str
    free: int
    runs: tuple[str, ...] = ()


@value
class Plan:
    """What one pass decided. `waits` has a reason for every request that neither runs nor starts.

    `order`: task ids as the queue shows them. `reservations`: task id -> ids of the hosts kept for it.
    `shares`: job id -> slots, where jobs have shares. `spares`: by name, in pools that keep some.
    """

    starts: tuple[Start, ...] = ()
    releases: tuple[Release, ...] = ()
    waits: Mapping[str, Reason] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    reservations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    shares: Mapping[str, int] = field(default_factory=dict)
    spares: tuple[Spare, ...] = ()

"""What quarantine and probation are worth: public faults of hosts, replayed in virtual time over the product's rules.

`python -m benchmarks.fault_trace TRACE.json [--hosts N] [--seeds N]` reads fault events as in InfiniteHBD's trace
({"node_id", "event_time" in days, "event_type": fault_start or fault_end}), lets gangs of 1 to 32 hosts train on the
cluster without a pause, and prints the share of all host time that became progress, beside each other: with any free
host, with quarantine, with probation after the repair, with spares besides. It writes
benchmarks/reports/fault_trace.md.

A gang saves once an hour. A fault of one of its hosts ends its run: what it did since the last checkpoint is lost, and
it starts again on its other hosts as soon as it has one more. Spares are hosts that no new gang gets: as in
`scheduling.spares`, so many of the free ones, whichever these are. When a probation ends and when not is asked of
`hosts.health.probation`; a host that only a person lets back waits for that person for a while.
"""

from __future__ import annotations

import argparse
import heapq
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

sys.path.append(str(Path(__file__).resolve().parent.parent / "queue"))

from hosts.health import probation

REPORT = Path(__file__).parent / "reports" / "fault_trace.md"
#: hours
CHECKPOINT, START = 1.0, 10 / 60
MEDIAN_WORK, LONGEST_WORK = 24.0, 14 * 24.0
#: the product's own
PROBATION = 24.0
#: hosts of a gang, and how often
SIZES = {1: 50, 2: 20, 4: 12, 8: 10, 16: 5, 32: 3}
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Policy:
    """`leaves_out`: a host with a fault is not used. `probation`: hours after its repair; None: it returns at once.

    `spares`: so many free hosts are left to gangs that have lost one.
    """

    name: str
    leaves_out: bool
    probation: float | None = None
    spares: int = 0


@dataclass
class Gang:
    """`left`: hours of work that no checkpoint holds yet; `began`: when its run started to work."""

    size: int
    left: float
    hosts: set[int] = field(default_factory=set)
    began: float = 0.0
    run: int = 0
    #: since when it has too few hosts
    broken_at: float = 0.0


@dataclass
class Host:
    faulty: int = 0
    out: bool = False
    gang: Gang | None = None
    last_fault: float = 0.0
    #: how often it was repaired, and when it came back
    repairs: int = 0
    returns: list[float] = field(default_factory=list)
    #: since when it is out
    since: float = 0.0


@dataclass
class Result:
    """Hours of hosts, and counts of faults."""

    progress: float = 0.0
    #: out of use without a fault
    out: float = 0.0
    hits: int = 0
    faults: int = 0
    #: of each gang that had lost a host, until it had another
    waits: list[float] = field(default_factory=list)


def faults_of(path: Path) -> list[tuple[float, float, str]]:
    """(begin, end, node) in hours; a fault that has no end lasts to the end of the trace."""
    events = sorted(json.loads(path.read_text()), key=lambda event: event["event_time"])
    begun: dict[str, list[float]] = {}
    found = []
    for event in events:
        at, node = event["event_time"] * 24, event["node_id"]
        if event["event_type"] == "fault_start":
            begun.setdefault(node, []).append(at)
        elif begun.get(node):
            found.append((begun[node].pop(0), at, node))
    last = events[-1]["event_time"] * 24
    return sorted(found + [(at, last, node) for node, rest in begun.items() for at in rest])


class Cluster:
    """One run through the trace. Events are (hour, order, kind, host or gang, number of its run or repair)."""

    def __init__(self, hosts: int, policy: Policy, person: float, seed: int) -> None:
        self.hosts = [Host() for _ in range(hosts)]
        self.policy, self.person, self.random = policy, person, Random(seed)
        self.events: list[tuple[float, int, str, int | Gang, int]] = []
        self.count = 0
        self.free = set(range(hosts))
        self.broken: list[Gang] = []
        self.found = Result()

    def plan(self, at: float, kind: str, what: int | Gang, number: int = 0) -> None:
        self.count += 1
        heapq.heappush(self.events, (at, self.count, kind, what, number))

    def run(self, faults: Sequence[tuple[float, float, str]], until: float) -> Result:
        nodes = sorted({node for _, _, node in faults})
        places = dict(zip(nodes, self.random.sample(range(len(self.hosts)), len(nodes)), strict=True))
        for begin, end, node in faults:
            self.plan(begin, "fault", places[node])
            self.plan(end, "repaired", places[node])
        self.place(0.0)
        while self.events and self.events[0][0] < until:
            now, _, kind, what, number = heapq.heappop(self.events)
            if isinstance(what, Gang):
                self.ends(now, what, number)
            else:
                getattr(self, kind)(now, self.hosts[what], what, number)
            self.place(now)
        for gang in {id(host.gang): host.gang for host in self.hosts if host.gang}.values():
            self.found.progress += gang.size * saved(until - gang.began)
        self.found.out += sum(
            until - max(host.since, host.last_fault) for host in self.hosts if host.out and not host.faulty
        )
        return self.found

    def fault(self, now: float, host: Host, at: int, _: int) -> None:
        self.found.faults += 1
        host.faulty += 1
        self.found.hits += host.gang is not None
        if host.out and host.faulty == 1:  # it served its probation, and this fault met nobody
            self.found.out += now - host.since
        if host.gang:
            self.falls(now, host.gang, at)
        if self.policy.leaves_out:
            self.free.discard(at)
            host.out = True

    def repaired(self, now: float, host: Host, at: int, _: int) -> None:
        host.faulty -= 1
        host.repairs += 1
        host.last_fault = host.since = now
        if host.faulty or not host.out:
            return
        if self.policy.probation is None:
            self.returns(now, host, at, host.repairs)
            return
        lately = probation.recent([moment(hour) for hour in host.returns], moment(now))
        by_itself = probation.ends_by_itself(by_a_sign=True, returns=lately)
        self.plan(now + (self.policy.probation if by_itself else self.person), "returns", at, host.repairs)

    def returns(self, now: float, host: Host, at: int, repair: int) -> None:
        if repair != host.repairs or host.faulty:
            return  # it failed again meanwhile
        waited = self.policy.probation or 0.0
        by_itself = probation.is_over([moment(host.last_fault)], moment(now), min(waited, self.person) * 3600)
        assert by_itself, "it came back before its time"
        self.found.out += now - host.since
        host.out = False
        host.returns.append(now)
        self.free.add(at)

    def falls(self, now: float, gang: Gang, at: int) -> None:
        """A host of the gang has failed: it keeps the others, and looks for one more."""
        done = saved(now - gang.began)
        self.found.progress += gang.size * done
        gang.left -= done
        gang.run += 1
        gang.hosts.discard(at)
        self.hosts[at].gang = None
        if not self.policy.leaves_out:
            self.free.add(at)
        if gang not in self.broken:
            gang.broken_at = now
            self.broken.append(gang)

    def ends(self, now: float, gang: Gang, run: int) -> None:
        if run != gang.run:
            return
        bad = [at for at in gang.hosts if self.hosts[at].faulty]
        if bad:  # it was started on a host with a fault
            self.falls(now, gang, bad[0])
            return
        if now < gang.began + gang.left:  # which was repaired just in time
            self.plan(gang.began + gang.left, "", gang, run)
            return
        self.found.progress += gang.size * gang.left
        for at in gang.hosts:
            self.hosts[at].gang = None
            if not self.hosts[at].out:
                self.free.add(at)

    def place(self, now: float) -> None:
        """Gangs that were broken first; new ones as many as fit, the first that fits in eight tries."""
        for gang in list(self.broken):
            if len(self.free) < gang.size - len(gang.hosts):
                break
            self.broken.remove(gang)
            self.found.waits.append(now - gang.broken_at)
            self.start(now, gang)
        tries = 0
        while len(self.free) > self.policy.spares and not self.broken and tries < 8:
            [size] = self.random.choices(list(SIZES), list(SIZES.values()))
            if size > len(self.free) - self.policy.spares:
                tries += 1
                continue
            work = min(LONGEST_WORK, self.random.lognormvariate(0.0, 1.0) * MEDIAN_WORK)
            self.start(now, Gang(size, work))

    def start(self, now: float, gang: Gang) -> None:
        for at in self.random.sample(sorted(self.free), gang.size - len(gang.hosts)):
            self.free.discard(at)
            gang.hosts.add(at)
        for at in gang.hosts:
            self.hosts[at].gang = gang
        gang.began = now + START
        fails = any(self.hosts[at].faulty for at in gang.hosts)
        self.plan(gang.began if fails else gang.began + gang.left, "", gang, gang.run)


def moment(hour: float) -> datetime:
    return _BEGIN + timedelta(hours=hour)


def saved(hours: float) -> float:
    """Of so many hours of work those that a checkpoint holds."""
    return max(0.0, hours) // CHECKPOINT * CHECKPOINT


def policies(hours: Sequence[float], spares: Sequence[int]) -> Iterator[Policy]:
    yield Policy("any free host", leaves_out=False)
    yield Policy("quarantine until the repair", leaves_out=True)
    for each in hours:
        yield Policy(f"and {each:g} h of probation", leaves_out=True, probation=each)
    for count in spares:
        name = f"and {PROBATION:g} h of probation and {count} spare{'s' * (count != 1)}"
        yield Policy(name, leaves_out=True, probation=PROBATION, spares=count)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", type=Path)
    parser.add_argument("--hosts", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--person-hours", type=float, default=24.0, help="until a person lets back what failed again"
    )
    parser.add_argument("--probation-hours", type=float, nargs="+", default=[12.0, 24.0, 48.0])
    parser.add_argument("--spares", type=int, nargs="+", default=[1, 2, 4])
    args = parser.parse_args()
    faults = faults_of(args.trace)
    until = max(end for _, end, _ in faults)
    whole = args.hosts * until
    lines = [
        "| hosts are used | effective training time | faults that met a run | spared | out of use without a fault | "
        "runs that had another host at once | wait for it, mean and longest |",
        "|---|---|---|---|---|---|---|",
    ]
    met_before = None
    for policy in policies(args.probation_hours, args.spares):
        found = [
            Cluster(args.hosts, policy, args.person_hours, seed).run(faults, until)
            for seed in range(args.seeds)
        ]
        progress = [100 * each.progress / whole for each in found]
        met = statistics.mean(each.hits for each in found)
        if policy.probation is None:
            met_before = met
        spared = f"{100 * (1 - met / met_before):.0f} %" if policy.probation and met_before else ""
        out = statistics.mean(each.out for each in found) / whole
        waits = [wait for each in found for wait in each.waits]
        at_once = sum(not wait for wait in waits) / len(waits)
        lines.append(
            f"| {policy.name} | {statistics.mean(progress):.1f} % ({min(progress):.1f} to {max(progress):.1f}) | "
            f"{met:.0f} of {found[0].faults} | {spared} | {100 * out:.2f} % | "
            f"{100 * at_once:.0f} % | {60 * statistics.mean(waits):.0f} min, {max(waits):.1f} h |"
        )
    text = _REPORT.format(
        hosts=args.hosts, days=until / 24, faults=len(faults), nodes=len({node for *_, node in faults}),
        seeds=args.seeds, person=args.person_hours, spare=100 / args.hosts, table="\n".join(lines),
    )  # fmt: skip
    print(text)
    REPORT.write_text(text)
    return 0


_REPORT = """# Faults of hosts, replayed

{faults} faults of {nodes} among {hosts} hosts in {days:.0f} days (the first half of InfiniteHBD's public trace), in
virtual time; {seeds} seeds each. Gangs of 1 to 32 hosts, of which there are always more, save once an hour and take ten
minutes to start. Effective training time is the share of all host time that became progress. A host that fails again
within a week of its return waits for a person, here {person:g} h. Spared: of the faults that met a run with quarantine
alone. The product's probation is that of 24 h (`TRAINMASTER_QUARANTINE_PROBATION_SECONDS`). With spares
(`pool edit --spare-hosts`) new gangs leave so many free hosts to gangs that have lost one. Each costs {spare:.2f} % of
all host time while it is idle; what it saves is the time in which the other hosts of a gang wait for another one.

{table}
"""

if __name__ == "__main__":
    sys.exit(main())

"""Runs a job trace through the planner in virtual time and says how the queue fared: `python -m scheduling.replay`.

The trace is a file in the Standard Workload Format or CSV, or generated from a seed. The pool is so many equal hosts.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from scheduling import policies, traces
from scheduling.plain_queues import PlainQueue
from scheduling.slot_use import Run, used
from scheduling.traces import TraceError, TraceJob, generated, written
from scheduling.virtual_time import Habits, Outcome, Promise, VirtualPool
from scheduling.world import PoolView
from trainmaster.quantities import duration

#: what the 80 % ranges are to hold
GOAL = (0.75, 0.85)
GENERATED_HOSTS = 16


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0, or 2 for a trace that cannot be read."""
    arguments = _parser().parse_args(argv)
    try:
        jobs = trace_of(arguments)
        slurm = _runs(Path(arguments.slurm)) if arguments.slurm else []
    except (OSError, TraceError, UnicodeDecodeError) as error:
        print(f"cannot read the trace: {error}", file=sys.stderr)
        return 2
    if arguments.write:
        Path(arguments.write).write_text(written(jobs))
    pool = PoolView(
        scheduler=arguments.scheduler, fitting=arguments.fitting, preemption=not arguments.no_preemption
    )
    hosts = size_of(arguments)
    habits = Habits(preemptible=arguments.preemptible, reporting=arguments.reporting)
    outcome = VirtualPool(hosts, arguments.slots, pool, habits, arguments.forecast_every).live(jobs)
    text = report(outcome, _title(arguments, jobs, hosts))
    if arguments.trace:
        text += "\n" + "\n".join(_beside(outcome, slurm, hosts, arguments.slots))
    print(text)
    if arguments.report:
        Path(arguments.report).write_text(text + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m scheduling.replay", description=__doc__)
    add_trace_options(parser)
    parser.add_argument(
        "--scheduler", choices=[name for name, _ in policies.CHOICES], default=policies.DEFAULT
    )
    parser.add_argument("--fitting", choices=["best", "worst"], default="best")
    parser.add_argument("--no-preemption", action="store_true")
    parser.add_argument("--preemptible", type=_share, default=0.9, help="share of preemptible jobs")
    parser.add_argument("--reporting", type=_share, default=0.5, help="share of jobs that report progress")
    parser.add_argument(
        "--forecast-every", type=int, default=12, help="forecast at every Nth arrival; 0: never"
    )
    parser.add_argument(
        "--slurm", metavar="FILE", help="runs of the same jobs that benchmarks.slurm_replay wrote"
    )
    parser.add_argument("--write", metavar="FILE", help="write the trace to this file")
    parser.add_argument("--report", metavar="FILE", help="also write the report to this file")
    return parser


def add_trace_options(parser: argparse.ArgumentParser) -> None:
    """Which jobs, and on how many hosts."""
    parser.add_argument(
        "trace",
        nargs="?",
        help=f"a file in the Standard Workload Format, or CSV with the columns {', '.join(traces.COLUMNS)} "
        "(the last three are optional); default: a generated one",
    )
    parser.add_argument(
        "--hosts",
        type=_positive,
        help="default: as many as the load of the trace needs; generated traces: 16",
    )
    parser.add_argument("--slots", type=_positive, default=8, help="slots per host")
    parser.add_argument(
        "--jobs", type=_positive, help="jobs in a generated trace (default: 2000), or the first N of a file"
    )
    parser.add_argument(
        "--days", type=_days, metavar="FIRST:LAST", help="only the jobs submitted on these days"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--load",
        type=_load,
        default=0.9,
        help="share of all slots that is requested, on average in generated traces; for files without --hosts, "
        "in the four busiest weeks",
    )
    parser.add_argument(
        "--priorities",
        action="store_true",
        help="draw the priorities of a file's jobs as in generated traces",
    )


def _days(text: str) -> tuple[float, float]:
    first, _, last = text.partition(":")
    if not (first.isdigit() and last.isdigit() and int(first) < int(last)):
        raise argparse.ArgumentTypeError(
            f"found {text}; allowed: two whole numbers such as 7:14, the lower one first"
        )
    return int(first), int(last)


def _load(text: str) -> float:
    try:
        load = float(text)
    except ValueError:
        load = 0
    if not 0 < load <= 10:
        raise argparse.ArgumentTypeError(f"found {text}; allowed: a number above 0, up to 10")
    return load


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"found {text}; allowed: a whole number of 1 or more")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"found {text}; allowed: a number from 0 to 1")
    return share


def trace_of(arguments: argparse.Namespace) -> list[TraceJob]:
    """The jobs that the options ask for, the oldest first."""
    if not arguments.trace:
        hosts = arguments.hosts or GENERATED_HOSTS
        return generated(arguments.jobs or 2000, hosts * arguments.slots, arguments.seed, arguments.load)
    jobs = traces.read(Path(arguments.trace).read_text())
    arguments.hosts = arguments.hosts or traces.hosts_for(jobs, arguments.slots, arguments.load)
    if arguments.days:
        jobs = traces.between(jobs, *arguments.days)
    if arguments.priorities:
        jobs = traces.with_priorities(jobs)
    return jobs[: arguments.jobs]


def size_of(arguments: argparse.Namespace) -> int:
    """How many hosts."""
    return arguments.hosts or GENERATED_HOSTS


def _title(arguments: argparse.Namespace, jobs: list[TraceJob], hosts: int) -> str:
    whence = (
        Path(arguments.trace).name
        if arguments.trace
        else f"generated, seed {arguments.seed}, load {arguments.load:g}"
    )
    rules = arguments.scheduler + (", no preemption" if arguments.no_preemption else "")
    return f"{len(jobs)} jobs ({whence}) on {hosts} hosts of {arguments.slots} slots; {rules}, {arguments.fitting} fit."


def _runs(path: Path) -> list[Run]:
    """What `benchmarks.slurm_replay` wrote."""
    with path.open(newline="") as file:
        rows = [
            (int(row["job"]), float(row["start"]), float(row["end"]), row["hosts"].split())
            for row in csv.DictReader(file)
        ]
    return [
        Run(job, start, end, {int(part.split(":")[0]): int(part.split(":")[1]) for part in hosts})
        for job, start, end, hosts in rows
    ]


def _beside(outcome: Outcome, slurm: list[Run], hosts: int, slots: int) -> Iterable[str]:
    """The same jobs under other schedulers."""
    jobs = [job.trace for job in outcome.jobs.values()]
    redone = sum(job.redone * job.trace.slots for job in outcome.jobs.values())
    others = {
        "first come, first served": PlainQueue(hosts, slots).live(jobs),
        "the same with EASY backfilling": PlainQueue(hosts, slots, backfills=True).live(jobs),
        "Slurm": slurm,
    }
    yield from ("", "The same jobs under other schedulers:", "")
    yield "| | wait: mean | median | 95 % below | slots in use | slot-hours idle while work fits | done again |"
    yield "|---|---|---|---|---|---|---|"
    yield _row("Trainmaster", jobs, outcome.runs, redone, hosts, slots)
    for name, runs in others.items():
        if runs:
            yield _row(name, jobs, runs, _redone(jobs, runs), hosts, slots)


def _row(
    name: str, jobs: Sequence[TraceJob], runs: Sequence[Run], redone: float, hosts: int, slots: int
) -> str:
    use = used(jobs, runs, hosts, slots)
    submitted = {job.number: job.submitted_at for job in jobs}
    first: dict[int, float] = {}
    for run in runs:
        first[run.job] = min(run.start, first.get(run.job, run.start))
    waits = sorted(max(0.0, start - submitted[job]) for job, start in first.items())
    shown = (statistics.mean(waits), statistics.median(waits), waits[int(0.95 * (len(waits) - 1))])
    total = use.seconds * hosts * slots
    return (
        f"| {name} | {' | '.join(duration(one) for one in shown)} | {use.busy / total if total else 0:.1%} | "
        f"{use.idle_while_fits / 3600:,.1f} | {redone / 3600:,.1f} |"
    )


def _redone(jobs: Sequence[TraceJob], runs: Iterable[Run]) -> float:
    """Slot-seconds beyond what the jobs need, of those that were stopped."""
    held: dict[int, list[float]] = {}
    for run in runs:
        held.setdefault(run.job, []).append(run.end - run.start)
    return sum(
        max(0.0, sum(held[job.number]) - job.runs) * job.slots
        for job in jobs
        if len(held.get(job.number, ())) > 1
    )


def report(outcome: Outcome, title: str) -> str:
    """Tables in Markdown: waits by size, slots and stops, forecasts."""
    return "\n".join(
        ["# A trace replayed", "", title, "", *_waits(outcome), "", *_use(outcome), "", *_truth(outcome)]
    )


def _waits(outcome: Outcome) -> list[str]:
    """By size: each on its own, or by powers of two where a trace has many."""
    lines = ["| slots | jobs | wait: mean | median | 95 % below |", "|---|---|---|---|---|"]
    found = sorted({job.trace.slots for job in outcome.jobs.values()})
    tops = found if len(found) <= 8 else [1 << power for power in range((found[-1] - 1).bit_length() + 1)]
    rows = [
        (str(top) if low in (0, top - 1) or tops == found else f"{low + 1} to {top}", low, top)
        for low, top in zip([0, *tops], tops, strict=False)
    ]
    for name, low, top in [*rows, ("all", 0, max(found, default=0))]:
        waits = sorted(
            job.first_start - job.trace.submitted_at
            for job in outcome.jobs.values()
            if job.first_start is not None and low < job.trace.slots <= top
        )
        if waits:
            shown = (statistics.mean(waits), statistics.median(waits), waits[int(0.95 * (len(waits) - 1))])
            lines.append(f"| {name} | {len(waits):,} | " + " | ".join(duration(one) for one in shown) + " |")
    return lines


def _use(outcome: Outcome) -> list[str]:
    jobs = outcome.jobs.values()
    total = outcome.capacity * outcome.seconds
    redone = sum(job.redone * job.trace.slots for job in jobs)
    rows = [
        ("slots in use, of all, until the last submission", f"{outcome.busy / total:.1%}" if total else "-"),
        ("slot-hours idle while waiting work would fit", f"{outcome.idle_while_fits / 3600:,.1f}"),
        ("runs stopped for others", f"{sum(job.stops for job in jobs):,}"),
        ("slot-hours done again (stopped unsaved)", f"{redone / 3600:,.1f}"),
        ("jobs that never fit", f"{sum(job.never for job in jobs):,}"),
        ("passes", f"{outcome.passes:,}"),
    ]
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]


def _truth(outcome: Outcome) -> list[str]:
    first = [promise for promise in outcome.promises if promise.first]
    return [
        f"Forecasts, ranges of 80 %; goal: {GOAL[0]:.0%} to {GOAL[1]:.0%} of the starts inside.",
        "",
        "| | forecasts | inside | sooner | later | range: median | start after: median |",
        "|---|---|---|---|---|---|---|",
        _true("the first of each job that waited", first, outcome),
        _true("all", outcome.promises, outcome),
        "",
        f"{outcome.unknown} jobs had no forecast when it was first asked for.",
    ]


def _true(name: str, promises: list[Promise], outcome: Outcome) -> str:
    kept = [(one, start) for one in promises if (start := outcome.jobs[one.task_id].first_start) is not None]
    if not kept:
        return f"| {name} | 0 | - | - | - | - | - |"
    sooner = sum(start < one.span[0] for one, start in kept) / len(kept)
    later = sum(start > one.span[1] for one, start in kept) / len(kept)
    width = statistics.median(one.span[1] - one.span[0] for one, _ in kept)
    after = statistics.median(start - one.at for one, start in kept)
    return (
        f"| {name} | {len(kept):,} | {1 - sooner - later:.1%} | {sooner:.1%} | {later:.1%} | {duration(width)} | "
        f"{duration(after)} |"
    )


if __name__ == "__main__":
    sys.exit(main())

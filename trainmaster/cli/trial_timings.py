"""`trial timings`: where the time of a step goes, how many samples pass, and which rank the others wait for."""

from __future__ import annotations

import argparse
from typing import Any, Optional

from trainmaster.cli import output
from trainmaster.cli.output import Column
from trainmaster.client import Client, Json

_COLUMNS = [
    Column("Name", lambda row: row["name"]),
    Column("Count", lambda row: row["count"]),
    Column("Mean", lambda row: row["mean"], lambda value: _seconds(value)),
    Column("p50", lambda row: row["p50"], lambda value: _seconds(value)),
    Column("p95", lambda row: row["p95"], lambda value: _seconds(value)),
    Column("Of steps", lambda row: row["share"], lambda value: output.percent(value)),
]


def add(verbs: Any) -> None:
    parser = verbs.add_parser("timings", help="show where the time of a step goes, and which rank is slow")
    parser.add_argument("trial_id", type=int)
    parser.add_argument("--first-step", type=int, help="only from this step")
    parser.add_argument("--last-step", type=int, help="only up to this step")
    output.add_format(parser)
    parser.set_defaults(run=_timings, action="show the timings")


def _timings(client: Client, args: argparse.Namespace) -> None:
    window = (("firstStep", args.first_step), ("lastStep", args.last_step))
    query = [("points", 0), *((name, step) for name, step in window if step is not None)]
    found = client.get(f"/api/v1/trials/{args.trial_id}/timings", query)
    if args.output in output.STRUCTURED:
        output.structured(found, args.output)
        return
    if args.output == "table" and not found["summary"] and not found["throughput"]:
        print(
            f"Trial {args.trial_id} has no timings. To record them, use core_context.profiler.timing(name) in its code."
        )
        return
    output.show(found["summary"], _COLUMNS, args.output)
    if args.output == "table":
        for rate in found["throughput"]:
            print(f"{output.clean(rate['name'])}: {rate['perSecond']:.4g}/s, all ranks together")
        if "straggler" in found:
            print(output.clean(_sentence(found["straggler"])))


def _sentence(slow: Json) -> str:
    own, median = _seconds(slow["work"]), _seconds(slow["medianWork"])
    if not slow["isSlow"]:
        return f"No rank is slow: rank {slow['rank']} works {own} per step, the median rank {median}."
    return (
        f"Rank {slow['rank']} on {slow['host']} is the slowest: it works {own} per step, the median rank {median}. "
        f"Stragglers cost the gang {output.percent(slow['lostShare'])} of its time, "
        f"{slow['lostSeconds']:.1f} s."
    )


def _seconds(value: Optional[float]) -> str:
    """With three digits, in the unit that shows them."""
    if value is None:
        return ""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.0f} ns"

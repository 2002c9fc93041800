"""`preview-search`: what a search would train and what that would cost, before it is submitted."""

from __future__ import annotations

import argparse
import json
from typing import List, Optional

import trainmaster.yamltext as yamltext
from trainmaster.cli import output
from trainmaster.cli.arguments import Adder
from trainmaster.cli.errors import UsageError
from trainmaster.cli.submission import add_fields, config_text, fields_of
from trainmaster.client import Client, Json

_BAR = 40
#: the two ways in which the units of a search with rungs are counted; pages say the same
SIMULATED = "in one simulated run with random results"
IF_KEPT = "if each rung keeps exactly its share"
WHY_OTHERWISE = "Each trial is compared with those that came before it, so more or fewer may be promoted."


def add(add_noun: Adder) -> None:
    text = "show how many trials a search would train, and for how long"
    parser = add_noun("preview-search", "config_file", help=text, run=_preview, action="preview the search")
    add_fields(parser, "searcher.max_trials=100")
    parser.add_argument("--seed", type=int, help="random seed of the simulated search (default: 0)")
    parser.add_argument(
        "--seconds-per-unit",
        type=_positive,
        metavar="S",
        help="duration of a batch, epoch, …; used to estimate the cost",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _positive(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


def _preview(client: Client, args: argparse.Namespace) -> None:
    config = yamltext.load(config_text(args.config_file, fields_of(args)))
    if not isinstance(config, dict) or "searcher" not in config:
        raise UsageError(f"{args.config_file} has no section `searcher`.")
    body: Json = {"config": config}
    if args.seed is not None:
        body["seed"] = args.seed
    summary = client.post("/api/v1/preview-hp-search", body)["summary"]
    cost = _cost(summary, args.seconds_per_unit)
    if args.json:
        print(json.dumps({**summary, **cost}, indent=2))
        return
    print("\n".join(_lines(summary, cost)))


def _cost(summary: Json, seconds_per_unit: Optional[float]) -> Json:
    """Slot-hours of all trials, and hours until the end; nothing if the length or the time of a unit is unknown."""
    if seconds_per_unit is None or summary["totalUnits"] is None:
        return {}
    hours = seconds_per_unit / 3600
    return {
        "slotHours": summary["totalUnits"] * hours * max(1, summary["slotsPerTrial"]),
        "hoursAtOnce": summary["spanUnits"] * hours,
    }


def _lines(summary: Json, cost: Json) -> List[str]:
    unit, most = summary["unit"], max(each["count"] for each in summary["trials"])
    lines = [f"{summary['config']['name']}: {_count(summary['totalTrials'], 'trial')}"]
    rows = [
        [each["count"], _length(each["unit"]), "█" * max(1, round(_BAR * each["count"] / most))]
        for each in summary["trials"]
    ]
    lines += ["", output.table(["Trials", "Train for", ""], rows)]
    for number, bracket in enumerate(summary["brackets"], start=1):
        steps = bracket["rungs"]
        rungs = [[step["units"], step["trials"], step["promoted"], _bar(step, steps)] for step in steps]
        title = f"Bracket {number} of {len(summary['brackets'])}"
        lines += ["", title, output.table([f"Rung at {unit}", "Trials", "Promoted", ""], rungs)]
    lines.append("")
    if summary["totalUnits"] is None:
        return [*lines, "The code decides how long each trial trains: searcher.max_length is not set."]
    to_the_end = summary["totalTrials"] * max(each["unit"]["value"] for each in summary["trials"])
    saved = 1 - summary["totalUnits"] / to_the_end if to_the_end else 0.0
    rest = f", {saved:.0%} less than training all trials to the end" if saved else ""
    simulated = f" {SIMULATED}" if summary["brackets"] else ""
    lines.append(f"Total: {summary['totalUnits']:,} {unit}{simulated}{rest}")
    expected = summary.get("expectedUnits")
    if summary["brackets"] and expected is not None:
        lines.append(f"≈ {expected:,} {unit} {IF_KEPT}. {WHY_OTHERWISE}")
    if cost:
        slots = _count(max(1, summary["slotsPerTrial"]), "slot")
        lines.append(f"Cost: {_hours(cost['slotHours'])} slot-hours at {slots} per trial")
        at_once = summary["trialsAtOnce"]
        lines.append(f"Time: {_clock(cost['hoursAtOnce'])} if {_count(at_once, 'trial')} can run at once")
    return lines


def _bar(step: Json, steps: List[Json]) -> str:
    most: int = max(each["trials"] for each in steps) or 1
    came: int = max(1, round(_BAR * step["trials"] / most))
    on: int = round(_BAR * step["promoted"] / most)
    return "█" * on + "░" * (came - on)


def _length(unit: Json) -> str:
    return "to completion" if unit["maxLength"] else f"{unit['value']:,} {unit['name']}"


def _hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours >= 0.1 else f"{hours:.2g}"


def _clock(hours: float) -> str:
    """Hours on the clock with the unit that they are read in."""
    if hours >= 1:
        return f"{_hours(hours)} hours"
    minutes = hours * 60
    return f"{minutes:.0f} minutes" if minutes >= 2 else f"{minutes * 60:.0f} seconds"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

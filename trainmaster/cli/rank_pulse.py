"""`trial pulse`, `stack` and `hangs`, and the same of `task`: how each rank's training is doing."""

from __future__ import annotations

import argparse
import json
from typing import Any, Callable, List, Optional
from urllib.parse import quote

from trainmaster.cli import output
from trainmaster.cli.errors import CliError
from trainmaster.cli.output import Column
from trainmaster.client import Client, Json

#: (client, arguments) -> the id of the task that they mean
Find = Callable[[Client, argparse.Namespace], str]

#: the server's own limit of ranks that are asked at once
_AT_ONCE = 64
_ENDED = "ended"
_COLUMNS = [
    Column("Rank", lambda row: row["rank"]),
    Column("Host", lambda row: row["host"]),
    Column("Step", lambda row: row.get("step")),
    Column("Last sign", lambda row: _seconds(row.get("stepAgeSeconds"))),
    Column("Works", lambda row: _works(row)),
    Column("State", lambda row: row.get("processState")),
    Column("CPUs", lambda row: row.get("cpu")),
    Column("GPU %", lambda row: row.get("gpuPercent")),
    Column("Mark", lambda row: row.get("mark") or row.get("doing")),
]


def add(verbs: Any, name: str, kind: Callable[[str], Any], find: Find) -> None:
    """Add both verbs to a noun; `name` and `kind` are those of the argument that says which one."""
    parser = verbs.add_parser("pulse", help="show the progress of each rank, marked ranks first")
    parser.add_argument(name, type=kind)
    output.add_format(parser)
    parser.set_defaults(
        run=lambda client, args: _pulse(client, find(client, args), args), action="show the pulse"
    )
    parser = verbs.add_parser("hangs", help="show what kept it from making progress, newest first")
    parser.add_argument(name, type=kind)
    parser.add_argument("--stacks", action="store_true", help="also print the stacks of all ranks")
    parser.add_argument("--json", action="store_true", help="print the server's answer as JSON")
    parser.set_defaults(
        run=lambda client, args: _hangs(client, find(client, args), args), action="show the hangs"
    )
    parser = verbs.add_parser("stack", help="show what ranks are doing now, as Python stacks")
    parser.add_argument(name, type=kind)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--rank", type=int, action="append", help="only this rank; repeatable (default: the marked ranks)"
    )
    which.add_argument("--all", action="store_true", help="all ranks")
    parser.add_argument("--json", action="store_true", help="print one JSON object per rank")
    parser.set_defaults(
        run=lambda client, args: _stack(client, find(client, args), args), action="show the stack"
    )


def _pulse(client: Client, task_id: str, args: argparse.Namespace) -> None:
    rows = _ranks(client, task_id)
    rows.sort(key=lambda row: (not row.get("mark"), row["rank"]))
    output.show(rows, _COLUMNS, args.output)


def _stack(client: Client, task_id: str, args: argparse.Namespace) -> None:
    ranks = _wanted(client, task_id, args)
    for start in range(0, len(ranks), _AT_ONCE):
        body = {"ranks": ranks[start : start + _AT_ONCE]}
        answer = client.post(f"/api/v1/tasks/{quote(task_id, safe='')}/stacks", body)
        for stack in answer["stacks"]:
            if args.json:
                print(json.dumps(stack))
            else:
                print(_safe(stack.get("text") or f"rank {stack['rank']}: {stack['message']}\n"))


def _hangs(client: Client, task_id: str, args: argparse.Namespace) -> None:
    query = "?stacks=true" if args.stacks else ""
    answer = client.get(f"/api/v1/tasks/{quote(task_id, safe='')}/hangs{query}")
    if args.json:
        print(json.dumps(answer))
        return
    if not answer["hangs"]:
        output.say("No hang of it was found.")
    for hang in answer["hangs"]:
        since, over = output.local_time(hang["since"]), hang.get("overAt")
        when = f"from {since} until {output.local_time(over)}" if over else f"since {since}"
        print(f"Attempt {hang['attempt']}: no progress {when}.")
        print(
            _safe("\n".join([hang["sentence"], hang["outcome"], *(f"  {line}" for line in hang["evidence"])]))
        )
        print(_safe(f"\n{hang['stacks']}") if hang.get("stacks") else "")


def _wanted(client: Client, task_id: str, args: argparse.Namespace) -> List[int]:
    if args.rank:
        return sorted(set(args.rank))
    rows = _ranks(client, task_id)
    if not any(row.get("processState") != _ENDED for row in rows):
        raise CliError("No rank is running now.")
    running = [row for row in rows if row.get("processState") != _ENDED]
    wanted = [row["rank"] for row in running if args.all or row.get("mark")]
    if not wanted:
        known = ", ".join(str(row["rank"]) for row in running[:16])
        raise CliError(
            f"No rank is marked: choose one with --rank ({known}{', …' if len(running) > 16 else ''}), or use --all."
        )
    return wanted


def _ranks(client: Client, task_id: str) -> List[Json]:
    found: List[Json] = client.get(f"/api/v1/tasks/{quote(task_id, safe='')}/pulse")["ranks"]
    return found


def _works(row: Json) -> str:
    """Idle is who neither uses 5 % of a processor or a GPU, nor has written a line or called the SDK just now."""
    state = row.get("processState")
    if state in ("T", "t"):
        return "stopped"
    if state == _ENDED or not state:
        return _ENDED if state else "unknown"
    return "yes" if row["active"] else "idle"


def _seconds(value: Optional[float]) -> Optional[str]:
    return None if value is None else f"{value:.0f} s"


def _safe(text: str) -> str:
    """Line by line: a stack names files of the training, whose names may be anything."""
    return "\n".join(output.clean(line) for line in text.split("\n"))

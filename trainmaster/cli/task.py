"""`task`: everything that holds slots or waits for them, and its logs."""

from __future__ import annotations

import argparse
from typing import Any, Callable, Dict, List
from urllib.parse import quote

from trainmaster.cli import output
from trainmaster.cli.errors import OK
from trainmaster.cli.log_stream import add_log_options, print_logs
from trainmaster.cli.output import Column, local_time, say
from trainmaster.cli.prefixes import the_one
from trainmaster.client import Client
from trainmaster.http import Answered

Json = Dict[str, Any]
Adder = Callable[..., argparse.ArgumentParser]


def add(add_noun: Adder) -> None:
    noun = add_noun("task", help="running and waiting tasks")
    verbs = noun.add_subparsers(metavar="VERB", required=True)
    parser = verbs.add_parser("list", aliases=["ls"], help="all tasks with the slots they have or need")
    output.add_format(parser)
    parser.set_defaults(run=_list, action="list the tasks")
    parser = verbs.add_parser("logs", help="the log of a task")
    parser.add_argument("task_id")
    parser.add_argument("--allocation-id", action="append", metavar="ID")
    add_log_options(parser)
    parser.set_defaults(run=_logs, action="show the log")


_COLUMNS = [
    Column("Task ID", lambda row: row["taskId"]),
    Column("Allocation ID", lambda row: row.get("allocationId")),
    Column("Name", lambda row: row.get("name")),
    Column("Slots Needed", lambda row: row.get("slotsNeeded")),
    Column("Registered Time", lambda row: local_time(row.get("registeredTime"))),
    Column("Agent", lambda row: _agents(row)),
    Column("Priority", lambda row: row.get("priority")),
    Column("Resource Pool", lambda row: row.get("resourcePool")),
    Column(
        "Ports", lambda row: ", ".join(str(port.get("port", port)) for port in row.get("proxyPorts") or [])
    ),
]


def _agents(row: Json) -> str:
    found = [name for resources in row.get("resources") or [] for name in resources.get("agentDevices") or {}]
    return ", ".join(dict.fromkeys(found)) or "unassigned"


def _tasks(client: Client) -> List[Json]:
    rows = (client.get("/api/v1/tasks") or {}).get("allocationIdToSummary") or {}
    return [{"allocationId": allocation_id, **row} for allocation_id, row in rows.items()]


def _list(client: Client, args: argparse.Namespace) -> int:
    rows = sorted(_tasks(client), key=lambda row: row.get("registeredTime") or "")
    output.show(rows, _COLUMNS, args.output)
    return OK


def _logs(client: Client, args: argparse.Namespace) -> int:
    task_id = _whole_id(client, args.task_id)
    args.reopen = f"trainmaster task logs -f {task_id}"
    print_logs(
        client, f"/api/v1/tasks/{quote(task_id, safe='')}/logs", args, lambda: _is_over(client, task_id)
    )
    if args.follow:
        say(f"Task log stream ended. To reopen log stream, run: {args.reopen}", "green")
    return OK


def _whole_id(client: Client, given: str) -> str:
    """A task that has ended is not listed, and is known by its whole id alone."""
    ids = [row["taskId"] for row in _tasks(client)]
    return the_one(given, ids, "Task") if any(one.startswith(given) for one in ids) else given


def _is_over(client: Client, task_id: str) -> bool:
    try:
        task = client.get(f"/api/v1/tasks/{quote(task_id, safe='')}")["task"]
    except Answered as error:
        return error.status == 404
    allocations = task.get("allocations") or []
    return bool(task.get("endTime")) or (
        bool(allocations) and all(one.get("state") == "STATE_TERMINATED" for one in allocations)
    )

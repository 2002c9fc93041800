"""`array`: commands that were submitted together, one for each index (`command run --array 0-99`)."""

from __future__ import annotations

import argparse
import time
from typing import Any
from urllib.parse import quote

from trainmaster.cli import output
from trainmaster.cli.arguments import Adder
from trainmaster.cli.errors import FAILED, OK
from trainmaster.cli.output import SHORT_ID, Column, done, local_time, say
from trainmaster.cli.task_verbs import COMMAND, counts_of_array
from trainmaster.client import Client, Json

_POLL_SECONDS = 1.0
_NUMBERS = ("done", "running", "waiting", "failed", "canceled")
_FACTS = [
    Column("ID", lambda row: row["id"]),
    Column("Owner", lambda row: row["username"]),
    Column("Name", lambda row: row["name"]),
    Column("State", lambda row: row["state"]),
    Column("Indices", lambda row: row["indices"]),
    *(Column(name.capitalize(), lambda row, name=name: row[name]) for name in _NUMBERS),  # type: ignore[misc]
    Column("Priority", lambda row: row["priority"]),
    Column("Resource Pool", lambda row: row["resourcePool"]),
    Column("Submitted", lambda row: local_time(row.get("startTime"))),
    Column("Ended", lambda row: local_time(row.get("endTime"))),
]
_ELEMENTS = [Column("Index", lambda row: row.get("arrayIndex")), *COMMAND.columns]


def add(add_noun: Adder) -> None:
    verbs = add_noun("array", help="commands submitted together, one for each index").add_verbs()
    text = "show how many of its elements wait, run and have ended"
    verbs.add_parser("describe", "id", help=text, run=_describe, form=True)
    text = "list its elements: each is a command of its own"
    parser = verbs.add_parser("elements", "id", help=text, run=_list, action="list its elements")
    output.add_format(parser)
    verbs.add_parser("kill", "id", help="stop all its elements that have not ended", run=_kill)
    text = "run its failed and canceled elements again, with the same code"
    parser = verbs.add_parser("rerun", "id", help=text, run=_rerun, action="run elements again")
    parser.add_argument("--indices", metavar="INDICES", help="run these again instead, such as 3,7")


def _path(array_id: str) -> str:
    return f"/api/v1/arrays/{quote(array_id, safe='')}"


def _read(client: Client, array_id: str) -> Json:
    return dict(client.get(_path(array_id))["array"])


def started(client: Client, args: argparse.Namespace, array_id: str) -> int:
    """With --detach its id; else say how far it is until all elements have ended. Fails unless all completed."""
    if args.detach:
        print(array_id)
        return OK
    say(f"Launched array {array_id}")
    return wait(client, args, array_id)


def wait(client: Client, args: argparse.Namespace, array_id: str) -> int:
    """Say how far it is until all elements have ended. Fails unless all completed."""
    short = array_id[:SHORT_ID]
    args.goes_on = f"Array {short} keeps running; stop it with `trainmaster array kill {short}`."
    args.reopen = f"trainmaster array describe {short}"
    told = ""
    while True:
        record = _read(client, array_id)
        if (words := counts_of_array(record)) != told:
            told = words
            say(f"Array {short}: {words}.")
        if not record["waiting"] and not record["running"]:
            return OK if record["done"] == record["elements"] else FAILED
        time.sleep(_POLL_SECONDS)


def _describe(client: Client, args: argparse.Namespace) -> None:
    output.show_one(_read(client, args.id), _FACTS, args.output)


def _list(client: Client, args: argparse.Namespace) -> None:
    query: Any = [("arrayId", args.id), ("sortBy", "SORT_BY_START_TIME"), ("orderBy", "ORDER_BY_ASC")]
    rows = client.pages(COMMAND.path, "commands", query, 0)
    output.show(sorted(rows, key=lambda row: int(row["arrayIndex"])), _ELEMENTS, args.output)


def _kill(client: Client, args: argparse.Namespace) -> None:
    record = client.post(f"{_path(args.id)}/kill")["array"]
    done(f"Killed array {record['id']}")


def _rerun(client: Client, args: argparse.Namespace) -> None:
    answer = client.post(f"{_path(args.id)}/rerun", {"indices": args.indices} if args.indices else {})
    record = answer["array"]
    done(f"Submitted array {record['id']} ({record['indices']})")

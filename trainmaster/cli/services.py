"""What `shell`, `notebook` and `tensorboard` share: start, list, describe, config, logs, kill, set priority."""

from __future__ import annotations

import argparse
import time
import webbrowser
from typing import Any, Callable, Dict, List, NamedTuple, Optional
from urllib.parse import quote

import trainmaster.yamltext as yamltext
from trainmaster.cli import output, run_options, task_lists
from trainmaster.cli.errors import FAILED, OK, CliError
from trainmaster.cli.log_options import add_log_options
from trainmaster.cli.log_stream import End, Source, show_log
from trainmaster.cli.output import Bar, Column, done, local_time, say
from trainmaster.cli.prefixes import SHOWN
from trainmaster.cli.submission import packed
from trainmaster.cli.waiting import tell_what_it_waits_for
from trainmaster.client import Client
from trainmaster.http import HttpError

Json = Dict[str, Any]
Run = Callable[[Client, argparse.Namespace], int]

ENDED = ("COMPLETED", "CANCELED", "ERROR")
_POLL_SECONDS = 0.3


class Kind(NamedTuple):
    """A kind of service: as commands call it, as addresses and people do, and columns that it alone has."""

    noun: str
    shown: str
    columns: List[Column] = []

    @property
    def path(self) -> str:
        return f"/api/v1/{self.noun}s"

    def one(self, client: Client, service_id: str) -> Json:
        """{<noun>, config}; the id may be its beginning."""
        return dict(client.get(f"{self.path}/{quote(service_id, safe='')}"))

    def record(self, client: Client, service_id: str) -> Json:
        return dict(self.one(client, service_id)[self.noun])


def add_verbs(verbs: Any, kind: Kind) -> None:
    """All verbs but `start` and `open`."""
    parser = verbs.add_parser(
        "list", aliases=["ls"], help=f"list your {kind.noun}s (or everyone's), newest first"
    )
    task_lists.add_list_options(parser)
    parser.set_defaults(run=lambda client, args: _list(client, args, kind), action=f"list the {kind.noun}s")
    parser = add_one(verbs, "describe", "show its state, host and start time", kind, _describe)
    output.add_format(parser)
    add_one(verbs, "config", "show the config in force, as YAML", kind, _config)
    add_log_options(add_one(verbs, "logs", "show its log", kind, _logs))
    parser = verbs.add_parser("kill", help="stop it and everything running in it")
    parser.add_argument("ids", metavar="ID", nargs="+", help="the id, or its first characters")
    parser.add_argument("-f", "--force", action="store_true", help="continue if one cannot be killed")
    parser.set_defaults(run=lambda client, args: _kill(client, args, kind), action=f"kill the {kind.noun}")
    settings = verbs.add_parser("set", help="change its settings").add_subparsers(
        metavar="WHAT", required=True
    )
    parser = add_one(settings, "priority", "set the priority: 1 (highest) to 99", kind, _set_priority)
    parser.add_argument("priority", metavar="N", type=int)


def add_one(
    verbs: Any, verb: str, text: str, kind: Kind, run: Callable[[Client, argparse.Namespace, Kind], int]
) -> argparse.ArgumentParser:
    """A verb about one service."""
    parser: argparse.ArgumentParser = verbs.add_parser(verb, help=text)
    parser.add_argument("id", metavar="ID", help="the id, or its first characters")
    parser.set_defaults(run=lambda client, args: run(client, args, kind), action=f"{verb} the {kind.noun}")
    return parser


def add_start_options(parser: argparse.ArgumentParser) -> None:
    run_options.add(parser, "start", "idle_timeout=2h")


def start(client: Client, args: argparse.Namespace, kind: Kind, more: Optional[Json] = None) -> Json:
    """Send it; {<noun>, config, …}. Raises CliError."""
    request: Json = {
        "config": run_options.config_of(args),
        "files": packed(args.context, args.include),
        **(more or {}),
    }
    request.update(run_options.request_of(client, args))
    bar = Bar("Sending")
    try:
        answer = dict(client.upload(kind.path, request, bar))
    finally:
        bar.close()
    for notice in answer.get("notices") or []:
        say(notice, "yellow")
    return answer


def wait_until_ready(client: Client, kind: Kind, service_id: str, args: argparse.Namespace) -> Json:
    """Say what it waits for until it is ready. Raises CliError when it ends instead."""
    short = service_id[:SHOWN]
    args.goes_on = (
        f"The {kind.noun} {short} keeps running; stop it with `trainmaster {kind.noun} kill {short}`."
    )
    args.reopen = f"trainmaster {kind.noun} logs -f {short}"

    def queued_job() -> Optional[str]:
        record = kind.record(client, service_id)
        return str(record["jobId"]) if record["phase"] == "QUEUED" else None

    tell_what_it_waits_for(client, queued_job, _POLL_SECONDS)
    while True:
        record = kind.record(client, service_id)
        if record.get("ready"):
            return record
        if record["phase"] in ENDED:
            why = record.get("exitStatus") or record["phase"].lower()
            raise CliError(f"it has ended: {why}. Its log: trainmaster {kind.noun} logs {short}.")
        time.sleep(_POLL_SECONDS)


def show_started(client: Client, kind: Kind, service_id: str, args: argparse.Namespace) -> int:
    """With --detach its id; else where it is used, once it is ready. Raises CliError when it ends instead."""
    if args.detach:
        print(service_id)
        return OK
    say(f"Launched {kind.noun} {service_id}")
    return show(client, kind, wait_until_ready(client, kind, service_id, args), not args.no_browser)


def open_one(client: Client, args: argparse.Namespace, kind: Kind) -> int:
    """`open`: where it is used, once it is ready. Raises CliError when it ends instead."""
    service_id = str(kind.record(client, args.id)["id"])
    return show(client, kind, wait_until_ready(client, kind, service_id, args), not args.no_browser)


def show(client: Client, kind: Kind, record: Json, browse: bool) -> int:
    """Say where it is used, and open it in the browser."""
    url = f"{client.url}{record['serviceAddress']}"
    done(f"{kind.shown} is running at {url}")
    if browse:
        webbrowser.open(url)
    return OK


# --- the verbs --------------------------------------------------------------------------------------------------

_COLUMNS = [
    Column("ID", lambda row: row["id"], lambda value: str(value)[:SHOWN]),
    Column("Owner", lambda row: row["username"]),
    Column("Description", lambda row: row["description"], lambda value: str(value)[:50]),
    Column("State", lambda row: "READY" if row.get("ready") else row["phase"]),
    Column("Slots", lambda row: row.get("slots")),
    Column("Host", lambda row: ", ".join(row.get("hosts") or [])),
]
_TIMES = [
    Column("Submitted", lambda row: local_time(row.get("startTime"))),
    Column("Last used", lambda row: local_time(row.get("lastUsed"))),
    Column("Ended", lambda row: local_time(row.get("endTime"))),
    Column("Resource Pool", lambda row: row.get("resourcePool")),
]
_DETAILS = [
    Column("How it ended", lambda row: row.get("exitStatus")),
    Column("Idle timeout", lambda row: row.get("idleTimeoutSeconds")),
    Column("Address", lambda row: row.get("serviceAddress")),
    Column("Priority", lambda row: row.get("priority")),
    Column("Job", lambda row: row.get("jobId")),
]


def _list(client: Client, args: argparse.Namespace, kind: Kind) -> int:
    rows = task_lists.rows_of(client, kind.path, f"{kind.noun}s", args)
    task_lists.show([_open(row) for row in rows], [*_COLUMNS, *kind.columns, *_TIMES], args)
    return OK


def _describe(client: Client, args: argparse.Namespace, kind: Kind) -> int:
    columns = [*_COLUMNS, *kind.columns, *_TIMES, *_DETAILS]
    output.show_one(_open(kind.record(client, args.id)), columns, args.output)
    return OK


def _open(row: Json) -> Json:
    """Without the key of a shell, which nobody asked for."""
    return {name: value for name, value in row.items() if name != "privateKey"}


def _config(client: Client, args: argparse.Namespace, kind: Kind) -> int:
    print(yamltext.dump(kind.one(client, args.id)["config"]), end="")
    return OK


def _logs(client: Client, args: argparse.Namespace, kind: Kind) -> int:
    service_id = str(kind.record(client, args.id)["id"])
    short = service_id[:SHOWN]
    args.goes_on = f"The {kind.noun} {short} keeps running."

    def phase() -> str:
        return str(kind.record(client, service_id)["phase"])

    def end() -> End:
        record = kind.record(client, service_id)
        return End(record["phase"] == "COMPLETED", record["phase"] == "ERROR", record.get("exitCode"))

    def queued_job() -> Optional[str]:
        record = kind.record(client, service_id)
        return str(record["jobId"]) if record["phase"] == "QUEUED" else None

    source = Source(
        f"{kind.shown} {short}",
        f"/api/v1/tasks/{quote(service_id, safe='')}",
        f"trainmaster {kind.noun} logs -f {short}",
        lambda: phase() in ENDED,
        end,
        queued_job,
    )
    return show_log(client, source, args)


def _kill(client: Client, args: argparse.Namespace, kind: Kind) -> int:
    code = OK
    for service_id in args.ids:
        try:
            before = kind.record(client, service_id)
            if before["phase"] in ENDED:
                done(already_ended(f"{kind.noun} {before['id']}", before))
                continue
            killed = client.post(f"{kind.path}/{before['id']}/kill")[kind.noun]
        except HttpError as error:
            if not args.force:
                raise
            say(f"Skipping {service_id}: {error}", "red")
            code = FAILED
        else:
            done(f"Killed {kind.noun} {killed['id']}")
    return code


def already_ended(which: str, record: Json) -> str:
    """What is said of one that is to be killed and has ended before. That is no failure, as in Determined's client."""
    why = record.get("exitStatus") or str(record["phase"]).lower()
    return f"{which[0].upper()}{which[1:]} had already ended: {why}."


def _set_priority(client: Client, args: argparse.Namespace, kind: Kind) -> int:
    path = f"{kind.path}/{quote(args.id, safe='')}/set_priority"
    changed = client.post(path, {"priority": args.priority})[kind.noun]
    done(f"Set priority of {kind.noun} {changed['id']} to {changed['priority']}")
    return OK

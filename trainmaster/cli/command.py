"""`command`: run a program once, on one host of the pool, and watch it."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, Callable, Dict, Optional
from urllib.parse import quote

import trainmaster.yamltext as yamltext
from trainmaster.cli import config_schema, log_end, output, run_options, task_lists
from trainmaster.cli.errors import FAILED, OK, UsageError
from trainmaster.cli.log_options import add_log_options
from trainmaster.cli.log_stream import End, Source, follow, show_log
from trainmaster.cli.output import Bar, Column, done, local_time, say
from trainmaster.cli.prefixes import SHOWN
from trainmaster.cli.services import already_ended
from trainmaster.cli.submission import packed
from trainmaster.cli.waiting import tell_what_it_waits_for
from trainmaster.client import Client
from trainmaster.http import HttpError
from trainmaster.protocol import EXIT_NOT_FOUND

Json = Dict[str, Any]
Adder = Callable[..., argparse.ArgumentParser]

_ENDED = ("COMPLETED", "CANCELED", "ERROR")
_SERVER = "master"  # source of the server's own lines, in Determined's word
_POLL_SECONDS = 0.2


def add(add_noun: Adder) -> None:
    noun = add_noun("command", aliases=["cmd"], help="run a program once, on one host")
    verbs = noun.add_subparsers(metavar="VERB", required=True)
    _add_run(verbs)
    parser = verbs.add_parser("list", aliases=["ls"], help="list your commands (or everyone's), newest first")
    task_lists.add_list_options(parser)
    parser.set_defaults(run=_list, action="list the commands")
    parser = _add_one(verbs, "describe", "show its state, host and exit code")
    output.add_format(parser)
    parser.set_defaults(run=_describe, action="describe the command")
    parser = _add_one(verbs, "config", "show the config in force, as YAML")
    parser.set_defaults(run=_config, action="show the config")
    config_schema.add(verbs, "command")
    parser = _add_one(verbs, "logs", "show its log")
    add_log_options(parser)
    parser.set_defaults(run=_logs, action="show the log")
    parser = verbs.add_parser("kill", help="stop commands at once")
    parser.add_argument("command_ids", metavar="ID", nargs="+", help="the id, or its first characters")
    parser.add_argument("-f", "--force", action="store_true", help="continue if one cannot be killed")
    parser.set_defaults(run=_kill, action="kill the command")
    settings = verbs.add_parser("set", help="change a command").add_subparsers(metavar="WHAT", required=True)
    parser = _add_one(settings, "priority", "set the priority: 1 (highest) to 99")
    parser.add_argument("priority", metavar="N")
    parser.set_defaults(run=_set_priority, action="set the priority")


def _add_one(verbs: Any, verb: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(verb, help=text)
    parser.add_argument("command_id", metavar="ID", help="the id, or its first characters")
    return parser


def _add_run(verbs: Any) -> None:
    parser = verbs.add_parser(
        "run",
        help="run a command, follow its output, and exit with its exit code",
        epilog="A single word with spaces is run by a shell: command run 'nvidia-smi | head'. Options go before CMD.",
    )
    parser.add_argument(
        "words", metavar="CMD", nargs=argparse.REMAINDER, help="the program and its arguments"
    )
    run_options.add(parser, "run", "resources.priority=10", slots="; default 1")
    parser.set_defaults(run=_run, action="run the command")


# --- run --------------------------------------------------------------------------------------------------------


def _run(client: Client, args: argparse.Namespace) -> int:
    config = _config_of(args)
    request: Json = {"config": config, "files": packed(args.context, args.include)}
    request.update(run_options.request_of(client, args))
    bar = Bar("Sending")
    try:
        answer = client.run_command(request, bar)
    finally:
        bar.close()
    for notice in answer.get("notices") or []:
        say(notice, "yellow")
    command_id = str(answer["command"]["id"])
    if args.detach:
        print(command_id)
        return OK
    return _watch(client, command_id, args)


def _config_of(args: argparse.Namespace) -> Json:
    """The file's config with the options on top. Raises CliError, UsageError."""
    config = run_options.config_of(args)
    words = args.words[1:] if args.words[:1] == ["--"] else args.words
    if words:
        config["entrypoint"] = words
    if not config.get("entrypoint"):
        raise UsageError(
            "no command given, allowed: a command after the options, or an entrypoint in the config."
        )
    return config


def _watch(client: Client, command_id: str, args: argparse.Namespace) -> int:
    """Its output on stdout and stderr until it ends; its exit code."""
    short = command_id[:SHOWN]
    args.goes_on = f"Command {short} keeps running; stop it with `trainmaster command kill {short}`."
    args.reopen = f"trainmaster command logs -f {short}"
    say(f"Launched command {command_id}")
    tell_what_it_waits_for(client, lambda: _queued_job(client, command_id), _POLL_SECONDS)
    hosts = client.command(command_id)["command"].get("hosts")
    if hosts:
        say(f"Running on {', '.join(hosts)}.")
    follow(client, _log_of(command_id), [], _print, lambda: _phase(client, command_id) in _ENDED)
    sys.stdout.flush()
    record = _wait_end(client, command_id)
    if record["phase"] == "COMPLETED":
        return OK
    end = f"Command {command_id[:SHOWN]}: {record.get('exitStatus') or record['phase'].lower()}."
    is_lacking = record.get("exitCode") == EXIT_NOT_FOUND  # which program, the log knows
    why = log_end.why_stopped(client, f"/api/v1/tasks/{command_id}") if is_lacking else {}
    log_end.tell({"sentences": why.get("sentences")}, end)
    return int(record.get("exitCode") or FAILED)


def _queued_job(client: Client, command_id: str) -> Optional[str]:
    record = client.command(command_id)["command"]
    return str(record["jobId"]) if record["phase"] == "QUEUED" else None


def _print(record: Json) -> None:
    """Its own lines as it wrote them. Of the server's only warnings: how it began and ended is said beside the log."""
    text = str(record.get("log", "")).encode("utf-8", "replace").decode()
    if record.get("source") == _SERVER:
        if record.get("level") == "LOG_LEVEL_WARNING":
            say(text, "yellow")
        return
    stream = sys.stderr if record.get("stdtype") == "stderr" else sys.stdout
    print(text, file=stream, flush=True)


def _log_of(command_id: str) -> str:
    return f"/api/v1/tasks/{quote(command_id, safe='')}/logs"


def _phase(client: Client, command_id: str) -> str:
    return str(client.command(command_id)["command"]["phase"])


def _wait_end(client: Client, command_id: str) -> Json:
    while True:
        record = dict(client.command(command_id)["command"])
        if record["phase"] in _ENDED:
            return record
        time.sleep(_POLL_SECONDS)


# --- the other verbs --------------------------------------------------------------------------------------------

_COLUMNS = [
    Column("ID", lambda row: row["id"], lambda value: str(value)[:SHOWN]),
    Column("Owner", lambda row: row["username"]),
    Column("Description", lambda row: row["description"], lambda value: str(value)[:50]),
    Column("State", lambda row: row["phase"]),
    Column("Exit Code", lambda row: row.get("exitCode")),
    Column("Slots", lambda row: row.get("slots")),
    Column("Host", lambda row: ", ".join(row.get("hosts") or [])),
    Column("Submitted", lambda row: local_time(row.get("startTime"))),
    Column("Ended", lambda row: local_time(row.get("endTime"))),
    Column("Resource Pool", lambda row: row.get("resourcePool")),
]
_DETAILS = [
    *_COLUMNS,
    Column("How it ended", lambda row: row.get("exitStatus")),
    Column("Priority", lambda row: row.get("priority")),
    Column("Job", lambda row: row.get("jobId")),
    Column("Workspace", lambda row: row.get("workspaceId")),
]


def _list(client: Client, args: argparse.Namespace) -> int:
    task_lists.show(task_lists.rows_of(client, "/api/v1/commands", "commands", args), _COLUMNS, args)
    return OK


def _describe(client: Client, args: argparse.Namespace) -> int:
    output.show_one(client.command(args.command_id)["command"], _DETAILS, args.output)
    return OK


def _config(client: Client, args: argparse.Namespace) -> int:
    print(yamltext.dump(client.command(args.command_id)["config"]), end="")
    return OK


def _logs(client: Client, args: argparse.Namespace) -> int:
    command_id = str(client.command(args.command_id)["command"]["id"])
    args.goes_on = f"Command {command_id[:SHOWN]} keeps running."
    source = Source(
        f"Command {command_id[:SHOWN]}",
        f"/api/v1/tasks/{quote(command_id, safe='')}",
        f"trainmaster command logs -f {command_id[:SHOWN]}",
        lambda: _phase(client, command_id) in _ENDED,
        lambda: _end(client, command_id),
        lambda: _queued_job(client, command_id),
    )
    return show_log(client, source, args)


def _end(client: Client, command_id: str) -> End:
    record = client.command(command_id)["command"]
    return End(record["phase"] == "COMPLETED", record["phase"] == "ERROR", record.get("exitCode"))


def _kill(client: Client, args: argparse.Namespace) -> int:
    code = OK
    for command_id in args.command_ids:
        try:
            before = client.command(command_id)["command"]
            if before["phase"] in _ENDED:
                done(already_ended(f"command {before['id']}", before))
                continue
            killed = client.kill_command(str(before["id"]))
        except HttpError as error:
            if not args.force:
                raise
            say(f"Skipping {command_id}: {error}", "red")
            code = FAILED
        else:
            done(f"Killed command {killed['id']}")
    return code


def _set_priority(client: Client, args: argparse.Namespace) -> int:
    priority = int(args.priority) if args.priority.lstrip("-").isdigit() else args.priority
    changed = client.set_command_priority(args.command_id, priority)
    done(f"Set priority of command {changed['id']} to {changed['priority']}")
    return OK

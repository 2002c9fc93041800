"""`command`: run a program once, on one host of the pool, and watch it."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from trainmaster.cli import array, config_schema, task_verbs
from trainmaster.cli.arguments import Adder
from trainmaster.cli.errors import FAILED, OK, UsageError
from trainmaster.cli.log_stream import follow, tell, tell_what_it_waits_for, why_stopped
from trainmaster.cli.output import SHORT_ID, say
from trainmaster.cli.task_verbs import COMMAND, ENDED
from trainmaster.client import Client, Json
from trainmaster.protocol import EXIT_NOT_FOUND

_SERVER = "master"  # source of the server's own lines, in Determined's word
_POLL_SECONDS = 0.2


def add(add_noun: Adder) -> None:
    verbs = add_noun("command", aliases=["cmd"], help="run a program once, on one host").add_verbs()
    _add_run(verbs)
    task_verbs.add_verbs(verbs, COMMAND)
    config_schema.add(verbs, "command")


def _add_run(verbs: Any) -> None:
    parser = verbs.add_parser(
        "run",
        help="run a command, follow its output, and exit with its exit code",
        epilog="A single word with spaces is run by a shell: command run 'nvidia-smi | head'. Options go before CMD.",
        run=_run,
    )
    parser.add_argument(
        "words", metavar="CMD", nargs=argparse.REMAINDER, help="the program and its arguments"
    )
    parser.add_argument(
        "--array",
        metavar="INDICES",
        help="run it once for each index: 0-99, 0-99:2 (every second), 1,3,7; add %%8 to run at most 8 at once",
    )
    task_verbs.add_start_options(parser, "run", "resources.priority=10", slots="; default 1")


def _run(client: Client, args: argparse.Namespace) -> int:
    record = task_verbs.start(client, args, COMMAND, _config_of(args))["command"]
    command_id = str(record["id"])
    if record.get("array"):
        return array.started(client, args, str(record["array"]["id"]))
    if args.detach:
        print(command_id)
        return OK
    return _watch(client, command_id, args)


def _config_of(args: argparse.Namespace) -> Json:
    """The file's config with the options on top. Raises CliError, UsageError."""
    config = task_verbs.config_of(args)
    words = args.words[1:] if args.words[:1] == ["--"] else args.words
    if words:
        config["entrypoint"] = words
    if args.array:
        config["array"] = args.array
    if not config.get("entrypoint"):
        raise UsageError(
            "no command given, allowed: a command after the options, or an entrypoint in the config."
        )
    return config


def _watch(client: Client, command_id: str, args: argparse.Namespace) -> int:
    """Its output on stdout and stderr until it ends; its exit code."""
    task_verbs.say_on_interrupt(args, COMMAND, command_id)
    say(f"Launched command {command_id}")
    tell_what_it_waits_for(client, lambda: COMMAND.queued_job(client, command_id), _POLL_SECONDS)
    hosts = COMMAND.record(client, command_id).get("hosts")
    if hosts:
        say(f"Running on {', '.join(hosts)}.")
    log = f"/api/v1/tasks/{command_id}/logs"
    follow(client, log, [], _print, lambda: COMMAND.record(client, command_id)["phase"] in ENDED)
    sys.stdout.flush()
    record = wait_end(client, command_id)
    if record["phase"] == "COMPLETED":
        return OK
    end = f"Command {command_id[:SHORT_ID]}: {record.get('ending') or record['phase'].lower()}."
    is_lacking = record.get("exitCode") == EXIT_NOT_FOUND  # which program, the log knows
    why = why_stopped(client, f"/api/v1/tasks/{command_id}") if is_lacking else {}
    tell({"sentences": why.get("sentences")}, end)
    return int(record.get("exitCode") or FAILED)


def _print(record: Json) -> None:
    """Its own lines as it wrote them. Of the server's only warnings: how it began and ended is said beside the log."""
    text = str(record.get("log", "")).encode("utf-8", "replace").decode()
    if record.get("source") == _SERVER:
        if record.get("level") == "LOG_LEVEL_WARNING":
            say(text, "yellow")
        return
    stream = sys.stderr if record.get("stdtype") == "stderr" else sys.stdout
    print(text, file=stream, flush=True)


def wait_end(client: Client, command_id: str) -> Json:
    """Its record once it has ended."""
    while True:
        record = COMMAND.record(client, command_id)
        if record["phase"] in ENDED:
            return record
        time.sleep(_POLL_SECONDS)

"""`log-retention`, and `set log-retention` of trials, experiments and tasks: how long logs are kept."""

from __future__ import annotations

import argparse
from typing import Any, Callable
from urllib.parse import quote

from trainmaster import quantities
from trainmaster.cli import output
from trainmaster.cli.arguments import Adder
from trainmaster.cli.errors import UsageError
from trainmaster.cli.output import Column, done, local_time
from trainmaster.client import Client, Json

#: (client, arguments) -> the id that they mean
Find = Callable[[Client, argparse.Namespace], str]

DAYS_MAX = 32_767


def add(add_noun: Adder) -> None:
    verbs = add_noun("log-retention", help="show and clean up stored logs").add_verbs()
    parser = verbs.add_parser("show", help="show how much logs store and what the next cleanup would remove")
    parser.add_argument("--days", type=_days, metavar="N", help="as if the server kept logs for N days")
    output.add_format(parser)
    parser.set_defaults(run=_show, action="show what logs hold")
    add_cleanup(verbs, "cleanup")


def add_cleanup(verbs: Any, verb: str) -> None:
    """`log-retention cleanup`, and Determined's `task cleanup-logs`."""
    parser = verbs.add_parser(verb, help="remove logs past their retention now")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be removed")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    parser.set_defaults(run=_cleanup, action="clean up logs", days=None, output="table")


def _as_given(client: Client, args: argparse.Namespace) -> str:
    return str(args.entity_id)


def add_set(verbs: Any, noun: str, find: Find = _as_given) -> Any:
    """`set log-retention` of a noun whose path under /api/v1 is its plural; more can be set beside it."""
    settings = verbs.add_parser("set", help=f"change the {noun}").add_verbs("WHAT")
    parser = settings.add_parser("log-retention", help="set how long its log is kept after it ends")
    parser.add_argument("entity_id", metavar="ID", type=str if noun == "task" else int)
    how_long = parser.add_mutually_exclusive_group(required=True)
    how_long.add_argument(
        "--days", type=_days, metavar="N", help="days after it ends; 0: until the next cleanup"
    )
    how_long.add_argument("--forever", dest="days", action="store_const", const=-1, help="never remove it")
    how_long.add_argument(
        "--default",
        dest="days",
        action="store_const",
        const=None,
        help="use the setting of its config or the server",
    )
    parser.set_defaults(run=_set, noun=noun, find=find, action="set the log retention")
    return settings


def _days(text: str) -> int:
    try:
        days = int(text)
    except ValueError:
        days = -2
    if not -1 <= days <= DAYS_MAX:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: -1 (forever) to {DAYS_MAX} days")
    return days


def _set(client: Client, args: argparse.Namespace) -> None:
    found = args.find(client, args)
    entity_id = quote(found, safe="")
    client.call("PUT", f"/api/v1/{args.noun}s/{entity_id}/retain_logs", {"numDays": args.days})
    kept = {None: "as set by its config or the server", -1: "forever"}.get(
        args.days, f"for {quantities.counted(args.days, 'day')}"
    )
    done(f"The log of {args.noun} {found} is kept {kept}")


_COLUMNS = [
    Column("Trial ID", lambda row: row.get("trialId")),
    Column("Experiment ID", lambda row: row.get("experimentId")),
    Column("Task ID", lambda row: row["taskId"]),
    Column("Ended", lambda row: local_time(row.get("endTime"))),
    Column("Kept Days", lambda row: row["days"]),
    Column("Lines", lambda row: int(row["lines"])),
    Column("Stored", lambda row: quantities.size(int(row["storedBytes"]))),
]


def _asked(client: Client, args: argparse.Namespace) -> Json:
    query = [] if args.days is None else [("defaultDays", args.days)]
    return dict(client.get("/api/v1/logs/retention", query))


def _show(client: Client, args: argparse.Namespace) -> None:
    found = _asked(client, args)
    if args.output in output.STRUCTURED:
        output.structured(found, args.output)
    elif args.output == "csv":
        output.show(found["logs"], _COLUMNS, "csv")
    else:
        default = found["defaultDays"]
        kept = "forever" if default == -1 else f"for {quantities.counted(default, 'day')} after the end"
        print(f"Logs stored: {_sum(found['holds'])}. By default, logs are kept {kept}.")
        print(_would_go(found))
        if found["logs"]:
            output.show(found["logs"], _COLUMNS, "table")


def _would_go(found: Json) -> str:
    if not found["due"]["logs"]:
        return "The next cleanup removes nothing."
    listed = (
        f", of which {len(found['logs'])} are listed" if len(found["logs"]) < found["due"]["logs"] else ""
    )
    return f"The next cleanup removes {_sum(found['due'])}{listed}:"


def _sum(held: Json) -> str:
    lines, logs = int(held["lines"]), int(held["logs"])
    counted = f"{lines:,} line{'' if lines == 1 else 's'} of {logs:,} log{'' if logs == 1 else 's'}"
    return f"{counted}, {quantities.size(int(held['storedBytes']))} ({quantities.size(int(held['textBytes']))} of text)"


def _cleanup(client: Client, args: argparse.Namespace) -> None:
    found = _asked(client, args)
    if args.dry_run or not found["due"]["logs"]:
        print(_would_go(found))
        if found["logs"]:
            output.show(found["logs"], _COLUMNS, "table")
        return
    if not args.yes:
        if not output.is_interactive():
            raise UsageError(
                f"this cannot be undone: {_would_go(found)} use --yes to confirm, or --dry-run to preview."
            )
        question = f"{_would_go(found).rstrip(':')}. This cannot be undone. Continue?"
        output.confirm(question, "Nothing was removed.")
    removed = client.post("/api/v1/cleanup_logs")
    rest = " The rest is being removed in the background." if removed.get("more") else ""
    done(f"Removed {int(removed['removedCount']):,} lines of {int(removed['removedLogs']):,} logs.{rest}")

"""Prints logs, follows them across broken connections, and waits for what is followed."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from trainmaster.cli.errors import CliError
from trainmaster.cli.output import say
from trainmaster.client import Client, StreamFailed, StreamQuiet
from trainmaster.http import Answered, Later, Unreachable

Json = Dict[str, Any]
Query = List[Tuple[str, Any]]

LEVELS = ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
ENDED = ("STATE_COMPLETED", "STATE_CANCELED", "STATE_ERROR", "STATE_DELETED", "STATE_DELETE_FAILED")
RECONNECT_LIMIT_SECONDS = 120.0
_POLL_SECONDS = 1.0
_AWAY = 503  # what the server says while its database is away


def add_log_options(parser: argparse.ArgumentParser) -> None:
    part = parser.add_mutually_exclusive_group()
    part.add_argument("-f", "--follow", action="store_true", help="go on until the end")
    part.add_argument("--head", type=_count, metavar="N", help="the first N lines")
    part.add_argument("--tail", type=_count, metavar="N", help="the last N lines")
    parser.add_argument(
        "--rank",
        "--rank-id",
        dest="ranks",
        type=int,
        action="append",
        metavar="N",
        help="lines of this rank (may be repeated)",
    )
    parser.add_argument("--level", choices=LEVELS, help="lines of this level and above")
    parser.add_argument("--search", metavar="TEXT", help="lines that contain TEXT")
    for name, help_text in _FILTERS:
        parser.add_argument(f"--{name}", action="append", metavar="NAME", help=help_text)
    parser.add_argument("--timestamp-before", metavar="TIME", help="lines until this time (RFC 3339)")
    parser.add_argument("--timestamp-after", metavar="TIME", help="lines after this time (RFC 3339)")
    parser.add_argument("--json", action="store_true", help="one JSON record per line")


_FILTERS = [
    ("agent-id", "lines from this host"),
    ("container-id", "lines from this container"),
    ("source", "lines from this source"),
    ("stdtype", "stdout or stderr"),
]


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"found {text}, allowed: 1 or more")
    return number


def query_of(args: argparse.Namespace) -> Query:
    query: Query = [("rankIds", rank) for rank in args.ranks or []]
    if args.level:
        query += [("levels", f"LOG_LEVEL_{level}") for level in LEVELS[LEVELS.index(args.level) :]]
    for name, _ in _FILTERS:
        key = {
            "agent-id": "agentIds",
            "container-id": "containerIds",
            "source": "sources",
            "stdtype": "stdtypes",
        }[name]
        query += [(key, value) for value in getattr(args, name.replace("-", "_")) or []]
    if args.search:
        query.append(("searchText", args.search))
    if args.timestamp_before:
        query.append(("timestampBefore", args.timestamp_before))
    if args.timestamp_after:
        query.append(("timestampAfter", args.timestamp_after))
    return query


def print_logs(client: Client, path: str, args: argparse.Namespace, is_over: Callable[[], bool]) -> None:
    """Print what the options ask for. `is_over` tells whether more can still come, for -f."""
    show = print_json if args.json else print_text
    query = query_of(args)
    if args.follow:
        follow(client, path, query, show, is_over)
    elif args.tail:
        newest = list(client.lines(path, [*query, ("orderBy", "ORDER_BY_DESC"), ("limit", args.tail)]))
        for record in reversed(newest):
            show(record)
    else:
        limit: Query = [("limit", args.head)] if args.head else []
        for record in client.lines(path, [*query, *limit]):
            show(record)


def print_text(record: Json) -> None:
    message = record.get("message")
    text = message if message is not None else record.get("log", "")
    sys.stdout.write(str(text).rstrip("\n").encode("utf-8", "replace").decode() + "\n")
    sys.stdout.flush()


def print_json(record: Json) -> None:
    print(json.dumps(record), flush=True)


def follow(
    client: Client,
    path: str,
    query: Query,
    show: Callable[[Json], None],
    is_over: Callable[[], bool],
    patience_seconds: float = RECONNECT_LIMIT_SECONDS,
) -> None:
    """Show every record once, in order, until the stream ends properly and `is_over` agrees.

    A stream that breaks is taken up again after the last record. Raises CliError when that fails for too long.
    """
    last: Optional[str] = None
    broken_since: Optional[float] = None
    while True:
        try:
            for record in _after(client.lines(path, _query_from(query, last)), last):
                show(record)
                last, broken_since = record.get("id"), None
            if is_over():
                return
            broken_since = None
        except StreamQuiet:
            broken_since = None
        except (Unreachable, Later, StreamFailed) as error:
            if isinstance(error, StreamFailed) and error.code != _AWAY:
                raise
            broken_since = _still_patient(error, broken_since, patience_seconds)
        time.sleep(_POLL_SECONDS)


def _query_from(query: Query, last: Optional[str]) -> Query:
    """`after` is ours: a server that knows it begins behind that record, another one at the first."""
    return [*query, ("follow", "true"), *([("after", last)] if last is not None else [])]


def _after(records: Iterator[Json], last: Optional[str]) -> Iterator[Json]:
    """The records behind the one with the id `last`, for a server that begins anew."""
    if last is None:
        yield from records
        return
    skipping = not last.isdigit()
    for record in records:
        found = str(record.get("id"))
        if skipping:
            skipping = found != last
        elif not found.isdigit() or not last.isdigit() or int(found) > int(last):
            yield record


def _still_patient(error: Exception, since: Optional[float], patience_seconds: float) -> float:
    now = time.monotonic()
    if since is None:
        say(f"{error} Taking up the log again, for up to {patience_seconds:.0f} s.", "yellow")
        return now
    if now - since > patience_seconds:
        raise CliError(f"the log stream broke off: {error}") from error
    return since


def wait_for_experiment(client: Client, experiment_id: int, poll_seconds: float = _POLL_SECONDS) -> str:
    """Wait until the experiment has ended, through restarts of the server; its state."""
    while True:
        state = str(client.experiment(experiment_id)["experiment"]["state"])
        if state in ENDED:
            return state
        time.sleep(poll_seconds)


def trial_is_over(client: Client, trial_id: int) -> bool:
    """Whether no more lines of the trial will come; one that is gone has said all."""
    try:
        return client.trial(trial_id)["state"] in ENDED
    except Answered as error:
        if error.status == 404:
            return True
        raise

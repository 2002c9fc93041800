"""The options of every command that shows a log: the query that they make, and how its records look."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from datetime import datetime, timedelta, timezone
from typing import Any, List, TextIO, Tuple

from trainmaster.cli.errors import UsageError
from trainmaster.cli.output import TURNING
from trainmaster.client import Json

Query = List[Tuple[str, Any]]

LEVELS = ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
STREAMS = ["stdout", "stderr", "server"]
INTERRUPTED_LOG = 130  # as a shell gives it after Ctrl-C

EXIT_CODES = """exit codes:
  0    the lines were shown; with -f: the job also completed
  N    with -f: the failed job's own exit code (128 + n after signal n)
  1    the job failed without an exit code, was canceled or killed; the log stream was interrupted; or there are
       no lines of the requested ranks or hosts
  2    invalid command line
  130  Ctrl-C; the job keeps running"""

_AGO = re.compile(r"(?:[0-9]{1,9}[smhdw])+")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_MOMENT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?)?"
    r" ?([Zz]|[+-][0-9]{2}:?[0-9]{2})?"
)


def add_log_options(parser: argparse.ArgumentParser, with_allocations: bool = False) -> None:
    """`args` gets what `query_of`, `Printer` and `log_stream` read."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXIT_CODES
    parser.set_defaults(interrupted=INTERRUPTED_LOG)
    parser.add_argument("-f", "--follow", action="store_true", help="keep following until the job ends")
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--head", type=_count, metavar="N", help="show the first N lines")
    part.add_argument("--tail", type=_count, metavar="N", help="show the last N lines; with -f, then follow")
    _add_filters(parser, with_allocations)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON record per line")
    form.add_argument(
        "--no-prefix", action="store_true", help="print only the text, without time, host and rank"
    )
    parser.add_argument(
        "--timestamps",
        choices=["utc", "local", "none"],
        default="utc",
        help="how times are shown (default: utc)",
    )
    parser.add_argument("--utc", dest="timestamps", action="store_const", const="utc", help="times in UTC")


def _add_filters(parser: argparse.ArgumentParser, with_allocations: bool) -> None:
    parser.add_argument(
        "--rank", "--rank-id", dest="ranks", action="append", metavar="EXPR",
        help="lines of these ranks: 3, 0-7,!5, host:gpu-2, silent, failed, one-per-host, none (may be repeated)",
    )  # fmt: skip
    parser.add_argument("--level", choices=LEVELS, help="lines of this level and above")
    parser.add_argument("--stream", action="append", choices=STREAMS, help="lines of this stream")
    words = parser.add_mutually_exclusive_group()
    words.add_argument("--search", metavar="TEXT", help="lines that contain TEXT, ignoring case")
    words.add_argument("--grep", metavar="REGEX", help="lines that match the regular expression")
    parser.add_argument(
        "--since", "--timestamp-after", type=_moment, metavar="TIME",
        help="lines after this time: 2h (ago), 2026-01-31T12:00 (local), 2026-01-31T12:00:00Z",
    )  # fmt: skip
    parser.add_argument(
        "--until", "--timestamp-before", type=_moment, metavar="TIME", help="lines until this time"
    )
    for option, (_, text) in _NAMES.items():
        if option != "--allocation-id" or with_allocations:
            names = ["--host", option] if option == "--agent-id" else [option]
            parser.add_argument(*names, dest=_dest(option), action="append", metavar="NAME", help=text)


#: option → (parameter, help)
_NAMES = {
    "--agent-id": ("agentIds", "lines from this host"),
    "--container-id": ("containerIds", "lines from this container"),
    "--allocation-id": ("allocationIds", "lines of this attempt"),
    "--source": ("sources", "lines from this source: task or master"),
    "--stdtype": ("stdtypes", "stdout or stderr; the server's lines count as stdout"),
}


def _dest(option: str) -> str:
    return option[2:].replace("-", "_")


def check(args: argparse.Namespace) -> None:
    """Raises UsageError for options that exclude one another across groups."""
    if args.follow and args.head:
        raise UsageError("--head cannot be used with -f; allowed with -f: --tail.")


def query_of(args: argparse.Namespace) -> Query:
    """The filters that the options ask for."""
    query: Query = [("rankIds", rank) for rank in args.ranks or []]
    if args.level:
        query += [("levels", f"LOG_LEVEL_{level}") for level in LEVELS[LEVELS.index(args.level) :]]
    query += [("streams", stream) for stream in args.stream or []]
    for option, (parameter, _) in _NAMES.items():
        query += [(parameter, value) for value in getattr(args, _dest(option), None) or []]
    if args.search:
        query.append(("searchText", args.search))
    if args.grep:
        query += [("searchText", args.grep), ("enableRegex", "true")]
    if args.since:
        query.append(("timestampAfter", args.since))
    if args.until:
        query.append(("timestampBefore", args.until))
    return query


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"found {text}, allowed: 1 or more")
    return number


def _moment(text: str) -> str:
    """`2h`, `1d12h` ago, or a date and time, as RFC 3339 in UTC; a time without a zone is this machine's."""
    try:
        if _AGO.fullmatch(text):
            moment = datetime.now(timezone.utc) - _span(text)
        else:
            moment = _absolute(text).astimezone(timezone.utc)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"found {text!r}, allowed: a span such as 30m, 2h or 1d12h, or a time such as 2026-01-31T12:00:00Z"
        ) from None
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _span(text: str) -> timedelta:
    parts = re.findall(r"([0-9]+)([smhdw])", text)
    return sum((timedelta(**{_UNITS[unit]: int(number)}) for number, unit in parts), timedelta())


def _absolute(text: str) -> datetime:
    found = _MOMENT.fullmatch(text)
    if not found:
        raise ValueError(text)
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    microsecond = int((found[7] or "").ljust(6, "0")[:6])
    moment = datetime(year, month, day, hour, minute, second, microsecond)
    zone = (found[8] or "").upper()
    if not zone:
        return moment.astimezone()  # as this machine's clock says it
    if zone == "Z":
        return moment.replace(tzinfo=timezone.utc)
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return moment.replace(tzinfo=timezone(timedelta(minutes=-minutes if zone[0] == "-" else minutes)))


# --- how a record looks ---------------------------------------------------------------------------------------

#: Colors of ranks, of the 256 that terminals have; they can be read on black and on white.
_RANK_COLORS = [33, 166, 37, 168, 64, 98, 172, 31, 125, 71, 62, 130, 38, 161, 28, 134]
_OF_LEVEL = {"WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}
_FAINT, _END = "\033[2m", "\033[0m"
_SGR = re.compile(r"(\033\[[0-9;:]{0,32}m)")  # colors; all else that steers a terminal stays out of it
_STEERING = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{TURNING}]")


class Printer:
    """Prints records one a line. On a terminal, ranks have colors (unless NO_COLOR is set)."""

    def __init__(self, args: argparse.Namespace, stream: TextIO) -> None:
        self._json = bool(args.json)
        self._prefix = not args.no_prefix
        self._times = str(args.timestamps)
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._is_colored = (
            self._is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        )
        self._flushes = self._is_terminal or bool(args.follow)
        self.count = 0

    def __call__(self, record: Json) -> None:
        self.count += 1
        self._stream.write((json.dumps(record) if self._json else self.text(record)) + "\n")
        if self._flushes:
            self._stream.flush()

    def text(self, record: Json) -> str:
        """`[time] host [rank=N] || LEVEL: text`, or as much of it as is wanted."""
        found = record.get("log")
        if found is None:  # an older server, which has the flat form alone
            return self._safe(str(record.get("message", "")).rstrip("\n"))
        text = self._safe(str(found))
        if not self._prefix:
            return text
        level = str(record.get("level", "")).replace("LOG_LEVEL_", "").replace("UNSPECIFIED", "")
        if level and not text.startswith(f"{level}:"):
            text = f"{level}: {text}"
        rank = record.get("rankId")
        named = f"{record.get('agentId') or 'server'} " + (f"[rank={rank}] " if rank is not None else "")
        time = self._time(str(record.get("timestamp", "")))
        if not self._is_colored:
            return f"{time}{named}|| {text}"
        if level in _OF_LEVEL:
            text = f"\033[{_OF_LEVEL[level]}m{text}{_END}"
        color = f"\033[38;5;{_RANK_COLORS[rank % len(_RANK_COLORS)]}m" if isinstance(rank, int) else _FAINT
        return f"{_FAINT}{time}{_END}{color}{named}||{_END} {text}"

    def _time(self, text: str) -> str:
        if self._times == "none":
            return ""
        if self._times == "local":
            try:
                moment = datetime.strptime(text.replace("Z", "+0000"), "%Y-%m-%dT%H:%M:%S.%f%z").astimezone()
                text = moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + moment.strftime(" %z")
            except ValueError:
                pass  # as the server gave it
        return f"[{text}] "

    def _safe(self, text: str) -> str:
        """The text as it is for a pipe; a terminal is colored by it at most, never steered."""
        text = text.encode("utf-8", "replace").decode()
        if not self._is_terminal:
            return text
        parts = _SGR.split(text)
        kept = [
            part if index % 2 else _STEERING.sub("\ufffd", part)
            for index, part in enumerate(parts)
            if not index % 2 or self._is_colored
        ]
        return "".join(kept) + (_END if len(parts) > 1 and self._is_colored else "")


def plain() -> Printer:
    """As `-f` alone shows a log, on stdout."""
    return Printer(argparse.Namespace(json=False, no_prefix=False, timestamps="utc", follow=True), sys.stdout)

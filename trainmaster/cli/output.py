"""Tables, JSON and CSV on stdout; messages, questions and progress on stderr; long tables go through $PAGER."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from datetime import datetime
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, TextIO

import trainmaster.yamltext as yamltext
from trainmaster import csv_text
from trainmaster.cli.errors import CliError, Declined
from trainmaster.client import Json

#: what turns the direction of text around, so that it reads as something else
TURNING = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_CONTROL = re.compile(f"[\x00-\x1f\x7f-\x9f\u2028\u2029{TURNING}]")
_COLORS = {"red": "31", "green": "32", "yellow": "33"}
#: characters of an id in a table; ids may be given by any unique beginning
SHORT_ID = 8
FORMS = ("table", "json", "csv", "yaml")
#: forms that print whole records
STRUCTURED = ("json", "yaml")
_BAR_FROM_BYTES = 1024 * 1024
_BAR_WIDTH = 30


class Column(NamedTuple):
    """A heading, and what stands under it for a row; `short` is what a table shows instead, if shorter."""

    heading: str
    value: Callable[[Json], Any]
    short: Optional[Callable[[Any], str]] = None


def colored(text: str, color: str, stream: TextIO) -> str:
    if not stream.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\033[{_COLORS[color]}m{text}\033[0m"


def say(text: str, color: Optional[str] = None) -> None:
    """A message about the work, on stderr."""
    print(colored(text, color, sys.stderr) if color else text, file=sys.stderr, flush=True)


def say_notices(answer: Json) -> None:
    """What the server has to say about something that it accepted."""
    for notice in answer.get("notices") or []:
        say(notice, "yellow")


def done(text: str) -> None:
    """The result of a command, in green on stdout."""
    print(colored(text, "green", sys.stdout), flush=True)


def add_format(
    parser: argparse.ArgumentParser, choices: Sequence[str] = FORMS, default: str = "table"
) -> None:
    """-o table|json|csv|yaml, and the older --json, --csv, --yaml and --table."""
    parser.add_argument("-o", "--output", choices=choices, default=default, help="output format")
    for name in choices:
        parser.add_argument(
            f"--{name}", dest="output", action="store_const", const=name, help=argparse.SUPPRESS
        )


def add_part(parser: argparse.ArgumentParser, most: int = 0) -> None:
    """Add the options for a part of a long list: --limit (0: none), --offset, and --pages all (beats the limit)."""
    text = f"at most N; default: {most or 'all'}"
    parser.add_argument("--limit", type=int, default=most, metavar="N", help=text)
    parser.add_argument("--offset", type=int, default=0, metavar="N", help="skip the first N")
    parser.add_argument("--pages", choices=["1", "all"], default="1", help="all: ignore the limit")


def limit(args: argparse.Namespace) -> int:
    """What --limit and --pages of `add_part` ask for; 0 is no limit."""
    return 0 if args.pages == "all" else max(0, int(args.limit))


def structured(value: Any, form: str) -> None:
    """The server's own record, in a form of STRUCTURED."""
    print(json.dumps(value, indent=2) if form == "json" else yamltext.dump(value).rstrip("\n"))


def show(rows: Sequence[Json], columns: Sequence[Column], form: str) -> None:
    """Print rows in the form that was asked for: a table of cells, or the server's own records."""
    if form in STRUCTURED:
        structured(list(rows), form)
    elif form == "csv":
        headings = [column.heading for column in columns]
        cells = [[_cell(column.value(row)) for column in columns] for row in rows]
        sys.stdout.write(csv_text.lines([headings, *cells]))
    else:
        cells = [[_table_cell(column, row) for column in columns] for row in rows]
        _page(table([column.heading for column in columns], cells))


def show_one(record: Json, columns: Sequence[Column], form: str) -> None:
    """One record: as JSON an object, as a table its fields one below the other."""
    if form in STRUCTURED:
        structured(record, form)
    elif form == "csv":
        show([record], columns, form)
    else:
        width = max(len(column.heading) for column in columns)
        for column in columns:
            print(f"{column.heading + ':':<{width + 1}} {clean(_cell(column.value(record)))}")


def told(record: Json, columns: Sequence[Column], args: argparse.Namespace, sentence: str) -> None:
    """What was done as a sentence, or the record where a form was asked for."""
    if args.output == "table":
        done(sentence)
    else:
        show_one(record, columns, args.output)


def table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Cells under headings, numbers to the right."""
    texts = [[clean(_cell(cell)) for cell in row] for row in rows]
    indexes = range(len(headings))
    widths = [max(len(row[i]) for row in [list(headings), *texts]) for i in indexes]
    numbers = [bool(rows) and all(type(row[i]) in (int, float) for row in rows) for i in indexes]

    def line(cells: Sequence[str]) -> str:
        padded = [cells[i].rjust(widths[i]) if numbers[i] else cells[i].ljust(widths[i]) for i in indexes]
        return (" " + " | ".join(padded)).rstrip()

    rule = "-" + "-+-".join("-" * width for width in widths) + "-"
    return "\n".join([line(headings), rule, *(line(row) for row in texts)])


def clean(text: str) -> str:
    """Text of others in one line: it cannot move the cursor, paint the terminal or turn the text around."""
    return _CONTROL.sub(" ", text)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value) if isinstance(value, (dict, list)) else str(value)


def _table_cell(column: Column, row: Json) -> Any:
    value = column.value(row)
    return column.short(value) if column.short is not None and value is not None else value


def local_time(text: Optional[str]) -> str:
    """A time of the server's in the zone of this machine, which is named."""
    if not text:
        return ""
    try:
        moment = datetime.strptime(re.sub(r"\.\d+", "", text).replace("Z", "+0000"), "%Y-%m-%dT%H:%M:%S%z")
    except ValueError:
        return text
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S %z")


def percent(fraction: Optional[float]) -> str:
    return "" if fraction is None else f"{100 * fraction:.1f}%"


def state(text: str) -> str:
    """STATE_PAUSED → PAUSED."""
    return text[6:] if text.startswith("STATE_") else text


def ask(question: str, default: bool) -> bool:
    """A yes or no from the terminal. Raises CliError where there is none."""
    choices = "[Y/n]" if default else "[y/N]"
    answer = _answer(f"{question} {choices} ").strip().lower()
    return default if not answer else answer in ("y", "yes")


def confirm(question: str, otherwise: str, agreed: bool = False) -> None:
    """Ask, unless it is `agreed` already. Raises Declined with the sentence `otherwise`."""
    if not agreed and not ask(question, default=False):
        raise Declined(otherwise)


def ask_text(question: str) -> str:
    return _answer(question).strip()


def ask_password(question: str) -> str:
    if not sys.stdin.isatty():
        raise CliError(
            f"{question.rstrip(': ')} is required, but there is no terminal to ask; set DET_USER and DET_PASS."
        )
    return getpass.getpass(question)


def is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _answer(question: str) -> str:
    if not sys.stdin.isatty():
        raise CliError(f"There is no terminal to ask: {question.strip()} Use --yes to confirm in advance.")
    print(question, end="", file=sys.stderr, flush=True)
    text = sys.stdin.readline()
    if not text:
        raise CliError("No answer was given.")
    return text


class Bar:
    """A progress bar on stderr, for work of more than a megabyte and only on a terminal; its line ends with `with`."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._drawn = False
        self._at = 0.0

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._drawn:
            print(file=sys.stderr)

    def __call__(self, done_bytes: int, total: int) -> None:
        if total < _BAR_FROM_BYTES or not sys.stderr.isatty():
            return
        now, finished = time.monotonic(), done_bytes >= total
        if not finished and now - self._at < 0.1:
            return
        self._at, self._drawn = now, not finished
        filled = int(_BAR_WIDTH * done_bytes / total)
        bar = "#" * filled + "." * (_BAR_WIDTH - filled)
        print(
            f"\r{self._label} [{bar}] {100 * done_bytes // total:3d}%",
            end="\n" if finished else "",
            file=sys.stderr,
            flush=True,
        )
        if finished:
            self._at = now + 3600  # one finished line is enough


def boolean(text: str) -> bool:
    """The value of an option that is true or false."""
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if text.lower() not in words:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: true or false")
    return words[text.lower()]


def lines_of(items: Sequence[str], most: int = 10) -> List[str]:
    """The first `most` items, and how many more there are."""
    rest = len(items) - most
    return [*items[:most], *([f"and {rest} more"] if rest > 0 else [])]


# --- what is longer than the screen goes through $PAGER, on a terminal only ---------------------------------------

#: leave at once what fits, keep colors, and leave the text on the screen, unless the person has a choice of his own
_LESS = "FRX"
_DEFAULT = "less"


class _Choice:
    wanted = True


def no_pager() -> None:
    """`--no-pager`: everything is printed as it is, in this process."""
    _Choice.wanted = False


def _page(text: str) -> None:
    """Print the text; through the pager where a person would have to scroll back for its beginning."""
    program = _pager()
    if not program or len(text.splitlines()) < shutil.get_terminal_size().lines:
        print(text)
        return
    sys.stdout.flush()
    try:
        process = subprocess.Popen(
            program, stdin=subprocess.PIPE, env={"LESS": _LESS, **os.environ}, text=True, errors="replace"
        )
    except OSError:  # no such program: nothing is lost by it
        print(text)
        return
    try:
        process.communicate(text + "\n")
    except KeyboardInterrupt:
        process.wait()
        raise


def _pager() -> List[str]:
    """The pager's command line, empty where there is to be none. PAGER= and PAGER=cat switch it no_pager."""
    if not _Choice.wanted or not (sys.stdout.isatty() and sys.stdin.isatty()):
        return []
    try:
        words = shlex.split(os.environ.get("PAGER", _DEFAULT))
    except ValueError:
        words = []
    return [] if words in ([], ["cat"]) else words

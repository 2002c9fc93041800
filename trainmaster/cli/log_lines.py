"""How a record of a log looks on the terminal, in a pipe and as JSON."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from datetime import datetime
from typing import TextIO

from trainmaster.client import Json

#: Colors of ranks, of the 256 that terminals have; they can be read on black and on white.
_RANK_COLORS = [33, 166, 37, 168, 64, 98, 172, 31, 125, 71, 62, 130, 38, 161, 28, 134]
_OF_LEVEL = {"WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}
_FAINT, _END = "\033[2m", "\033[0m"
_SGR = re.compile(r"(\033\[[0-9;:]{0,32}m)")  # colors; all else that steers a terminal stays out of it
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


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

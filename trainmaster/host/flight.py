"""What torch's flight recorder knows of a rank's collectives: asked for, read with bounds, and cut to what tells.

The answer is a file that the job's own account writes, so it may be anything: a pipe, a link, gigabytes, any JSON.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from trainmaster import bounded_json
from trainmaster.paths import RunPaths
from trainmaster.processes import number_inside
from trainmaster.rank_processes import Seen

_ANSWER_BYTES_MAX = 16 * 1024 * 1024
_WORD_CHARACTERS = 200
_MOST_GROUPS = 32
#: of one rank that are asked
_MOST_PROCESSES = 8
#: the newest calls of each group, and before them the oldest that is not done
_NEWEST = 12
_MOST_MEMBERS = 4096


class Recorder:
    """That of one rank: of the first of its processes that tells of collectives."""

    def __init__(self, paths: RunPaths, processes: Sequence[Seen]) -> None:
        running = [seen.pid for seen in processes if seen.state not in ("T", "t")]  # a stopped one is silent
        pipes = [paths.stacks / f"flight.{number_inside(pid)}" for pid in running]
        self._pipes = [pipe for pipe in pipes if pipe.exists()][:_MOST_PROCESSES]
        self._answers: List[Path] = []

    def ask(self) -> None:
        for pipe in self._pipes:
            answer = pipe.with_name(f"{pipe.name}.json")
            with contextlib.suppress(OSError):
                answer.unlink()
            if not os.path.lexists(answer) and _asked(pipe):  # what is left there is no answer
                self._answers.append(answer)

    def writes(self) -> bool:
        """True until all have answered."""
        return not all(os.path.lexists(answer) for answer in self._answers)

    def answer(self) -> Optional[Dict[str, Any]]:
        """{"groups": {name: {"members", "calls"}}}; None if it does not answer."""
        found: Optional[Dict[str, Any]] = None
        for answer in self._answers:
            try:
                said = bounded_json.loads(_text(answer))
            except (OSError, ValueError):
                continue
            groups = _groups(said) if isinstance(said, dict) else None
            if groups:
                return {"groups": groups}
            if groups is not None:
                found = {"groups": groups}
        return found


def _asked(path: Path) -> bool:
    with contextlib.suppress(OSError):  # nobody reads there any more, or it is no pipe
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return stat.S_ISFIFO(os.fstat(pipe).st_mode) and os.write(pipe, b"?") == 1
        finally:
            os.close(pipe)
    return False


def _text(path: Path) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(file, "rb") as stream:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ValueError("It is not a file.")
        text = stream.read(_ANSWER_BYTES_MAX + 1)
    if len(text) > _ANSWER_BYTES_MAX:
        raise ValueError("It is too large.")
    return text


def _groups(said: Dict[str, Any]) -> Dict[str, Any]:
    members = said.get("groups")
    of_group = members if isinstance(members, dict) else {}
    calls: Dict[str, List[Dict[str, Any]]] = {}
    named: Dict[str, str] = {}
    series: Dict[str, object] = {}
    for trace in _list(said.get("traces")):
        for entry in _list(trace.get("entries") if isinstance(trace, dict) else None):
            names = _list(entry.get("process_group")) if isinstance(entry, dict) else []
            call = _call(entry) if names else None
            if call is None or (of_group and _word(names[0]) not in of_group):  # the group was destroyed
                continue
            backend = _word(entry.get("profiling_name")).partition(":")
            name = f"{_word(names[0])} {backend[0]}" if backend[1] else _word(names[0])
            before = calls.get(name)
            # a group that was destroyed and made again has its name and counts from 1: only the last one is told of
            if not before or series[name] != entry.get("pg_id") or call["number"] < before[-1]["number"]:
                before = calls[name] = []
            before.append(call)
            named[name], series[name] = _word(names[0]), entry.get("pg_id")
    newest_first = sorted(calls, key=lambda name: (all(call["done"] for call in calls[name]), name))
    return {
        name: {"members": _ranks(of_group.get(named[name])), "calls": _telling(calls[name])}
        for name in newest_first[:_MOST_GROUPS]
    }


def _call(entry: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """One collective that the rank has entered; None for a message between two ranks."""
    number = entry.get("collective_seq_id")
    if entry.get("is_p2p") or type(number) is not int:
        return None
    return {
        "number": number,
        "name": _word(entry.get("profiling_name")).rpartition(":")[2],
        "sizes": _word(entry.get("output_sizes")),
        "types": _word(entry.get("output_dtypes")),
        "done": entry.get("retired") is True or entry.get("state") == "completed",
    }


def _telling(calls: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    calls = sorted(calls, key=lambda call: call["number"])
    newest = calls[-_NEWEST:]
    oldest_open = next((call for call in calls if not call["done"]), None)
    return newest if oldest_open is None or oldest_open in newest else [oldest_open, *newest]


def _ranks(value: object) -> List[int]:
    return [rank for rank in _list(value) if type(rank) is int and rank >= 0][:_MOST_MEMBERS]


def _list(value: object) -> List[Any]:
    return value if isinstance(value, list) else []


def _word(value: object) -> str:
    return str(value)[:_WORD_CHARACTERS] if isinstance(value, (str, list, int)) else ""

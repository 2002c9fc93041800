"""The level that a line states about itself, found in many lines at once. Pure.

Read are the ways in which logging libraries write it: a word in capitals at the start of the line, behind a time or
behind the name of a logger; the letter of glog, absl and TensorFlow; what Python writes of an exception. A word
further in is prose, and so is a word that is not in capitals.
"""

from __future__ import annotations

import re
from typing import List, Optional, Tuple

_LEVELS = {
    b"DEBUG": "DEBUG",
    b"INFO": "INFO",
    b"WARN": "WARNING",
    b"WARNING": "WARNING",
    b"ERROR": "ERROR",
    b"CRITICAL": "CRITICAL",
    b"FATAL": "CRITICAL",
    b"D": "DEBUG",
    b"I": "INFO",
    b"W": "WARNING",
    b"E": "ERROR",
    b"F": "CRITICAL",
}

_SPACE = rb"(?:\x1b\[[\d;]*m|[ \t])*"  # with the colors of a terminal
#: `[rank0]:`, `[default1]:`, `[1,0]<stderr>:`, `(Worker pid=7)`: what launchers put before a line
_TAG = rb"(?:\[[\w,. :=-]{1,60}\](?:<\w+>)?:?|\([\w,. :=-]{1,80}\))"
_DATE = rb"(?:\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?[-/.]\d\d?(?:[-/.]\d{2,4})?|(?:[A-Z][a-z]{2},? )?[A-Z][a-z]{2} {1,2}\d\d?)"
_CLOCK = rb"\d\d?:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[ ]?[+-]\d\d:?\d\d|[ ][A-Z]{3,4}(?=[ \])]))?"
_TIME = rb"[\[(]?(?:" + _DATE + rb"(?:[T ,]|, )" + rb")?" + _CLOCK + rb"[\])]?"
_BETWEEN = rb"(?:\x1b\[[\d;]*m|[ \t:|,>-])*"
#: a logger's name, a process id, `[module]`: something that a separator ends
_FIELD = rb"(?:\[[^\]\n]{0,60}\]|[\w.@/]{1,60}(?=[ \t]*[:|\t]|[ ]-))" + _BETWEEN
_WORD = rb"[\[(<*]{0,3}(DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)(?=[\s:|\]>)(,;!*\x1b]|[ ]?-[ ]|\Z)"
_GLOG = rb"\[?([DIWEF])\d{3,4} \d\d:\d\d:\d+\.\d"  # also of torch: E1121 05:12:43.123, [W501 05:12:43.123
_C10D = rb"\[([DIWEF]) [\w./-]+\.(?:cpp|cc|cu|hpp|h|py):\d+\]"
_TENSORFLOW = rb"[: ]+([DIWEF]) [\w./-]+:\d+\]"
_EXCEPTION = (
    rb"((?:[A-Za-z_]\w*\.){0,8}[A-Z]\w{0,60}?(?:Error|Exception|Interrupt)(?=:|\n|\Z)"
    rb"|Exception(?=:|\n|\Z)|Traceback \(most recent call last\):|Fatal Python error: )"
)
#: `file.py:3: UserWarning: text` of Python's own warnings, and `host:pid:tid [0] NCCL WARN text`
_PYTHON_WARNING = re.compile(rb"\n[^\s:]{1,300}:\d+: (?:[A-Z]\w*)?Warning: ")
_NCCL = re.compile(
    rb"\n(?:\[[^\]\n]{1,40}\] )?[\w.-]+:\d+:\d+ (?:\[\d+\] )?(?:[\w./]+:\d+ )?NCCL (INFO|WARN|ERROR) "
)

_NAMED = _BETWEEN + rb"(?:" + _FIELD + rb"){0,3}?(?:[\w.]{1,60}[ ])?" + _WORD
_TIMED = _TIME + rb"(?:" + _TENSORFLOW + rb"|" + _NAMED + rb")"
_FORMS = rb"|".join((_WORD, _GLOG, _C10D, _TIMED, _FIELD + _WORD, _EXCEPTION))
_STATED = re.compile(rb"\n" + _SPACE + rb"(?:" + _TAG + _SPACE + rb"){0,2}?(?:" + _FORMS + rb")")
_WORDS_OF_OTHERS = ((b"Warning: ", _PYTHON_WARNING), (b" NCCL ", _NCCL))


def levels_of(text: bytes) -> List[Tuple[int, str]]:
    """(index, level's name) of those lines of `text` that state one, in order; lines are joined by `\\n`."""
    lines = b"\n" + text
    found = {match.start(): _level(match.group(match.lastindex or 0)) for match in _STATED.finditer(lines)}
    for word, form in _WORDS_OF_OTHERS:
        if word in text:
            for match in form.finditer(lines):
                found.setdefault(match.start(), _level(match.group(1) if form is _NCCL else b"WARNING"))
    levels, index, counted = [], 0, 0
    for start in sorted(found):
        index += lines.count(b"\n", counted, start)
        counted = start
        levels.append((index, found[start]))
    return levels


def level_of(line: bytes) -> Optional[str]:
    """The level that one line states, None for most."""
    levels = levels_of(line)
    return levels[0][1] if levels else None


def _level(word: bytes) -> str:
    return _LEVELS.get(word) or ("CRITICAL" if word.startswith(b"Fatal") else "ERROR")

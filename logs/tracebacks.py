"""Finds what a process that ended badly said about it in its lines: its last traceback, or a missing program. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

#: PyTorch's excepthook puts it before every line of a rank's traceback.
_RANK = re.compile(r"^\[rank\d+\]:[ ]?")
_BEGIN = re.compile(r"^[\s+|]*(?:Exception Group )?Traceback \(most recent call last\):\s*$")
_FATAL = re.compile(r"^Fatal Python error: ")
_STACK = re.compile(r"^(?:\s|Thread 0x|Current thread 0x|Python runtime state|Extension modules|$)")
_INDENTED = re.compile(r"^[\s+|]|^$")
_RAISED = re.compile(r"^[\s+|]*(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:: |:?$)")
_GROUP = re.compile(r"^[\s|]+((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*: .*\(\d+ sub-exceptions?\))")
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit|Warning|Timeout)(?:: |$)"
)
_CHAINS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
#: torchrun's word about its workers, which says nothing that the failing rank has not said.
_TORCHRUN = "ChildFailedError"
_NOISE = re.compile(
    r"Sending process \d+ closing signal|closing signal SIGTERM|ChildFailedError"
    r"|torch[./]distributed[./](?:elastic|run|launcher)|^=+$|^-+$|^(?:Root Cause|Other Failures|Failures)"
    r"|<NO_OTHER_FAILURES>|destroy_process_group\(\) was not called"
    r"|^\s+(?:time|host|rank|exitcode|error_file|traceback)\s*: "
)
#: What a rank says whose peer has gone: its own failure is a consequence.
_PEER_GONE = re.compile(
    r"[Cc]onnection (?:closed by|reset by|refused)|ConnectionResetError|BrokenPipeError|Broken pipe|Socket closed"
    r"|remote process (?:exited|has)|NCCL communicator was aborted|ncclRemoteError|DistNetworkError|failed to recv"
    r"|recvValue failed|Timed out waiting .*ms for (?:recv|send)"
)
_ROOT_CAUSE = "Root Cause (first observed failure):"
_ROOT_LINES = 12
_ROOT_RANK = re.compile(r"^\s+rank\s+: (\d+) \(local_rank: \d+\)")
_ROOT_CODE = re.compile(r"^\s+exitcode\s+: (-?\d+) ")
#: An exception's message may have lines of its own; more than this is something else.
_MESSAGE_LINES = 15
#: What may stand below a traceback although the process died of it: last words of exit handlers.
_LINES_BELOW = 40
#: what the shell, `env` or the runner print before exit code 127
_SHELL = r"^(?:\S*sh: (?:line )?(?:\d+: )?|\S+: (?:line )?\d+: )(?:exec: )?"
_COMPLAINTS = [
    re.compile(_SHELL + r"([^\s:]+): (?:command )?not found$"),
    re.compile(_SHELL + r"([^\s:]+): No such file or directory$"),
    re.compile(r"\benv: \W?([\w./+-]+)\W?: No such file or directory$"),
    re.compile(r"^ERROR: trainmaster: command not found: '([^']+)'"),  # trainmaster/runner/keeper.py
    re.compile(r"^ERROR: trainmaster: command not found: .* first line of '([^']+)'"),
]


class Block(NamedTuple):
    """Lines `first` to `last` (indices) of a traceback, with all that it was raised from; `cause` its last line."""

    first: int
    last: int
    cause: str


def is_noise(text: str) -> bool:
    """True for what a launcher says when it ends the other ranks, and when they end."""
    return _NOISE.search(text) is not None


def is_of_a_peer(cause: str) -> bool:
    """True for an exception that a rank raises because another one has gone."""
    return _PEER_GONE.search(cause) is not None


def root_cause(lines: Sequence[str]) -> tuple[int, int] | None:
    """(rank, exit code as a shell gives it) that torchrun's own report names as first; None without such a report."""
    at = next((index for index in reversed(range(len(lines))) if _ROOT_CAUSE in lines[index]), None)
    if at is None:
        return None
    report = lines[at : at + _ROOT_LINES]
    rank = next(filter(None, map(_ROOT_RANK.match, report)), None)
    code = next(filter(None, map(_ROOT_CODE.match, report)), None)
    if rank is None or code is None:
        return None
    number = int(code[1])
    return int(rank[1]), number if number >= 0 else 128 - number


def without_rank(text: str) -> str:
    """The line without PyTorch's `[rank2]: `."""
    return _RANK.sub("", text)


def last_block(lines: Sequence[str]) -> Block | None:
    """The last traceback among the lines of one stream, if it stands near their end; torchrun's own is none."""
    texts = [without_rank(line) for line in lines]
    found: Block | None = None
    index = 0
    while index < len(texts):
        block = _block(texts, index)
        if block is None:
            index += 1
            continue
        if _TORCHRUN not in block.cause:
            found = block
        index = block.last + 1
    if found is None or len(texts) - found.last > _LINES_BELOW:
        return None
    return found


def last_exception(lines: Sequence[str]) -> str:
    """The last line that reads like an exception's, for what died without a traceback; empty where none does."""
    texts = (without_rank(line) for line in reversed(lines))
    return next((text.strip() for text in texts if _EXCEPTION.match(text) and not is_noise(text)), "")


def _block(texts: Sequence[str], first: int) -> Block | None:
    if _FATAL.match(texts[first]):
        last = first
        while last + 1 < len(texts) and _STACK.match(texts[last + 1]):
            last += 1
        return Block(first, _without_blank_end(texts, first, last), texts[first].strip())
    if not _BEGIN.match(texts[first]):
        return None
    last, cause = _raised(texts, first)
    while (following := _chained(texts, last)) is not None:
        last, cause = _raised(texts, following)
    return Block(first, last, cause)


def _raised(texts: Sequence[str], begin: int) -> tuple[int, str]:
    """The last line of one traceback, and the line of its exception."""
    index = begin + 1
    while index < len(texts) and _INDENTED.match(texts[index]) and not _BEGIN.match(texts[index]):
        index += 1
    if "Exception Group" in texts[begin]:  # all of it is indented
        group = next(filter(None, map(_GROUP.match, texts[begin:index])), None)
        return index - 1, group[1].strip() if group else texts[index - 1].strip()
    if index >= len(texts) or not _RAISED.match(texts[index]):
        return index - 1, texts[index - 1].strip()
    cause, end = texts[index].strip(), index
    while end + 1 < len(texts) and end - index < _MESSAGE_LINES and _goes_on(texts[end + 1]):
        end += 1
    return end, cause


def _goes_on(text: str) -> bool:
    """Whether a line may belong to the message of the exception above it."""
    return bool(text.strip()) and not (_BEGIN.match(text) or text.startswith("[") or is_noise(text))


def _chained(texts: Sequence[str], last: int) -> int | None:
    """Where the traceback begins that was raised from the one that ends at `last`."""
    index = last + 1
    while index < len(texts) and not texts[index].strip():
        index += 1
    if index >= len(texts) or texts[index].strip() not in _CHAINS:
        return None
    index += 1
    while index < len(texts) and not texts[index].strip():
        index += 1
    return index if index < len(texts) and _BEGIN.match(texts[index]) else None


def _without_blank_end(texts: Sequence[str], first: int, last: int) -> int:
    while last > first and not texts[last].strip():
        last -= 1
    return last


def missing_program(lines: Iterable[str]) -> str:
    """The program that the last of these lines says is missing; empty if none says so."""
    found = (
        match[1] for text in reversed(list(lines)) for each in _COMPLAINTS if (match := each.search(text))
    )
    return next(found, "")


def about_missing(program: str, host: str) -> str:
    """What to check about it on that host."""
    if "/" in program:
        return f"Check on {host} that {program} exists, and the interpreter that its first line names."
    return (
        f"{program} is not on the PATH of jobs on {host}: check its spelling, install it there, or set the Python "
        "environment that has it (environment.python or environment.activate)."
    )

"""The small words of Slurm's answers: empty values, times, lists of nodes, GPUs. Nothing here raises for a bad one."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

from trainmaster.slurm import amounts
from trainmaster.slurm.options import BadScript

#: what the versions from 20.11 to 25.05 print where there is nothing
_NOTHING = frozenset(
    {"", "n/a", "(null)", "none", "unknown", "n/s", "none assigned", "not_set", "invalid", "(none)"}
)
_UNLIMITED = frozenset({"unlimited", "infinite", "partition_limit"})
#: no number in an answer has more digits, and a longer one is not read
_DIGITS = 15
_COUNT = re.compile(rf"(\d{{1,{_DIGITS}}})(?:\.\d{{1,{_DIGITS}}})?([KMGTkmgt]?)", re.ASCII)
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
#: the places of a GPU within its node, such as (IDX:0-1) and (S:0)
_PLACES = re.compile(r"\([^)]*\)")
_GPU = re.compile(r"gres[:/]gpu|gpu")
_LONGEST_SECONDS = 10**10
#: more names than this of one list are none of a cluster's
NODES_MOST = 10_000
_BRACKETS_MOST = 8
_PART = re.compile(r"(?:[^,\[\]]|\[[^\]]*\])+")
_RANGES = re.compile(r"\[([^\]]*)\]")
_RANGE = re.compile(rf"(\d{{1,{_DIGITS}}})-(\d{{1,{_DIGITS}}})", re.ASCII)
#: signs that end a line for some readers, or that the database does not store
_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def clean(text: str) -> str:
    """An answer without signs that Slurm does not print and that people can write into its texts."""
    return _CONTROL.sub(" ", text)


def value(text: str) -> str:
    """The text, empty where Slurm says in one of its ways that there is nothing."""
    text = text.strip()
    return "" if text.lower() in _NOTHING else text


def whole(text: str) -> int | None:
    """A number, also one such as `1.5K` of old versions; None without one."""
    found = _COUNT.fullmatch(text.strip())
    return int(float(text.strip().rstrip("KMGTkmgt")) * _UNITS[found[2].lower()]) if found else None


def seconds(text: str) -> int | None:
    """A time limit such as `1-00:00:00`; None: none, or unknown."""
    text = value(text)
    if not text or text.lower() in _UNLIMITED:
        return None
    try:
        found = amounts.seconds(text)
    except (BadScript, ValueError):
        return None
    return None if found is None or found > _LONGEST_SECONDS else found


def moment(text: str) -> datetime | None:
    """A time of Slurm's commands, which are run with TZ=UTC0 and SLURM_TIME_FORMAT=standard."""
    try:
        return datetime.strptime(value(text), "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None


def nodes(text: str) -> list[str]:
    """The names of `g[1-3,07],login`; none of what is not such a list."""
    text = value(text)
    try:
        return amounts.hosts(text, "nodelist") if text and _names(text) <= NODES_MOST else []
    except (BadScript, ValueError):
        return []


def _names(text: str) -> int:
    """How many names a list has: several brackets in one name multiply them."""
    total = 0
    for part in _PART.findall(text):
        brackets = _RANGES.findall(part)
        if len(brackets) > _BRACKETS_MOST:
            return NODES_MOST + 1
        total += math.prod(sum(map(_size, ranges.split(","))) for ranges in brackets)
    return total


def _size(each: str) -> int:
    found = _RANGE.fullmatch(each)
    return max(0, int(found[2]) - int(found[1])) + 1 if found else 1


def gpus(text: str) -> dict[str, int]:
    """Type -> GPUs, of Gres, GresUsed, TRES_PER_NODE (`gpu:a100:2(IDX:0-1)`, `gres:gpu:2`, `gres/gpu:a100:2`, `gpu`)
    and of CfgTRES or AllocTRES (`cpu=4,gres/gpu=2,gres/gpu:a100=2`). The type is empty where none is said.
    """
    found: dict[str, int] = {}
    for part in _PLACES.sub("", value(text)).split(","):
        name, equals, number = part.partition("=")
        match = _GPU.match(name)
        if match is None:
            continue
        words = [word for word in name[match.end() :].split(":") if word]
        if not equals:
            number = words.pop() if words and words[-1].isdecimal() else "1"
        kind = words[0] if words else ""
        found[kind] = found.get(kind, 0) + (whole(number) or 0)
    return _without_sum(found)


def _without_sum(found: dict[str, int]) -> dict[str, int]:
    """TRES lists all GPUs and, beside that, those of each type: what no type accounts for stays without one."""
    named = sum(number for kind, number in found.items() if kind)
    if named and "" in found:
        found[""] = max(0, found[""] - named)
        if not found[""]:
            del found[""]
    return found

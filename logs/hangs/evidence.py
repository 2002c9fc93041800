"""What a host told of one rank of a gang that may hang, without trust in it: the job may have written any of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from logs.lines import shown

#: The server keeps no more than this of a rank's stacks.
TEXT_CHARACTERS = 64 * 1024
_WORD_CHARACTERS = 200
#: of all ranks together
_ALL_TEXT_CHARACTERS = 2 * 1024 * 1024
_LEAST_TEXT = 2048
_MOST_CALLS, _MOST_GROUPS, _MOST_MEMBERS = 16, 32, 4096
_LARGEST_RANK = 2**31 - 1
#: newest collectives of a group that are kept beside those from its oldest open one on
_NEWEST_KEPT = 2
ENDED = "ended"
#: the heading of a stack that py-spy printed
BY_PY_SPY = "As py-spy sees it:"


@dataclass(frozen=True)
class Call:
    """A collective that a rank has entered; `number` counts those of its group from 1."""

    number: int
    name: str
    sizes: str = ""
    types: str = ""
    done: bool = False


@dataclass(frozen=True)
class Group:
    """A process group as one rank knows it: its ranks (empty: unknown), and the newest collectives in it."""

    members: tuple[int, ...]
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Told:
    """A rank at one moment. `groups` is None where its flight recorder did not answer.

    `state` is the kernel's letter for its process, ENDED, or empty if nobody could tell. `text` are the stacks of its
    Python threads, else `message` says why there are none. `call`, `file` and `waits_in` are the kernel's words for
    what its first thread waits for; `cpu_seconds` is what its processes have used so far, and `moved_bytes` what they
    have read and written: before they were asked, and after they had answered, which moves bytes itself.
    """

    rank: int
    host: str = ""
    pid: int = 0
    state: str = ""
    text: str = ""
    message: str = ""
    call: str = ""
    file: str = ""
    waits_in: str = ""
    cpu_seconds: float | None = None
    moved_bytes: int | None = None
    moved_bytes_after: int | None = None
    groups: Mapping[str, Group] | None = field(default=None, hash=False)

    @property
    def name(self) -> str:
        return f"rank {self.rank} on {self.host}" if self.host else f"rank {self.rank}"


def told(rank: int, host: str, said: object) -> Told:
    """What the verb `stack` answered about a rank."""
    facts: Mapping[str, Any] = said if isinstance(said, dict) else {}
    used = facts.get("cpu_seconds")
    is_known = isinstance(used, (int, float)) and not isinstance(used, bool) and 0 <= used < 2**53
    return Told(
        rank=rank,
        host=host,
        pid=_whole(facts.get("pid")),
        state=_word(facts.get("state")),
        text=_text(facts.get("text")),
        message=_text(facts.get("message")),
        call=_word(facts.get("call")),
        file=_word(facts.get("file")),
        waits_in=_word(facts.get("waits_in")),
        cpu_seconds=used if is_known else None,
        moved_bytes=_whole(facts.get("moved_bytes")) or None,
        moved_bytes_after=_whole(facts.get("moved_bytes_after")) or None,
        groups=_groups(facts.get("collectives")),
    )


def kept(gang: Sequence[Told]) -> list[dict[str, Any]]:
    """The evidence as JSON, which `of_kept` reads again: what `verdict` reads of it says the same.

    Of a large gang less of each rank's stacks is kept: their ends, where the main thread is. The ranks of a group are
    kept once, with the first rank that tells them.
    """
    most = max(_LEAST_TEXT, _ALL_TEXT_CHARACTERS // max(1, len(gang)))
    oldest_open = _oldest_open(gang)
    has_members: set[str] = set()
    rows = []
    for each in gang:
        groups: dict[str, Any] = {}
        for name, group in (each.groups or {}).items():
            since = min(
                oldest_open.get(name, 2**53), *(call.number for call in group.calls[-_NEWEST_KEPT:]), 2**53
            )
            groups[name] = {
                "members": [] if name in has_members else list(group.members),
                "calls": [asdict(call) for call in group.calls if call.number >= since],
            }
            if group.members:
                has_members.add(name)
        rows.append({
            "rank": each.rank, "host": each.host, "pid": each.pid, "state": each.state,
            "text": _end(each.text, most), "message": each.message[:most], "call": each.call, "file": each.file,
            "waits_in": each.waits_in, "cpu_seconds": each.cpu_seconds, "moved_bytes": each.moved_bytes,
            "moved_bytes_after": each.moved_bytes_after,
            "collectives": None if each.groups is None else {"groups": groups},
        })  # fmt: skip
    return rows


def _oldest_open(gang: Sequence[Told]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in gang:
        for name, group in (each.groups or {}).items():
            numbers = [call.number for call in group.calls if not call.done]
            if numbers:
                found[name] = min(found.get(name, numbers[0]), *numbers)
    return found


def _end(text: str, most: int) -> str:
    return text if len(text) <= most else text.partition(BY_PY_SPY)[0][-most:]


def of_kept(rows: Sequence[dict[str, Any]]) -> list[Told]:
    return [told(row["rank"], row["host"], row) for row in rows]


def _groups(said: object) -> dict[str, Group] | None:
    groups = said.get("groups") if isinstance(said, dict) else None
    if not isinstance(groups, dict):
        return None
    found = {}
    for name, group in list(groups.items())[:_MOST_GROUPS]:
        if isinstance(group, dict):
            calls = [call for each in _list(group.get("calls"))[-_MOST_CALLS:] if (call := _call(each))]
            said_members = _list(group.get("members"))[:_MOST_MEMBERS]
            members = [rank for rank in said_members if type(rank) is int and 0 <= rank <= _LARGEST_RANK]
            found[_word(name)] = Group(
                tuple(sorted(set(members))), tuple(sorted(calls, key=lambda call: call.number))
            )
    return found


def _call(said: object) -> Call | None:
    if not isinstance(said, dict) or type(said.get("number")) is not int or abs(said["number"]) > 2**53:
        return None
    name, sizes, types = (_word(said.get(each)) for each in ("name", "sizes", "types"))
    return Call(said["number"], name, sizes, types, done=said.get("done") is True)


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _whole(value: object) -> int:
    return value if type(value) is int and 0 <= value < 2**53 else 0


def _word(value: object) -> str:
    return " ".join(shown(value[:_WORD_CHARACTERS]).split()) if isinstance(value, str) else ""


def _text(value: object) -> str:
    return shown(value[:TEXT_CHARACTERS]) if isinstance(value, str) else ""

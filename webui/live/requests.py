"""What a viewer of a log asks for over its socket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from accounts.refusals import Refusal
from logs.filters import Filters
from logs.levels import Level, parse
from logs.lines import STREAM_LETTERS
from trainmaster import bounded_json


@dataclass(frozen=True)
class Ack:
    """Lines up to this number have arrived."""

    upto: int


@dataclass(frozen=True)
class LogView:
    """Lines behind number `after` that the filters leave. `generation` is the viewer's own count of its requests."""

    after: int
    filters: Filters
    generation: Any


def parse_frame(text: str) -> Ack | LogView:
    """Read a frame of a viewer. Raises Refusal."""
    try:
        frame = bounded_json.loads(text)
    except ValueError as error:
        raise Refusal(f"The frame is not JSON: {error}.") from error
    if not isinstance(frame, dict):
        raise Refusal("The frame is not a JSON object.")
    if "ack" in frame:
        return Ack(_number(frame, "ack"))
    generation = frame.get("generation")
    if not isinstance(generation, int | str | None):
        raise Refusal("generation must be a number or text.")
    return LogView(_number(frame, "after"), _filters(frame), generation)


def _number(frame: dict[str, Any], name: str) -> int:
    value = frame.get(name, 0)
    if type(value) is not int or not 0 <= value < 2**62:
        raise Refusal(f"{name} is {value!r}; it must be the number of a line, or 0.")
    return value


def _filters(frame: dict[str, Any]) -> Filters:
    ranks = _list(frame, "ranks", int)
    if not all(-1 <= rank < 2**31 for rank in ranks):
        raise Refusal("ranks must be -1 (no rank) or greater.")
    hosts = _list(frame, "hosts", str)
    if not all(host.isprintable() for host in hosts):
        raise Refusal("hosts must be host names.")
    search = frame.get("search", "")
    if not isinstance(search, str):
        raise Refusal("search must be text.")
    try:
        levels: frozenset[Level] = frozenset(parse(level) for level in _list(frame, "levels", str))
        streams = frozenset(STREAM_LETTERS[name] for name in _list(frame, "streams", str))
        filters = Filters(
            ranks=frozenset(ranks),
            levels=levels,
            streams=streams,
            hosts=frozenset(hosts),
            after_time=_time(frame, "after_time"),
            before_time=_time(frame, "before_time"),
        )
        return filters.searching(search, is_regex=frame.get("regex") is True)
    except KeyError as error:
        raise Refusal(f"The stream {error} is unknown; allowed: stdout, stderr, server.") from error


def _list(frame: dict[str, Any], name: str, kind: type) -> list[Any]:
    values = frame.get(name) or []
    if (
        not isinstance(values, list)
        or len(values) > 10_000
        or not all(type(value) is kind for value in values)
    ):
        raise Refusal(f"{name} must be a list of {'numbers' if kind is int else 'texts'}.")
    return values


def _time(frame: dict[str, Any], name: str) -> float | None:
    value = frame.get(name)
    if value is not None and type(value) not in {int, float}:
        raise Refusal(f"{name} is {value!r}; it must be seconds since 1970.")
    return value

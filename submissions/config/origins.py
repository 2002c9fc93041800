"""Where each line of an effective config comes from: the config, its template, the defaults, or edits of the queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from submissions.config.ordering import Json, Place, in_order, whole
from trainmaster import yamltext

Origin = Literal["config", "template", "default", "queue"]
_ABSENT = object()


class OriginLine(NamedTuple):
    """One line of YAML. `instead`: what the template said where the config said otherwise; of a line of the queue,
    what was submitted. `usual`: the default, where the config or the template has another value."""

    text: str
    origin: Origin
    instead: str = ""
    usual: str = ""

    @property
    def mark(self) -> str:
        """The word beside it: only exceptions have one."""
        return self.origin if self.origin in ("template", "queue") else ""


def explained(
    schema: Callable[[], Json],
    effective: dict[str, Any],
    config: dict[str, Any],
    template: dict[str, Any],
    submitted: Mapping[str, Any] = MappingProxyType({}),
) -> list[OriginLine]:
    """The effective config as YAML, line by line, in the order of the documentation.

    `submitted`: the values that edits of the queue have changed since, as they were, where they stand in the config.
    """
    return list(_of_map(whole(schema), in_order(effective, schema), config, template, submitted, 0))


def _of_map(
    place: Place, values: dict[str, Any], config: Any, template: Any, was: Any, depth: int
) -> Iterator[OriginLine]:
    section = place.section(values)
    for name, value in values.items():
        ours, theirs = _inside(config, name), _inside(template, name)
        before = was.get(name, _ABSENT) if isinstance(was, Mapping) else _ABSENT
        if isinstance(value, dict) and value:
            yield OriginLine(_indented(f"{_key(name)}:", depth), _origin(ours, theirs))
            yield from _of_map(section.below(name), value, ours, theirs, before, depth + 1)
        elif before is not _ABSENT:
            for line in yamltext.dump({name: value}).rstrip("\n").split("\n"):
                yield OriginLine(_indented(line, depth), "queue", _shown(before))
        elif isinstance(value, list) and value:
            yield OriginLine(_indented(f"{_key(name)}:", depth), _origin(ours, theirs))
            yield from _of_list(value, ours, theirs, depth)
        else:
            yield from _of_value(name, value, ours, theirs, section.default(name), depth)


def _of_value(
    name: str, value: Any, ours: Any, theirs: Any, default: Any, depth: int
) -> Iterator[OriginLine]:
    given = _is_given(ours)
    instead = _shown(theirs) if given and _is_given(theirs) and theirs != ours else ""
    origin = _origin(ours, theirs)
    is_usual = origin == "default" or default in (None, "", [], {}) or value == default
    usual = "" if is_usual or isinstance(value, (dict, list)) else _shown(default)
    for line in yamltext.dump({name: value}).rstrip("\n").split("\n"):
        yield OriginLine(_indented(line, depth), origin, instead, usual)
        instead = usual = ""


def _shown(value: Any) -> str:
    text = yamltext.dump(value).removesuffix("...\n").strip()  # a document of one value ends so
    return text if "\n" not in text else "something else"


def _of_list(values: list[Any], ours: Any, theirs: Any, depth: int) -> Iterator[OriginLine]:
    """A joined list has the template's entries before the config's."""
    own = len(ours) if isinstance(ours, list) else len(values) if _is_given(ours) else 0
    for place, value in enumerate(values):
        origin: Origin = "config" if place >= len(values) - own else _origin(_ABSENT, theirs)
        for line in yamltext.dump([value]).rstrip("\n").split("\n"):
            yield OriginLine(_indented(line, depth), origin)


def _inside(given: Any, name: str) -> Any:
    """What is given at a name; of a value that the config's form spreads over a map, that value."""
    if isinstance(given, dict):
        return given.get(name, _ABSENT)
    return given


def _is_given(value: Any) -> bool:
    return value is not _ABSENT and value is not None


def _origin(ours: Any, theirs: Any) -> Origin:
    return "config" if _is_given(ours) else "template" if _is_given(theirs) else "default"


def _key(name: str) -> str:
    return (
        yamltext.dump({name: None}).split(":", 1)[0]
        if name.isidentifier()
        else yamltext.dump(name).split("\n")[0]
    )


def _indented(line: str, depth: int) -> str:
    return "  " * depth + line

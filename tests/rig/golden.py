"""Golden answers: which keys and kinds an answer of the REST dialect has, one line per leaf, and how two differ."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: path of a leaf -> its kinds, or the words that it holds
Shape = dict[str, str]

#: fields whose values are words of the dialect, when they look like words
WORD_FIELDS = frozenset(
    {"code", "exitReason", "kind", "mode", "phase", "role", "scope", "state", "status", "transport", "type"}
)
_WORD = re.compile(r"[A-Za-z][A-Za-z_-]*")
_CONSTANT = re.compile(r"[A-Z]+(_[A-Z]+)+")
#: keys that are ids differ from run to run: numbers, UUIDs and what is made of these, such as an allocation's id
_ID = re.compile(r"\d+|.*[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}.*")


def shape(answers: list[Any]) -> Shape:
    """Return the leaves of some answers to one route; where the answers differ, a leaf has all their kinds."""
    found: dict[str, set[str]] = {}
    for answer in answers:
        for path, kind in _leaves(answer, "", ""):
            found.setdefault(path, set()).add(kind)
    return {path: " | ".join(sorted(kinds)) for path, kinds in sorted(found.items())}


def _leaves(value: Any, path: str, field: str) -> Iterator[tuple[str, str]]:
    """Scalars, and lists and objects that are empty; the items of a list share one path."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            name = "{id}" if _ID.fullmatch(key) else key
            yield from _leaves(inner, f"{path}.{name}" if path else name, key)
    elif isinstance(value, list) and value:
        for inner in value:
            yield from _leaves(inner, f"{path}[]", field)
    else:
        yield path, _kind(value, field)


def _kind(value: Any, field: str) -> str:
    if isinstance(value, str):
        is_word = _CONSTANT.fullmatch(value) or (field in WORD_FIELDS and _WORD.fullmatch(value))
        return f"'{value}'" if is_word else "string"
    kinds = {bool: "bool", int: "number", float: "number", type(None): "null", list: "list", dict: "object"}
    return kinds[type(value)]


def differences(route: str, pinned: Shape, found: Shape) -> list[str]:
    """Return a line for each leaf of a route that is missing, added or changed."""
    missing = [f"missing  {path}: {pinned[path]}" for path in pinned.keys() - found.keys()]
    added = [f"added    {path}: {found[path]}" for path in found.keys() - pinned.keys()]
    changed = [
        f"changed  {path}: {pinned[path]} -> {found[path]}"
        for path in pinned.keys() & found.keys()
        if pinned[path] != found[path]
    ]
    return [f"{route}  {line}" for line in sorted(missing) + sorted(added) + sorted(changed)]


def load(file: Path) -> dict[str, Shape]:
    """Read the golden answers, by route."""
    return dict(json.loads(file.read_text()))


def store(file: Path, answers: dict[str, Shape]) -> None:
    """Write the golden answers, sorted, one line per leaf."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(answers, indent=1, sort_keys=True, ensure_ascii=False) + "\n")

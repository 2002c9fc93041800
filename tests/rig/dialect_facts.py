"""Writes golden/dialect.json again from Determined's protobuf files: `python -m tests.rig.dialect_facts PROTO_SRC`,
with DJANGO_SETTINGS_MODULE=webui.settings.

PROTO_SRC is the folder `proto/src` of its public repository. The routes are those that our OpenAPI document has, with
all messages and enums that their answers can reach; `others` are the routes that are not served here.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import django

from tests.rig.dialect import FACTS, served

_KINDS = {
    "string": "text", "bytes": "text", "bool": "bool", "float": "number", "double": "number", "int32": "int",
    "uint32": "int", "int64": "text", "uint64": "text", "google.protobuf.Timestamp": "time",
    "google.protobuf.Struct": "object", "google.protobuf.ListValue": "list", "google.protobuf.Value": "any",
    "google.protobuf.Int32Value": "int?", "google.protobuf.DoubleValue": "number?",
}  # fmt: skip
_BLOCK = re.compile(r"\b(message|enum|oneof|service|rpc)\s+(\w+)")
_FIELD = re.compile(r"(?:\b(optional|repeated)\s+)?(map<\s*\w+,\s*([\w.]+)\s*>|[\w.]+)\s+(\w+)\s*=\s*\d+")
_ROUTE = re.compile(r'\b(get|post|put|patch|delete): "([^"]+)"')


class Definition(NamedTuple):
    """A message or an enum, by its whole name: `determined.trial.v1.Trial`."""

    is_enum: bool
    body: str


def definitions(text: str, within: str) -> Iterator[tuple[str, Definition]]:
    """Those of a text without comments, with those inside them."""
    place = 0
    while found := _BLOCK.search(text, place):
        if "{" not in text[found.end() :]:
            return
        body, place = _body(text, found.end())
        if found[1] in ("message", "enum"):
            whole = f"{within}.{found[2]}"
            inner = list(definitions(body, whole))
            yield whole, Definition(found[1] == "enum", body)
            yield from inner


def _body(text: str, start: int) -> tuple[str, int]:
    begin = depth = 0
    for place in range(start, len(text)):
        if text[place] == "{":
            depth, begin = depth + 1, begin or place + 1
        elif text[place] == "}":
            depth -= 1
            if depth == 0:
                return text[begin:place], place + 1
    return text[begin:], len(text)


def _own(body: str) -> Iterator[tuple[str, bool]]:
    """The text of a message's own fields, and whether they are alternatives; without the blocks inside it."""
    place = 0
    while found := _BLOCK.search(body, place):
        yield body[place : found.start()], False
        inner, place = _body(body, found.end())
        if found[1] == "oneof":
            yield inner, True
    yield body[place:], False


def _camel(name: str) -> str:
    return re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), name)


class Protobuf:
    """All files of the folder."""

    def __init__(self, folder: Path) -> None:
        self.texts = [re.sub(r"//[^\n]*", "", path.read_text()) for path in sorted(folder.rglob("*.proto"))]
        self.defined: dict[str, Definition] = {}
        for text in self.texts:
            package = re.search(r"package ([\w.]+);", text)
            self.defined.update(definitions(text, package[1] if package else ""))

    def routes(self) -> Iterator[tuple[str, str]]:
        """Each route, and the message that it answers."""
        for text in self.texts:
            for rpc in re.finditer(r"\brpc \w+\([^)]*\)\s*returns \((?:stream )?([\w.]+)\)", text):
                body, _ = _body(text, rpc.end())
                for method, path in _ROUTE.findall(body):
                    yield f"{method} {re.sub(r'{[^}]*}', '{}', path)}", self.find(rpc[1], "determined.api.v1")

    def find(self, name: str, within: str) -> str:
        """The whole name of what a name means inside a message or package."""
        parts = within.split(".")
        for size in range(len(parts), -1, -1):
            if (whole := ".".join([*parts[:size], name])) in self.defined:
                return whole
        return ""

    def called(self, whole: str, reached: Counter[str]) -> str:
        """Its name in the facts: with the message that it is inside of, or its package if another is called alike."""
        *inside, name = [part for part in whole.split(".") if not re.fullmatch(r"v\d+", part)]
        return name if inside[-1].islower() and reached[name] == 1 else f"{inside[-1]}.{name}"

    def fields(self, whole: str) -> Iterator[tuple[str, str, str]]:
        """Name, shape (`*` stands for the kind) and kind of each field; the kind is one of _KINDS, or a whole name."""
        for text, is_alternative in _own(self.defined[whole].body):
            for label, kind, of_map, name in _FIELD.findall(text):
                shape = "[]*" if label == "repeated" else "{}*" if of_map else "*"
                shape = f"?{shape}" if label == "optional" or is_alternative else shape
                plain = of_map or kind
                yield _camel(name), shape, _KINDS.get(plain) or self.find(plain, whole)


def facts(folder: Path, served: set[str]) -> dict[str, Any]:
    """The content of the file."""
    files = Protobuf(folder)
    every = dict(files.routes())
    routes = {route: message for route, message in every.items() if route in served}
    reached: dict[str, None] = {}
    waiting = list(routes.values())
    while waiting:
        if (whole := waiting.pop()) in reached:
            continue
        reached[whole] = None
        if not files.defined[whole].is_enum:
            waiting += [kind for _, _, kind in files.fields(whole) if kind in files.defined]
    outermost = [whole for whole in reached if whole.rpartition(".")[0] not in files.defined]
    count = Counter(whole.rpartition(".")[2] for whole in outermost)
    names = {whole: files.called(whole, count) for whole in reached}
    messages = {
        names[whole]: {
            name: shape.replace("*", names.get(kind, kind)) for name, shape, kind in files.fields(whole)
        }
        for whole in reached
        if not files.defined[whole].is_enum
    }
    enums = {
        names[whole]: re.findall(r"(\w+) = \d+", files.defined[whole].body)
        for whole in sorted(reached)
        if files.defined[whole].is_enum
    }
    return {
        "routes": {route: names[message] for route, message in sorted(routes.items())},
        "messages": dict(sorted(messages.items())),
        "enums": enums,
        "others": sorted(every.keys() - served),
    }


def written(found: dict[str, Any]) -> str:
    """One entry a line, so that a change can be read."""
    parts = []
    for part, entries in found.items():
        if isinstance(entries, dict):
            lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items()]
            parts.append(f'"{part}": {{\n' + ",\n".join(lines) + "\n}")
        else:
            parts.append(f'"{part}": [\n' + ",\n".join(map(json.dumps, entries)) + "\n]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    django.setup()
    from webui.api.docs import schema  # needs the settings

    FACTS.write_text(written(facts(Path(sys.argv[1]), served(schema()))))

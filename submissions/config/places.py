"""Where in a text of YAML a fault stands, so that an editor can point at its line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import yaml

from submissions.config.problems import ROOT, Problem, worded
from trainmaster import yamltext


class Placed(NamedTuple):
    """A fault and its line, counted from 1; of something that is missing the line of what should hold it."""

    line: int | None
    path: str
    found: str
    allowed: str

    @property
    def sentence(self) -> str:
        """What was found and what is allowed, without where."""
        return worded(self.found, self.allowed)


def placed(text: str, problems: Sequence[Problem]) -> list[Placed]:
    """The problems by line, those without a line last."""
    root = _composed(text)
    found = [
        Placed(
            _line(root, problem.path),
            problem.path.removeprefix(ROOT).lstrip(".") or "the whole",
            problem.found,
            problem.allowed,
        )
        for problem in problems
    ]
    return sorted(found, key=lambda each: (each.line is None, each.line or 0))


def broken_at(text: str) -> int | None:
    """The line at which `text` stops being YAML, or None where it is."""
    try:
        yamltext.load(text)
    except yamltext.YamlError as error:
        return error.line
    return None


def _composed(text: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return None


def _line(node: yaml.Node | None, path: str) -> int | None:
    """The line of the last step of `path` that the text has."""
    rest, line = path.removeprefix(ROOT), None
    while node is not None and rest:
        for step, mark, inner in _steps(node):
            if rest == step or (rest.startswith(step) and rest[len(step)] in ".["):
                node, line, rest = inner, mark.line + 1, rest[len(step) :]
                break
        else:
            break
    return line


def _steps(node: yaml.Node) -> Iterator[tuple[str, yaml.Mark, yaml.Node]]:
    """Yield how a path continues in a map or list, where that is, and what is there; longer names first."""
    if isinstance(node, yaml.MappingNode):
        pairs = [
            (f".{key.value}", key.start_mark, inner)
            for key, inner in node.value
            if isinstance(key, yaml.ScalarNode)
        ]
        yield from sorted(pairs, key=lambda pair: -len(pair[0]))
    elif isinstance(node, yaml.SequenceNode):
        for index, inner in enumerate(node.value):
            yield f"[{index}]", inner.start_mark, inner

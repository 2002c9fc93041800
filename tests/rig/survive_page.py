"""Writes docs/survive.md: the failure modes, and the tests that hold each, read from `@pytest.mark.survive(N)`.

`python -m tests.rig.survive_page` writes it; with `--check` it only says whether the page is up to date. The
markers are read from the source, so nothing is imported and nothing needs to be installed.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.rig.survive_modes import MODES, PARTS

ROOT = Path(__file__).resolve().parent.parent.parent
TESTS = ROOT / "tests"
PAGE = ROOT / "docs" / "survive.md"
WRITE = "python -m tests.rig.survive_page"
HEAD = f"""\
# What Trainmaster survives

This page lists the failures that must not lose work, what must happen in each, and the tests that prove it. Training
that is healthy continues, and whatever is shown of it is true, while any of these happens.

`make test` runs the tests; those marked *chaos* take minutes and run with `make chaos`. A test names its failures with
`@pytest.mark.survive(N)`, and `{WRITE}` writes this page from those markers.
"""
Definition = ast.FunctionDef | ast.AsyncFunctionDef


class MarkerError(Exception):
    """A marker that names no failure mode; the message is a sentence that says where."""


@dataclass(frozen=True, order=True)
class Held:
    """A test that holds a mode: its file from the root, its name, and whether only `make chaos` runs it."""

    path: str
    name: str
    chaos: bool

    def line(self) -> str:
        words = self.name.removeprefix("test_").replace("_", " ")
        return f"- {words} (`{self.path}`{', *chaos*' if self.chaos else ''})"


def held(folder: Path = TESTS) -> dict[int, list[Held]]:
    """Mode -> the tests of the folder that hold it, in order. MarkerError if a marker names none of the modes."""
    found: dict[int, list[Held]] = defaultdict(list)
    for path in sorted(folder.rglob("test_*.py")):
        name, source = path.relative_to(folder.parent).as_posix(), path.read_text(encoding="utf-8")
        if "mark.survive(" not in source:
            continue
        for number, test in _of_file(name, ast.parse(source)):
            if number not in MODES:
                raise MarkerError(
                    f"{name}: {test.name} holds mode {number}. Use a number from 1 to {max(MODES)}."
                )
            found[number].append(test)
    return {number: sorted(set(tests)) for number, tests in found.items()}


def _of_file(path: str, tree: ast.Module) -> Iterator[tuple[int, Held]]:
    everywhere = [mark for node in tree.body for mark in _pytestmark(node)]
    for test, marks in _tests(tree.body, everywhere):
        one = Held(path, test.name, any(_name(mark) == "chaos" for mark in marks))
        for mark in marks:
            if _name(mark) == "survive" and isinstance(mark, ast.Call):
                yield from ((number, one) for number in _numbers(path, mark))


def _tests(body: Iterable[ast.stmt], marks: list[ast.expr]) -> Iterator[tuple[Definition, list[ast.expr]]]:
    """Each test of a module or a class, with the marks that it has from there too."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _tests(node.body, [*marks, *node.decorator_list])
        elif isinstance(node, Definition) and node.name.startswith("test_"):
            yield node, [*marks, *node.decorator_list]


def _pytestmark(node: ast.stmt) -> list[ast.expr]:
    if not isinstance(node, ast.Assign) or not any(
        isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets
    ):
        return []
    return node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]


def _name(mark: ast.expr) -> str:
    """`chaos` of `pytest.mark.chaos` and of `pytest.mark.chaos(…)`."""
    mark = mark.func if isinstance(mark, ast.Call) else mark
    return mark.attr if isinstance(mark, ast.Attribute) else ""


def _numbers(path: str, mark: ast.Call) -> Iterator[int]:
    for argument in mark.args:
        if not isinstance(argument, ast.Constant) or not isinstance(argument.value, int):
            raise MarkerError(
                f"{path}:{mark.lineno}: survive() takes numbers of failure modes, such as survive(7)."
            )
        yield argument.value


def page(tests: dict[int, list[Held]]) -> str:
    """The page, as Markdown."""
    lines = [HEAD]
    for number, mode in MODES.items():
        if number in PARTS:
            lines.append(f"## {PARTS[number]}\n")
        lines.append(f"### {number}. {mode.failure}\n")
        lines.append(f"{mode.must}\n")
        lines += [test.line() for test in tests.get(number, [])] or ["No test yet."]
        lines.append("")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 1 if `--check` finds the page out of date or a marker is wrong."""
    parser = argparse.ArgumentParser(
        prog=WRITE, description="Write docs/survive.md from the markers of the tests."
    )
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    options = parser.parse_args(arguments)
    try:
        text = page(held())
    except MarkerError as error:
        print(error, file=sys.stderr)
        return 1
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    if options.check:
        print(
            f"docs/survive.md is not up to date with the markers of the tests. Run: {WRITE}", file=sys.stderr
        )
        return 1
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())

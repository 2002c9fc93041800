"""Modules that code imports, and the packages of Determined's images that the documentation lists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from submissions.imports import imported
from trainmaster.image_packages import PACKAGES

PAGE = Path(__file__).parents[2] / "docs" / "determined.md"


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import a.b, c as d  # e\nimport f; x()", {"a.b", "c", "f"}),
        ("from a.b import (c as d, e)\nfrom .own import x\nfrom . import y", {"a.b", "a.b.c", "a.b.e"}),
        ("from a import (\n    b,\n)", {"a"}),
        ("def f():\n    import lazy\n", {"lazy"}),
        ("try:  # perhaps\n\n    import fast\nexcept ImportError:\n    import slow", {"slow"}),
        ("import helper, package.part, other", {"other"}),
        ("print('import x')\nimported = 1\nx = 'from y import z'", set()),
        ("(" * 100_000 + "\nimport a\n\0", {"a"}),
    ],
)
def test_imports_of_modules_that_are_not_the_codes_own(code: str, names: set[str]) -> None:
    files = {
        "train.py": code.encode(),
        "helper.py": b"",
        "package/part.py": b"\xff",
        "notes.txt": b"import no",
    }
    assert imported(files) == names


def test_the_page_has_every_package_in_its_requirements_file() -> None:
    found = re.search(r"```\n# requirements-determined.txt\n(.*?)```", PAGE.read_text(), re.S)
    assert found is not None
    assert found[1].split() == sorted(set(PACKAGES.values()), key=str.lower)

"""Which modules Python files import, read line by line: files are hostile input, which no parser of ours is to see."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping

_LINE = re.compile(r"[ \t]*(?:import[ \t]+([^#;\n]+)|from[ \t]+([\w.]+)[ \t]+import[ \t]+([^#;\n]*))")
_NAME = re.compile(r"[A-Za-z_][\w.]*")


def imported(files: Mapping[str, bytes], never_own: str = "") -> set[str]:
    """Dotted names that the files import, from themselves excepted: `google.cloud`, `google.cloud.storage`.

    What follows `try:` is left out, since the code does without it. `never_own` is a package that runs find first, even
    if a folder of the code is called like it.
    """
    own = {part.removesuffix(".py") for path in files for part in path.split("/")} - {never_own}
    return {
        name
        for path, content in files.items()
        if posixpath.splitext(path)[1] == ".py"
        for name in _names(content.decode("utf-8", "replace"))
        if name.partition(".")[0] not in own
    }


def _names(text: str) -> Iterator[str]:
    before = ""
    for line in text.splitlines():
        if (found := _LINE.match(line)) and before != "try:":
            plain, package, members = found.groups()
            if package is None:
                yield from _listed(plain)
            elif not package.startswith("."):
                yield package
                yield from (f"{package}.{member}" for member in _listed(members))
        before = line.partition("#")[0].strip() or before


def _listed(text: str) -> Iterator[str]:
    """The names in `a.b, c as d`."""
    for part in text.strip("() \t").split(","):
        if found := _NAME.match(part.strip()):
            yield found[0]

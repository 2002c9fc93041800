"""Finds wordings in the documentation that must not come back: `python -m tests.rig.plain_words`, from `make lint`.

A wording is here because readers stumbled over it. Code, in fences or backticks, is not read.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
#: What is checked. Folders with pages and messages of the product can be added, with the suffix of their files.
PLACES = ("*.md", "*/README.md", "examples/*/README.md", "docs/*.md", "docs/decisions/*.md")
#: Written by a program from texts elsewhere.
GENERATED = frozenset({"docs/survive.md"})
#: A pattern, and what to write in its place. Case does not matter.
WORDINGS = {
    r"\banew\b|\bonce more\b": "again",
    r"\b(?:goes|go|went|gone|going) on\b": "continues, keeps running",
    r"\bon sufferance\b": "backfilled",
    r"\bcancell(?:ed|ing)\b": "canceled",
    r"\b(?:he|his|him)\b": "they, their",
    r"\bsomebody\b": "someone, a user",
    r"\bmeanwhile\b|\bfor the time being\b": "while …, or drop it",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\bgives? way\b": "is replaced by",
    r"\bcounts? no\b": "is revoked, does not count",
    r"\bthe likes?\b(?! of)": "name the thing",
    r"\bends TLS\b": "terminates TLS",
    r"\bso many\b": "a number: N",
    r"\bfor ever\b": "forever",
    r"\bare not yours to\b": "are handled for you",
    r"\b(?:here )?stands? (?:at|before|behind|beside|first|in|last|on|still there|under|where)\b": "is, appears",
    r"(?<!there )\bis no (?!longer\b|more\b|better\b|other\b)": "is not a",
    r"\bsaid (?:to be|at|on|in) ": "shown, reported",
    r"\blets? the running\b": "lets running work",
    r"\b(?:behavi|col|fav|hon|lab|neighb)our": "American spelling",
    r"\b(?:label|dial|travel|model)l(?:ed|ing)\b|\borganisation\b|\blicence\b": "American spelling",
}
_PATTERNS = [(re.compile(pattern, re.IGNORECASE), better) for pattern, better in WORDINGS.items()]
_FENCE = re.compile(r"^ *```")
_CODE = re.compile(r"`[^`]*`|<!--.*?-->|\]\([^)]*\)")
#: Tables that `manage.py write_reference` fills from texts of the product.
_TABLES = re.compile(r"^<!-- (fields of|end of) ")


def found(text: str) -> Iterator[tuple[int, str, str]]:
    """Line number, the wording, and what to write in its place."""
    skipping = False
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line) or _TABLES.match(line):
            skipping = not skipping
        elif not skipping:
            prose = _CODE.sub("", line)
            for pattern, better in _PATTERNS:
                yield from ((number, match[0].strip(), better) for match in pattern.finditer(prose))


def files() -> list[Path]:
    """The files to check, in order."""
    paths = {path for place in PLACES for path in ROOT.glob(place)}
    return sorted(path for path in paths if path.relative_to(ROOT).as_posix() not in GENERATED)


def main() -> int:
    """Print each wording with its place; return 1 if there is any."""
    lines = [
        f'{path.relative_to(ROOT)}:{number}: "{wording}". Write: {better}'
        for path in files()
        for number, wording, better in found(path.read_text(encoding="utf-8"))
    ]
    print(*lines, sep="\n", end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())

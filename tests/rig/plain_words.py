"""Finds wordings that must not come back in what people read: `python -m tests.rig.plain_words`, from `make lint`.

A wording is here because readers stumbled over it. Read are the documentation without its code (fences, backticks), the
text of templates, and the sentences in Python and JavaScript: string literals with a space that are not docstrings.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
#: Not the product's own words: written by a program from texts elsewhere, or no prose for users.
LEFT_OUT = re.compile(r"docs/survive\.md|(?:tests|benchmarks)/|.*/migrations/")
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
#: What a button or a link that looks like one may not begin with, and the word of docs/glossary.md for it.
BUTTONS = {
    r"abort|dismiss|discard|go back|back|leave|never mind|exit": "Cancel, or Close where nothing would be changed",
    r"choose|pick|tick": "Select",
    r"untick|unselect|deselect|select none": "Clear",
    r"prev|newer|earlier|before": "Previous",
    r"older|later|forward|after": "Next",
}
_BUTTON_WORDS = [(re.compile(rf"(?:{words})\b", re.IGNORECASE), better) for words, better in BUTTONS.items()]
_BUTTON = re.compile(
    r"<(?P<tag>button|summary|(?:a|label)\b(?=[^>]*class=\"[^\"]*\b(?:button|pill)\b))\b(?P<about>[^>]*)>(?P<text>.*?)</(?P=tag)>"
    r"|\.textContent = \"(?P<script>[^\"]*)\"",
    re.DOTALL,
)
_LABEL, _INNER_TAG = re.compile(r"aria-label=\"([^\"]*)\""), re.compile(r"<[^>]*>")
_PATTERNS = [(re.compile(pattern, re.IGNORECASE), better) for pattern, better in WORDINGS.items()]
_FENCE = re.compile(r"^ *```")
_CODE = re.compile(r"`[^`]*`|<!--.*?-->|\]\([^)]*\)")
_TAG = re.compile(
    r"{[%{].*?[%}]}|<(?:code|kbd)[^>]*>[^<]*</(?:code|kbd)>|\b(?!title|aria-label|placeholder)[\w-]+=\"[^\"]*\""
)
_COMMENT = re.compile(r"{#.*?#}|<!--.*?-->|/\*.*?\*/|(?m:(?:^|(?<=\s))//[^\n]*)", re.DOTALL)
_VALUE = re.compile(r"\$\{[^}]*\}")
_LITERAL = re.compile(r"\"[^\"]*\"|'[^']*'|`[^`]*`")
#: Tables that `manage.py write_reference` fills from texts of the product.
_TABLES = re.compile(r"^<!-- (fields of|end of) ")


def found(name: str, text: str) -> Iterator[tuple[int, str, str]]:
    """Line number, the wording, and what to write in its place."""
    for number, prose in _PROSE[Path(name).suffix](text):
        for pattern, better in _PATTERNS:
            yield from ((number, match[0].strip(), better) for match in pattern.finditer(prose))
    if Path(name).suffix in (".html", ".js"):
        yield from _buttons(_lines_kept(_COMMENT, text))


def _buttons(text: str) -> Iterator[tuple[int, str, str]]:
    """Words on buttons that have another name everywhere else."""
    for button in _BUTTON.finditer(text):
        texts = [button["script"] or "", _INNER_TAG.sub("", _TAG.sub("", button["text"] or ""))]
        texts += _LABEL.findall(button["about"] or "")
        line = text.count("\n", 0, button.start()) + 1
        for pattern, better in _BUTTON_WORDS:
            found_words = (match for words in texts if (match := pattern.match(words.strip())))
            yield from ((line, f"{match[0]} (a button)", better) for match in found_words)


def _markdown(text: str) -> Iterator[tuple[int, str]]:
    skipping = False
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line) or _TABLES.match(line):
            skipping = not skipping
        elif not skipping:
            yield number, _CODE.sub("", line)


def _template(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(_lines_kept(_COMMENT, text).splitlines(), 1):
        yield number, _TAG.sub("", line)


def _script(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(_lines_kept(_COMMENT, text).splitlines(), 1):
        sentences = (_VALUE.sub("", literal[0]) for literal in _LITERAL.finditer(line))
        yield from ((number, sentence) for sentence in sentences if " " in sentence)


def _python(text: str) -> Iterator[tuple[int, str]]:
    tree = ast.parse(text)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    literals = (
        node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docstrings
    )
    for literal in literals:
        if isinstance(literal.value, str) and " " in literal.value:
            yield literal.lineno, _CODE.sub("", literal.value)


def _lines_kept(pattern: re.Pattern[str], text: str) -> str:
    """The text without what matches, and with as many lines."""
    return pattern.sub(lambda match: "\n" * match[0].count("\n"), text)


_PROSE = {".md": _markdown, ".html": _template, ".txt": _template, ".js": _script, ".py": _python}


def files() -> list[Path]:
    """The files to check, in order: those that git tracks."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    names = sorted(name for name in listed.splitlines() if not LEFT_OUT.match(name))
    return [ROOT / name for name in names if Path(name).suffix in _PROSE]


def main() -> int:
    """Print each wording with its place; return 1 if there is any."""
    lines = [
        f'{path.relative_to(ROOT)}:{number}: "{wording}". Write: {better}'
        for path in files()
        for number, wording, better in found(path.name, path.read_text(encoding="utf-8"))
    ]
    print(*lines, sep="\n", end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())

"""What set-up makes of static/: which modules are in a packed script, and which letters in the file of the typeface."""

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders

from tests.rig.web import ROOT
from webui import collected


def test_scripts_are_packed_only_while_the_sources_are_those_that_were_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = ["sha256sum", *(str(path.relative_to(ROOT)) for path in (ROOT / "static").rglob("*.*"))]
    named = {script for page in (ROOT / "templates").rglob("*.html") for script in _scripts(page.read_text())}
    read = subprocess.run(sums, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    read += "".join(f"{script}\n" for script in named)
    sources = tmp_path / "sources.txt"
    monkeypatch.setattr(finders, "find", {"packed/sources.txt": str(sources)}.get)
    changed, unnamed = read.replace("0", "1", 1), read.replace("js/queue/rows.js\n", "")
    assert read not in (changed, unnamed)
    for text, is_packed in ((read, True), (changed, False), (unnamed, False), ("", False)):
        sources.write_text("".join(sorted(text.splitlines(keepends=True))))
        assert collected.is_packed_of_these() is is_packed


def test_no_page_gets_a_module_twice() -> None:
    """A packed script holds what it imports, but for scripts that templates name: those stay files of their own."""
    pages = {path: path.read_text() for path in (ROOT / "templates").rglob("*.html")}
    named = {script for page in pages.values() for script in _scripts(page)}
    held = {script: _held(script, named) for script in named}
    twice = {}
    for path, page in pages.items():
        if not path.is_relative_to(ROOT / "templates/pages"):
            continue
        modules = Counter(module for script in _loaded(page) for module in held[script])
        twice[path.name] = {module for module, count in modules.items() if count > 1}
    assert len(twice) > 50 and {name: modules for name, modules in twice.items() if modules} == {}
    assert {"frame.js", "menus.js", "find.js"} <= {module.name for module in held["js/frame.js"]}


def _scripts(page: str) -> set[str]:
    return set(re.findall(r"static '(js/[^'\n]+)'", page))


def _loaded(page: str) -> set[str]:
    """The scripts that a template names, and those of the templates that it extends or includes."""
    texts, read = [page], set[str]()
    for text in texts:
        names = {*re.findall(r'{% (?:extends|include) "([^"]+)"', text)} - read
        read |= names
        texts += [(ROOT / "templates" / name).read_text() for name in names]
    return {script for text in texts for script in _scripts(text)}


def _held(script: str, named: set[str]) -> set[Path]:
    """The modules in the packed form of a script."""
    found, todo = set[Path](), [ROOT / "static" / script]
    while todo:
        module = todo.pop()
        found.add(module)
        for name in re.findall(
            r'^(?:import|export)\b[^"\n]*"(\.[^"\n]+)";', module.read_text(), re.MULTILINE
        ):
            other = (module.parent / name).resolve()
            if other not in found and str(other.relative_to(ROOT / "static")) not in named:
                todo.append(other)
    return found


def test_the_small_file_of_the_typeface_has_the_letters_and_weights_that_pages_ask_of_it() -> None:
    script = (ROOT / "deploy/npm/subset.js").read_text()
    style = (ROOT / "static/css/base.css").read_text()
    made = re.findall(r"\[0x([0-9a-f]+), 0x([0-9a-f]+)\]", script)
    faces = re.findall(
        r'font-weight: (\d+) (\d+); src: url\("[^"]*-sans-([\w-]+)-wght-normal\.woff2"\);\s*unicode-range: ([^;]+);',
        style,
    )
    weights = re.search(r"min: (\d+), max: (\d+)", script)
    assert weights and {face[:2] for face in faces} == {weights.groups()}, "browsers take such faces together"
    asked = {name: re.findall(r"U\+([0-9A-F]+)(?:-([0-9A-F]+))?", letters) for _, _, name, letters in faces}
    assert {*asked} == {"basic", "latin", "latin-ext"}
    assert [(int(first, 16), int(last or first, 16)) for first, last in asked["basic"]] == [
        (int(first, 16), int(last, 16)) for first, last in made
    ]

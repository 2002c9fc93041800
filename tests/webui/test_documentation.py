"""The documentation says what is: its links, commands, configs and settings are tried, without a server."""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import yaml
from django.core.management import get_commands, load_command_class
from django.core.management.base import CommandError
from starlette.routing import Router

from commands.config import check as check_command
from experiments.config import reading
from submissions.config.problems import ConfigError
from trainmaster.cli.main import build_parser
from webui import docs_site

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
OURS = (
    "docs",
    "examples",
    *sorted(path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.md"), *ROOT.glob("*/README.md"))),
)
COMMAND = re.compile(r"^(?:\$ )?((?:trainmaster|det|\./manage\.py) .+)$")
SETTING = re.compile(r"\bTRAINMASTER_[A-Z0-9_]*[A-Z0-9]\b")
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
NO_UUID = "00000000-0000-0000-0000-000000000000"


def texts() -> Iterator[tuple[str, str]]:
    for name in OURS:
        path = ROOT / name
        for file in sorted(path.rglob("*.md")) if path.is_dir() else [path]:
            yield str(file.relative_to(ROOT)), file.read_text()


def blocks(*languages: str) -> Iterator[tuple[str, str]]:
    """Where it stands, and the block's text without its indentation."""
    for name, text in texts():
        for indent, language, content in BLOCK.findall(text):
            if language in languages:
                lines = [line.removeprefix(indent) for line in content.splitlines()]
                yield name, "\n".join(lines) + "\n"


def commands() -> list[tuple[str, str]]:
    found = []
    indented = [
        (name, line[4:]) for name, text in texts() for line in text.splitlines() if line[:4] == "    "
    ]
    fenced = [
        (name, line) for name, block in blocks("console", "sh", "bash", "") for line in block.splitlines()
    ]
    for name, line in dict.fromkeys([*indented, *fenced]):
        if match := COMMAND.match(line):
            found.append((name, re.split(r"\s+#\s|\s[|>&]{1,2}\s", match[1])[0]))
    return found


def names_of(entry: object) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        yield from (name for value in entry.values() for name in names_of(value))
    elif isinstance(entry, list):
        yield from (name for each in entry for name in names_of(each))


def test_every_page_is_in_the_navigation_once() -> None:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert sorted(names_of(navigation)) == PAGES


def test_every_link_within_the_repository_leads_somewhere() -> None:
    broken = []
    for name, text in texts():
        for link in LINK.findall(text):
            target = link.partition("#")[0]
            if not target or ":" in target or target.startswith("/"):
                continue
            if not ((ROOT / name).parent / target).exists():
                broken.append(f"{name}: {link}")
    assert broken == []


def test_every_command_that_is_quoted_is_one() -> None:
    parser, wrong = build_parser("trainmaster"), []
    found = commands()
    assert len(found) > 80
    for name, line in found:
        program, *words = shlex.split(line.replace("$(date +%F)", "today").replace("UUID", NO_UUID))
        try:
            if program == "./manage.py":
                command = load_command_class(get_commands()[words[0]], words[0])
                command.create_parser("manage.py", words[0]).parse_args(words[1:])
            else:
                parser.parse_args(words)
        except (SystemExit, CommandError, argparse.ArgumentError, KeyError) as error:
            if getattr(error, "code", 1) != 0:
                wrong.append(f"{name}: {line}")
    assert wrong == []


def test_every_config_that_is_shown_is_valid() -> None:
    wrong, whole = [], 0
    for name, block in blocks("yaml"):
        content = yaml.safe_load(block)
        if name == "docs/monitoring.md":  # of Prometheus
            continue
        try:
            if "entrypoint" in content and "searcher" in content:
                whole += 1
                reading.parse(block)
            elif "array" in content:
                check_command(content)
            else:
                reading.check_template(block)
        except ConfigError as error:
            wrong.append(f"{name}: {error}\n{block}")
    assert whole >= 4
    assert wrong == []


def test_every_setting_that_is_named_is_read_somewhere() -> None:
    code = "".join(
        path.read_text()
        for folder in ("webui", "embedded", "queue", "trainmaster", "experiments", "commands", "deploy")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".py", ".example", ".yaml", ".service"}
    )
    known = set(SETTING.findall(code))
    named = {(name, each) for name, text in texts() for each in SETTING.findall(text)}
    assert sorted(f"{name}: {each}" for name, each in named if each.removesuffix("_FILE") not in known) == []


def test_built_pages_are_served_with_a_policy_of_their_own(tmp_path: Path, settings: Any) -> None:
    settings.DOCS_ROOT = tmp_path
    site = Router(docs_site.routes(), redirect_slashes=False)

    def get(path: str) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=site)
            async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
                return await client.get(path)

        return asyncio.run(ask())

    missing = get("/docs/")
    assert (missing.status_code, "make setup" in missing.text) == (404, True)

    (tmp_path / "queue").mkdir()
    (tmp_path / "queue" / "index.html").write_text("<p>the queue</p><script src='a.js'></script>")
    (tmp_path / "index.html").write_text(
        '<script>go()</script><script type="application/json">{"a": 1}</script><p>welcome</p>'
    )
    assert get("/docs").headers["location"] == "/docs/"
    page = get("/docs/")
    assert "welcome" in page.text
    policy = dict(part.split(" ", 1) for part in page.headers["content-security-policy"].split("; "))
    digest = base64.b64encode(hashlib.sha256(b"go()").digest()).decode()
    assert policy["script-src"] == f"'self' 'sha256-{digest}'", "the one script that would be executed"
    assert "the queue" in get("/docs/queue/").text
    assert get("/docs/%2e%2e/settings.py").status_code == 404
    assert get("/docs/nothing/").status_code == 404


def test_the_pages_have_the_colors_of_the_console() -> None:
    console = (ROOT / "static/css/base.css").read_text()
    ours = re.findall(r"--[\w-]+: #\w+;", (DOCS / "css/console.css").read_text())
    assert len(ours) == 14 and [each for each in ours if each not in console] == []

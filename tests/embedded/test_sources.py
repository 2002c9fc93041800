"""A server started with --dev restarts its own parts when their code changes."""

import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from embedded import installation
from embedded.lock import Register
from embedded.sources import Sources
from embedded.supervise import ServerPart, Supervisor

#: Appends the file's current text to the output, then waits.
READS = """
import pathlib, sys, time
said, source = map(pathlib.Path, sys.argv[1:])
with said.open("a") as file:
    file.write(source.read_text())
time.sleep(600)
"""


def test_changes_of_code_and_templates_are_seen_once(tmp_path: Path) -> None:
    for name in ("room/code.py", "room/page.html", "room/notes.md", "tests/test_code.py", ".venv/lib.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
    sources = Sources(tmp_path)
    assert sources.changed() == []
    for name in ("room/code.py", "room/notes.md", "tests/test_code.py", ".venv/lib.py", "room/added.py"):
        (tmp_path / name).write_text("22")
    (tmp_path / "room/page.html").unlink()
    assert sources.changed() == [Path("room/added.py"), Path("room/code.py"), Path("room/page.html")]
    assert sources.changed() == []


def test_a_changed_source_restarts_the_parts_that_reload(tmp_path: Path) -> None:
    source, output, said = tmp_path / "code.py", tmp_path / "output", list[str]()
    source.write_text("first ")
    command = [sys.executable, "-c", READS, str(output), str(source)]
    with Supervisor(tmp_path, Register(tmp_path), said.append) as supervisor:
        supervisor.watch(Sources(tmp_path))
        supervisor.start(ServerPart("web", command, reloads=True))
        supervisor.start(ServerPart("postgres", [sys.executable, "-c", "import time; time.sleep(600)"]))
        supervisor.serve(output.exists, limit_seconds=60)
        source.write_text("second ")
        supervisor.serve(lambda: "second" in output.read_text(), limit_seconds=60)
    assert output.read_text() == "first second "
    assert said == ["code.py changed; restarting."]


def test_debug_pages_are_for_loopback_alone(tmp_path: Path) -> None:
    options = installation.Options(tmp_path / "data", listen="0.0.0.0", dev=True)
    sentence = (
        r"^--dev shows source code and settings on error pages, so it cannot listen on 0\.0\.0\.0\. Omit"
    )
    with pytest.raises(ImproperlyConfigured, match=sentence), installation.running(options, print):
        pass
    assert not options.data.exists()

"""A download that breaks off goes on where it stopped, and what came wrong is never taken for the file."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.trainmaster.cli.scripted_server import Answer, Handler, ScriptedServer, status
from trainmaster.cli import checkpoint_download
from trainmaster.cli.errors import CliError
from trainmaster.client import Client

UUID = "8b9d1c1e-0000-4000-8000-000000000001"
CONTENT = bytes(range(256)) * 40
RECORD = {"uuid": UUID, "state": "STATE_COMPLETED", "storage": "server", "training": {}}
BASE = f"/api/v1/checkpoints/{UUID}/files"


def part(first: int, last: int, said: int | None = None) -> Answer:
    """These bytes of the content, after a head that promises `said`; then the connection ends."""

    def answer(handler: Handler) -> None:
        asked = handler.headers.get("Range")
        assert asked == (f"bytes={first}-" if first else None)
        handler.send_response(206 if first else 200)
        handler.send_header("Content-Length", str(said or last - first))
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(CONTENT[first:last])
        handler.close_connection = True

    return answer


@pytest.fixture
def server() -> ScriptedServer:
    server = ScriptedServer()
    listed = {
        "path": "deep/model.pt",
        "sizeBytes": str(len(CONTENT)),
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
    }
    server.on("GET", BASE, status(200, {"files": [listed]}))
    return server


def download(server: ScriptedServer, folder: Path, **options: Any) -> Path:
    args = argparse.Namespace(**{"mode": "auto", "file": [], "quiet": False, **options})
    return checkpoint_download.download(Client(server.url), RECORD, folder, args)


def test_it_goes_on_where_it_broke_off(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_download, "FIRST_PAUSE_SECONDS", 0.01)
    server.on(
        "GET",
        f"{BASE}/deep/model.pt",
        part(0, 5000, said=len(CONTENT)),
        part(5000, len(CONTENT)),
    )
    download(server, tmp_path / "out")
    assert (tmp_path / "out/deep/model.pt").read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "out/deep").iterdir()] == ["model.pt"]
    count = len(server.seen)
    download(server, tmp_path / "out")
    assert len(server.seen) == count + 1, "what is there is not fetched again"


def test_other_bytes_than_were_stored_are_refused(server: ScriptedServer, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/model.pt.part").write_bytes(b"x" * 5000)
    server.on("GET", f"{BASE}/deep/model.pt", part(5000, len(CONTENT)))
    with pytest.raises(CliError, match="SHA-256"):
        download(server, tmp_path)
    assert list((tmp_path / "deep").iterdir()) == []


def test_what_the_server_cannot_reach_is_said_in_its_words(server: ScriptedServer, tmp_path: Path) -> None:
    server.on("GET", BASE, status(409, {"message": "The files lie on the hosts, in /mnt/team."}))
    with pytest.raises(CliError, match="in /mnt/team"):
        download(server, tmp_path)
    with pytest.raises(CliError, match="is not in a shared folder"):
        download(server, tmp_path, mode="direct")

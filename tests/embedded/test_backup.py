"""A backup and a restore of a database without a server, and what `restore` refuses.

That a server goes on from one is tests/chaos/test_restore.py.
"""

from __future__ import annotations

import io
import json
import stat
import tarfile
from pathlib import Path
from typing import Any

import psycopg
import pytest

from accounts.models import Cluster
from embedded import backup, restore
from embedded.postgres import Postgres
from events.models import Event
from events.origin import HERE, account


def archive_of(path: Path, files: dict[str, bytes], link: str = "") -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        if link:
            info = tarfile.TarInfo(link)
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(info)
    return path


def about(number: int = backup.FORMAT) -> dict[str, bytes]:
    return {backup.ABOUT: json.dumps({"format": number}).encode()}


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    source = archive_of(tmp_path / "a", about())
    data = tmp_path / "data"
    data.mkdir()
    (data / "secret_key").write_text("mine")
    with pytest.raises(restore.CannotRestore, match="is not empty"):
        restore.read(source, data)
    assert (data / "secret_key").read_text() == "mine"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "is not a complete backup"),
        ({"other": b"x"}, "found: None, allowed: 1"),
        (about(2), "found: 2"),
    ],
)
def test_what_is_no_backup_of_this_form_is_refused(
    tmp_path: Path, content: dict[str, bytes] | None, sentence: str
) -> None:
    source = tmp_path / "a"
    if content is None:
        source.write_bytes(b"no archive at all")
    else:
        archive_of(source, content)
    with pytest.raises(restore.CannotRestore, match=sentence):
        restore.read(source, tmp_path / "data")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("name", ["../outside", "ssh/../../outside", "/outside", "log/web.log"])
def test_nothing_of_an_archive_gets_out_of_the_folder(tmp_path: Path, name: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with tarfile.open(archive_of(tmp_path / "a", {name: b"x"})) as archive:
        (member,) = archive.getmembers()
        with pytest.raises(restore.CannotRestore, match="which is not part of a Trainmaster backup"):
            restore._place(archive, member, data, data / "dump")
    assert not list(data.iterdir())


def test_links_of_an_archive_are_refused(tmp_path: Path) -> None:
    with tarfile.open(archive_of(tmp_path / "a", {}, link="ssh/id")) as archive:
        (member,) = archive.getmembers()
        with pytest.raises(restore.CannotRestore):
            restore._place(archive, member, tmp_path, tmp_path / "dump")


@pytest.mark.django_db(transaction=True)
def test_what_is_backed_up_is_restored_into_another_database(
    postgres: Postgres, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster.get()
    settings.DATA_DIR = tmp_path / "old"
    for name in ("ssh/id_ed25519", "checkpoints/0a/model.pt", "checkpoints/.incoming/0a.part", "log/web.log"):
        (settings.DATA_DIR / name).parent.mkdir(parents=True, exist_ok=True)
        (settings.DATA_DIR / name).write_text(name)
    saved = tmp_path / "saved"
    assert backup.write(saved).files == 2
    written = Event.objects.get(kind=Event.Kind.SERVER, reason="written")
    assert written.origin == HERE and written.detail == {"file": str(saved)}
    with pytest.raises(backup.CannotBackUp, match="already exists"):
        backup.write(saved)

    postgres.create_database("restored")
    monkeypatch.setenv("DATABASE_URL", postgres.url("restored"))
    data = tmp_path / "new"
    assert restore.read(saved, data)["cluster"] == settings.CLUSTER_NAME
    assert (data / "secret_key").read_text() == settings.SECRET_KEY
    assert stat.S_IMODE((data / "secret_key").stat().st_mode) == 0o600
    found = sorted(str(path.relative_to(data)) for path in data.rglob("*") if path.is_file())
    assert [name for name in found if name != "up.lock"] == [
        "checkpoints/0a/model.pt",
        "secret_key",
        "ssh/id_ed25519",
    ]
    with psycopg.connect(postgres.url("restored")) as connection:
        (row,) = connection.execute("SELECT cluster_id, attempts_above FROM accounts_cluster").fetchall()
        told = connection.execute(
            "SELECT actor, origin, detail->>'made_at' <> '' FROM events_event WHERE reason = 'restored'"
        ).fetchall()
    assert row == (cluster.cluster_id, 1000), "new attempts have names that no host knows"
    assert told == [(account(), HERE, True)]

    with pytest.raises(restore.CannotRestore, match=r"already has \d+ tables"):
        restore.read(saved, tmp_path / "third")
    assert not (tmp_path / "third" / "secret_key").exists()

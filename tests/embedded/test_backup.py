"""What `restore` refuses, without a server; that a backup brings a server back is tests/chaos/test_restore.py."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from webui.embedded import backup, restore


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
    [(None, "is no whole backup"), ({"other": b"x"}, "found: None, allowed: 1"), (about(2), "found: 2")],
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
        with pytest.raises(restore.CannotRestore, match="which no backup of ours has"):
            restore._place(archive, member, data, data / "dump")
    assert not list(data.iterdir())


def test_links_of_an_archive_are_refused(tmp_path: Path) -> None:
    with tarfile.open(archive_of(tmp_path / "a", {}, link="ssh/id")) as archive:
        (member,) = archive.getmembers()
        with pytest.raises(restore.CannotRestore):
            restore._place(archive, member, tmp_path, tmp_path / "dump")

"""A zip or folder from a browser: what becomes of it, and what is refused in a sentence."""

from __future__ import annotations

import io
import math
import stat
import struct
import zipfile
from typing import Any

import pytest

from accounts.refusals import Refusal
from submissions import contexts, unpacking
from submissions.contexts import PlainFile


def zipped(*files: tuple[str | zipfile.ZipInfo, bytes]) -> io.BytesIO:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            archive.writestr(name, content)
    out.seek(0)
    return out


def test_the_one_folder_of_a_zip_is_the_root_and_what_is_never_sent_is_left_out() -> None:
    found = unpacking.from_zip(
        zipped(
            ("repo/train.py", b"print()"), ("repo/run.sh", b"#!/bin/sh\n"), ("repo/__pycache__/a.pyc", b"x"),
            ("__MACOSX/repo/._train.py", b"x"), ("repo/.detignore", b"data/\n"), ("repo/data/large", b"x"),
        )
    )  # fmt: skip
    assert {file.path for file in found.files} == {"train.py", "run.sh", ".detignore"}
    assert found.notices[0].startswith("All files are in repo")
    assert found.notices[1].startswith("1 file was left out")


def test_a_folder_comes_as_a_list_and_its_contents_in_a_row() -> None:
    manifest: list[dict[str, Any]] = [
        {"path": "code/a.py", "size": 3, "mtime": 5000},
        {"path": "code/run.sh", "size": 9, "mtime": 0},
    ]
    found = unpacking.from_folder(manifest, io.BytesIO(b"abc#!/bin/sh"))
    assert found.files == [("a.py", 0o644, 5, b"abc"), ("run.sh", 0o755, 0, b"#!/bin/sh")]
    for contents, sentence in (
        (b"ab", "changed during the upload"),
        (b"abc#!/bin/shx", "The upload has more data"),
    ):
        with pytest.raises(Refusal, match=sentence):
            unpacking.from_folder(manifest, io.BytesIO(contents))
    damaged: list[dict[str, Any]] = [{"path": "a"}, {"path": "a", "size": math.inf, "mtime": 0}]
    for entry in damaged:
        with pytest.raises(Refusal, match="damaged"):
            unpacking.from_folder([entry], io.BytesIO())


def link() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("passwd")
    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return info


def long_directory() -> io.BytesIO:
    content = bytearray(zipped(("a", b"")).getvalue())
    struct.pack_into("<L", content, content.rfind(b"PK\5\6") + 12, 500_000_000)
    return io.BytesIO(bytes(content))


def encrypted() -> io.BytesIO:
    content = bytearray(zipped(("a.py", b"x")).getvalue())
    for signature, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        content[content.index(signature) + offset] |= 1
    return io.BytesIO(bytes(content))


def damaged(compression: int, offset: int) -> io.BytesIO:
    """One byte of the zip is another: `offset` from its last directory record, or from its content below zero."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        archive.writestr("a.py", b"print()\n" * 100)
    content = bytearray(out.getvalue())
    content[content.index(b"PK\5\6") + offset if offset > 0 else content.index(b"a.py") - offset] ^= 0xFF
    return io.BytesIO(bytes(content))


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        (io.BytesIO(b"no zip at all"), "is not a zip file"),
        (io.BytesIO(), "is not a zip file"),
        (zipped((link(), b"/etc/passwd")), "passwd is a link"),
        (zipped(("zeros", bytes(10 * 2**20))), "times its size in the zip file"),
        (zipped(("a", bytes(1500)), ("b", bytes(1500))), "unpacks to more than"),
        (long_directory(), "too many files"),
        (encrypted(), "encrypted"),
        (damaged(zipfile.ZIP_LZMA, -14), "cannot be read"),
        (damaged(zipfile.ZIP_DEFLATED, 17), "cannot be read"),
    ],
    ids=["no zip", "empty", "link", "bomb", "too large", "long directory", "encrypted", "lzma", "offset"],
)
def test_what_is_no_folder_of_code_is_refused(file: io.BytesIO, sentence: str, settings: Any) -> None:
    settings.CONTEXT_BYTES = 2000 if sentence == "unpacks to more than" else 64 * 2**20
    with pytest.raises(Refusal, match=sentence):
        unpacking.from_zip(file)


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["../out.py", "/etc/cron.d/x", "a/../../b", "C:\\x\\y", "d/" * 50 + "x"])
def test_a_path_that_leads_out_or_too_deep_is_refused_when_it_is_kept(path: str) -> None:
    found = unpacking.from_zip(zipped((path, b"x"), ("train.py", b"")))
    with pytest.raises(Refusal):
        contexts.store_plain(found.files)


def test_a_path_that_is_no_text_is_refused_when_it_is_kept() -> None:
    for path in ("\ud800.py", "caf\udce9.py"):
        with pytest.raises(Refusal, match="not a file path"):
            contexts.store_plain([PlainFile(path, 0o644, 0, b"")])


def test_too_many_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "MOST_FILES", 1)
    with pytest.raises(Refusal, match="There are 2 files; allowed: at most 1"):
        unpacking.from_zip(zipped(("a", b""), ("b", b"")))

"""What of a folder is sent, and what is refused with a sentence."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from trainmaster import context
from trainmaster.context import ContextError, encode, survey


def put(folder: Path, *names: str, text: str = "x") -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def names(folder: Path, *includes: Path) -> list[str]:
    return [entry.path for entry in survey(folder, includes).entries]


def test_files_and_folders_are_sent_with_content_mode_and_time(tmp_path: Path) -> None:
    put(tmp_path, "a.py", "sub/b.sh", text="print(1)\n")
    (tmp_path / "sub/b.sh").chmod(0o755)
    os.utime(tmp_path / "a.py", (1000, 1000))
    files = {file["path"]: file for file in encode(survey(tmp_path))}
    assert list(files) == ["a.py", "sub", "sub/b.sh"]
    assert base64.b64decode(files["a.py"]["content"]) == b"print(1)\n"
    assert files["a.py"]["type"] == ord("0")
    assert files["a.py"]["mtime"] == "1000"
    assert files["sub"]["type"] == ord("5")
    assert files["sub/b.sh"]["mode"] == 0o755


def test_byte_code_and_tools_folders_are_never_sent(tmp_path: Path) -> None:
    put(
        tmp_path,
        "a.py",
        "a.pyc",
        "__pycache__/a.pyc",
        ".git/HEAD",
        "x/.git/HEAD",
        ".idea/w.xml",
        "t.tfstate",
        "M$py.class",
    )
    listing = survey(tmp_path)
    assert [entry.path for entry in listing.entries] == ["a.py", "x"]
    assert "__pycache__/" in listing.skipped
    assert "a.pyc" in listing.skipped


def test_byte_code_is_not_brought_back_by_the_ignore_file(tmp_path: Path) -> None:
    put(tmp_path, "a.pyc", "b.py")
    put(tmp_path, ".detignore", text="!a.pyc\n")
    assert names(tmp_path) == [".detignore", "b.py"]


def test_the_ignore_file_works_like_gitignore(tmp_path: Path) -> None:
    put(tmp_path, "data/big.bin", "data/keep.txt", "out.log", "sub/out.log", "sub/b.txt", "build/x")
    put(tmp_path, ".detignore", text="# a comment\n*.log\n!sub/out.log\n/data/*\n!/data/keep.txt\nbuild/\n")
    assert names(tmp_path) == [".detignore", "data", "data/keep.txt", "sub", "sub/b.txt", "sub/out.log"]


def test_a_link_inside_the_folder_is_followed(tmp_path: Path) -> None:
    put(tmp_path, "real/a.txt", text="content")
    (tmp_path / "link.txt").symlink_to("real/a.txt")
    (tmp_path / "folder").symlink_to("real")
    files = {file["path"]: file for file in encode(survey(tmp_path))}
    assert base64.b64decode(files["link.txt"]["content"]) == b"content"
    assert base64.b64decode(files["folder/a.txt"]["content"]) == b"content"


@pytest.mark.parametrize("target", ["../secret", "/etc/hostname"])
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, target: str) -> None:
    put(tmp_path, "secret")
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "link").symlink_to(target)
    with pytest.raises(ContextError, match="is a link out of the folder"):
        survey(folder)


def test_an_ignored_link_out_of_the_folder_harms_nobody(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    put(tmp_path, ".detignore", text="link\n")
    assert names(tmp_path) == [".detignore"]


def test_a_link_to_nothing_and_a_link_in_circles_are_refused(tmp_path: Path) -> None:
    (tmp_path / "dead").symlink_to("nowhere")
    with pytest.raises(ContextError, match="is a broken link"):
        survey(tmp_path)
    (tmp_path / "dead").unlink()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/up").symlink_to("..")
    with pytest.raises(ContextError, match="a folder that contains it"):
        survey(tmp_path)


def test_a_folder_that_is_too_large_names_its_largest_files(tmp_path: Path) -> None:
    put(tmp_path, "small.py")
    for name, size in (("weights.pt", 90), ("more.bin", 6)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size * 1024 * 1024)
    with pytest.raises(ContextError) as caught:
        survey(tmp_path)
    sentence, *largest = str(caught.value).splitlines()
    assert "96.0 MiB of files, allowed: 95.0 MiB" in sentence
    assert ".detignore" in sentence
    assert [line.split()[-1] for line in largest[:2]] == ["weights.pt", "more.bin"]


def test_exactly_the_limit_is_accepted(tmp_path: Path) -> None:
    with (tmp_path / "all.bin").open("wb") as file:
        file.truncate(context.LIMIT_BYTES)
    assert survey(tmp_path).size == context.LIMIT_BYTES


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    put(tmp_path, "locked")
    (tmp_path / "locked").chmod(0)
    with pytest.raises(ContextError, match="cannot be read"):
        encode(survey(tmp_path))


def test_a_file_that_is_gone_when_it_is_read_is_an_error(tmp_path: Path) -> None:
    put(tmp_path, "a.py")
    listing = survey(tmp_path)
    (tmp_path / "a.py").unlink()
    with pytest.raises(ContextError, match=r"a\.py cannot be read"):
        encode(listing)


def test_what_is_neither_file_nor_folder_is_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    put(tmp_path, "a.py")
    listing = survey(tmp_path)
    assert [entry.path for entry in listing.entries] == ["a.py"]
    assert listing.skipped == ["pipe (neither a file nor a folder)"]


def test_includes_are_put_at_the_root_and_may_not_collide(tmp_path: Path) -> None:
    put(tmp_path, "code/a.py", "lib/b.py", "lib/__pycache__/b.pyc", "one.txt", "other/a.py")
    code = tmp_path / "code"
    assert names(code, tmp_path / "lib", tmp_path / "one.txt") == ["a.py", "lib", "lib/b.py", "one.txt"]
    with pytest.raises(ContextError, match=r"already has a\.py at its root"):
        survey(code, [tmp_path / "other/a.py"])
    with pytest.raises(ContextError, match="does not exist"):
        survey(code, [tmp_path / "nothing"])


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "a.py")
    with pytest.raises(ContextError, match="is a file; give the folder"):
        survey(tmp_path / "a.py")
    with pytest.raises(ContextError, match="does not exist"):
        survey(tmp_path / "nothing")


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"bad\xff.txt")).write_text("x")
    with pytest.raises(ContextError, match="not UTF-8"):
        survey(tmp_path)


def test_progress_ends_at_the_whole_size(tmp_path: Path) -> None:
    put(tmp_path, "a", "b", text="12345")
    told: list[tuple[int, int]] = []
    encode(survey(tmp_path), lambda done, total: told.append((done, total)))
    assert told == [(5, 10), (10, 10)]

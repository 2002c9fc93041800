"""The data folder and the programs in it: closed to others, reachable for the databases' account."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from embedded import account, folder, postgres
from tests.rig import parts

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has another account for its databases")


@pytest.fixture
def place() -> Iterator[Path]:
    with parts.private_folder("folder") as path:
        path.chmod(0o711)
        yield path


def test_a_secret_is_made_once_and_is_ours_alone(place: Path) -> None:
    first = folder.secret(place / "key")
    assert folder.secret(place / "key") == first
    assert len(first) > 60
    assert stat.S_IMODE((place / "key").stat().st_mode) == 0o600


@needs_root
def test_a_closed_parent_is_named_and_nothing_is_left(place: Path) -> None:
    (place / "closed").mkdir(mode=0o700)
    with pytest.raises(ImproperlyConfigured, match=f"cannot access {place}/closed, so the data cannot be"):
        folder.prepare(place / "closed" / "data", parts.databases_account())
    assert list((place / "closed").iterdir()) == []
    assert stat.S_IMODE((place / "closed").stat().st_mode) == 0o700


@needs_root
def test_new_folders_are_passable_under_any_umask(place: Path) -> None:
    former = os.umask(0o077)
    try:
        data = folder.prepare(place / "a" / "b", parts.databases_account())
    finally:
        os.umask(former)
    assert account.can_enter(parts.databases_account(), data) is None


def test_a_path_too_long_for_a_socket_gets_a_short_one(place: Path) -> None:
    data = place / ("x" * 90)
    data.mkdir()
    short = folder.sockets(data, account.current(), "pgsock")
    try:
        assert len(str(short)) < 60
        assert folder.sockets(data, account.current(), "pgsock") == short
        assert stat.S_IMODE(short.stat().st_mode) == 0o700
    finally:
        short.rmdir()


@needs_root
def test_programs_that_the_account_cannot_read_are_copied_once(place: Path) -> None:
    installed, owner = postgres.bundled(), parts.databases_account()
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    package = closed / installed.parent.name
    shutil.copytree(installed, package / installed.name, symlinks=True)
    shutil.copytree(installed.parent.with_name(f"{package.name}.libs"), closed / f"{package.name}.libs")
    copied = postgres.runnable(package / installed.name, place, owner)
    assert copied.is_relative_to(place)
    assert not copied.is_relative_to(closed)
    assert owner.run([str(copied / "postgres"), "--version"]).stdout.startswith("postgres (PostgreSQL) 18")
    made = copied.stat().st_mtime_ns
    assert postgres.runnable(package / installed.name, place, owner).stat().st_mtime_ns == made

"""PostgreSQL and Redis for one test session, in a folder of their own, without durability."""

import atexit
import fcntl
import functools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from embedded import account, folder, postgres, redis

SHARED = "TESTS_SHARED_FOLDER"
TEST_ACCOUNT = "nobody"  # tests make no account on the machine they run on


@contextmanager
def private_folder(name: str) -> Iterator[Path]:
    """A folder that the databases' account may enter (pytest's own are closed), removed at the end."""
    path = Path(tempfile.mkdtemp(prefix=f"trainmaster-{name}-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@functools.cache
def shared_folder() -> Path:
    """A folder that all workers of one run of tests share; the first process of the run makes and removes it."""
    if given := os.environ.get(SHARED):
        return Path(given)
    path = Path(tempfile.mkdtemp(prefix="trainmaster-shared-"))
    path.chmod(0o711)
    os.environ[SHARED] = str(path)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@contextmanager
def first_alone(what: str) -> Iterator[bool]:
    """The first process of the run that comes here does `what` alone, the others wait for it: (whether it is first)."""
    with _lock(what).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _done(what).exists():
            yield True
            _done(what).touch()
            return
    yield False


def is_done(what: str) -> bool:
    """Whether a process of the run has been through with it; waits for one that is about it."""
    if not _lock(what).exists():
        return False
    with _lock(what).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        return _done(what).exists()


def _lock(what: str) -> Path:
    return shared_folder() / f"{what}.lock"


def _done(what: str) -> Path:
    return shared_folder() / f"{what}.done"


def databases_account() -> account.Account:
    if os.geteuid() == 0:
        os.environ.setdefault("TRAINMASTER_DB_ACCOUNT", TEST_ACCOUNT)
    return account.for_databases()


@contextmanager
def running_postgres(path: Path, like: Path | None = None) -> Iterator[postgres.Postgres]:
    """A cluster in the folder, as new or as the one in the data folder `like`."""
    owner = databases_account()
    if like:
        subprocess.run(["cp", "-a", like / "postgres", path], check=True)
    server = postgres.prepare(folder.prepare(path, owner), owner, durable=False)
    child = postgres.start(server, path / "postgres.log")
    try:
        yield server
    finally:
        end(child, signal.SIGINT)  # a fast shutdown: sessions left open are cut


@contextmanager
def running_redis(path: Path) -> Iterator[redis.Redis]:
    owner = databases_account()
    server = redis.prepare(folder.prepare(path, owner), owner)
    child = redis.start(server, path / "redis.log")
    try:
        yield server
    finally:
        end(child, signal.SIGTERM)


def end(child: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    """Ask a child to end and make sure that it has."""
    if child.poll() is None:
        child.send_signal(number)
    try:
        child.wait(15)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()

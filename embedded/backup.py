"""One file with everything that a server must not lose, written while it runs.

A tar archive: `backup.json` says what it is, `database.dump` is pg_dump's, the rest lies as in the data folder: the
secret key (run tokens are derived from it), the server's SSH keys and its certificate, checkpoints in `server` storage,
files for TensorBoard, images that trials reported. Contexts, logs and metrics are in the database; logs of the
server's own parts, static files and whatever Redis holds can be made again, so they are left out.

The database is dumped first and files are copied after it, and no checkpoint's files are removed meanwhile. A file
comes before the row that says it is whole and never changes after it, so each row of the dump finds its files.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.db import connection

from dispatch.keeping import deletion
from embedded import postgres
from events import origin
from events.leases import alone
from events.models import Event
from events.record import record

FORMAT = 1
ABOUT, DUMP, SECRET = "backup.json", "database.dump", "secret_key"
FOLDERS = ("ssh", "tls", "checkpoints", "tensorboard", "media")
#: files on their way to the server: their senders bring them again
_UNFINISHED = ".incoming"
_REMOVAL_LIMIT_SECONDS = 300.0


class CannotBackUp(Exception):
    """The text is a sentence."""


@dataclass(frozen=True)
class Made:
    """What has been written: the archive's size, and how many files of the data folder are in it."""

    bytes: int
    files: int


def write(target: Path) -> Made:
    """Write the archive, readable by its owner alone; `target` is there wholly or not at all. Raises CannotBackUp."""
    if target.exists():
        raise CannotBackUp(f"{target} already exists; choose another file, or remove that one first.")
    descriptor, scratch = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            count = _fill(file, target.parent)
            file.flush()
            os.fsync(file.fileno())
        os.link(scratch, target)  # unlike a rename it never takes the place of a file that was made meanwhile
        with origin.asked_from(origin.HERE):
            record(
                Event.Kind.SERVER,
                "backup",
                reason="written",
                actor=origin.account(),
                detail={"file": str(target)},
            )
        return Made(target.stat().st_size, count)
    except postgres.Failed as error:
        raise CannotBackUp(str(error)) from error
    finally:
        Path(scratch).unlink(missing_ok=True)


def _fill(file: io.BufferedWriter, beside: Path) -> int:
    """Write all of it; the number of files from the data folder."""
    with tarfile.open(fileobj=file, mode="w") as archive:
        _add(archive, ABOUT, json.dumps(_about(), indent=1).encode())
        _add(archive, SECRET, settings.SECRET_KEY.encode())
        _wait_for_removals()
        with alone(deletion.REMOVAL) as nobody_removes:
            if nobody_removes is None:
                raise CannotBackUp("Checkpoint files are being removed right now; try again in a minute.")
            with nobody_removes.kept():
                count = _contents(archive, beside)
            if not nobody_removes.renew():
                raise CannotBackUp("This process was suspended for too long while copying files; try again.")
            return count


def _contents(archive: tarfile.TarFile, beside: Path) -> int:
    """The database, then the files of the data folder; the number of these."""
    with tempfile.TemporaryDirectory(prefix=".trainmaster-dump-", dir=beside) as folder:
        dump = Path(folder, DUMP)
        postgres.dump(settings.DATABASES["default"], dump)
        archive.add(dump, DUMP, filter=_ours)
    return sum(_copy(archive, path, name) for path, name in _files())


def _about() -> dict[str, object]:
    return {
        "format": FORMAT,
        "version": settings.VERSION,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cluster": settings.CLUSTER_NAME,
        "postgresql": connection.pg_version,  # type: ignore[attr-defined]  # of Django's PostgreSQL connections alone
    }


def _wait_for_removals() -> None:
    """A round of removals takes half a minute at most."""
    limit = time.monotonic() + _REMOVAL_LIMIT_SECONDS
    while time.monotonic() < limit:
        with alone(deletion.REMOVAL) as nobody_removes:
            if nobody_removes is not None:
                return
        time.sleep(0.5)


def _files() -> Iterator[tuple[Path, str]]:
    """Path and name in the archive of every file that belongs into it."""
    root = Path(settings.DATA_DIR)
    for top in FOLDERS:
        for folder, below, names in os.walk(root / top):
            below[:] = sorted(set(below) - {_UNFINISHED})
            for name in sorted(names):
                path = Path(folder, name)
                yield path, str(path.relative_to(root))


def _copy(archive: tarfile.TarFile, path: Path, name: str) -> bool:
    """False: it is gone, with the experiment that it was of, or no ordinary file."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return False
    with file:
        info = archive.gettarinfo(arcname=name, fileobj=file)
        if not info.isreg():
            return False
        try:
            archive.addfile(_ours(info), file)
        except OSError as error:
            raise CannotBackUp(f"{path} could not be read: {error}. Try again.") from error
    return True


def _ours(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without the names of accounts, which another machine lacks; closed to others."""
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode = 0o600
    return info


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mtime = len(content), int(time.time())
    archive.addfile(_ours(info), io.BytesIO(content))

"""`discard`: files of one checkpoint are removed from a storage that this host reaches and the server does not."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any, Dict, List, Optional

from trainmaster.host.accounts import account, by_sudo, is_other, under
from trainmaster.host.asking import by_the_jobs_python
from trainmaster.host.errors import VerbError
from trainmaster.paths import Workdir
from trainmaster.runner.storage_check import folder_of
from trainmaster.storage_faults import folder_fault

_BUNDLE = str(Path(__file__).resolve().parents[2])
_SECONDS = 100.0
_SAID_BYTES = 500


def discard(request: Dict[str, Any], workdir: Workdir) -> Dict[str, Any]:
    """{"discarded": true}; what is gone already is fine. VerbError `storage` with a sentence when it cannot be done.

    Request: {"storage": a checkpoint_storage section, "uuid", "paths": relative ones or null for all, "host": its name,
    "unix_user", "python", "activate": of the job}.
    """
    user, own = request.get("unix_user"), {**request, "unix_user": None}
    if is_other(user) and os.getuid() != 0:
        return by_sudo(account(str(user)), "discard", own, workdir)
    return under(user, lambda: _discard(own))


def _discard(request: Dict[str, Any]) -> Dict[str, Any]:
    name = str(uuid.UUID(str(request["uuid"])))
    section, paths = request["storage"], request.get("paths")
    if section.get("type") in ("shared_fs", "directory"):
        folder = folder_of(section)
        try:
            _remove(folder, name, paths)
        except OSError as error:
            raise VerbError(
                "storage", f"{folder_fault(str(folder), str(request.get('host')), error)}."
            ) from error
    else:
        _by_the_jobs_python(request)
    return {"discarded": True}


def _remove(folder: Path, name: str, paths: Optional[List[str]]) -> None:
    folder.stat()  # one that is not mounted has nothing to remove, and all to lose
    checkpoint = folder / name
    if paths is None:
        if checkpoint.is_dir():
            shutil.rmtree(checkpoint)
        return
    for path in sorted(paths, reverse=True):  # what is inside a folder goes before it
        parts = path.rstrip("/").split("/")
        if any(part in ("", ".", "..") for part in parts):
            raise VerbError("bad_request", f"The path {path!r} is not inside its checkpoint.")
        with contextlib.suppress(FileNotFoundError):
            place = checkpoint.joinpath(*parts)
            place.rmdir() if path.endswith("/") else place.unlink()


def _by_the_jobs_python(request: Dict[str, Any]) -> None:
    """In a cloud: with the packages, and the role, that the job had."""
    environment = {**(request.get("environment") or {}), "PYTHONPATH": _BUNDLE}
    words, content = ["-m", "trainmaster.host.discarding"], json.dumps(request).encode()
    try:
        done = by_the_jobs_python(request, words, environment, _SECONDS, content=content)
    except subprocess.TimeoutExpired as error:
        raise VerbError("storage", f"The storage did not respond within {_SECONDS:.0f} s.") from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no word"]
        raise VerbError("storage", said[0][-_SAID_BYTES:])


def main() -> int:
    """In the job's Python, with its boto3, gcsfs or adlfs: exit code 1 with a sentence on stderr if it failed."""
    from trainmaster.core._object_storage import object_storage

    request = json.load(sys.stdin)
    try:
        storage = object_storage(request["storage"], Path(), str(request.get("host")))
        storage.discard(request["uuid"], request.get("paths"))
    except OSError as error:
        sys.stderr.write(f"{error}.\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

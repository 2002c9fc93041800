"""Whether a run can store checkpoints, found out before its entrypoint starts.

A folder (`shared_fs`, `directory`) is tried on every host by the launcher itself; other kinds by the first member,
in the job's own Python, for that has to have the package: `python3 -m trainmaster.runner.storage_check`. What is wrong
stands in control/storage.json, from which the launcher takes it into exit.json.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import sys
from pathlib import Path
from typing import Dict, Optional

from trainmaster.jsonfile import read_json, write_json
from trainmaster.paths import RunPaths
from trainmaster.protocol import Json, Spec
from trainmaster.storage_faults import StorageFault, folder_fault

#: a network mount whose server is away holds whoever touches it for as long as it likes
LIMIT_SECONDS = 30.0
_CLOUDS = ("s3", "gcs", "azure")
_ANSWER_BYTES = 4096


def by_launcher(spec: Spec) -> Optional[str]:
    """The fault of a storage that is a folder, None if it can be used or is of another kind."""
    section = spec["checkpoint_storage"]
    if spec["task_type"] != "TRIAL" or section.get("type") not in ("shared_fs", "directory"):
        return None
    folder, host = _folder(section), spec["host"]["name"]
    reading, writing = os.pipe()
    child = os.fork()  # it may hang for ever, which nothing here may
    if child == 0:
        try:
            fault = _try_folder(folder, section, spec["run_key"])
            os.write(writing, str(folder_fault(str(folder), host, fault)).encode() if fault else b"")
        finally:
            os._exit(0)
    os.close(writing)
    try:
        answered, _, _ = select.select([reading], [], [], LIMIT_SECONDS)
        text = os.read(reading, _ANSWER_BYTES).decode("utf-8", "replace") if answered else None
    finally:
        os.close(reading)
    if text is None:
        late = OSError(errno.ETIMEDOUT, f"nothing came back within {LIMIT_SECONDS:g} s")
        return str(folder_fault(str(folder), host, late))
    return text or None


def _folder(section: Dict[str, Json]) -> Path:
    if section["type"] == "directory":
        return Path(section["container_path"])
    return Path(section["host_path"]) / (section.get("storage_path") or "")


def _try_folder(folder: Path, section: Dict[str, Json], name: str) -> Optional[OSError]:
    """Write, read and delete a small file."""
    probe = folder / f".trainmaster-check.{name}"
    try:
        if section["type"] == "shared_fs":
            Path(section["host_path"]).stat()  # where it is not mounted, all would go to the host's own disk
        folder.mkdir(parents=True, exist_ok=True)
        try:
            _write_and_read(probe, name.encode())
        finally:
            with contextlib.suppress(FileNotFoundError):
                probe.unlink()
    except OSError as error:
        return error
    return None


def _write_and_read(probe: Path, content: bytes) -> None:
    with probe.open("w+b", buffering=0) as file:
        file.write(content)
        os.fsync(file.fileno())  # a full disk may say so only now
        if os.pread(file.fileno(), len(content) + 1, 0) != content:
            raise OSError(errno.EIO, "another content comes back than was written")


def is_for_the_job(spec: Spec) -> bool:
    """Whether this member has to check in the job's own Python."""
    is_trial = spec["task_type"] == "TRIAL" and spec["member"] == 0
    own_sdk = spec["environment"].get("TRAINMASTER_SDK") == "installed"
    return is_trial and spec["checkpoint_storage"].get("type") in _CLOUDS and not own_sdk


def found_fault(paths: RunPaths) -> Optional[str]:
    """What the check, or a rank at its start, has found wrong with the storage."""
    record = read_json(paths.storage_fault)
    sentence = record.get("sentence") if isinstance(record, dict) else None
    return sentence if isinstance(sentence, str) else None


def note_fault(paths: RunPaths, sentence: str) -> None:
    paths.storage_fault.parent.mkdir(mode=0o700, exist_ok=True)
    write_json(paths.storage_fault, {"sentence": sentence})


def main() -> int:
    """In the job's environment; exit code 1 when the storage cannot be used."""
    from trainmaster._info import get_cluster_info
    from trainmaster.core._storage_choice import storage_for

    paths, info = RunPaths.from_environment(), get_cluster_info()
    if paths is None or info is None:
        return 0
    try:
        storage_for(info, None).check(f"check-{paths.key}")
    except (StorageFault, ValueError) as fault:
        note_fault(paths, str(fault))
        sys.stderr.write(f"ERROR: trainmaster: {fault}. The entrypoint was not started.\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

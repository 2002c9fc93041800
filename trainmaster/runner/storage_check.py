"""Whether a run can store checkpoints, found out before its entrypoint starts.

A folder (`shared_fs`, `directory`) is tried on every host by the launcher itself; other kinds by the first member,
in the job's own Python, for that has to have the package: `python3 -m trainmaster.runner.storage_check`. What is wrong
stands in control/storage.json, from which the launcher takes it into exit.json.

In a `shared_fs` the first member of a gang leaves a mark while it runs. Ranks of the others look for it in
`core.init()`, by when the gang has met: whoever does not see it has another folder under that name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import sys
import time
from pathlib import Path
from typing import Callable, Dict, Optional

from trainmaster.jsonfile import read_json
from trainmaster.paths import RunPaths
from trainmaster.protocol import Json, Spec
from trainmaster.runner.state import note_sentence
from trainmaster.storage_faults import StorageFault, folder_fault

#: a network mount whose server is away holds whoever touches it for as long as it likes
LIMIT_SECONDS = 30.0
_CLOUDS = ("s3", "gcs", "azure")
_ANSWER_BYTES = 4096
_SEEN_SECONDS = 10.0  # network mounts show a new file late


def by_launcher(spec: Spec) -> Optional[str]:
    """The fault of a storage that is a folder, None if it can be used or is of another kind."""
    section = spec["checkpoint_storage"]
    if spec["task_type"] != "TRIAL" or section.get("type") not in ("shared_fs", "directory"):
        return None
    if section["type"] == "directory" and spec.get("container"):
        return None  # a folder of the image, or one that its config mounts there
    folder, host = folder_of(section), spec["host"]["name"]

    def attempt() -> str:
        fault = _try_folder(folder, section, spec["run_key"])
        mark = mark_of(spec)
        if fault is None and mark is not None and spec["member"] == 0:
            mark.touch()
        return str(folder_fault(str(folder), host, fault)) if fault else ""

    text = _bounded(attempt)
    if text is None:
        late = OSError(errno.ETIMEDOUT, f"there was no response within {LIMIT_SECONDS:g} s")
        return str(folder_fault(str(folder), host, late))
    return text or None


def _bounded(attempt: Callable[[], str]) -> Optional[str]:
    """What `attempt` says, in a process of its own, for it may hang for ever; None when it takes too long."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            _close_all_but(writing)
            os.write(writing, attempt().encode())
        except OSError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    try:
        answer = select.poll()  # unlike select() it takes descriptors from 1024 on
        answer.register(reading, select.POLLIN)
        answered = answer.poll(LIMIT_SECONDS * 1000)
        return os.read(reading, _ANSWER_BYTES).decode("utf-8", "replace") if answered else None
    finally:
        os.close(reading)


def _close_all_but(kept: int) -> None:
    """Close inherited descriptors: among them is the launch lock, which nobody may hold forever."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) > 2 and int(name) != kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


def mark_of(spec: Spec) -> Optional[Path]:
    """The mark of a gang whose members have to share a folder; None of any other run."""
    section = spec["checkpoint_storage"]
    if spec["members"] < 2 or section.get("type") != "shared_fs" or spec["task_type"] != "TRIAL":
        return None
    return folder_of(section) / f".trainmaster-gang.{spec['allocation_id']}"


def remove_mark(spec: Spec) -> None:
    """When the first member has ended."""
    mark = mark_of(spec)
    if mark is not None and spec["member"] == 0:
        _bounded(lambda: _gone(mark))


def _gone(mark: Path) -> str:
    with contextlib.suppress(OSError):
        mark.unlink()
    return ""


def require_mark(paths: RunPaths, host: str, first_host: str) -> None:
    """By ranks of a gang that has met. StorageFault where the first member's mark is not seen."""
    record = read_json(paths.storage_mark)
    if not isinstance(record, dict):
        return
    mark = Path(str(record["mark"]))
    until = time.monotonic() + _SEEN_SECONDS
    while not mark.exists():
        if time.monotonic() > until:
            fault = (
                f"checkpoint storage {mark.parent} on host {host} is not the same folder as on {first_host} under that "
                "name: mount the same one on all hosts, or change checkpoint_storage"
            )
            note_sentence(paths.storage_fault, fault)
            raise StorageFault(fault)
        time.sleep(0.1)


def folder_of(section: Dict[str, Json]) -> Path:
    """Where a `shared_fs` or `directory` section says that checkpoints are."""
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
            raise OSError(errno.EIO, "the content read back differs from what was written")


def is_for_the_job(spec: Spec) -> bool:
    """Whether this member has to check in the job's own Python."""
    is_trial = spec["task_type"] == "TRIAL" and spec["member"] == 0
    own_sdk = spec["environment"].get("TRAINMASTER_SDK") == "installed"
    return is_trial and spec["checkpoint_storage"].get("type") in _CLOUDS and not own_sdk


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
        note_sentence(paths.storage_fault, str(fault))
        sys.stderr.write(f"ERROR: trainmaster: {fault}. The entrypoint was not started.\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

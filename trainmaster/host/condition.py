"""How this host and its GPUs are: what the server compares with the look before to find faults (docs/health.md)."""

from __future__ import annotations

import contextlib
import os
import re
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from trainmaster.host import gpu_health, links
from trainmaster.host.accounts import name_of
from trainmaster.host.gpu_users import ancestors, gpu_users
from trainmaster.host.in_time import Answer, answers
from trainmaster.host.nvidia import opened_nvml
from trainmaster.paths import Workdir
from trainmaster.processes import PROC, boot_id, marked, marker_of, real_uid, reference
from trainmaster.protocol import KEEPER_MARKER, ProcessRef, is_run_key
from trainmaster.runner.gpu_samples import look_at

#: for the driver and all folders together: the server waits little longer for the whole answer
PATIENCE_SECONDS = 8.0
_MOST_FOLDERS, _MOST_RUNS, _MOST_FILES = 16, 64, 20_000
_SHM = Path("/dev/shm")
#: files below this share of it are not looked at one by one
_SHM_USED = 0.5
_TORCH = re.compile(r"torch_(\d+)_")
_YOUNG_SECONDS = 600.0
#: names of questions; those of folders are their paths, but for the one in which the runs are
_DRIVER, RUN_FOLDER = "driver", "."

Json = Dict[str, Any]


class Asked:
    """What a status request wants to know beside the runs, with what may hang asked side by side and in time."""

    def __init__(self, request: Json, workdir: Workdir) -> None:
        self._users = bool(request.get("gpu_users"))
        self._condition = _dict(request.get("condition"))
        self._sampled = [str(uuid) for uuid in _dict(request.get("sample")).get("gpus") or ()]
        self._gpus = _dict((self._condition or {}).get("gpus"))
        works = self._works(workdir)
        try:
            found = answers(works, workdir.looking, PATIENCE_SECONDS)
        except OSError:  # it may start no process: how the runs stand is answered all the same
            found = dict.fromkeys(works, Answer(None, None))
        self._driver = found.pop(_DRIVER, Answer(None, None))
        self._folders = found

    def _works(self, workdir: Workdir) -> Dict[str, Callable[[], Any]]:
        works: Dict[str, Callable[[], Any]] = {}
        if self._users or self._sampled or self._gpus:
            works[_DRIVER] = self._ask_driver
        if self._condition:
            wanted = [str(folder) for folder in self._condition.get("folders") or ()][:_MOST_FOLDERS]
            for name, folder in ((RUN_FOLDER, str(workdir.root)), *zip(wanted, wanted)):  # noqa: B905  # Python 3.8
                works[name] = partial(folder_facts, folder)
        return works

    def _ask_driver(self) -> Iterator[Json]:
        """In a process of its own, which keeps the driver open for all of it, and first says who uses the GPUs.

        A driver may be slow to start: how healthy the GPUs are can wait, and who is on them decides who may start.
        """
        nvml = opened_nvml()
        if self._users:
            yield {"users": gpu_users()}
        found: Json = {"nvml": nvml is not None}
        if self._sampled:
            with contextlib.suppress(Exception):  # what cannot be measured is left out
                found["sample"] = look_at(self._sampled)
        if nvml is not None:
            found["gpus"], found["refused"] = gpu_health.read(nvml, self._gpus)
        yield found

    def _said(self, name: str) -> Any:
        return _dict(self._driver.value).get(name)

    @property
    def gpu_users(self) -> Optional[Json]:
        """None if nobody can tell, or the driver did not answer in time."""
        users: Optional[Json] = self._said("users")
        return users

    @property
    def gpu_sample(self) -> Dict[str, float]:
        return dict(_dict(self._said("sample")))

    def condition(self) -> Json:
        """The answer to `condition` (docs/protocol.md). Raises OSError if /proc cannot be read."""
        folders = {
            name: {"late": round(each.late, 1)} if each.late is not None else each.value
            for name, each in self._folders.items()
        }
        answer: Json = {
            "boot": boot_id(),
            "at": int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6),
            "gpus": _dict(self._said("gpus")),
            "ports": links.ports(),
            "cards": links.cards(),
            "folders": folders,
            "runs": _runs(),
            "account": name_of(os.getuid()),
            "shm": shared_memory(_SHM),
            "denied": self._denied(),
            "now": time.time(),
        }
        if self._driver.late is not None:
            answer["driver_late"] = round(self._driver.late, 1)
        elif self._said("nvml") is not None:  # else it was not asked
            answer["driver_late"] = 0
        return answer

    def _denied(self) -> List[str]:
        if not self._gpus:
            return []
        if self._driver.late is not None:
            return [
                f"The GPU driver did not answer within {PATIENCE_SECONDS:g} s, so the health of the GPUs is not known. "
                "If it is always so slow, turn on persistence mode (nvidia-smi -pm 1)."
            ]
        if self._said("nvml") is None:
            return [
                "No process could be started to ask the GPU driver, or it failed, so the health of the GPUs is unknown."
            ]
        if not self._said("nvml"):
            return [
                "NVIDIA's library (libnvidia-ml.so.1) cannot be used, so memory errors, throttling and the link of the "
                "GPUs are not seen. Install the part of the driver that has it."
            ]
        refused = self._said("refused")
        return (
            [f"The driver does not let this account read: {', '.join(map(str, refused))}."] if refused else []
        )


def problems(gpus: List[Json], workdir: Workdir) -> List[str]:
    """Sentences about what cannot be read of the health of these GPUs, for the doctor."""
    wanted = {gpu["uuid"]: gpu["pci"] for gpu in gpus if gpu.get("uuid") and gpu.get("pci")}
    return Asked({"condition": {"gpus": wanted}}, workdir)._denied()


def folder_facts(folder: str) -> Json:
    """{"free", "total", "read_only"}; {"missing": true} where there is no such folder."""
    try:
        told = os.statvfs(folder)
    except OSError as error:
        return {"missing": True, "error": str(error.strerror)}
    return {
        "free": told.f_bavail * told.f_frsize,
        "total": told.f_blocks * told.f_frsize,
        "read_only": bool(told.f_flag & os.ST_RDONLY),
    }


def _runs() -> Dict[str, Dict[str, int]]:
    """{run key: {account: number of its processes here}}, as far as this account may look.

    A marker is what its process says. One below the launcher of another run belongs to that run.
    """
    found: Dict[str, Dict[str, int]] = {}
    for key, processes in sorted(each for each in marked().items() if is_run_key(each[0])):
        counted: Dict[str, int] = {}
        for process in processes:
            uid = real_uid(process["pid"])
            if uid is not None and not _is_of_another(process, key):
                counted[name_of(uid)] = counted.get(name_of(uid), 0) + 1
        if counted:
            found[key] = dict(list(counted.items())[:_MOST_RUNS])
    return dict(list(found.items())[:_MOST_RUNS])


def _is_of_another(process: ProcessRef, key: str) -> bool:
    return any(marker_of(each, KEEPER_MARKER) not in (None, key) for each in ancestors(process["pid"]))


def shared_memory(folder: Path) -> Json:
    """{"used", "total", "left", "files"}: what PyTorch's files there take whose processes have ended.

    They are counted only where half of it is used: only then does it matter. With containers they are not counted.
    """
    try:
        told = os.statvfs(folder)
    except OSError:
        return {}
    total = told.f_blocks * told.f_frsize
    used = total - told.f_bfree * told.f_frsize
    is_half_full = used > _SHM_USED * total
    left, files = _left_in(folder) if is_half_full and not _has_containers() else (0, 0)
    return {"used": used, "total": total, "left": left, "files": files}


def _has_containers() -> bool:
    """Whether a process has a pid of its own elsewhere: a file may be named after that one."""
    for status in PROC.glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            if re.search(r"^NSpid:\s+\d+\s+\d", status.read_text(errors="replace"), re.MULTILINE):
                return True
    return False


def _left_in(folder: Path) -> Tuple[int, int]:
    """(bytes, number) of files whose name has the pid of a process that has ended."""
    size = number = 0
    young = time.time() - _YOUNG_SECONDS
    living: Dict[int, bool] = {}
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for looked, entry in enumerate(entries):
            named = _TORCH.match(entry.name)
            if looked >= _MOST_FILES or not named:
                continue
            pid = int(named.group(1))
            if pid not in living:
                living[pid] = reference(pid) is not None
            if not living[pid]:
                with contextlib.suppress(OSError):
                    facts = entry.stat(follow_symlinks=False)
                    if facts.st_mtime < young:
                        size, number = size + facts.st_blocks * 512, number + 1
    return size, number


def _dict(value: Any) -> Json:
    return value if isinstance(value, dict) else {}

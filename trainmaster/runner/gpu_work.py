"""How much of its GPUs each process has used lately, where NVIDIA's driver can tell."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Optional

from trainmaster.host.nvidia import opened_nvml

_LOOK_BACK_SECONDS = 5.0


class GpuWork:
    """The driver's library, kept open: opening it may wake a GPU up, which takes seconds."""

    def __init__(self, uuids: List[str]) -> None:
        self._uuids = uuids
        self._nvml: Any = None
        self._devices: List[Any] = []
        self._opened = not uuids  # nothing to open where the run has no GPUs

    def by_pid(self) -> Optional[Dict[int, int]]:
        """Percent of a GPU's time by pid, of those that used any; None where nobody can tell (MIG, no driver)."""
        if not self._opened:
            self._opened = True
            self._open()
        if not self._devices:
            return None
        found: Dict[int, int] = {}
        known = False
        for device in self._devices:
            samples = self._samples(device)
            known = known or samples is not None
            for pid, percent in (samples or {}).items():
                found[pid] = found.get(pid, 0) + percent
        return found if known else None

    def _open(self) -> None:
        self._nvml = nvml = opened_nvml()
        if nvml is None:
            return
        try:
            self._devices = [nvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in self._uuids]
        except nvml.NVMLError:
            self._devices = []

    def _samples(self, device: Any) -> Optional[Dict[int, int]]:
        """The newest sample of each process; None when this device keeps none."""
        nvml = self._nvml
        since = int((time.time() - _LOOK_BACK_SECONDS) * 1e6)
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(device, since)
        except nvml.NVMLError_NotFound:  # nobody has used it of late
            return {}
        except nvml.NVMLError:
            return None
        # the buffer comes with old entries, and several of one process
        recent = sorted((int(s.timeStamp), int(s.pid), int(s.smUtil)) for s in samples)
        return {pid: min(100, percent) for at, pid, percent in recent if at >= since}

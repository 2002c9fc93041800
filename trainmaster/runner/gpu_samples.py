"""How busy, full, hot and hungry the run's own GPUs are: by NVML, else now and then by nvidia-smi.

And how much of them each process has used lately, where NVIDIA's driver can tell.
"""

from __future__ import annotations

import contextlib
import csv
import subprocess
import time
from typing import AbstractSet, Any, Callable, Dict, List, Optional, Sequence, Tuple

from trainmaster.host.nvidia import SMI_FORMAT, KeptOpen, by_nvidia_smi, by_nvml, handles

#: nvidia-smi costs the host a tenth of a second of a core each time
SMI_SECONDS = 15.0
_SMI_PATIENCE_SECONDS = 60.0
_LOOK_BACK_SECONDS = 5.0
_MIB = 1024 * 1024
#: what nvidia-smi is asked for -> (name, units of ours in one of its)
_SMI_FIELDS: Sequence[Tuple[str, str, int]] = (
    ("utilization.gpu", "gpu_util", 1),
    ("memory.used", "gpu_memory_used", _MIB),
    ("memory.free", "gpu_memory_free", _MIB),
    ("temperature.gpu", "gpu_temperature", 1),
    ("power.draw", "gpu_power", 1),
)
_SMI_QUERY = "--query-gpu=" + ",".join(["uuid", *(field for field, _, _ in _SMI_FIELDS)])


class GpuSamples:
    """`read` is called again and again. What a GPU does not tell (a MIG instance has no temperature) is left out."""

    def __init__(self, uuids: List[str]) -> None:
        self._gpus = KeptOpen(uuids)
        self._smi = NvidiaSmi(uuids)

    def read(self, now: float) -> Dict[str, float]:
        """By `<name>/<GPU UUID>`; `now` in monotonic seconds. Empty where the run has no GPUs or nobody can tell."""
        if not self._gpus.uuids:
            return {}
        devices = self._gpus.handles()
        return _of_all(self._gpus.nvml, devices) if devices else self._smi.read(now)


def _of_all(nvml: Any, devices: Dict[str, Any]) -> Dict[str, float]:
    return {
        f"{name}/{uuid}": value for uuid, device in devices.items() for name, value in _values(nvml, device)
    }


def _values(nvml: Any, device: Any) -> List[Tuple[str, float]]:
    found: List[Tuple[str, float]] = []

    def ask(question: Callable[[], List[Tuple[str, float]]]) -> None:
        with contextlib.suppress(nvml.NVMLError):  # this kind of GPU does not tell
            found.extend(question())

    def memory() -> List[Tuple[str, float]]:
        answer = nvml.nvmlDeviceGetMemoryInfo(device)
        return [("gpu_memory_used", int(answer.used)), ("gpu_memory_free", int(answer.free))]

    ask(lambda: [("gpu_util", int(nvml.nvmlDeviceGetUtilizationRates(device).gpu))])
    ask(memory)
    ask(lambda: [("gpu_temperature", int(nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU)))])
    ask(lambda: [("gpu_power", round(nvml.nvmlDeviceGetPowerUsage(device) / 1000, 1))])
    return found


def look_at(uuids: Sequence[str]) -> Dict[str, float]:
    """One look at these GPUs, by a driver that is opened for it: what `GpuSamples.read` gives, or nothing."""
    if not uuids:
        return {}
    found = by_nvml(lambda nvml: _of_all(nvml, handles(nvml, uuids)))
    if found is not None:
        return found
    answer = by_nvidia_smi(_SMI_QUERY)
    return {} if answer is None else parse(answer, frozenset(uuids))


class NvidiaSmi:
    """The program, started every so often; a later look fetches what it has said, so that none waits for it."""

    def __init__(self, uuids: List[str]) -> None:
        self._uuids = frozenset(uuids)
        self._program: Optional[subprocess.Popen[bytes]] = None
        self._due = 0.0
        self._started = 0.0

    def read(self, now: float) -> Dict[str, float]:
        """What it has said since the last look, mostly nothing."""
        if self._program is not None:
            return self._fetch(self._program, now)
        if now >= self._due:
            self._start(now)
        return {}

    def _start(self, now: float) -> None:
        command = ["nvidia-smi", _SMI_QUERY, SMI_FORMAT]
        self._started, self._due = now, now + SMI_SECONDS
        try:
            self._program = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError:  # there is none
            self._due = float("inf")

    def _fetch(self, program: subprocess.Popen[bytes], now: float) -> Dict[str, float]:
        if program.poll() is None:
            if now - self._started > _SMI_PATIENCE_SECONDS:
                program.kill()
            return {}
        self._program = None
        answer, _ = program.communicate()
        return parse(answer.decode("utf-8", "replace"), self._uuids) if program.returncode == 0 else {}


def parse(answer: str, uuids: AbstractSet[str]) -> Dict[str, float]:
    """nvidia-smi's answer as CSV without head and units, the chosen GPUs alone; `[N/A]` is left out."""
    found: Dict[str, float] = {}
    for row in csv.reader(answer.splitlines(), skipinitialspace=True):
        if len(row) != 1 + len(_SMI_FIELDS) or row[0].strip() not in uuids:
            continue
        for cell, (_, name, factor) in zip(row[1:], _SMI_FIELDS):  # noqa: B905  # Python 3.8
            try:
                found[f"{name}/{row[0].strip()}"] = float(cell) * factor
            except ValueError:
                continue
    return found


class GpuWork:
    """Who has used the GPUs of a run; `by_pid` is called again and again."""

    def __init__(self, uuids: List[str]) -> None:
        self._gpus = KeptOpen(uuids)

    def by_pid(self) -> Optional[Dict[int, int]]:
        """Percent of a GPU's time by pid, of those that used any; None where nobody can tell (MIG, no driver)."""
        devices = self._gpus.handles()
        if devices.keys() != set(self._gpus.uuids):
            return None
        found: Dict[int, int] = {}
        known = False
        for device in devices.values():
            samples = self._samples(device)
            known = known or samples is not None
            for pid, percent in (samples or {}).items():
                found[pid] = found.get(pid, 0) + percent
        return found if known else None

    def _samples(self, device: Any) -> Optional[Dict[int, int]]:
        """The newest sample of each process; None when this device keeps none."""
        nvml = self._gpus.nvml
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

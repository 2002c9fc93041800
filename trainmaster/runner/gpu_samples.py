"""How busy, full, hot and hungry the run's own GPUs are: by NVML, else now and then by nvidia-smi."""

from __future__ import annotations

import contextlib
import csv
import subprocess
from typing import AbstractSet, Any, Callable, Dict, List, Optional, Sequence, Tuple

from trainmaster.host.nvidia import SMI_FORMAT, by_nvidia_smi, by_nvml, opened_nvml

#: nvidia-smi costs the host a tenth of a second of a core each time
SMI_SECONDS = 15.0
_SMI_PATIENCE_SECONDS = 60.0
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
        self._uuids = uuids
        self._opened = False
        self._nvml: Any = None
        self._devices: Dict[str, Any] = {}
        self._smi = NvidiaSmi(uuids)

    def read(self, now: float) -> Dict[str, float]:
        """By `<name>/<GPU UUID>`; `now` in monotonic seconds. Empty where the run has no GPUs or nobody can tell."""
        if not self._uuids:
            return {}
        if not self._opened:
            self._opened = True
            self._open()
        if not self._devices:
            return self._smi.read(now)
        found: Dict[str, float] = {}
        for uuid, device in self._devices.items():
            for name, value in _values(self._nvml, device):
                found[f"{name}/{uuid}"] = value
        return found

    def _open(self) -> None:
        """The library stays open: opening it may wake a GPU up, which takes seconds."""
        self._nvml = nvml = opened_nvml()
        if nvml is None:
            return
        for uuid in self._uuids:
            try:
                self._devices[uuid] = nvml.nvmlDeviceGetHandleByUUID(uuid)
            except nvml.NVMLError:
                continue


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

    def read(nvml: Any) -> Dict[str, float]:
        found: Dict[str, float] = {}
        for uuid in uuids:
            with contextlib.suppress(nvml.NVMLError):
                device = nvml.nvmlDeviceGetHandleByUUID(uuid)
                found.update((f"{name}/{uuid}", value) for name, value in _values(nvml, device))
        return found

    found = by_nvml(read)
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

"""The GPUs of this host, and the two ways to NVIDIA's driver: its library, and nvidia-smi where it has none."""

from __future__ import annotations

import contextlib
import csv
import importlib
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, TypeVar

from trainmaster.host.asking import output_of

#: CSV without head and units
SMI_FORMAT = "--format=csv,noheader,nounits"
_SECONDS = 20
#: of the bundle; not on PYTHONPATH, so that a job's own copies of what is in it are not hidden from the job
_VENDOR = Path(__file__).resolve().parents[2] / "vendor"
_Found = TypeVar("_Found")
_FIELDS = ("index", "uuid", "name", "memory.total", "driver_version", "pci.bus_id")
_MIB = 1024 * 1024


def opened_nvml() -> Any:
    """The library, initialized, the bundle's before any other; None where NVML cannot be used."""
    if str(_VENDOR) not in sys.path and _VENDOR.is_dir():
        sys.path.insert(1, str(_VENDOR))
    try:
        nvml: Any = importlib.import_module("pynvml")
    except Exception:  # whatever it raises, the caller continues without it
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml


def by_nvml(read: Callable[[Any], _Found]) -> Optional[_Found]:
    """What `read` makes of the library; None where NVML cannot be used."""
    nvml = opened_nvml()
    if nvml is None:
        return None
    try:
        return read(nvml)
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def handles(nvml: Any, uuids: Iterable[str]) -> Dict[str, Any]:
    """By UUID, those of the GPUs that the library knows."""
    found = {}
    for uuid in uuids:
        with contextlib.suppress(nvml.NVMLError):
            found[uuid] = nvml.nvmlDeviceGetHandleByUUID(uuid)
    return found


def minor_numbers(nvml: Any, uuids: Iterable[str]) -> Dict[str, int]:
    """By UUID, the N of /dev/nvidiaN, as far as the library knows it."""
    found = {}
    for uuid, handle in handles(nvml, uuids).items():
        with contextlib.suppress(nvml.NVMLError):
            found[uuid] = int(nvml.nvmlDeviceGetMinorNumber(handle))
    return found


class KeptOpen:
    """The library for some GPUs; it stays open, for opening it may wake a GPU up, which takes seconds."""

    def __init__(self, uuids: Sequence[str]) -> None:
        self.uuids = uuids
        self.nvml: Any = None
        self._handles: Optional[Dict[str, Any]] = None

    def handles(self) -> Dict[str, Any]:
        """By UUID, opening the library at the first call; empty where NVML cannot be used."""
        if self._handles is None:
            self._handles = {}
            self.nvml = opened_nvml() if self.uuids else None
            if self.nvml is not None:
                self._handles = handles(self.nvml, self.uuids)
        return self._handles


def mig_instances(nvml: Any, device: Any) -> List[Any]:
    """Handles of the MIG instances of a GPU, empty where it has none or cannot have any."""
    try:
        if nvml.nvmlDeviceGetMigMode(device)[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return []
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(device)
    except nvml.NVMLError:
        return []
    handles = []
    for index in range(count):
        try:
            handles.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, index))
        except nvml.NVMLError:  # this place of the GPU has no instance
            continue
    return handles


def by_nvidia_smi(query: str) -> Optional[str]:
    """The answer, in SMI_FORMAT; None where the program cannot be used."""
    said = output_of(["nvidia-smi", query, SMI_FORMAT], _SECONDS)
    return None if said is None else text(said)


def text(value: Any) -> str:
    """A string of the library, which some versions give as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def find_gpus() -> Tuple[List[Dict[str, Any]], str]:
    """(GPUs, where they were read: `nvml`, `nvidia-smi` or `none`).

    Each is {"index", "uuid", "name", "memory_mib", "driver", "pci": address as in the kernel's log, or empty,
    "mig": [{"uuid", "name", "memory_mib"}]}.
    """
    gpus = by_nvml(_all_gpus)
    if gpus is not None:
        return gpus, "nvml"
    answer = by_nvidia_smi(f"--query-gpu={','.join(_FIELDS)}")
    return (parse_nvidia_smi(answer), "nvidia-smi") if answer is not None else ([], "none")


def _all_gpus(nvml: Any) -> List[Dict[str, Any]]:
    driver = text(nvml.nvmlSystemGetDriverVersion())
    return [_nvml_gpu(nvml, index, driver) for index in range(nvml.nvmlDeviceGetCount())]


def _nvml_gpu(nvml: Any, index: int, driver: str) -> Dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    return {
        "index": index,
        **_nvml_facts(nvml, handle),
        "driver": driver,
        "pci": _pci_of(nvml, handle),
        "mig": [_nvml_facts(nvml, instance) for instance in mig_instances(nvml, handle)],
    }


def _pci_of(nvml: Any, handle: Any) -> str:
    try:
        return _short_pci(text(nvml.nvmlDeviceGetPciInfo(handle).busId))
    except nvml.NVMLError:
        return ""


def _short_pci(bus_id: str) -> str:
    """`00000000:3B:00.0` as `0000:3b:00`."""
    return bus_id.strip().lower().partition(".")[0][-len("0000:00:00") :]


def _nvml_facts(nvml: Any, handle: Any) -> Dict[str, Any]:
    return {
        "uuid": text(nvml.nvmlDeviceGetUUID(handle)),
        "name": text(nvml.nvmlDeviceGetName(handle)),
        "memory_mib": int(nvml.nvmlDeviceGetMemoryInfo(handle).total) // _MIB,
    }


def parse_nvidia_smi(answer: str) -> List[Dict[str, Any]]:
    """The answer of `nvidia-smi --query-gpu=` with _FIELDS as CSV without units."""
    gpus = []
    for row in csv.reader(answer.splitlines(), skipinitialspace=True):
        if len(row) != len(_FIELDS) or not row[0].strip().isdigit():
            continue
        index, uuid, name, memory, driver, bus_id = (cell.strip() for cell in row)
        memory_mib = int(float(memory)) if memory.replace(".", "", 1).isdigit() else 0
        facts = {"index": int(index), "uuid": uuid, "name": name, "memory_mib": memory_mib}
        gpus.append({**facts, "driver": driver, "pci": _short_pci(bus_id), "mig": []})
    return gpus

"""The GPUs of this host: by NVML where its library is, else by nvidia-smi."""

from __future__ import annotations

import csv
import subprocess
from typing import Any, Dict, List, Optional, Tuple

from trainmaster.host.vendored import import_vendored

_FIELDS = ("index", "uuid", "name", "memory.total", "driver_version")
_SECONDS = 20
_MIB = 1024 * 1024


def find_gpus() -> Tuple[List[Dict[str, Any]], str]:
    """(GPUs, where they were read: `nvml`, `nvidia-smi` or `none`).

    Each is {"index", "uuid", "name", "memory_mib", "driver", "mig": [{"uuid", "name", "memory_mib"}]}.
    """
    gpus = _by_nvml()
    if gpus is not None:
        return gpus, "nvml"
    gpus = _by_nvidia_smi()
    return (gpus, "nvidia-smi") if gpus is not None else ([], "none")


def _by_nvml() -> Optional[List[Dict[str, Any]]]:
    """None where NVML cannot be used."""
    nvml = import_vendored("pynvml")
    if nvml is None:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        return [_nvml_gpu(nvml, index, driver) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def _nvml_gpu(nvml: Any, index: int, driver: str) -> Dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    return {
        "index": index,
        **_nvml_facts(nvml, handle),
        "driver": driver,
        "mig": _mig_instances(nvml, handle),
    }


def _nvml_facts(nvml: Any, handle: Any) -> Dict[str, Any]:
    return {
        "uuid": _text(nvml.nvmlDeviceGetUUID(handle)),
        "name": _text(nvml.nvmlDeviceGetName(handle)),
        "memory_mib": int(nvml.nvmlDeviceGetMemoryInfo(handle).total) // _MIB,
    }


def _mig_instances(nvml: Any, handle: Any) -> List[Dict[str, Any]]:
    """The MIG instances of a GPU, empty where it has none or cannot have any."""
    try:
        if nvml.nvmlDeviceGetMigMode(handle)[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return []
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except nvml.NVMLError:
        return []
    instances = []
    for index in range(count):
        try:
            instances.append(_nvml_facts(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)))
        except nvml.NVMLError:  # this place of the GPU has no instance
            continue
    return instances


def _by_nvidia_smi() -> Optional[List[Dict[str, Any]]]:
    command = ["nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        result = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if result.returncode != 0:
        return None
    return parse_nvidia_smi(result.stdout.decode("utf-8", "replace"))


def parse_nvidia_smi(text: str) -> List[Dict[str, Any]]:
    """The answer of `nvidia-smi --query-gpu=index,uuid,name,memory.total,driver_version` as CSV without units."""
    gpus = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(row) != len(_FIELDS) or not row[0].strip().isdigit():
            continue
        index, uuid, name, memory, driver = (cell.strip() for cell in row)
        memory_mib = int(float(memory)) if memory.replace(".", "", 1).isdigit() else 0
        facts = {"index": int(index), "uuid": uuid, "name": name, "memory_mib": memory_mib}
        gpus.append({**facts, "driver": driver, "mig": []})
    return gpus


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

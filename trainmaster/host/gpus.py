"""The GPUs of this host: by NVML where its library is, else by nvidia-smi."""

from __future__ import annotations

import csv
from typing import Any, Dict, List, Tuple

from trainmaster.host.nvidia import by_nvidia_smi, by_nvml, mig_instances, text

_FIELDS = ("index", "uuid", "name", "memory.total", "driver_version")
_MIB = 1024 * 1024


def find_gpus() -> Tuple[List[Dict[str, Any]], str]:
    """(GPUs, where they were read: `nvml`, `nvidia-smi` or `none`).

    Each is {"index", "uuid", "name", "memory_mib", "driver", "mig": [{"uuid", "name", "memory_mib"}]}.
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
        "mig": [_nvml_facts(nvml, instance) for instance in mig_instances(nvml, handle)],
    }


def _nvml_facts(nvml: Any, handle: Any) -> Dict[str, Any]:
    return {
        "uuid": text(nvml.nvmlDeviceGetUUID(handle)),
        "name": text(nvml.nvmlDeviceGetName(handle)),
        "memory_mib": int(nvml.nvmlDeviceGetMemoryInfo(handle).total) // _MIB,
    }


def parse_nvidia_smi(answer: str) -> List[Dict[str, Any]]:
    """The answer of `nvidia-smi --query-gpu=index,uuid,name,memory.total,driver_version` as CSV without units."""
    gpus = []
    for row in csv.reader(answer.splitlines(), skipinitialspace=True):
        if len(row) != len(_FIELDS) or not row[0].strip().isdigit():
            continue
        index, uuid, name, memory, driver = (cell.strip() for cell in row)
        memory_mib = int(float(memory)) if memory.replace(".", "", 1).isdigit() else 0
        facts = {"index": int(index), "uuid": uuid, "name": name, "memory_mib": memory_mib}
        gpus.append({**facts, "driver": driver, "mig": []})
    return gpus

"""The two ways to NVIDIA's driver: its library, and nvidia-smi where the library is not to be had."""

from __future__ import annotations

import subprocess
from typing import Any, Callable, List, Optional, TypeVar

from trainmaster.host.vendored import import_vendored

_SECONDS = 20
_Found = TypeVar("_Found")


def opened_nvml() -> Any:
    """The library, initialized; None where NVML cannot be used."""
    nvml: Any = import_vendored("pynvml")
    if nvml is not None:
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
    """The answer as CSV without head and units; None where the program cannot be used."""
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    try:
        result = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.decode("utf-8", "replace") if result.returncode == 0 else None


def text(value: Any) -> str:
    """A string of the library, which some versions give as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

"""What NVIDIA's library says of the health of GPUs: memory errors, throttling, PCI Express, and whether it is lost."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, List, Tuple

#: name in the answer -> number
Numbers = Dict[str, int]


def read(nvml: Any, gpus: Dict[str, str]) -> Tuple[Dict[str, Numbers], List[str]]:
    """(by UUID what each GPU tells, the names of what this account may not read). `gpus`: UUID -> PCI address.

    What a GPU does not have is left out. One that the driver has lost, or cannot use before a reset, says `lost` or
    `reset` alone; one that it does not know, nothing.
    """
    found: Dict[str, Numbers] = {}
    refused: List[str] = []
    for uuid, address in gpus.items():
        try:
            found[uuid] = _of(nvml, _handle(nvml, uuid, address), refused)
        except nvml.NVMLError_GpuIsLost:
            found[uuid] = {"lost": 1}
        except nvml.NVMLError_ResetRequired:
            found[uuid] = {"reset": 1}
        except nvml.NVMLError:  # it is not in this host any more: the doctor notices
            continue
    return found, sorted(set(refused))


def _handle(nvml: Any, uuid: str, address: str) -> Any:
    """A lost GPU may not tell its UUID any more, but is known by its address."""
    try:
        return nvml.nvmlDeviceGetHandleByUUID(uuid)
    except nvml.NVMLError_GpuIsLost:
        raise
    except nvml.NVMLError:
        handle = nvml.nvmlDeviceGetHandleByPciBusId(f"0000{address}.0")
        nvml.nvmlDeviceGetUUID(handle)  # another GPU there is another's health: only a lost one refuses
        raise


def _of(nvml: Any, device: Any, refused: List[str]) -> Numbers:
    found: Numbers = {}
    for name, question in _questions(nvml).items():
        try:
            found.update(question(device))
        except (nvml.NVMLError_GpuIsLost, nvml.NVMLError_ResetRequired):
            raise
        except nvml.NVMLError_NoPermission:
            refused.append(name)
        except (nvml.NVMLError, AttributeError):  # this kind of GPU, or this version, does not tell
            continue
    return found


def _questions(nvml: Any) -> Dict[str, Callable[[Any], Numbers]]:
    def ecc(name: str, counter: int) -> Callable[[Any], Numbers]:
        kind = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
        return lambda device: {name: int(nvml.nvmlDeviceGetTotalEccErrors(device, kind, counter))}

    return {
        "ECC since the driver was loaded": ecc("ecc_volatile", nvml.NVML_VOLATILE_ECC),
        "ECC in all": ecc("ecc_aggregate", nvml.NVML_AGGREGATE_ECC),
        "row remapping": lambda device: _rows(nvml.nvmlDeviceGetRemappedRows(device)),
        "retired pages": lambda device: _pages(nvml, device),
        "throttle reasons": lambda device: {"throttle": _throttle(nvml, device)},
        "width of PCI Express": lambda device: {
            "width": int(nvml.nvmlDeviceGetCurrPcieLinkWidth(device)),
            "width_most": int(nvml.nvmlDeviceGetMaxPcieLinkWidth(device)),
        },
        "generation of PCI Express": lambda device: {
            "generation": int(nvml.nvmlDeviceGetCurrPcieLinkGeneration(device)),
            "generation_most": int(nvml.nvmlDeviceGetMaxPcieLinkGeneration(device)),
        },
        "performance state": lambda device: {"pstate": int(nvml.nvmlDeviceGetPerformanceState(device))},
        "use": lambda device: {"busy": int(nvml.nvmlDeviceGetUtilizationRates(device).gpu)},
        "memory": lambda device: _memory(nvml, device),
    }


def _rows(told: Any) -> Numbers:
    corrected, uncorrected, pending, failed = told
    return {
        "rows_corrected": int(corrected),
        "rows_uncorrected": int(uncorrected),
        "rows_pending": int(pending),
        "rows_failed": int(failed),
    }


def _pages(nvml: Any, device: Any) -> Numbers:
    """GPUs before Ampere set whole pages aside instead of rows."""
    causes = (
        nvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS,
        nvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,
    )
    retired = sum(len(nvml.nvmlDeviceGetRetiredPages(device, cause)) for cause in causes)
    return {"pages": retired, "pages_pending": int(nvml.nvmlDeviceGetRetiredPagesPendingStatus(device))}


def _throttle(nvml: Any, device: Any) -> int:
    with contextlib.suppress(nvml.NVMLError_FunctionNotFound):  # drivers before 535 have the name below
        return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(device))
    return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device))


def _memory(nvml: Any, device: Any) -> Numbers:
    """Nothing of a GPU that is divided: its instances have the processes."""
    with contextlib.suppress(nvml.NVMLError):
        if nvml.nvmlDeviceGetMigMode(device)[0] == nvml.NVML_DEVICE_MIG_ENABLE:
            return {}
    memory = nvml.nvmlDeviceGetMemoryInfo(device)
    processes = [
        *nvml.nvmlDeviceGetComputeRunningProcesses(device),
        *nvml.nvmlDeviceGetGraphicsRunningProcesses(device),
    ]
    return {
        "memory_used": int(memory.used),
        "memory_total": int(memory.total),
        "processes": len(processes),
    }

"""Which GPUs Slurm has given a run on this node: by their UUIDs, as the run has them on every other host.

The queue knows only how many. What measures and watches them, and hands them to a container, reads them in spec.json.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Dict, List, Mapping, Sequence

from trainmaster.host.nvidia import by_nvml, find_gpus, minor_numbers
from trainmaster.jsonfile import write_json
from trainmaster.paths import RunPaths
from trainmaster.protocol import Spec
from trainmaster.runner.state import read_spec

#: for a driver that hangs: the run begins without
_SECONDS = 30.0
#: in which Slurm says which numbers it has given: those of /dev/nvidia<number>, which may differ from the library's
_NUMBERS = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES")


def name_gpus(paths: RunPaths) -> None:
    """Write the UUIDs into the spec of a run that has not begun, or a remark for its log that nobody knows them."""
    spec = read_spec(paths)
    unnamed = [slot for slot in spec["slots"] if slot["kind"] == "cuda" and not slot["uuid"]]
    if not unnamed:
        return
    found = given(_seen(), os.environ, len(unnamed))
    if found:
        for slot, uuid in zip(sorted(unnamed, key=lambda one: one["index"]), found):  # noqa: B905  # Python 3.8
            slot["uuid"] = uuid
    else:
        _remark(spec, len(unnamed))
    write_json(paths.spec, spec)


def given(gpus: Sequence[Mapping[str, Any]], environment: Mapping[str, str], count: int) -> List[str]:
    """UUIDs of the `count` GPUs that Slurm gave, in its order; empty where that cannot be told.

    `gpus` are those that a process of the job sees: where Slurm keeps the others from it, these alone.
    """
    named = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if len(named) == count and all(word.startswith(("GPU-", "MIG-")) for word in named):
        return named
    if any(gpu["mig"] for gpu in gpus):  # their instances have no numbers that all programs share
        return []
    if len(gpus) == count:
        return [str(gpu["uuid"]) for gpu in gpus]
    by_number = {str(gpu["minor"]): str(gpu["uuid"]) for gpu in gpus if gpu.get("minor") is not None}
    for name in _NUMBERS:
        numbers = environment.get(name, "").split(",")
        if len(set(numbers)) == count and all(number in by_number for number in numbers):
            return [by_number[number] for number in numbers]
    return []


def _seen() -> List[Dict[str, Any]]:
    found: List[Dict[str, Any]] = []
    looking = threading.Thread(target=lambda: found.extend(_numbered()), daemon=True)
    looking.start()
    looking.join(_SECONDS)
    return list(found)


def _numbered() -> List[Dict[str, Any]]:
    gpus, _ = find_gpus()
    numbers = by_nvml(lambda nvml: minor_numbers(nvml, [str(gpu["uuid"]) for gpu in gpus])) or {}
    return [{**gpu, "minor": numbers.get(str(gpu["uuid"]))} for gpu in gpus]


def _remark(spec: Spec, count: int) -> None:
    sentence = (
        f"which {count} GPUs of {spec['host']['name']} Slurm has given this run cannot be told, so they are not "
        "measured; the run uses those in CUDA_VISIBLE_DEVICES"
    )
    spec["remarks"] = [*(spec.get("remarks") or []), sentence]

"""Which programs of this host can run a container image: podman, docker or apptainer."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, TypedDict, cast

_CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
_SECONDS = 10.0
#: in the order of preference; what each is asked, which for docker also says whether its daemon answers
_QUESTIONS: Dict[str, Tuple[str, ...]] = {
    "podman": ("version", "--format", "{{.Client.Version}}"),
    "docker": ("version", "--format", "{{.Server.Version}}"),
    "apptainer": ("--version",),
}


class Runtime(TypedDict):
    """`problem` is why it cannot be used, in its own words; None where it can."""

    name: str
    path: str
    version: str
    problem: Optional[str]


def facts() -> Dict[str, Any]:
    """{"runtimes": [Runtime …], "cdi": whether NVIDIA GPUs are described for podman}."""
    return {"runtimes": find_runtimes(), "cdi": describes_gpus()}


def find_runtimes() -> List[Runtime]:
    """Those that are installed, the preferred first, whether they can be used or not."""
    found = []
    for name, question in _QUESTIONS.items():
        path = shutil.which(name)
        if path is not None:
            found.append(_asked(name, path, question))
    return found


def of_slurm(runtimes: Sequence[Mapping[str, Any]]) -> List[Runtime]:
    """As they may be used in a Slurm job: what they start has to be part of it, so that it ends with the job."""
    found = [dict(runtime) for runtime in runtimes]
    for runtime in found:
        if runtime["name"] == "docker":
            runtime["problem"] = "its daemon would start the container outside of the Slurm job"
    return cast("List[Runtime]", sorted(found, key=lambda runtime: bool(runtime["name"] != "apptainer")))


def choose(runtimes: List[Runtime], gpus: bool, cdi: bool) -> Optional[Runtime]:
    """The first that can be used; with GPUs podman comes last unless CDI describes them to it."""
    able = [runtime for runtime in runtimes if runtime["problem"] is None]
    if gpus and not cdi:
        able.sort(key=lambda runtime: runtime["name"] == "podman")
    return able[0] if able else None


def describes_gpus() -> bool:
    """Whether a specification of the Container Device Interface names NVIDIA's GPUs here."""
    return any(list(Path(folder).glob("*nvidia*")) for folder in _CDI_FOLDERS)


def _asked(name: str, path: str, question: Tuple[str, ...]) -> Runtime:
    try:
        answer = subprocess.run(
            [path, *question],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"name": name, "path": path, "version": "", "problem": str(error)}
    words = answer.stdout.split()
    if answer.returncode != 0 or not words:
        lines = answer.stderr.strip().splitlines() or [f"it ended with exit code {answer.returncode}"]
        return {"name": name, "path": path, "version": "", "problem": lines[-1][:300]}
    return {"name": name, "path": path, "version": words[-1], "problem": None}

"""The host doctor's judgment: the facts of the verb `probe` in, one check per subject out. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dispatch.watching import own_service
from hosts.health.states import LEAST_FREE_BYTES
from hosts.models import Slot
from hosts.runtimes import usable_runtimes
from hosts.slots import FoundSlot, cpu_shares

Facts = dict[str, Any]
Check = dict[str, str]  # {"name", "state": ok | warn | fail, "sentence"}
Said = tuple[str, str]  # state and sentence of a check

_GIB = 1024**3
_DISK_WARN_BYTES = 10 * _GIB
_SKEW_WARN_SECONDS = 1.0


def checks(said: Mapping[str, Said | None]) -> list[Check]:
    """The checks by name, without those that have nothing to say."""
    return [
        {"name": name, "state": each[0], "sentence": each[1]}
        for name, each in said.items()
        if each is not None
    ]


def slots_of(facts: Facts, wanted: int | None, *, without_gpus: bool = False) -> list[FoundSlot]:
    """One slot per GPU, or per MIG instance where there are some.

    Without GPUs, or `without_gpus` because they are another host's, `wanted` CPU slots, or one per usable core.
    """
    found = []
    for gpu in [] if without_gpus else facts.get("gpus", []):
        for device in gpu.get("mig") or [gpu]:
            found.append(FoundSlot(Slot.Kind.CUDA, device["uuid"], device["name"], device.get("memory_mib")))
    if found:
        return found
    return cpu_shares(wanted if wanted is not None else int(facts["cpus"]["usable"]))


def best_python(facts: Facts, running: str) -> str:
    """The interpreter for jobs where nobody named one.

    The first with torch (for CUDA where there are GPUs); `running` where none has it.
    """
    interpreters = [one for one in facts.get("interpreters", []) if at_least_3_8(one["version"])]
    by_path = {one["path"]: one for one in interpreters}

    def worth(one: Facts) -> tuple[bool, bool]:
        return bool(one.get("torch")) and bool(one.get("cuda") or not facts.get("gpus")), bool(
            one.get("torch")
        )

    best = by_path.get(running, {"path": running})
    for one in interpreters:
        if worth(one) > worth(best):
            best = one
    return str(best["path"])


def at_least_3_8(version: str) -> bool:
    major, minor = (int(part) for part in version.split(".")[:2])
    return (major, minor) >= (3, 8)


def examine(facts: Facts, python: str, activate: str, skew_seconds: float | None) -> list[Check]:
    """All checks that follow from the facts; those of the route and the bundle come from who tried them."""
    said: dict[str, Said | None] = {
        "python": _python(facts, python),
        "torch": _torch(facts, python, activate),
        "gpu": _gpu(facts),
        "disk": _disk(facts),
        "home": _home(facts),
        "clock": _clock(skew_seconds),
        "isolation": _isolation(facts),
        "view": _view(facts),
        "logind": _logind(facts),
        "service": own_service.service(facts),
        "containers": _containers(facts),
        "signs": _signs(facts),
    }
    return checks(said)


def _chosen(facts: Facts, python: str) -> Facts | None:
    return next((one for one in facts.get("interpreters", []) if one["path"] == python), None)


def _python(facts: Facts, python: str) -> Said:
    found = _chosen(facts, python) or facts["python"]
    return "ok", f"Python {found['version']} at {python}."


def _torch(facts: Facts, python: str, activate: str) -> Said:
    if activate:
        return "ok", "Jobs activate their own environment; its torch is not checked."
    chosen = _chosen(facts, python) or {}
    if chosen.get("torch"):
        cuda = f"for CUDA {chosen['cuda']}" if chosen.get("cuda") else "CPU-only"
        if facts.get("gpus") and not chosen.get("cuda"):
            return "warn", f"torch {chosen['torch']} at {python} is {cuda}, but this host has GPUs."
        return "ok", f"torch {chosen['torch']}, {cuda}."
    others = [
        f"{one['path']} (torch {one['torch']})" for one in facts.get("interpreters", []) if one.get("torch")
    ]
    hint = (
        f"These have it: {', '.join(others)}."
        if others
        else "No interpreter here has it: install torch, or choose another with --python."
    )
    return "warn", f"{python} has no torch, so PyTorch jobs fail here. {hint}"


def _gpu(facts: Facts) -> Said:
    gpus = facts.get("gpus", [])
    if not gpus:
        return "ok", f"No GPUs found; {facts['cpus']['usable']} CPU cores can be used as slots."
    names = sorted({f"{gpu['name']} with {gpu['memory_mib']} MiB" for gpu in gpus})
    driver = gpus[0].get("driver") or "unknown"
    return "ok", f"{len(gpus)} GPUs found by {facts['gpu_source']}: {', '.join(names)}; driver {driver}."


def _disk(facts: Facts) -> Said:
    disk = facts["disk"]
    free = f"{disk['free_bytes'] / _GIB:.1f} GiB are free in {disk['path']}"
    if not disk["writable"]:
        return "fail", f"{disk['path']} is not writable by {facts['account']['name']}."
    if disk["free_bytes"] < LEAST_FREE_BYTES:
        return "fail", f"Only {free}: not enough space for logs and checkpoints."
    if disk["free_bytes"] < _DISK_WARN_BYTES:
        return "warn", f"Only {free}."
    if disk["network"]:
        return "warn", f"{free}, but that is a network disk ({disk['filesystem']}); choose a local --workdir."
    return "ok", f"{free} ({disk['filesystem']})."


def _home(facts: Facts) -> Said:
    filesystem = facts["home"]["filesystem"]
    if facts["home"]["network"]:
        return "ok", f"The home folder is shared ({filesystem}); host ids keep the hosts' files separate."
    return "ok", f"The home folder is local ({filesystem})."


def _clock(skew_seconds: float | None) -> Said:
    if skew_seconds is None:
        return "warn", "The clock could not be compared."
    off, ahead = abs(skew_seconds), "ahead of" if skew_seconds > 0 else "behind"
    if off < _SKEW_WARN_SECONDS:
        return "ok", f"The clock is within {off:.2f} s of the server's."
    return "warn", f"The clock is {off:.1f} s {ahead} the server's; set up NTP. Times are corrected."


def _isolation(facts: Facts) -> Said:
    account, found = facts["account"], facts["isolation"]
    limits = (
        "memory and CPU can be limited by cgroup v2 with systemd"
        if found["cgroup_v2"] and found["systemd"]
        else "a run's memory and CPU cannot be limited"
    )
    if account["switch"] == "none":
        return "warn", (
            f"{account['name']} cannot switch to other accounts, so all jobs here share it; {limits}. "
            "Log in as root, or give it a sudo rule."
        )
    way = "root" if account["switch"] == "root" else "sudo"
    return "ok", f"Jobs of users with a linked account run under it, through {way}; {limits}."


def _view(facts: Facts) -> Said | None:
    """Nothing of a host that was not asked yet."""
    found = facts.get("view")
    if found is None:
        return None
    problem = found["login"] or found["account"]
    if problem is None:
        return (
            "ok",
            "Runs see bind_mounts, /run/determined/workdir and /determined_shared_fs as in a container.",
        )
    whose = "Runs" if found["login"] else "Runs of users with a linked account"
    return "warn", (
        f"{whose} get no mount namespace ({problem}), so bind_mounts, /run/determined/workdir and "
        "/determined_shared_fs are not there. Allow unprivileged user namespaces, or use the host's own paths."
    )


def _containers(facts: Facts) -> Said:
    found, usable = facts.get("containers") or {}, usable_runtimes(facts)
    broken = [one for one in found.get("runtimes") or [] if one["problem"] is not None]
    reasons = "".join(f" {one['name']} cannot be used: {one['problem'].rstrip('.?')}." for one in broken)
    if not usable:
        return "ok", f"Jobs that set an image run directly on the host, without it.{reasons}"
    names = ", ".join(f"{one['name']} {one['version']}" for one in usable)
    if facts.get("gpus") and not found.get("cdi") and [one["name"] for one in usable] == ["podman"]:
        return "warn", (
            f"{names} cannot give GPUs to containers: run `nvidia-ctk cdi generate "
            "--output=/etc/cdi/nvidia.yaml` on the host."
        )
    return "ok", f"Images run with the first suitable runtime of: {names}.{reasons}"


def _signs(facts: Facts) -> Said | None:
    """Which signs of faults (docs/health.md) this host cannot give; nothing of a host that was not asked yet."""
    found = facts.get("signs")
    if found is None:
        return None
    if found["denied"]:
        return "warn", " ".join(found["denied"])
    hidden = (
        "" if facts["account"]["uid"] == 0 else f" {facts['account']['name']} sees its own processes only."
    )
    return "ok", f"Faults are read from the kernel's log ({found['kernel']}) and measured.{hidden}"


def _logind(facts: Facts) -> Said:
    logind, name = facts["logind"], facts["account"]["name"]
    if logind["detached_runs_survive"]:
        return "ok", "Runs survive the end of the SSH session."
    if facts.get("service", {}).get("leaves"):
        return "ok", "Runs move to their own scope, which survives the end of the SSH session."
    return "fail", (
        f"systemd-logind ends all processes of {name} at logout (KillUserProcesses=yes), including runs. "
        f"Run `loginctl enable-linger {name}` on the host, or set KillUserProcesses=no."
    )

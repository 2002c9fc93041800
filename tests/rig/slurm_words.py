"""Stands in for `squeue`, `sbatch`, `scontrol` and `sacct` of Slurm 20.11, 23.11 and 25.05, from their man pages.

`answer` is what a command prints. As a program (`install`), it is called by the names of the commands; the world that
it tells of is a JSON file. Options that a version lacks end as they do there: with a sentence and exit code 1.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

VERSIONS = {"20.11": "20.11.9", "22.05": "22.05.8", "23.11": "23.11.10", "25.05": "25.05.1"}
COMMANDS = ("squeue", "sbatch", "scontrol", "sacct")

_OLD, _NEW = ("20.11",), ("23.11", "25.05")
_SQUEUE_OPTIONS = {"--noheader", "--all", "--states", "--start", "-u", "-j", "-o", "-h", "-a", "-t"}
_NODE_20 = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=16  CPUAlloc={used} CPUTot={cpus} CPULoad=0.01 "
    "AvailableFeatures=(null) ActiveFeatures=(null) Gres={gres}{detail} NodeAddr={name} NodeHostName={name} "
    "Version={version} OS=Linux 5.14.0-70.el9.x86_64 #1 SMP PREEMPT Thu Apr 7 17:00:00 EDT 2022  RealMemory={memory} "
    "AllocMem=0 FreeMem=1000 Sockets=2 Boards=1 State={state} ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A "
    "MCS_label=N/A Partitions={partitions}  BootTime=2026-01-01T00:00:00 SlurmdStartTime=2026-01-01T00:00:00 "
    "CfgTRES={cfg} AllocTRES={alloc} CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 "
    "ExtSensorsTemp=n/s{reason} Comment=(null)"
)
_NODE_23 = _NODE_20.replace("CPUTot", "CPUEfctv={cpus} CPUTot").replace(
    "CfgTRES", "LastBusyTime=2026-01-01T00:00:00 ResumeAfterTime=None CfgTRES"
)
_NODE_25 = re.sub(r" CapWatts=n/a.*ExtSensorsTemp=n/s", "", _NODE_23)
_PARTITION = (
    "PartitionName={name} AllowGroups=ALL AllowAccounts={accounts} AllowQos=ALL AllocNodes=ALL Default={default} "
    "QoS=N/A DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO{new} GraceTime=0 Hidden=NO MaxNodes=UNLIMITED "
    "MaxTime={limit} MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes={nodes} PriorityJobFactor=1 PriorityTier=1 "
    "RootOnly=NO ReqResv=NO OverSubscribe=NO OverTimeLimit=NONE PreemptMode=OFF State={state} TotalCPUs=64 "
    "TotalNodes=2 SelectTypeParameters=NONE JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED"
)


class Wrong(Exception):
    """What the command says on stderr before it ends with exit code 1."""


def answer(release: str, words: list[str], world: dict[str, Any], stdin: str = "") -> str:
    """What the command prints. Raises Wrong."""
    command, *rest = words
    if command == "squeue":
        return _squeue(release, rest, world)
    if command == "sbatch":
        return _sbatch(release, rest, world)
    if command == "sacct":
        return "".join(f"{row}\n" for row in world.get("sacct", []))
    if rest[:1] == ["--version"]:
        return f"slurm {VERSIONS[release]}\n"
    return _scontrol(release, rest, world)


def _squeue(release: str, words: list[str], world: dict[str, Any]) -> str:
    names = [word.partition("=")[0] for word in words if word.startswith("-")]
    if unknown := [name for name in names if name not in _SQUEUE_OPTIONS]:
        raise Wrong(f"squeue: unrecognized option '{unknown[0]}'\nTry \"squeue --help\" for more information")
    line = words[words.index("-o") + 1]
    only = words[words.index("-u") + 1] if "-u" in words else ""
    known = (
        ["all"]
        if "--states=all" in words
        else ["PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING"]
    )
    jobs = [
        job
        for job in world["jobs"]
        if (not only or job["user"] == only) and (known == ["all"] or job["state"] in known)
    ]
    return "".join(_job(release, line, job) + "\n" for job in jobs)


def _job(release: str, line: str, job: dict[str, Any]) -> str:
    gres = job.get("gpus", "")
    if gres:
        gres = f"gres:gpu:{gres}" if release in (*_OLD, "22.05") else f"gres/gpu:{gres}"
    array = job.get("array", "")
    shown = {
        "i": f"{job['id']}_[{array}]" if array and job["state"] == "PENDING" else str(job["id"]),
        "F": str(job["id"]), "K": array or "N/A", "T": job["state"], "u": job["user"], "D": str(job.get("nodes", 1)),
        "C": str(job.get("cpus", 1)), "b": gres or "N/A", "P": job.get("partition", "gpu"),
        "S": job.get("start", "N/A"), "N": job.get("nodelist", ""), "r": job.get("reason", "None"),
        "k": job.get("comment") or "(null)", "j": job.get("name", "wrap"),
    }  # fmt: skip
    return re.sub(r"%([A-Za-z])", lambda found: shown[found[1]], line)


def _sbatch(release: str, words: list[str], world: dict[str, Any]) -> str:
    given = dict(word.split("=", 1) for word in words if word.startswith("--") and "=" in word)
    known = {row["name"] for row in world["partitions"]}
    partition = given.get("--partition", "")
    if partition and partition not in known:
        raise Wrong(
            f"sbatch: error: invalid partition specified: {partition}\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified"
        )
    if given.get("--account", "") not in {"", *world.get("accounts", [])}:
        raise Wrong(
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified"
        )
    if "--test-only" in words:
        return ""
    return f"{world.get('next_id', 100)}\n"


def _scontrol(release: str, words: list[str], world: dict[str, Any]) -> str:
    what = words[-1]
    detailed = "-d" in words
    if what == "config":
        none = "(null)" if release in _NEW else "accounting_storage/none"
        lines = {
            "ClusterName": "stars", "SLURM_VERSION": VERSIONS[release], "KillWait": "30 sec",
            "AccountingStorageType": world.get("accounting", none),
        }  # fmt: skip
        head = "Configuration data as of 2026-01-01T00:00:00\n"
        return head + "".join(f"{name:<23} = {text}\n" for name, text in lines.items())
    if what == "partition":
        return "".join(_partition(release, row) + "\n" for row in world["partitions"])
    return "".join(_node(release, row, detailed) + "\n" for row in world["nodes"])


def _partition(release: str, row: dict[str, Any]) -> str:
    new = " ExclusiveTopo=NO" if release == "25.05" else ""
    usual = {"accounts": "ALL", "default": "NO", "limit": "UNLIMITED", "state": "UP", "new": new}
    return _PARTITION.format(**{**usual, **row})


def _node(release: str, row: dict[str, Any], detailed: bool) -> str:
    line = _NODE_20 if release in _OLD else _NODE_25 if release == "25.05" else _NODE_23
    used = row.get("gpus_used", 0)
    detail = (
        f" GresDrain=N/A GresUsed=gpu:{row['type']}:{used}(IDX:0-{used - 1})"
        if detailed and row.get("type")
        else ""
    )
    counted = row.get("counted", True)
    usual = {
        "used": 0, "cpus": 64, "memory": 512000, "state": "IDLE", "partitions": "gpu", "version": VERSIONS[release],
        "gres": f"gpu:{row['type']}:{row['gpus']}(S:0-1)" if row.get("type") else "(null)",
        "cfg": "cpu=64,mem=500G,billing=64" + (f",gres/gpu={row['gpus']}" if row.get("type") and counted else ""),
        "alloc": f"gres/gpu={used},gres/gpu:{row['type']}={used}" if used and counted else "",
    }  # fmt: skip
    reason = f" Reason={row['reason']} [root@2026-01-01T00:00:00]" if row.get("reason") else ""
    return line.format(**{**usual, **row, "detail": detail, "reason": reason})


def install(folder: Path, release: str, world: dict[str, Any]) -> None:
    """Make the commands of that version in a folder for PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "world.json").write_text(json.dumps({"release": release, **world}))
    for name in COMMANDS:
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {folder} {name} "$@"\n')
        program.chmod(0o755)


def main() -> int:
    folder, *words = sys.argv[1:]
    world = json.loads((Path(folder) / "world.json").read_text())
    try:
        sys.stdout.write(answer(world["release"], words, world))
    except Wrong as error:
        print(error, file=sys.stderr)
        return 1
    if words[0] == "sbatch" and "--test-only" in words:
        print("sbatch: Job 7 to start at 2026-01-01T00:00:00 using 1 processors on nodes g1", file=sys.stderr)
    return 0


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    sys.exit(main())

"""A Slurm of its own for a comparison: one controller and four nodes of fake CPUs on this machine, on loopback.

Debian's build lets several `slurmd -N` share a host. "Tuned" means that the controller holds no batch job back:
batch_sched_delay=0 and sched_min_interval=0.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

NODES = 4
CPUS_PER_NODE = 16
_START_SECONDS = 30.0

_CONF = """
ClusterName=bench
SlurmctldHost={host}({address})
SlurmctldPort={ctld}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
MpiDefault=none
ReturnToService=2
MaxJobCount=20000
MinJobAge=2
{nodes}
PartitionName=all Nodes=n[1-{count}] Default=YES MaxTime=INFINITE State=UP
"""


def installed() -> bool:
    """Are its programs on this machine?"""
    return all(shutil.which(name, path=_PATH) for name in ("munged", "slurmctld", "slurmd", "sbatch"))


_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, all different: their sockets are open together."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(listener.getsockname()[1]) for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


@dataclass(frozen=True)
class Place:
    """Where programs of it run: a network namespace of this machine, and the address there. `before`: more words."""

    address: str = "127.0.0.1"
    namespace: str = ""
    before: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """What goes before a command that is to run there. It sees /sys as here, where slurmd looks for cgroups."""
        net = ["nsenter", f"--net=/run/netns/{self.namespace}"] if self.namespace else []
        return [*net, *self.before]


_HERE = Place()


class Slurm:
    """Started by the constructor, ended by `close`; `cpus` CPUs together. `more`: lines of its configuration."""

    def __init__(
        self,
        folder: Path,
        nodes: int = NODES,
        cpus_per_node: int = CPUS_PER_NODE,
        more: str = "",
        controller: Place = _HERE,
        nodes_at: Place = _HERE,
    ) -> None:
        self._controller = controller
        self._nodes_at = nodes_at
        self.cpus = nodes * cpus_per_node
        self._count = nodes
        self._each = cpus_per_node
        self._more = more
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {**os.environ, "PATH": _PATH, "SLURM_CONF": str(folder / "slurm.conf")}
        (folder / "state").mkdir(parents=True)
        try:
            self._start_munge()
            self._start_nodes()
        except BaseException:
            self.close()
            raise

    def _start_munge(self) -> None:
        key = self._folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self._spawn(
            "munged", "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={self._folder}/munge.sock",
            f"--pid-file={self._folder}/munge.pid", f"--log-file={self._folder}/munge.log",
            f"--seed-file={self._folder}/munge.seed",
        )  # fmt: skip
        self._wait(lambda: (self._folder / "munge.sock").exists(), "munged made no socket")

    def _start_nodes(self) -> None:
        host = os.uname().nodename
        ctld, *ports = _free_ports(1 + self._count)
        rows = [
            f"NodeName=n{number} NodeHostname={host} NodeAddr={self._nodes_at.address} Port={port} "
            f"CPUs={self._each} RealMemory=1000 State=UNKNOWN"
            for number, port in enumerate(ports, 1)
        ]
        text = _CONF.format(
            folder=self._folder, host=host, ctld=ctld, nodes="\n".join(rows), count=self._count,
            address=self._controller.address,
        )  # fmt: skip
        text += self._more + "\n"
        (self._folder / "slurm.conf").write_text(text)
        self.start("slurmctld")
        for number in range(1, self._count + 1):
            (self._folder / f"spool.n{number}").mkdir()
            self.start(f"n{number}")
        self._wait(self._all_idle, "the nodes did not become idle")

    def _all_idle(self) -> bool:
        return self.run("sinfo", "-h", "-p", "all", "-o", "%D %t").split() == [str(self._count), "idle"]

    def start(self, name: str) -> None:
        """Start a daemon, again after `kill`: `slurmctld`, or the slurmd of a node, `n1`."""
        if name == "slurmctld":
            self._spawn(name, *self._controller.words(), name, "-D")
        else:
            self._spawn(name, *self._nodes_at.words(), "slurmd", "-D", "-N", name)

    def kill(self, name: str) -> None:
        """kill -9 of a daemon, not of what it has started."""
        self._processes[name].kill()
        self._processes.pop(name).wait()

    def _spawn(self, name: str, *command: str) -> None:
        log = (self._folder / f"{Path(command[0]).name}.out").open("ab")
        with log:
            self._processes[name] = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def _wait(self, ready: Callable[[], bool], complaint: str) -> None:
        until = time.monotonic() + _START_SECONDS
        while not ready():
            if time.monotonic() > until:
                raise RuntimeError(f"{complaint} in {_START_SECONDS:.0f} s; see {self._folder}")
            time.sleep(0.1)

    def run(self, *command: str) -> str:
        """What one of its programs prints."""
        words = [*self._controller.words(), *command]
        found = subprocess.run(words, env=self.environment, capture_output=True, text=True, check=False)
        return found.stdout

    def submit(self, script: str, cpus: int = 1, *options: str) -> None:
        """`sbatch` of a shell script; returns when Slurm has taken it."""
        subprocess.run(
            ["sbatch", "-Q", *(options or ("-n1",)), f"-c{cpus}", "-o", "/dev/null", "-D", str(self._folder)],
            input=f"#!/bin/sh\n{script}\n", text=True, env=self.environment, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip

    def waiting(self) -> int:
        """Jobs that wait or run."""
        return len(self.run("squeue", "-h", "-o", "%i").split())

    def close(self) -> None:
        processes = list(self._processes.values())
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

"""The login node of a Slurm cluster of this machine: a real sshd, behind which Slurm's commands find the cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from benchmarks.slurm import Slurm
from tests.dispatch.sshd import Sshd
from tests.rig.hosts import Host
from tests.rig.ports import free_port
from tests.rig.server import Server
from tests.rig.stack import Stack


def shell_option(folder: Path, slurm: Slurm) -> str:
    """A line of sshd_config by which commands find the cluster, and the Python of the tests first."""
    shell = folder / "login_shell"
    path = f"{Path(sys.executable).parent}:{slurm.environment['PATH']}"
    exports = f"export PATH={path} SLURM_CONF={slurm.environment['SLURM_CONF']}"
    shell.write_text(f'#!/bin/sh\n{exports}\nexec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n')
    shell.chmod(0o755)
    return f"ForceCommand {shell}"


@contextmanager
def login_node(folder: Path, slurm: Slurm, server_key: str) -> Iterator[Sshd]:
    """It accepts the key of the server."""
    folder.mkdir(parents=True, exist_ok=True)
    daemon = Sshd(folder, free_port(), [shell_option(folder, slurm)])
    daemon.new_host_key()
    daemon.authorize(server_key)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()


@dataclass(frozen=True)
class Node:
    """What tests ask of a host of a stack, of a node; its sshd is that of the login node."""

    name: str
    workdir: Path
    address: str
    port: int
    isolated: bool = False


@contextmanager
def slurm_stack(
    folder: Path, nodes: int, cpus: int, settings: Mapping[str, str] | None = None
) -> Iterator[tuple[Stack, Slurm]]:
    """A server of its own, and a cluster of so many nodes that is its default pool; a slot is a CPU."""
    folder.chmod(0o755)  # PostgreSQL runs under another account
    slurm = Slurm(folder / "cluster", nodes=nodes, cpus_per_node=cpus)
    try:
        (folder / "server").mkdir(mode=0o755)
        server = Server(folder / "server" / "data", settings=settings)
        try:
            stack = Stack(server.start(), [])
            key = stack.get("/api/v1/hosts/server-key")["publicKey"]
            with login_node(folder / "login", slurm, key) as login:
                add_pool(stack, login)
                shared = login.folder / "shared"
                names = [f"n{number}@stars" for number in range(1, nodes + 1)]
                stack.hosts = cast(
                    list[Host], [Node(name, shared, "127.0.0.1", login.port) for name in names]
                )
                yield stack, slurm
        finally:
            server.close()
    finally:
        slurm.close()


def add_pool(stack: Stack, login: Sshd, name: str = "stars", **settings: Any) -> None:
    """The default pool, of CPU slots, once its cluster has been read."""
    rules = {"login": "stars", "folder": str(login.folder / "shared"), "slot_type": "cpu", **settings}
    route = {"address": "127.0.0.1", "port": login.port, "user": login.user}
    usual = {"sharedAccount": True, "allowLoginAccount": True, "defaultCompute": True, "defaultAux": True}
    stack.post("/api/v1/resource-pools", {"name": name, "slurm": rules, "loginRoute": route, **usual})

    def is_ready() -> bool:
        host = stack.get(f"/api/v1/hosts/{name}-login")["host"]
        if offered := host["hostKey"].get("offered"):
            stack.post(f"/api/v1/hosts/{name}-login/accept-key", {"fingerprint": offered})
        assert host["state"] != "failed", host["stateReason"]
        return bool(host["state"] == "ready")

    stack.wait(is_ready, 120, f"the cluster of pool {name} to be read")

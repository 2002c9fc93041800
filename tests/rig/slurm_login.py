"""The login node of a Slurm cluster of this machine: a real sshd, behind which Slurm's commands find the cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.slurm import Slurm
from tests.dispatch.sshd import Sshd
from tests.rig.ports import free_port
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


def add_pool(stack: Stack, login: Sshd, name: str = "stars", **settings: Any) -> None:
    """A pool of CPU slots, once its cluster has been read."""
    rules = {"login": "stars", "folder": str(login.folder / "shared"), "slot_type": "cpu", **settings}
    route = {"address": "127.0.0.1", "port": login.port, "user": login.user}
    accounts = {"sharedAccount": True, "allowLoginAccount": True}
    stack.post(
        "/api/v1/resource-pools",
        {"name": name, "slurm": rules, "loginRoute": route, **accounts},
    )

    def is_ready() -> bool:
        host = stack.get(f"/api/v1/hosts/{name}-login")["host"]
        if offered := host["hostKey"].get("offered"):
            stack.post(f"/api/v1/hosts/{name}-login/accept-key", {"fingerprint": offered})
        assert host["state"] != "failed", host["stateReason"]
        return bool(host["state"] == "ready")

    stack.wait(is_ready, 120, f"the cluster of pool {name} to be read")

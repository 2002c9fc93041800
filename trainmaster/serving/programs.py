"""The command lines of the programs that serve people in a task: pure, but for the look whether they are there."""

from __future__ import annotations

import importlib.util
import socket
import sys
from typing import List


class NotInstalled(Exception):
    """This Python lacks the program; the message is a sentence."""


def notebook(path: str, base: str, folder: str) -> List[str]:
    """Jupyter on a Unix socket (of this account alone, hence without a token) below the address `base`."""
    module = next((name for name in ("jupyterlab", "notebook") if _has(name)), None)
    if module is None:
        raise _lacking("JupyterLab", "jupyterlab")
    return [
        sys.executable, "-m", module, "--no-browser", "--allow-root", f"--ServerApp.sock={path}",
        "--ServerApp.sock_mode=0600", f"--ServerApp.base_url={base}", f"--ServerApp.root_dir={folder}",
        "--IdentityProvider.token=", "--ServerApp.token=", "--ServerApp.allow_remote_access=True",
        "--KernelManager.transport=ipc", "--ServerApp.quit_button=False",
    ]  # fmt: skip


def tensorboard(path: str, base: str, folder: str, arguments: List[str]) -> List[str]:
    """TensorBoard on a Unix socket below the address `base`; what it shows lies in `folder`."""
    if not _has("tensorboard"):
        raise _lacking("TensorBoard", "tensorboard")
    program = "trainmaster.serving.tensorboard_program"
    return [sys.executable, "-m", program, folder, path, base.rstrip("/"), *arguments]


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _lacking(what: str, package: str) -> NotInstalled:
    return NotInstalled(
        f"{what} is not installed for {sys.executable} on {socket.gethostname()}. Install it there "
        f"({sys.executable} -m pip install {package}), or set environment.python to a Python that has it"
    )

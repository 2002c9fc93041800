"""A Docker daemon of its own, which keeps everything in one folder and leaves the network alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

_START_SECONDS = 60.0
_STOP_SECONDS = 60.0


def why_not() -> str | None:
    """Why this machine cannot run one, in a sentence; None where it can."""
    lacking = [name for name in ("docker", "dockerd", "containerd", "runc") if shutil.which(name) is None]
    if lacking:
        return f"Docker is not installed here: there is no {', '.join(lacking)}."
    return None if os.getuid() == 0 else "Only root can start a Docker daemon."


class Daemon:
    """Ready once it is made. Raises RuntimeError with its last words where it does not come up."""

    def __init__(self, folder: Path) -> None:
        self.host = f"unix://{folder}/docker.sock"
        self._namespace = f"{folder}/exec/netns/default"
        self.log = folder / "dockerd.log"
        command = [
            "dockerd", "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid",
            "--config-file", f"{folder}/none.json", "--storage-driver", "vfs", "--iptables=false", "--ip6tables=false",
            "--bridge", "none", "--host", self.host,
        ]  # fmt: skip
        (folder / "none.json").write_text("{}")
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._wait()

    def down(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        # which it leaves
        subprocess.run(["umount", "--lazy", self._namespace], stderr=subprocess.DEVNULL, check=False)

    def _wait(self) -> None:
        until = time.monotonic() + _START_SECONDS
        ask = ["docker", "--host", self.host, "version", "--format", "{{.Server.Version}}"]
        while subprocess.run(ask, capture_output=True, check=False).returncode != 0:
            if self._process.poll() is not None or time.monotonic() > until:
                self.down()
                words = self.log.read_text(errors="replace").splitlines()[-1:]
                raise RuntimeError(f"The Docker daemon did not come up: {' '.join(words)}")
            time.sleep(0.1)

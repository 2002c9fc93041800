"""The bundle on this machine, as the server's installer puts it on a host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from trainmaster.bundle import build_bundle, installer_command


def install(workdir: Path) -> Path:
    """Install the bundle of this checkout and return its folder."""
    bundle = build_bundle()
    command = installer_command(sys.executable, str(workdir), bundle.sha256)
    subprocess.run(command, input=bundle.archive, stdout=subprocess.DEVNULL, check=True)
    return workdir / "bundle" / bundle.sha256

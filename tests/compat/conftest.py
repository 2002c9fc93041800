"""Published packages, each in a virtual environment of its own, before a server with a host of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.server import ROOT, Server
from tests.rig.stack import local_host

CLIENT = "determined==0.38.1"
TRAINERS = ("transformers==5.23.0", "accelerate==1.15.0", "lightning==2.6.6")
SUBMITIT = ("submitit==1.5.4", "hydra-submitit-launcher==1.2.0", "hydra-core==1.3.8")
SERVICES = ("jupyterlab==4.6.6", "tensorboard==2.21.0", "setuptools<81")
#: a command of the client, whose start alone takes seconds on a busy machine
LIMIT_SECONDS = 300
#: until what a command began is seen to be done
PATIENCE_SECONDS = 240


@pytest.fixture(scope="session")
def det_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its `det`: of DETERMINED_VENV where that is set, else installed for this session."""
    given = os.environ.get("DETERMINED_VENV")
    venv = Path(given) if given else tmp_path_factory.mktemp("determined")
    if not given:
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(venv / "bin/pip"), "install", "--quiet", CLIENT], check=True)
    return venv / "bin/det"


@pytest.fixture(scope="session")
def trainers_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the packages of TRAINERS beside the torch at hand: of TRAINERS_VENV, else made for this session."""
    torch = pytest.importorskip("torch")
    given = os.environ.get("TRAINERS_VENV")
    if given:
        return Path(given) / "bin/python"
    venv = tmp_path_factory.mktemp("trainers")
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    here = [folder for folder in sys.path if folder.endswith(("site-packages", "dist-packages"))]
    (site / "of-the-tests.pth").write_text("\n".join(here))
    (venv / "constraints.txt").write_text(f"torch=={torch.__version__}\n")  # no other torch is fetched
    install = [str(venv / "bin/pip"), "install", "--quiet", "-c", str(venv / "constraints.txt"), *TRAINERS]
    subprocess.run(install, check=True)
    return venv / "bin/python"


@pytest.fixture(scope="session")
def services_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with SERVICES: of SERVICES_VENV where that is set, else installed for this session."""
    given = os.environ.get("SERVICES_VENV")
    venv = Path(given) if given else tmp_path_factory.mktemp("services")
    if not given:
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(venv / "bin/pip"), "install", "--quiet", *SERVICES], check=True)
    return str(venv / "bin/python")


@pytest.fixture(scope="session")
def submitit_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with SUBMITIT and the wheel of this package: of SUBMITIT_VENV where that is set, else made for it."""
    given = os.environ.get("SUBMITIT_VENV")
    venv = Path(given) if given else tmp_path_factory.mktemp("submitit")
    if not given:
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(venv / "bin/pip"), "install", "--quiet", *SUBMITIT, str(ROOT)], check=True)
    return venv / "bin/python"


class PublishedClient:
    """`det`, logged in as the admin, with settings of its own."""

    def __init__(self, program: Path, server: Server, home: Path) -> None:
        self.program, self.server, self.home = program, server, home

    def __call__(self, *words: str) -> str:
        """What it prints; it must succeed."""
        ran = self.run(*words)
        assert ran.returncode == 0, f"det {' '.join(words)}:\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def environment(self) -> dict[str, str]:
        """Without what the tests' own environment says of us and of Python."""
        others = {
            name: value for name, value in os.environ.items() if not name.startswith(("DET_", "PYTHON"))
        }
        return others | {
            "HOME": str(self.home),
            "DET_MASTER": self.server.url,
            "DET_USER": "admin",
            "DET_PASS": self.server.password,
            "NO_COLOR": "1",
        }

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.program), *words], env=self.environment(), text=True, capture_output=True, timeout=LIMIT_SECONDS,
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip


@pytest.fixture(scope="module")
def det(
    server: Server, det_program: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PublishedClient]:
    """The client, and a host named `compat` that runs on this machine without sshd. Nothing runs on afterwards."""
    with local_host(server, "compat", slots=2):
        yield PublishedClient(det_program, server, tmp_path_factory.mktemp("home"))

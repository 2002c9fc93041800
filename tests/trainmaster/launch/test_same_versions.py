"""Hosts of a gang whose PyTorch differs say so by name, before any rank waits for another."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig.ports import free_port
from tests.trainmaster.made_run import environment_of, make_run
from trainmaster.launch import torch_distributed

pytestmark = pytest.mark.survive(17)


def torch_of(folder: Path, version: str) -> Path:
    """A package that calls itself torch, whose torchrun says that it was started."""
    package = folder / "torch" / "distributed"
    package.mkdir(parents=True)
    for made in (folder / "torch" / "__init__.py", package / "__init__.py"):
        made.touch()
    (package / "run.py").write_text("print('torchrun was started')")
    facts = folder / f"torch-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    return folder


def launched(folder: Path, versions: list[str]) -> list[tuple[int, str, str]]:
    """(exit code, stdout, stderr) of the launch module on each host of a gang, whose hosts have these versions."""
    port, hosts = free_port(), []
    for member, version in enumerate(versions):
        run = make_run(folder / f"run{member}", slots=1, member=member, members=len(versions), c10d=port)
        environment = environment_of(run)
        environment["PYTHONPATH"] = f"{torch_of(folder / str(member), version)}:{environment['PYTHONPATH']}"
        hosts.append(
            subprocess.Popen(
                [sys.executable, "-m", "trainmaster.launch.torch_distributed", "train.py"],
                env=environment,
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        ends = [host.communicate(timeout=120) for host in hosts]
    finally:
        for host in hosts:
            host.kill()
    return [(host.returncode, out, err) for host, (out, err) in zip(hosts, ends, strict=True)]


def test_another_release_of_torch_is_named_with_both_hosts_and_starts_no_rank(tmp_path: Path) -> None:
    for code, out, err in launched(tmp_path, ["2.4.0+cu124", "2.3.1+cu121"]):
        assert code == 1 and "torchrun was started" not in out
        assert "gpu1 has torch 2.3.1+cu121, gpu0 has 2.4.0+cu124" in err, err


def test_a_gang_of_one_version_starts(tmp_path: Path) -> None:
    for _, out, err in launched(tmp_path, ["2.4.0", "2.4.0"]):
        assert "torchrun was started" in out and "WARNING" not in err, err


def test_lesser_differences_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    def told(host: str, torch: str, python: str = "3.11") -> torch_distributed.Told:
        return {"host": host, "torch": torch, "python": python}

    gang = [told("a", "2.4.0"), told("b", "2.4.1"), told("c", "2.4.0", "3.12")]
    assert torch_distributed.compared_versions(gang) is None
    err = capsys.readouterr().err
    assert "b has torch 2.4.1, a has 2.4.0" in err and "c has Python 3.12, a has 3.11" in err

"""The bundle: the same for the same code, installed once, and enough on its own."""

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from trainmaster.bundle import build_bundle, host_command, installer_command
from trainmaster.host.errors import VerbError
from trainmaster.host.launching import SHARED_MODE, make_workdir
from trainmaster.paths import Workdir


def test_the_same_code_gives_the_same_bundle() -> None:
    first, second = build_bundle(), build_bundle()
    assert first == second
    with tarfile.open(fileobj=io.BytesIO(first.archive)) as tar:
        names = tar.getnames()
    assert {"trainmaster/host/__main__.py", "trainmaster/runner/__main__.py", "sitecustomize.py"} <= set(
        names
    )
    assert "vendor/pynvml.py" in names and any(name.endswith("psutil/__init__.py") for name in names)
    assert not any(name.startswith(("trainmaster/cli/", "trainmaster/__main__")) for name in names)


def test_the_installer_needs_a_python_and_nothing_else(tmp_path: Path) -> None:
    bundle = build_bundle()
    command = installer_command(sys.executable, str(tmp_path / "work dir"), bundle.sha256)
    for archive in (bundle.archive, b""):  # the second time it is there already
        result = subprocess.run(command, input=archive, capture_output=True, check=True, cwd="/")
        assert json.loads(result.stdout)["bundle"] == str(tmp_path / "work dir/bundle" / bundle.sha256)
    assert [path.name for path in (tmp_path / "work dir/bundle").iterdir()] == [bundle.sha256]
    for path in (tmp_path / "work dir/bundle").rglob("*"):
        assert path.stat().st_mode & 0o555 == (0o555 if path.is_dir() else 0o444)
    probe = subprocess.run(
        host_command(sys.executable, str(tmp_path / "work dir"), bundle.sha256, "status"),
        input=b"{}\n",
        capture_output=True,
        check=True,
        cwd="/",
        env={"PATH": os.environ["PATH"]},
    )
    assert json.loads(probe.stdout)["runs"] == {}


def test_a_broken_transfer_installs_nothing(tmp_path: Path) -> None:
    bundle = build_bundle()
    command = installer_command(sys.executable, str(tmp_path), bundle.sha256)
    result = subprocess.run(command, input=bundle.archive[:-5000], capture_output=True, check=False)
    assert result.returncode != 0
    assert list((tmp_path / "bundle").iterdir()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives folders away")
@pytest.mark.parametrize("place", ["", "bundle", "bundle/{sha256}", "runs", "link"])
def test_nothing_is_used_that_another_account_has_put_there(tmp_path: Path, place: str) -> None:
    bundle = build_bundle()
    work = tmp_path / "work"
    planted = work / place.format(sha256=bundle.sha256)
    if place == "link":
        (tmp_path / "ours").mkdir()
        work.symlink_to(tmp_path / "ours")
        os.lchown(work, 65534, -1)
    else:
        planted.mkdir(parents=True)
        os.chown(planted, 65534, -1)
    command = installer_command(sys.executable, str(work), bundle.sha256)
    result = subprocess.run(command, input=bundle.archive, capture_output=True, check=False)
    assert result.returncode != 0 and b"belongs to uid 65534. Remove it" in result.stderr
    if place in ("", "runs"):
        with pytest.raises(VerbError, match="belongs to uid 65534"):
            make_workdir(Workdir(work))


def test_a_workdir_is_not_used_where_others_may_replace_what_is_in_it(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path / "work")
    make_workdir(workdir)
    for mode in (0o1777, 0o755):
        workdir.root.chmod(mode)
        workdir.runs.chmod(SHARED_MODE)
        make_workdir(workdir)
    workdir.root.chmod(0o757)
    with pytest.raises(VerbError, match="Other accounts may write into"):
        make_workdir(workdir)


def test_a_job_keeps_its_own_psutil_and_pynvml(tmp_path: Path) -> None:
    bundle = build_bundle()
    subprocess.run(
        installer_command(sys.executable, str(tmp_path), bundle.sha256),
        input=bundle.archive,
        check=True,
        stdout=-3,
    )
    root = tmp_path / "bundle" / bundle.sha256
    assert not (root / "psutil").exists() and not (root / "pynvml.py").exists()

"""What a host says of itself, and what it can reach."""

import grp
import os
import platform
import pwd
import socket
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import pytest

from tests.trainmaster.conftest import TestHost
from tests.trainmaster.stream_server import StreamServer
from trainmaster.host.interpreters import find_interpreters
from trainmaster.host.nvidia import find_gpus, parse_nvidia_smi
from trainmaster.host.probing import filesystem_of, in_groups, kills_user_processes, obeying_daemon

SMI = """\
0, GPU-aaaa, NVIDIA H100 80GB HBM3, 81559, 550.54.15, 00000000:3B:00.0
1, GPU-bbbb, NVIDIA H100 80GB HBM3, [N/A], 550.54.15, 00000000:5E:00.0
"""
MOUNTS = r"""
22 1 0:1 / / rw - ext4 /dev/sda1 rw
23 22 0:2 / /home rw - nfs4 server:/home rw
24 23 0:3 / /home/my\040disk rw - xfs /dev/sdb rw
25 22 0:4 / /scratch rw - fuse.sshfs x rw
"""


def test_a_probe_answers_every_fact(host: TestHost) -> None:
    facts = host.verb("probe", {})
    assert facts["hostname"] == socket.gethostname()
    assert {row["interface"] for row in facts["interfaces"]} <= {name for _, name in socket.if_nameindex()}
    assert facts["arch"] == platform.machine()
    assert facts["cpus"]["count"] == os.cpu_count() and facts["memory"]["total_bytes"] > 10**8
    assert facts["disk"]["free_bytes"] > 0 and facts["disk"]["writable"] is True
    assert facts["home"]["path"] == str(Path.home()) and facts["home"]["network"] in (True, False)
    assert facts["account"]["uid"] == os.getuid()
    assert facts["account"]["switch"] == "root" if os.getuid() == 0 else True
    assert isinstance(facts["account"]["root_by"], str) and isinstance(facts["account"]["like_root"], dict)
    assert facts["signs"].keys() == {"kernel", "denied"}
    assert {"kill_user_processes", "linger", "detached_runs_survive"} <= set(facts["logind"])
    assert {"cgroup_v2", "systemd", "user_namespaces"} <= set(facts["isolation"])
    assert any(found["version"].startswith("3.") for found in facts["interpreters"])
    assert facts["gpu_source"] in ("nvml", "nvidia-smi", "none")


def test_a_socket_of_root_that_may_be_written_makes_root(tmp_path: Path) -> None:
    """Whose socket it is tells a daemon of root's from one of the account's own."""
    path = tmp_path / "docker.sock"
    named = [("podman", str(tmp_path / "none.sock")), ("docker", str(path))]
    assert obeying_daemon(named) == ""
    path.write_text("no socket")
    assert obeying_daemon(named) == ""
    path.unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        assert obeying_daemon(named) == ("docker" if os.getuid() == 0 else "")
        if os.getuid() == 0:
            os.chown(path, 12345, -1)
            assert obeying_daemon(named) == "", "of an account of its own"


@pytest.mark.skipif(os.getuid() != 0, reason="only root has a socket that others may not use")
def test_a_socket_that_others_may_not_write_makes_nobody_root(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    program = (
        "import os, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "from trainmaster.host.probing import obeying_daemon\n"
        "print(obeying_daemon([('docker', sys.argv[1])]) or 'nobody')"
    )
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        Path(folder).chmod(0o755)
        listening.bind(f"{folder}/docker.sock")
        for mode, found in ((0o660, "nobody"), (0o666, "docker")):
            Path(folder, "docker.sock").chmod(mode)
            imported = "import trainmaster.host.probing\n"
            said = subprocess.check_output(
                [sys.executable, "-c", imported + program, f"{folder}/docker.sock"]
            )
            assert said.decode().strip() == found


def test_accounts_in_a_group_are_found_by_their_lines_and_by_their_first_group() -> None:
    daemon = grp.getgrnam("daemon")
    assert "daemon" in in_groups(["daemon"]) and daemon.gr_gid == pwd.getpwnam("daemon").pw_gid
    listed = {name: group for group in grp.getgrall() for name in group.gr_mem if name != "root"}
    for name, group in listed.items():
        assert group.gr_name in in_groups([group.gr_name])[name]
    assert in_groups(["no-such-group"]) == {} and "root" not in in_groups(["root"])


def test_a_venv_is_found_beside_its_base_with_its_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path / "project/.venv", with_pip=False, symlinks=True)
    folder = next((tmp_path / "project/.venv/lib").glob("python3*")) / "site-packages/torch"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('a probe must not import torch')")
    (folder / "version.py").write_text("__version__ = '2.9.9+cu130'\ncuda = '13.0'\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", os.environ["PATH"])
    found = find_interpreters()
    [ours] = [item for item in found if item["path"].startswith(str(tmp_path))]
    assert (ours["kind"], ours["torch"], ours["cuda"]) == ("venv", "2.9.9+cu130", "13.0")
    assert {"requests", "ruamel.yaml", "google.cloud.storage"} <= {*ours["lacks"]}
    assert "torch" not in ours["lacks"]
    assert any(Path(item["path"]).parent == Path(sys.executable).parent for item in found)
    real = [(str(Path(item["path"]).parent.resolve()), str(Path(item["path"]).resolve())) for item in found]
    assert len(real) == len(set(real))


def test_gpus_are_read_from_nvidia_smi_where_nvml_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{SMI}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    gpus, source = find_gpus()
    if source == "nvml":
        pytest.skip("this machine has real GPUs")
    assert source == "nvidia-smi"
    assert [(gpu["uuid"], gpu["memory_mib"], gpu["pci"]) for gpu in gpus] == [
        ("GPU-aaaa", 81559, "0000:3b:00"), ("GPU-bbbb", 0, "0000:5e:00"),
    ]  # fmt: skip


def test_an_odd_answer_of_nvidia_smi_gives_no_gpus() -> None:
    assert parse_nvidia_smi("No devices were found\n") == []
    assert parse_nvidia_smi("") == []


def test_the_file_system_of_a_folder_is_that_of_its_longest_mount() -> None:
    assert filesystem_of(Path("/home/alice"), MOUNTS) == "nfs4"
    assert filesystem_of(Path("/homes"), MOUNTS) == "ext4"
    assert filesystem_of(Path("/home/my disk/x"), MOUNTS) == "xfs"
    assert filesystem_of(Path("/scratch"), MOUNTS) == "fuse.sshfs"
    assert filesystem_of(Path("/x"), "") == "unknown"


@pytest.mark.survive(7)
def test_logind_is_read_as_logind_reads_it() -> None:
    assert kills_user_processes([], "alice") == (False, False)
    assert kills_user_processes(["[Login]\n#KillUserProcesses=yes\n"], "alice") == (False, False)
    assert kills_user_processes(["KillUserProcesses=yes"], "alice") == (True, False)
    assert kills_user_processes(["KillUserProcesses=yes", "KillUserProcesses=no\n"], "alice") == (
        False,
        False,
    )
    assert kills_user_processes(["KillUserProcesses = yes\nKillExcludeUsers=root alice"], "alice") == (
        True,
        True,
    )


def test_check_says_what_can_be_reached(host: TestHost, stream_server: StreamServer) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = unused.getsockname()[1]
        answer = host.verb(
            "check",
            {
                "connect": [["127.0.0.1", stream_server.port], ["127.0.0.1", closed]],
                "urls": [f"http://127.0.0.1:{stream_server.port}", f"http://127.0.0.1:{closed}", "nonsense"],
                "nonce": "abc",
            },
        )
    assert [found["ok"] for found in answer["connect"]] == [True, False]
    assert [found["ok"] for found in answer["urls"]] == [True, False, False]
    assert "cba" in answer["urls"][0]["answer"]
    assert "refused" in answer["connect"][1]["error"]


def test_an_unknown_verb_and_bad_json_are_sentences(host: TestHost) -> None:
    program = str(host.bundle / "trainmaster/host")
    unknown = subprocess.run([sys.executable, program, "nonsense"], capture_output=True, check=False)
    assert unknown.returncode == 2 and b"allowed: probe" in unknown.stderr
    bad = subprocess.run(
        [sys.executable, program, "status"], input=b"{oops\n", capture_output=True, check=False
    )
    assert b"is not JSON" in bad.stdout and bad.returncode == 0

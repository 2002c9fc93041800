"""What podman, docker and apptainer are told, how a pull is read, and which runtime is chosen."""

import itertools
import json
import signal
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.trainmaster.conftest import wait_until
from trainmaster.paths import RunPaths
from trainmaster.processes import boot_id, marked, reference
from trainmaster.protocol import CONTAINER_MARKER, MARKER, Container, ProcessRef
from trainmaster.runner import container_commands as commands
from trainmaster.runner import container_pull as pull
from trainmaster.runner import stopping
from trainmaster.runner.container_runtimes import Runtime, choose, of_slurm

ENVIRONMENT = {
    "PATH": "/host/bin", "HOME": "/home/a", "LD_LIBRARY_PATH": "/host/lib", "CUDA_HOME": "/usr/local/cuda",
    "DOCKER_HOST": "unix:///x", "CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2", "NCCL_DEBUG": "INFO", "KEY": "a secret",
    "PYTHONPATH": "/w/bundle", "TRAINMASTER_RUN": "t.1.0", "TMPDIR": "/scratch",
}  # fmt: skip


def container(**changes: Any) -> Container:
    made: Any = {
        "image": "team/train:1", "force_pull": False, "registry_auth": None, "shm_size": None,
        "mounts": [
            {"host_path": "/data", "container_path": "/in", "read_only": True, "propagation": "rslave"},
            {"host_path": "/out", "container_path": "kept", "read_only": False, "propagation": "rprivate"},
        ],
        "devices": [{"host_path": "/dev/a", "container_path": "/dev/b", "mode": "mrw"}],
        "add_capabilities": ["SYS_PTRACE", "IPC_LOCK"], "drop_capabilities": ["NET_RAW"], **changes,
    }  # fmt: skip
    found: Container = made
    return found


def inside(**changes: Any) -> commands.Inside:
    made = commands.Inside(
        name="trainmaster-t.1.0", key="t.1.0", run="/w/runs/t.1.0", home="/w/runs/t.1.0/home",
        code="/w/runs/t.1.0/code", bundle="/w/bundle",
        variables=commands.passed_names(ENVIRONMENT, {"TMPDIR": "/scratch"}),
        uid=1000, gid=100, groups=[100, 44], gpus=["GPU-1", "GPU-2"], folders=["/shared"],
    )  # fmt: skip
    return made._replace(**changes)


def pairs(command: list[str], option: str) -> list[str]:
    return [value for name, value in itertools.pairwise(command) if name == option]


def test_an_image_has_its_own_programs_and_gets_the_variables_of_the_job() -> None:
    assert inside().variables == [
        "CUDA_VISIBLE_DEVICES", "KEY", "NCCL_DEBUG", "PYTHONPATH", "TMPDIR", "TRAINMASTER_RUN",
    ]  # fmt: skip


def test_podman_and_docker_get_the_same_folders_user_network_and_no_secret() -> None:
    for runtime in ("podman", "docker"):
        command = commands.run_command(
            runtime, f"/usr/bin/{runtime}", container(), inside(), ["sh", "-c", "train"]
        )
        assert command[:2] == [f"/usr/bin/{runtime}", "run"] and "--rm" in command
        assert command[-5:] == ["--entrypoint", "sh", "team/train:1", "-c", "train"]
        options = ("--network", "--pid", "--ipc", "--user")
        assert [pairs(command, option) for option in options] == [["host"], ["host"], ["host"], ["1000:100"]]
        assert pairs(command, "--cap-add") == ["SYS_PTRACE", "IPC_LOCK"]
        assert pairs(command, "--cap-drop") == ["NET_RAW"]
        assert "/dev/a:/dev/b:rwm" in pairs(command, "--device")
        assert "KEY" in pairs(command, "--env") and not any("secret" in word for word in command)
        assert pairs(command, "--workdir") == ["/w/runs/t.1.0/code"]


def test_folders_are_mounted_where_they_are_asked_for_and_docker_makes_none_that_is_missing() -> None:
    podman = commands.run_command("podman", "podman", container(), inside(), ["a"])
    assert pairs(podman, "--volume") == [
        "/w/runs/t.1.0:/w/runs/t.1.0:rw,rprivate", "/shared:/shared:rw,rprivate", "/w/bundle:/w/bundle:ro,rprivate",
        "/data:/in:ro,rslave", "/out:/w/runs/t.1.0/code/kept:rw,rprivate",
    ]  # fmt: skip
    docker = commands.run_command("docker", "docker", container(), inside(folders=["/a,b"]), ["a"])
    assert "--volume" not in docker and pairs(docker, "--mount") == [
        "type=bind,source=/w/runs/t.1.0,target=/w/runs/t.1.0,bind-propagation=rprivate",
        'type=bind,"source=/a,b","target=/a,b",bind-propagation=rprivate',
        "type=bind,source=/w/bundle,target=/w/bundle,bind-propagation=rprivate,readonly",
        "type=bind,source=/data,target=/in,bind-propagation=rslave,readonly",
        "type=bind,source=/out,target=/w/runs/t.1.0/code/kept,bind-propagation=rprivate",
    ]


def test_each_runtime_gives_gpus_groups_and_shared_memory_in_its_way() -> None:
    podman = commands.run_command("podman", "podman", container(shm_size=2**30), inside(), ["a"])
    assert pairs(podman, "--device")[1:] == ["nvidia.com/gpu=GPU-1", "nvidia.com/gpu=GPU-2"]
    assert pairs(podman, "--userns") == ["keep-id"] and pairs(podman, "--shm-size") == [str(2**30)]
    assert "--ipc" not in podman
    assert "--userns" not in commands.run_command("podman", "podman", container(), inside(uid=0), ["a"])
    docker = commands.run_command("docker", "docker", container(), inside(), ["a"])
    assert pairs(docker, "--gpus") == ['"device=GPU-1,GPU-2"'] and pairs(docker, "--group-add") == [
        "100",
        "44",
    ]
    assert pairs(docker, "--ulimit") == ["memlock=-1:-1"]
    without = commands.run_command("docker", "docker", container(), inside(gpus=[]), ["a"])
    assert "--gpus" not in without and "--ulimit" not in without


def test_apptainer_gets_variables_under_its_own_names() -> None:
    command = commands.run_command("apptainer", "apptainer", container(), inside(), ["sh", "-c", "train"])
    assert command[:3] == ["apptainer", "exec", "--cleanenv"] and "--nv" in command
    assert command[-4:] == ["team/train:1", "sh", "-c", "train"]
    assert "/data:/in:ro" in pairs(command, "--bind") and "/w/bundle:/w/bundle:ro" in pairs(command, "--bind")
    assert pairs(command, "--add-caps") == ["SYS_PTRACE,IPC_LOCK"]
    environment = commands.client_environment("apptainer", ENVIRONMENT, inside())
    assert environment["APPTAINERENV_KEY"] == "a secret" and "APPTAINERENV_PATH" not in environment
    assert commands.client_environment("podman", ENVIRONMENT, inside()) == ENVIRONMENT
    sources = [commands.apptainer_source(name) for name in ("team/train:1", "/images/a.sif", "oras://r/a")]
    assert sources == ["docker://team/train:1", "/images/a.sif", "oras://r/a"]


def test_images_are_asked_for_fetched_and_removed() -> None:
    assert commands.exists_command("podman", "podman", "a") == ["podman", "image", "exists", "a"]
    assert commands.exists_command("docker", "docker", "a") == ["docker", "image", "inspect", "a"]
    assert commands.pull_command("podman", "podman", "a", "/x/f", "") == [
        "podman",
        "pull",
        "--authfile",
        "/x/f",
        "a",
    ]
    assert commands.pull_command("docker", "docker", "a", "/x", "") == [
        "docker",
        "--config",
        "/x",
        "pull",
        "a",
    ]
    assert commands.pull_command("apptainer", "apptainer", "a", "", "/r/i.sif")[2:] == [
        "--force", "/r/i.sif", "docker://a",
    ]  # fmt: skip
    assert commands.remove_command("docker", "docker", "n") == ["docker", "rm", "--force", "n"]
    assert commands.remove_command("apptainer", "apptainer", "n") == []


def test_a_pull_says_how_far_it_is_and_keeps_its_last_words() -> None:
    docker = pull.Progress("a:1")
    lines = ["1: Pulling from a", "aaaaaaaa: Pulling fs layer", "bbbbbbbb: Pulling fs layer",
             "cccccccc: Already exists", "aaaaaaaa: Download complete",
             *["aaaaaaaa: Pull complete"] * 2]  # fmt: skip
    assert [said for line in lines if (said := docker.take(line))] == [
        "pulling image a:1: 1 of 3 layers", "pulling image a:1: 2 of 3 layers",
    ]  # fmt: skip
    podman = pull.Progress("a:1")
    lines = [
        "Trying to pull a:1...",
        "Copying blob sha256:aaaaaaaa",
        "Copying blob sha256:aaaaaaaa",
        "Error: unauthorized",
    ]
    assert [said for line in lines if (said := podman.take(line))] == ["pulling image a:1: at part 1"]
    assert podman.fault().endswith(" / Error: unauthorized")


def test_a_login_goes_to_the_registry_of_the_image_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    login = {"username": "u", "password": "p"}
    assert pull.auth_file("reg.example:5000/a/b:1", login) == {
        "auths": {"reg.example:5000": {"auth": "dTpw"}}
    }
    assert set(pull.auth_file("team/train:1", login)["auths"]) == {"docker.io", "https://index.docker.io/v1/"}
    chosen = pull.auth_file("a", {**login, "serveraddress": "https://reg.example/v2/"})
    assert set(chosen["auths"]) == {"reg.example"}
    path = pull.write_auth(tmp_path / "login", "a", login)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_the_first_runtime_that_works_is_chosen_and_podman_last_where_it_knows_no_gpu() -> None:
    def one(name: str, problem: str | None = None) -> Runtime:
        return {"name": name, "path": name, "version": "1", "problem": problem}

    def name_of(chosen: Runtime | None) -> str | None:
        return chosen["name"] if chosen else None

    both = [one("podman"), one("docker")]
    assert name_of(choose(both, gpus=False, cdi=False)) == "podman"
    assert name_of(choose(both, gpus=True, cdi=False)) == "docker"
    assert name_of(choose(both, gpus=True, cdi=True)) == "podman"
    assert (
        name_of(choose([one("docker", "no daemon"), one("apptainer")], gpus=False, cdi=False)) == "apptainer"
    )
    assert choose([one("docker", "no daemon")], gpus=False, cdi=False) is None


def test_a_slurm_job_has_its_container_among_its_own_processes() -> None:
    runtimes: list[Runtime] = [
        {"name": name, "path": name, "version": "1", "problem": None}
        for name in ("podman", "docker", "apptainer")
    ]
    in_job = of_slurm(runtimes)
    assert [one["name"] for one in in_job] == ["apptainer", "podman", "docker"]
    chosen = choose(in_job, gpus=True, cdi=False)
    assert chosen and chosen["name"] == "apptainer"
    assert choose(of_slurm(runtimes[1:2]), gpus=False, cdi=False) is None and runtimes[1]["problem"] is None
    for of_job in (True, False):
        command = commands.run_command(
            "podman", "podman", container(), inside(of_slurm=of_job), ["train", "a b"]
        )
        assert pairs(command, "--cgroups") == (["disabled"] if of_job else [])
        assert pairs(command, "--pid") == (["private"] if of_job else ["host"])
        first = ["sh", "team/train:1", "-c", '"$@"; exit "$?"', "sh"] if of_job else ["team/train:1"]
        started = ["train", "a b"] if of_job else ["a b"]
        assert command[-len(first + started) :] == first + started


def test_a_stop_that_number_one_alone_has_dropped_is_told_to_what_begins_after_it(tmp_path: Path) -> None:
    """As podman starts a job on a node of a Slurm cluster; number 1 of its own numbers is made by unshare."""
    if subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True).returncode:
        pytest.skip("This machine makes no process numbers of their own.")
    paths = RunPaths(tmp_path / "t.1.0")
    paths.stop.parent.mkdir(parents=True)
    paths.spec.write_text(json.dumps({"container": {"image": "a"}}))
    marks = [f"{name}={paths.key}" for name in (MARKER, CONTAINER_MARKER)]
    words = ["sh", "-c", 'read begin; "$@"; exit "$?"', "sh", "sleep", "600"]
    command = ["unshare", "--pid", "--fork", "setsid", "env", *marks, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        entrypoint = reference(process.pid)
        paths.state.write_text(json.dumps({"boot_id": boot_id(), "entrypoint": entrypoint}))
        wait_until(lambda: [name_of(each) for each in marked(CONTAINER_MARKER).get(paths.key, [])] == ["sh"])
        stopping.order_stop(paths, {"grace_seconds": 60, "reason": "killed"})
        began = time.monotonic()
        held = stopping._terminate(paths)
        assert held is None and process.stdin
        process.stdin.write(b"\n")
        process.stdin.close()
        stopping.wait_for_grace(paths, held)
        assert time.monotonic() - began < 50
    assert process.returncode == 128 + signal.SIGTERM


def name_of(process: ProcessRef) -> str:
    return Path(f"/proc/{process['pid']}/comm").read_text().strip()

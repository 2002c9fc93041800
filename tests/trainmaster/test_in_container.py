"""Runs in an image, by this machine's podman and by a Docker daemon made here, as are the image and its registry.

Each test runs once per runtime, and is skipped with the reason for one that this machine lacks.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig import docker, parts
from tests.rig.images import Registry, podman_settings, root_folder
from tests.trainmaster.conftest import TestHost, kill, wait_until
from tests.trainmaster.stream_server import StreamServer
from trainmaster.processes import marked, of_run
from trainmaster.protocol import CONTAINER_MARKER
from trainmaster.runner.state import read_state

pytestmark = pytest.mark.compat


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    registry = Registry(root_folder(tmp_path_factory.mktemp("root")))
    yield registry
    registry.down()


@pytest.fixture(scope="module", params=["podman", "docker"])
def runtime(
    request: pytest.FixtureRequest, registry: Registry, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, dict[str, str]]]:
    """Its name, and the variables by which it keeps to a folder of its own and is the one that is chosen."""
    name = str(request.param)
    why_not = docker.why_not() if name == "docker" else None
    if name == "podman" and (shutil.which("podman") is None or shutil.which("runc") is None):
        why_not = "podman and runc are not installed here."
    if why_not is not None:
        pytest.skip(why_not)
    folder = tmp_path_factory.mktemp(name)
    if name == "podman":
        yield name, podman_settings(folder, registry.address)
        return
    daemon = docker.Daemon(folder)
    # podman refuses to start with that setting of its own
    yield name, {"DOCKER_HOST": daemon.host, "CONTAINERS_CONF": "/nonexistent"}
    daemon.down()


@pytest.fixture(autouse=True)
def program(runtime: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> str:
    name, variables = runtime
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    return name


def container(registry: Registry, **changes: Any) -> dict[str, Any]:
    login = {"username": "someone", "password": "se cret"}
    return {
        "image": f"{registry.address}/job:1", "force_pull": False, "registry_auth": login, "mounts": [],
        "devices": [], "add_capabilities": [], "drop_capabilities": [], "shm_size": None, **changes,
    }  # fmt: skip


def containers(program: str) -> list[str]:
    asked = [program, "ps", "--all", "--format", "{{.Names}}"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()


SHOWS = """
import json, os, sys, determined
from pathlib import Path
info = determined.get_cluster_info()
Path("made").write_text("here")
print(json.dumps({
    "task": info.task_id, "cwd": os.getcwd(), "user": os.getuid(), "image": os.environ.get("OF_THE_IMAGE"),
    "text": os.environ["TEXT"], "path": os.environ["PATH"], "mounted": sorted(os.listdir("/data")),
    "bundle": os.access(determined.__file__, os.W_OK), "etc": os.path.exists("/etc/debian_version"),
    "home": os.access(os.environ["HOME"], os.W_OK),
}))
sys.exit(3)
"""


def test_a_run_happens_in_its_image_with_its_folder_its_sdk_and_its_variables(
    host: TestHost, stream_server: StreamServer, registry: Registry, program: str, tmp_path: Path
) -> None:
    (tmp_path / "digits.csv").write_text("1")
    mounts = [
        {"host_path": str(tmp_path), "container_path": "/data", "read_only": True, "propagation": "rprivate"}
    ]
    paths = host.run_script(
        SHOWS,
        container=container(registry, mounts=mounts),
        environment={"TEXT": "two\nlines", "KEY": "a secret"},
    )
    assert stream_server.wait_for(stream_server.exit, 120)["code"] == 3, stream_server.texts(
        "launcher.stderr"
    )
    shown = json.loads("".join(stream_server.texts("launcher.stdout")))
    assert shown == {**shown, "cwd": str(paths.code), "user": 0, "image": "yes", "text": "two\nlines",
                     "path": "/usr/bin:/usr/bin:/bin", "mounted": ["digits.csv"], "etc": False,
                     "home": True}  # fmt: skip
    assert (paths.code / "made").read_text() == "here"
    log = stream_server.texts("launcher.stderr")
    assert any(words in line for line in log for words in ("at part 2", "2 of 2 layers")) and any(
        "is available" in line for line in log
    ), log
    assert not paths.registry_login.exists() and not paths.container.exists()
    wait_until(lambda: containers(program) == [])


def test_a_stop_reaches_every_process_in_the_container_and_leaves_none(
    host: TestHost, stream_server: StreamServer, registry: Registry, program: str
) -> None:
    script = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(print('saved')))\n"
    files = {"job.py": f"{script}print('up', flush=True)\nwhile True: time.sleep(1)\n"}
    paths, _ = host.launch("python3 job.py; echo after", files, container=container(registry))
    wait_until(lambda: stream_server.texts("launcher.stdout") == ["up"])
    (argv,) = {Path(f"/proc/{one['pid']}/cmdline").read_bytes() for one in [read_state(paths)["entrypoint"]]}
    assert program.encode() in argv
    assert host.spec("x")["token"].encode() not in argv, "secrets are not among the words"
    host.verb("stop", {"runs": {paths.key: {"grace_seconds": 20, "reason": "a test"}}})
    record = stream_server.wait_for(stream_server.exit, 60)
    assert record["stopped"] and stream_server.texts("launcher.stdout") == ["up", "saved"]
    wait_until(lambda: of_run(paths.key) == [] and containers(program) == [])


def test_what_ignores_a_stop_is_killed_and_a_killed_podman_leaves_no_container(
    host: TestHost, stream_server: StreamServer, registry: Registry, program: str
) -> None:
    deaf = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\n"
    paths = host.run_script(f"{deaf}time.sleep(600)", container=container(registry))
    wait_until(lambda: stream_server.texts("launcher.stdout") == ["up"])
    assert marked(CONTAINER_MARKER)[paths.key]
    kill(read_state(paths)["entrypoint"]["pid"])
    assert stream_server.wait_for(stream_server.exit, 60)["signal"] == 9
    wait_until(lambda: of_run(paths.key) == [] and containers(program) == [])


def test_why_an_image_cannot_be_used_is_a_sentence(
    host: TestHost, stream_server: StreamServer, registry: Registry, program: str
) -> None:
    wrong = container(
        registry, image=f"{registry.address}/other:1", registry_auth={"username": "x", "password": "no"}
    )
    paths, _ = host.launch(["true"], container=wrong)
    record = stream_server.wait_for(stream_server.exit, 60)
    assert record["code"] == 125
    assert record["image_fault"].startswith(f"image {registry.address}/other:1 could not be pulled: ")
    log = "\n".join(stream_server.texts("launcher.stderr"))
    assert (
        f"image {registry.address}/other:1 could not be pulled: " in log and "unauthorized" in log.lower()
    ), log
    assert not paths.registry_login.exists()


def test_what_the_runtime_refuses_is_a_fault_of_the_start(
    host: TestHost, stream_server: StreamServer, registry: Registry
) -> None:
    device = {"host_path": "/dev/none", "container_path": "/dev/none", "mode": "mrw"}
    host.launch(["true"], container=container(registry, devices=[device]))
    fault = stream_server.wait_for(stream_server.exit, 60)["image_fault"]
    assert fault.startswith(f"the container of image {registry.address}/job:1 could not be started by ")
    assert "/dev/none" in fault and any(fault in line for line in stream_server.texts("launcher.stderr"))


def test_exit_code_125_of_the_job_is_its_own(
    host: TestHost, stream_server: StreamServer, registry: Registry
) -> None:
    host.launch("echo 'Error: of the job' >&2; echo on; exit 125", container=container(registry))
    record = stream_server.wait_for(stream_server.exit, 60)
    assert (record["code"], record["image_fault"]) == (125, None)


def test_a_command_that_the_image_lacks_is_a_sentence(
    host: TestHost, stream_server: StreamServer, registry: Registry, program: str
) -> None:
    host.launch(["no-such-program"], container=container(registry))
    assert stream_server.wait_for(stream_server.exit, 60)["code"] in (126, 127)  # by the version of runc
    assert stream_server.exit()["image_fault"] is None
    assert any(
        "a command could not be started in image" in line for line in stream_server.texts("launcher.stderr")
    )


#: tries to reach the run of another account and root's files, by the container's own paths and by those of the host
SPIES = """
import json, os, signal
from pathlib import Path
run, pid, secret = os.environ["VICTIM"], int(os.environ["VICTIM_PID"]), os.environ["SECRET"]
got = []
def attempt(what, act):
    try:
        act()
        got.append(what)
    except OSError:
        pass
for root in ("", "/host", f"/proc/{pid}/root", "/proc/1/root"):
    for path in (f"{run}/spec.json", f"{run}/code/job.py", f"{run}/spool/outbox", secret, "/etc/shadow"):
        attempt(root + path, lambda: Path(root + path).read_bytes())
    attempt(f"list {root}{run}", lambda: os.listdir(root + run))
    attempt(f"write {root}{run}", lambda: Path(f"{root}{run}/control/stop.json").write_text("{}"))
attempt("its own", lambda: Path(f"/host{os.getcwd()}/job.py").read_bytes())
attempt("environ", lambda: Path(f"/proc/{pid}/environ").read_bytes())
attempt("memory", lambda: open(f"/proc/{pid}/mem", "rb").read(1))
attempt("signal", lambda: os.kill(pid, signal.SIGTERM))
Path("making").write_text(json.dumps({"user": os.getuid(), "host": os.path.isdir("/host/etc"), "got": got}))
os.rename("making", "got.json")
"""
VICTIM, SPY = "nobody", "daemon"  # accounts that every machine has


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become other accounts")
def test_a_container_of_one_account_reaches_neither_the_run_of_another_nor_roots_files(
    host: TestHost, stream_server: StreamServer, registry: Registry, program: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, spys_folder: Path,
) -> None:  # fmt: skip
    if program != "podman":
        pytest.skip("an account that may use the daemon of root's Docker counts as root")
    for variable, value in podman_settings(spys_folder, registry.address).items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(spys_folder))
    victim = host.run_script("import time; time.sleep(600)", unix_user=VICTIM)
    pid = wait_until(lambda: read_state(victim)["entrypoint"]["pid"])
    secret = tmp_path / "secret_key"
    secret.write_text("secret")
    secret.chmod(0o600)
    whole = {"host_path": "/", "container_path": "/host", "read_only": False, "propagation": "rprivate"}
    paths = host.run_script(
        SPIES,
        unix_user=SPY,
        container=container(registry, mounts=[whole], shm_size=2**26),
        environment={
            "HOME": str(spys_folder),
            "VICTIM": str(victim.root),
            "VICTIM_PID": str(pid),
            "SECRET": str(secret),
        },
    )
    # in a file: the runs of a test send to one stream
    got = json.loads(wait_until((paths.code / "got.json").read_text, 120))
    assert got == {"user": pwd.getpwnam(SPY).pw_uid, "host": True, "got": ["its own"]}
    assert of_run(victim.key), "the victim lives"


@pytest.fixture
def spys_folder() -> Iterator[Path]:
    """For podman's files of the account SPY, which has other numbers for the accounts in its images."""
    ranges = {Path(f"/etc/{name}"): Path(f"/etc/{name}").read_text() for name in ("subuid", "subgid")}
    with parts.private_folder("spy") as folder:
        shutil.chown(folder, SPY)
        try:
            for file, text in ranges.items():
                file.write_text(f"{text}{SPY}:900000:65536\n")
            yield folder
        finally:
            for file, text in ranges.items():
                file.write_text(text)

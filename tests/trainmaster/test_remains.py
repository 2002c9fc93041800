"""Runs that are over and of which processes live: they are found without their folder, and ended."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.trainmaster.conftest import PYTHON, TestHost, kill, wait_until
from tests.trainmaster.stream_server import StreamServer
from trainmaster import processes
from trainmaster.host.gpu_users import _BUNDLES, gpu_users
from trainmaster.paths import RunPaths
from trainmaster.processes import marked, of_run, reference
from trainmaster.protocol import KEEPER_MARKER, MARKER
from trainmaster.runner.state import read_state

#: of a run that never was
KEY = "trial.9.1.0"
WAITS = "import time\nprint('ready', flush=True)\ntime.sleep(600)\n"
#: leaves its session and its parent, and forgets all of its environment
FLEES = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.chdir("/")
        program = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
        os.execve(sys.executable, [sys.executable, "-c", program, %r], {})
    os._exit(0)
time.sleep(600)
"""


def remove_folder(paths: RunPaths) -> None:
    """As a cleaner of temporary files does; the runner and the launcher end by themselves, the training does not."""
    shutil.rmtree(paths.root, ignore_errors=True)
    wait_until(lambda: not paths.root.exists())


def clean(host: TestHost, key: str, **order: Any) -> dict[str, Any]:
    order = {"signal": "KILL", "account": None, "devices": [], **order}
    answer: dict[str, Any] = host.verb("clean", {"runs": {key: order}})["runs"][key]
    return answer


@pytest.mark.survive(13)
def test_a_run_whose_folder_is_gone_is_seen_while_its_processes_live_and_ended(
    host: TestHost, stream_server: StreamServer
) -> None:
    paths = host.run_script(WAITS)
    stream_server.wait_for(lambda: stream_server.texts("launcher.stdout"))
    [process] = of_run(paths.key)
    remove_folder(paths)
    status = host.status(paths)
    assert (status["state"], status["pids"]) == ("remains", [process["pid"]])
    assert not host.verb("remove", {"runs": [paths.key]})["runs"][paths.key]["removed"]
    seen = clean(host, paths.key, signal=None)
    assert seen["count"] == 1 and seen["left"][0]["pid"] == process["pid"] and seen["left"][0]["user"]
    assert clean(host, paths.key, signal="TERM") == {"left": [], "count": 0}
    assert host.status(paths)["state"] == "absent"


@pytest.fixture
def gpu(host: TestHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of "UUID, pid" lines that this host's nvidia-smi says."""
    users, program = tmp_path / "users", tmp_path / "bin" / "nvidia-smi"
    users.write_text("")
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat {users}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    yield users
    for line in users.read_text().splitlines():
        kill(int(line.split(",")[1]))


#: becomes a program without any environment, and leaves another one in a session of its own
FORGETS = """
import os, sys
program = "import os, sys, time; open(sys.argv[1], 'a').write(f'{os.getpid()} '); time.sleep(600)"
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
os.execve(sys.executable, [sys.executable, "-c", program, %r], {})
"""


@pytest.mark.parametrize("spoilt", [False, True], ids=["", "with state.json spoiled"])
def test_a_job_that_clears_its_marker_is_seen_and_stopped(
    host: TestHost, tmp_path: Path, spoilt: bool
) -> None:
    said = tmp_path / "pids"
    paths = host.run_script(FORGETS % str(said))
    wait_until(lambda: said.exists() and len(said.read_text().split()) == 2)
    pids = [int(pid) for pid in said.read_text().split()]
    assert paths.key not in marked(), "nothing carries its marker"
    if spoilt:
        paths.state.write_text("{")
    status = host.status(paths)
    if spoilt:
        assert status["state"] == "remains" and set(pids) <= set(status["pids"])
    else:
        assert status["state"] == "running"
    assert host.verb("stop", {"runs": {paths.key: {"grace_seconds": 0.0}}})["runs"][paths.key]["stopping"]
    wait_until(lambda: not any(reference(pid) for pid in pids))
    wait_until(lambda: host.status(paths)["exit"] is not None)


@pytest.mark.survive(13)
def test_a_process_that_fled_and_cleared_its_marker_is_known_by_the_gpu_that_it_uses(
    host: TestHost, stream_server: StreamServer, gpu: Path, tmp_path: Path
) -> None:
    fled = tmp_path / "fled"
    paths = host.run_script(FLEES % str(fled))
    pid = wait_until(lambda: int(fled.read_text() or 0))
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={})
    launcher = read_state(paths)["launcher"]["pid"]
    kill(launcher)  # while it lives, what was orphaned is its child and ends with the run
    for process in of_run(paths.key):
        kill(process["pid"])
    gpu.write_text(f"GPU-1, {pid}\nGPU-2, {stranger.pid}\n")
    remove_folder(paths)
    order = {"devices": ["GPU-1"], "launched_seconds": 600.0, "ended_seconds": 0.0}
    assert host.status(paths)["state"] == "absent", "nothing carries its marker"
    assert clean(host, paths.key, **{**order, "strangers": [pid]})["count"] == 0
    assert clean(host, paths.key, **{**order, "launched_seconds": 0.0})["count"] == 0, "it was there before"
    assert reference(pid) is not None
    assert clean(host, paths.key, **order, signal=None)["left"][0]["pid"] == pid
    assert clean(host, paths.key, **order) == {"left": [], "count": 0}
    assert reference(pid) is None and stranger.poll() is None
    stranger.kill()
    stranger.wait()


@pytest.fixture
def process() -> Iterator["subprocess.Popen[bytes]"]:
    """A process of `daemon` with the marker of a run, whose child has another environment."""
    program = """
import subprocess, sys
print(subprocess.Popen(["sleep", "600"], env={}).pid, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [PYTHON, "-c", program], env={MARKER: KEY}, user="daemon", cwd="/", stdin=-1, stdout=-1
    ) as one:
        yield one
        one.kill()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another account")
def test_a_marker_that_another_account_has_set_is_no_sign_of_the_run(
    host: TestHost, gpu: Path, process: "subprocess.Popen[bytes]"
) -> None:
    assert process.stdout is not None
    child = int(process.stdout.readline())
    gpu.write_text(f"GPU-1, {child}\nGPU-2, {process.pid}\n")
    users = gpu_users() or {}
    assert [(one["pid"], one["user"], one["run"], one["by"]) for [one] in users.values()] == [
        (child, "daemon", KEY, "daemon"),
        (process.pid, "daemon", KEY, "daemon"),
    ]
    assert users["GPU-1"][0]["seconds"] == pytest.approx(users["GPU-2"][0]["seconds"], abs=1.0)
    order = {"devices": ["GPU-1", "GPU-2"], "launched_seconds": 600.0, "ended_seconds": 0.0}
    assert clean(host, KEY, **order, account="nobody") == {"left": [], "count": 0}
    assert clean(host, KEY, **order) == {"left": [], "count": 0}, "of a run of the login's account"
    assert reference(child) is not None and process.poll() is None
    left = clean(host, KEY, **order, account="daemon", signal=None)
    assert {one["pid"] for one in left["left"]} == {process.pid, child}
    assert clean(host, KEY, **order, account="daemon") == {"left": [], "count": 0}


def test_the_path_of_a_bundle_makes_no_process_ours_whose_environment_can_be_read(gpu: Path) -> None:
    with subprocess.Popen([PYTHON, "-c", "input()", f"{_BUNDLES}/x"], env={}, stdin=-1) as one:
        gpu.write_text(f"GPU-1, {one.pid}\n")
        assert [user["run"] for user in (gpu_users() or {})["GPU-1"]] == [None]
        one.kill()


def test_the_age_of_a_process_is_by_the_kernels_clock_whatever_the_uptime_of_a_container_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    age = processes.age_seconds(os.getpid())
    (tmp_path / "7").mkdir()
    (tmp_path / "7/stat").write_text(Path("/proc/self/stat").read_text())
    (tmp_path / "uptime").write_text("1.00 1.00\n")
    monkeypatch.setattr(processes, "PROC", tmp_path)
    assert age and processes.age_seconds(7) == pytest.approx(age, abs=5.0)


def test_what_is_stopped_ends_too_and_the_verb_never_ends_itself(
    host: TestHost, stream_server: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = host.run_script(WAITS)
    stream_server.wait_for(lambda: stream_server.texts("launcher.stdout"))
    [process] = of_run(paths.key)
    kill(process["pid"], signal.SIGSTOP)
    assert clean(host, paths.key) == {"left": [], "count": 0}
    # its launcher ends whatever carries the run's marker, and so would end who serves the verbs below
    wait_until(lambda: paths.key not in marked(KEEPER_MARKER))
    host.hang_up()
    monkeypatch.setenv("TRAINMASTER_RUN", paths.key)  # of whoever serves the verbs from now on
    assert clean(host, paths.key) == {"left": [], "count": 0}
    host.hang_up()


@pytest.mark.parametrize(
    "request_", [{}, {"runs": []}, {"runs": {"a/b": {}}}, {"runs": {"x.1.0": 7}}, {"runs": {"x.1.0": None}}]
)
def test_a_wrong_request_is_answered_with_a_sentence(host: TestHost, request_: object) -> None:
    assert host.verb("clean", request_)["error"] == "bad_request"


def test_files_of_the_run_that_make_no_sense_break_no_status(
    host: TestHost, stream_server: StreamServer
) -> None:
    paths = host.run_script(WAITS)
    stream_server.wait_for(lambda: stream_server.texts("launcher.stdout"))
    for text in ("[1]", '{"deadline": "soon"}', '{"deadline": true}', '{"deadline": -1e999}'):
        paths.stop.write_text(text)
        answer = host.status(paths)
        assert (answer["state"], answer["killed_seconds"]) == ("running", None)
    paths.stop.write_text('{"deadline": 1.0, "grace_seconds": 0, "reason": ""}')
    assert host.status(paths)["killed_seconds"] > 1e9

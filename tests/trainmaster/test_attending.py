"""A node that Slurm has given waits for its run, starts it once, and carries out what it is asked."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.trainmaster.conftest import PYTHON, TestHost, code_archive, wait_until
from tests.trainmaster.test_old_bundles import DAY, age, bundle
from trainmaster.host import controlling, errors, launching
from trainmaster.jsonfile import write_json
from trainmaster.paths import RunPaths, Workdir
from trainmaster.processes import marked
from trainmaster.protocol import KEEPER_MARKER
from trainmaster.runner import attending
from trainmaster.runner.state import read_exit, read_server

SAVES = """
import pathlib, time, os
order = pathlib.Path(os.environ["TRAINMASTER_RUN_DIR"], "control", "preempt.json")
print("begun", flush=True)
while not order.exists():
    time.sleep(0.01)
"""


class Node:
    """What `srun` starts on one node, in job 7."""

    def __init__(self, host: TestHost) -> None:
        self.host = host
        self.spec = host.spec(["python3", "job.py"])
        host.keys.append(self.spec["run_key"])
        self.tasks: list[subprocess.Popen[bytes]] = []

    @property
    def paths(self) -> RunPaths:
        return self.host.workdir.run(self.spec["run_key"])

    def attend(self, job: str = "7", seconds: float = 60.0) -> subprocess.Popen[bytes]:
        program = self.host.bundle / "trainmaster/runner"
        words = [PYTHON, "-S", "-E", str(program), "attend", str(self.host.workdir.root)]
        environment = {**os.environ, "SLURM_JOB_ID": job, "SLURM_NODEID": "0"}
        task = subprocess.Popen([*words, self.spec["allocation_id"], f"{seconds:g}"], env=environment)
        self.tasks.append(task)
        return task

    def send(self, script: str, job: str = "7") -> dict[str, Any]:
        code = code_archive({"job.py": script})
        request = {"spec": self.spec, "server": self.host.server.address, "code_bytes": len(code)}
        return self.host.verb("launch", {**request, "ticket": {"job_id": job}}, code)

    def status(self) -> dict[str, Any]:
        key = self.paths.key
        answer: dict[str, Any] = self.host.verb("status", {"runs": [key], "elsewhere": [key]})["runs"][key]
        return answer


@pytest.fixture
def node(host: TestHost) -> Iterator[Node]:
    node = Node(host)
    host.verb("status", {"runs": []})
    host.workdir.shared.touch()
    yield node
    for task in node.tasks:
        task.kill()
        task.wait()


def test_a_run_that_comes_later_is_started_once_and_its_code_is_the_tasks(node: Node) -> None:
    task = node.attend()
    assert node.status()["state"] == "absent"
    assert node.send("print('hello'); raise SystemExit(3)") == {
        "run_key": node.paths.key,
        "state": "launched",
    }
    assert task.wait(60) == 3
    answer = node.status()
    assert (answer["state"], answer["exit"]["code"], answer["finished"]) == ("ended", 3, True)
    assert node.attend().wait(60) == 0, "a job that Slurm has requeued starts nothing twice"
    assert node.send("print('again')")["state"] == "launched"
    assert [line["m"] for line in node.host.server.lines()] == ["hello"]


def test_a_job_that_was_submitted_twice_runs_in_one_of_them(node: Node) -> None:
    double = node.attend("8")
    node.send("print('hello')")
    assert double.wait(60) == 0 and node.status()["state"] == "prepared"
    assert node.attend().wait(60) == 0 and read_exit(node.paths)


def test_a_node_is_given_back_if_nothing_comes_or_the_server_has_withdrawn(node: Node) -> None:
    assert node.attend(seconds=0.2).wait(60) == 0
    waiting = node.attend()
    revoked = node.host.verb("revoke", {"run_key": node.paths.key, "unix_user": None})
    assert revoked["state"] == "revoked" and waiting.wait(60) == 0


def test_the_script_of_the_job_asks_the_run_to_save(node: Node) -> None:
    task = node.attend()
    node.send(SAVES)
    wait_until(lambda: node.status()["state"] == "running")
    wait_until(lambda: "begun" in node.paths.launcher_stream("stdout").read_text())
    program = [PYTHON, "-S", "-E", str(node.host.bundle / "trainmaster/runner")]
    words = [str(node.host.workdir.root), node.spec["allocation_id"], "1"]
    subprocess.run([*program, "ask_to_save", *words], check=True)
    assert task.wait(60) == 0 and node.status()["preempt"]


@pytest.mark.parametrize("refused", [None, "The attempt is over."])
def test_a_node_keeps_what_the_server_would_not_take(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refused: str | None
) -> None:
    paths = RunPaths(tmp_path / "runs" / "7.x.1.0")
    paths.spool.mkdir(parents=True)
    write_json(paths.ticket, {"job_id": "7", "own_folder": True})
    write_json(paths.shipped, {"offset": 1, "finished": True, "refused": refused})
    for name, answer in {"_came": True, "_start": 1, "_look_after": None}.items():
        monkeypatch.setattr(attending, name, lambda *_, answer=answer: answer)
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert attending.attend(paths, 1) == 1
    signal.pthread_sigmask(signal.SIG_SETMASK, masked)
    assert paths.root.exists() == (refused is not None)


def test_an_address_that_comes_late_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    paths = workdir.run("7.x.1.0")
    paths.root.mkdir(parents=True)
    for told_at, url in [(1000.0, "new"), (940.0, "new"), (1001.0, "newer"), (100.0, "clock set back")]:
        order = {"urls": ["late" if told_at == 940.0 else url], "told_at": told_at}
        controlling.server({"runs": [paths.key], "server": order}, workdir)
        assert read_server(paths)["urls"] == [url], (told_at, url)


@pytest.mark.parametrize("way", ["signal", "folder"])
def test_a_stop_ends_the_run_wherever_it_comes_from(node: Node, way: str) -> None:
    task = node.attend()
    node.send("import time; print('begun', flush=True); time.sleep(600)")
    wait_until(lambda: "begun" in node.paths.launcher_stream("stdout").read_text())
    if way == "signal":  # as Slurm does: to every process of the step
        for process in [*marked(KEEPER_MARKER)[node.paths.key], {"pid": task.pid}]:
            os.kill(process["pid"], signal.SIGTERM)
    else:
        order = {"grace_seconds": 5, "reason": "killed_by_user"}
        node.host.verb("stop", {"runs": {node.paths.key: order}, "elsewhere": True})
    assert task.wait(60) == 143
    ended = read_exit(node.paths)
    assert ended and ended["stopped"]


def on_another_machine(node: Node, processes: dict[str, Any]) -> None:
    """As a login node sees the folder: state.json names processes of another boot, whose locks are not seen here."""
    write_json(
        node.paths.state,
        {"host_id": "n1", "boot_id": "0" * 8, "bundle": node.host.bundle.name, **processes},
    )
    node.paths.runner_lock.unlink(missing_ok=True)


@pytest.mark.survive(3)
def test_a_login_node_starts_no_runner_beside_that_of_a_node(node: Node) -> None:
    node.send("raise SystemExit(1)")
    process = {"pid": 7, "start_time": 7}
    on_another_machine(node, dict.fromkeys(("launcher", "entrypoint", "runner"), process))
    key = node.paths.key
    for request in (
        {},
        {"runs": [key]},
        {"runs": [key], "elsewhere": [key]},
        {"runs": [key], "stored": {key: 0}},
    ):
        answer = node.host.verb("status", request)["runs"][key]
        assert (answer["state"], answer["bundle"]) == ("running", node.host.bundle.name)
        assert "runner_restarted" not in answer
    refused = node.host.verb("remove", {"runs": [key], "bundles": True})["runs"][key]
    assert not refused["removed"] and "has not ended" in refused["message"]
    assert node.host.verb("stop", {"runs": {key: {"grace_seconds": 60}}})["runs"][key]["stopping"]
    assert not marked(KEEPER_MARKER).get(key), "the order lies there for the node, and nothing was started"


@pytest.mark.survive(3)
def test_what_a_killed_node_left_is_brought_by_the_login_node_once_the_job_is_over(node: Node) -> None:
    node.attend()
    node.send("import time; print('begun', flush=True); time.sleep(600)")
    wait_until(lambda: node.host.server.lines())
    key = node.paths.key
    for process in [*marked(KEEPER_MARKER)[key], *marked()[key]]:
        os.kill(process["pid"], signal.SIGKILL)
    wait_until(lambda: not marked(KEEPER_MARKER).get(key))
    on_another_machine(node, {})
    with node.paths.launcher_stream("stdout").open("a") as stream:
        stream.write("last words\n")
    request = {"runs": [key], "over": [key]}
    assert node.host.verb("status", request)["runs"][key]["runner_restarted"]
    wait_until(lambda: node.host.verb("status", request)["runs"][key]["finished"])
    assert [line["m"] for line in node.host.server.lines()] == ["begun", "last words"]
    assert node.host.server.records("exit")[-1]["stopped"], "so that Slurm's own word for the end counts"
    again = node.host.verb("status", {"runs": [key], "elsewhere": [key], "stored": {key: 0}})["runs"][key]
    assert again["runner_restarted"], "a server restored from a backup gets it once more"


def test_a_folder_that_is_not_mounted_answers_nothing_of_a_run(node: Node) -> None:
    node.host.workdir.shared.unlink()
    key = node.paths.key
    for verb, request in (
        ("status", {"runs": [key], "elsewhere": [key]}),
        ("status", {"runs": [key], "over": [key]}),
        ("revoke", {"run_key": key, "unix_user": None, "elsewhere": True}),
        ("remove", {"runs": [key], "force": True, "elsewhere": True}),
    ):
        assert node.host.verb(verb, request)["error"] == "not_mounted"
    assert node.send("print()")["error"] == "not_mounted"
    assert not node.paths.root.exists() and not node.paths.revoked.exists()
    assert node.host.verb("status", {"runs": [key]})["runs"][key]["state"] == "absent", "as of any other host"


def test_bundles_stay_while_a_job_is_open_that_may_name_them(host: TestHost) -> None:
    age(host.bundle, 1.5)
    old = [bundle(host, name, days) for days, name in enumerate("abc", 2)]
    request = {"runs": [], "bundles": True}
    before = time.time() - 3 * DAY
    assert host.verb("remove", {**request, "jobs_since": before})["bundles"] == []
    assert host.verb("remove", {**request, "jobs_since": time.time()})["bundles"] == [
        each.name for each in old[1:]
    ]


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EROFS, "away"), (errno.ESTALE, "away"), (errno.EIO, "away"), (errno.ENOSPC, "disk"),
        (errno.EDQUOT, "quota"), (errno.ENAMETOOLONG, "os"), (errno.EACCES, "os"),
    ],
)  # fmt: skip
def test_what_may_pass_of_a_folder_has_a_code_of_its_own(host: TestHost, number: int, code: str) -> None:
    def launch() -> None:
        with launching._naming_a_full_disk(host.workdir, host.spec(["true"])):
            raise OSError(number, "at the folder")

    try:
        launch()
    except errors.VerbError as error:
        found = error.code
    except OSError as error:
        found = errors.of_system(error, "")["error"]
    assert found == code


def test_a_run_that_a_file_server_has_put_in_place_although_it_says_no_is_there(tmp_path: Path) -> None:
    unfinished, run = (RunPaths(tmp_path / name) for name in (".7.x.1.0", "7.x.1.0"))
    with pytest.raises(FileNotFoundError):
        launching._put_in_place(unfinished, run)
    run.root.mkdir()
    launching._put_in_place(unfinished, run)


@pytest.mark.survive(3)
def test_a_file_server_that_fails_for_a_while_ends_no_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Slurm ends a run whose `attend` ends."""
    paths, asked = RunPaths(tmp_path / "7.x.1.0"), []
    paths.control.mkdir(parents=True)

    def read(path: Path) -> dict[str, Any]:
        asked.append(path)
        if len(asked) < 3:
            raise OSError(116, "Stale file handle")
        return {"job_id": "7"}

    monkeypatch.setattr(attending, "read_object", read)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert attending._came(paths, 60.0) and len(asked) == 3
    stops = iter([OSError(30, "Read-only file system"), None])

    def read_stop(_: RunPaths) -> None:
        fault = next(stops)
        if fault is not None:
            raise fault

    monkeypatch.setattr(attending, "read_stop", read_stop)
    monkeypatch.setattr(attending, "_TEND_SECONDS", 0.01)
    ends = iter([False, True])
    monkeypatch.setattr(attending, "_has_ended", lambda _: next(ends))
    attending._look_after(paths, 1)

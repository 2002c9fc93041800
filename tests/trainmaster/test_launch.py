"""The verb `launch`: once and whole, whatever the archive holds, whoever runs it, wherever it is killed."""

import gzip
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainmaster.conftest import PYTHON, TestHost, code_archive, kill, wait_until
from tests.trainmaster.stream_server import StreamServer
from trainmaster.bundle import host_command
from trainmaster.host import launch_lock, launching
from trainmaster.paths import RunPaths
from trainmaster.processes import alive, boot_id, marked, of_run
from trainmaster.protocol import KEEPER_MARKER, MARKER, check_spec
from trainmaster.runner.state import read_shipped, read_state

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another account")
COUNT_STARTS = ["sh", "-c", 'echo started >> "$TRAINMASTER_RUN_DIR/starts"; exec sleep 600']
OTHER, THIRD = "nobody", "daemon"  # accounts that every machine has
TRIAL = {
    "trial_id": 1, "experiment_id": 1, "trial_seed": 1, "hparams": {}, "config": {}, "run_id": 1,
    "steps_completed": 0, "latest_checkpoint": None,
}  # fmt: skip


def starts(paths: RunPaths) -> int:
    """Lines that entrypoints have written; waits for the first, which its shell writes after it made the file."""
    written = paths.root / "starts"
    wait_until(lambda: written.exists() and bool(written.read_text()))
    return len(written.read_text().split())


@pytest.mark.survive(20)
def test_a_second_launch_finds_the_first(host: TestHost) -> None:
    spec = host.spec(COUNT_STARTS)
    first = host.launch_spec(spec, code_archive({"a": "b"}))
    second = host.launch_spec(spec, code_archive({"a": "b"}))
    assert (first["state"], second["state"]) == ("launched", "already")
    assert first["launcher"] == second["launcher"] and first["entrypoint"] == second["entrypoint"]
    assert first["host_id"] == "h1" and first["boot_id"]
    paths = host.workdir.run(spec["run_key"])
    assert starts(paths) == 1


@pytest.mark.survive(20)
def test_launches_at_the_same_time_start_one(host: TestHost) -> None:
    spec = host.spec(COUNT_STARTS)
    host.keys.append(spec["run_key"])
    line = json.dumps({"spec": spec, "server": host.server.address, "code_bytes": 0}).encode() + b"\n"
    command = host_command(PYTHON, str(host.workdir.root), host.bundle.name, "launch")
    children = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(4)]
    answers = [json.loads(child.communicate(line, timeout=60)[0].splitlines()[-1]) for child in children]
    assert sorted(answer["state"] for answer in answers) == ["already", "already", "already", "launched"]


@pytest.mark.survive(20)
@pytest.mark.parametrize("delay_ms", [0, 20, 40, 60, 70, 80, 90, 100, 120])
def test_a_launch_killed_at_any_moment_can_be_repeated(delay_ms: int, host: TestHost) -> None:
    spec = host.spec(COUNT_STARTS)
    host.keys.append(spec["run_key"])
    code = code_archive({f"file{i}": "x" * 1000 for i in range(50)})
    line = json.dumps({"spec": spec, "server": host.server.address, "code_bytes": len(code)}).encode() + b"\n"
    command = host_command(PYTHON, str(host.workdir.root), host.bundle.name, "launch")
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert child.stdin is not None
    child.stdin.write(line + code)
    child.stdin.flush()
    try:
        child.wait(delay_ms / 1000)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    assert host.launch_spec(spec, code)["state"] in ("launched", "already")
    paths = host.workdir.run(spec["run_key"])
    assert starts(paths) == 1
    assert len(list(paths.code.iterdir())) == 50
    assert [entry.name for entry in host.workdir.runs.iterdir() if entry.name.endswith(".new")] == []


def test_an_archive_that_breaks_off_leaves_nothing(host: TestHost) -> None:
    spec = host.spec(COUNT_STARTS)
    code = code_archive({"a": os.urandom(5000).hex()})
    request = {"spec": spec, "server": host.server.address, "code_bytes": len(code)}
    answer = host.verb("launch", request, code[:-2000])
    assert answer["error"] == "incomplete" and "is truncated: 2000 bytes are missing" in answer["message"]
    assert host.status(host.workdir.run(spec["run_key"]))["state"] == "absent"


def member(name: str, **changes: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in changes.items():
        setattr(info, key, value)
    return info


UNSAFE: dict[str, tuple[list[tarfile.TarInfo], str]] = {
    "absolute": ([member("/etc/evil")], "'/etc/evil' has an absolute path"),
    "parent": ([member("a/../../evil")], "'a/../../evil' has '..' in its path"),
    "link out": (
        [member("l", type=tarfile.SYMTYPE, linkname="../x")],
        "'l' is a link to '../x', which leaves",
    ),
    "absolute link": (
        [member("l", type=tarfile.SYMTYPE, linkname="/etc")],
        "'l' is a link to '/etc', which leaves",
    ),
    "through a link": (
        [member("l", type=tarfile.SYMTYPE, linkname="."), member("l/x")],
        "'l/x' is written through a link",
    ),
    "climbing link": (
        [
            member("d", type=tarfile.SYMTYPE, linkname="."),
            member("l", type=tarfile.SYMTYPE, linkname="d/../x"),
        ],
        "'l' is a link to 'd/../x', which leaves",
    ),
    "hard link": ([member("h", type=tarfile.LNKTYPE, linkname="../spec.json")], "'h' is a hard link to"),
    "device": (
        [member("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3)],
        "'null' is a device or a pipe",
    ),
    "pipe": ([member("fifo", type=tarfile.FIFOTYPE)], "'fifo' is a device or a pipe"),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_an_unsafe_archive_is_refused_by_a_sentence_and_leaves_nothing(name: str, host: TestHost) -> None:
    members, sentence = UNSAFE[name]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for info in members:
            tar.addfile(info)
    spec = host.spec(COUNT_STARTS)
    answer = host.launch_spec(spec, buffer.getvalue())
    assert answer["error"] == "unsafe_archive"
    assert sentence in answer["message"]
    assert not host.workdir.run(spec["run_key"]).root.exists()
    assert list(host.workdir.runs.glob("*")) == []


def test_links_inside_the_folder_and_modes_are_kept(host: TestHost, stream_server: StreamServer) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        script = b"#!/bin/sh\ncat link/text hard\n"
        for info, data in [
            (member("./", type=tarfile.DIRTYPE), b""),
            (member("./real/text", size=5), b"text\n"),
            (member("real/up", type=tarfile.SYMTYPE, linkname="../run"), b""),
            (member("link", type=tarfile.SYMTYPE, linkname="real"), b""),
            (member("hard", type=tarfile.LNKTYPE, linkname="real/text"), b""),
            (member("run", size=len(script), mode=0o4777), script),
        ]:
            tar.addfile(info, io.BytesIO(data))
    spec = host.spec(["./run"])
    assert host.launch_spec(spec, buffer.getvalue())["state"] == "launched"
    stream_server.wait_for(stream_server.exit)
    assert stream_server.texts("launcher.stdout") == ["text", "text"]
    code = host.workdir.run(spec["run_key"]).code
    assert (code / "run").stat().st_mode & 0o7777 == 0o755
    assert (code / "real/up").read_text().startswith("#!")


@pytest.mark.parametrize(
    "code",
    [b"no archive at all", gzip.compress(b"no tar"), code_archive({"a": "b" * 9000})[:-40]],
    ids=["no archive", "no tar", "cut"],  # not their bytes, which hold the time
)
def test_a_broken_archive_is_a_sentence(code: bytes, host: TestHost) -> None:
    answer = host.launch_spec(host.spec(COUNT_STARTS), code)
    assert answer["error"] == "bad_archive" and "cannot be read" in answer["message"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda spec: spec.update(protocol=99), "protocol 99"),
        (lambda spec: spec.pop("token"), "lacks token"),
        (lambda spec: spec.update(run_key="../evil"), "run key is '../evil'"),
        (lambda spec: spec.update(entrypoint=[]), "entrypoint is []"),
        (lambda spec: spec.update(unix_user="no-such-account"), "no account 'no-such-account'"),
    ],
)
def test_a_wrong_spec_is_a_sentence(
    change: Callable[[dict[str, object]], object], sentence: str, host: TestHost
) -> None:
    spec = host.spec(COUNT_STARTS)
    change(spec)
    answer = host.verb("launch", {"spec": spec, "server": host.server.address, "code_bytes": 0})
    assert sentence in answer["message"]


def test_verbs_on_runs_that_are_not_there_say_so(host: TestHost) -> None:
    assert host.verb("status", {"runs": ["x.1.0"]})["runs"]["x.1.0"]["state"] == "absent"
    assert host.verb("status", {})["runs"] == {}
    assert host.verb("stop", {"runs": {"x.1.0": {"grace_seconds": 1}}})["runs"]["x.1.0"]["stopping"] is False
    assert host.verb("preempt", {"runs": {"x.1.0": {}}})["runs"]["x.1.0"]["preempting"] is False
    assert host.verb("remove", {"runs": ["x.1.0"]})["runs"]["x.1.0"] == {"removed": True}
    assert host.verb("status", {"runs": ["../x"]})["error"] == "bad_request"


def test_a_stop_before_the_start_is_kept(host: TestHost, stream_server: StreamServer) -> None:
    spec = host.spec(COUNT_STARTS)
    paths = host.workdir.run(spec["run_key"])
    host.launch_spec(spec, b"")
    host.verb("stop", {"runs": {paths.key: {"grace_seconds": 5, "reason": "early"}}})
    record = stream_server.wait_for(stream_server.exit)
    assert (record["signal"], record["stopped"]) == (signal.SIGTERM, True)


def test_a_forced_removal_ends_launcher_and_runner(host: TestHost, stream_server: StreamServer) -> None:
    stream_server.down()
    paths = host.run_script("print('x')")
    wait_until(lambda: host.status(paths)["state"] == "ended")
    state = read_state(paths)
    assert host.verb("remove", {"runs": [paths.key], "force": True})["runs"][paths.key] == {"removed": True}
    assert not paths.root.exists()
    wait_until(lambda: not alive(state, "launcher") and not alive(state, "runner"))


@pytest.mark.parametrize("breaks", [False, True], ids=["runner sees it", "runner breaks"])
def test_launcher_and_runner_end_when_somebody_deletes_the_folder(
    host: TestHost, stream_server: StreamServer, breaks: bool
) -> None:
    stream_server.down()
    paths = host.run_script("print('x')")
    wait_until(lambda: host.status(paths)["state"] == "ended" and read_state(paths).get("runner"))
    runner = read_state(paths)["runner"]["pid"]

    def deleted() -> bool:
        # the runner may write a file while its folder is emptied
        shutil.rmtree(paths.root, ignore_errors=True)
        return not paths.root.exists()

    wait_until(deleted)
    if breaks:
        kill(runner)
    wait_until(lambda: paths.key not in marked(KEEPER_MARKER))


def test_a_running_run_is_never_removed(host: TestHost) -> None:
    paths = host.run_script("import time; time.sleep(600)")
    answer = host.verb("remove", {"runs": [paths.key], "force": True})["runs"][paths.key]
    assert answer["removed"] is False and "has not ended" in answer["message"]
    assert paths.root.exists()


@pytest.mark.survive(8)
def test_a_run_recorded_before_a_reboot_has_ended_and_its_pids_are_not_signalled(
    host: TestHost, stream_server: StreamServer
) -> None:
    paths = host.run_script("import time; time.sleep(600)")
    wait_until(lambda: read_state(paths).get("runner"))
    state = read_state(paths)
    bystander = subprocess.Popen(["sleep", "600"], start_new_session=True)
    for role in ("launcher", "runner"):
        kill(state[role]["pid"])  # type: ignore[literal-required]
    kill(state["entrypoint"]["pid"])
    wait_until(lambda: not of_run(paths.key))
    rebooted = {**state, "boot_id": "an earlier boot"}
    rebooted["entrypoint"] = {"pid": bystander.pid, "start_time": state["entrypoint"]["start_time"]}
    paths.state.write_text(json.dumps(rebooted))
    host.verb("stop", {"runs": {paths.key: {"grace_seconds": 0, "reason": "x"}}})
    assert host.status(paths)["state"] == "ended"
    assert stream_server.wait_for(stream_server.exit)["code"] is None
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


@pytest.mark.survive(16)
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1"])
def test_a_trial_whose_leased_port_is_taken_is_not_started_and_says_so(
    address: str, host: TestHost, stream_server: StreamServer
) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        other = socket.create_server((address, 0), family=family)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with other:
        gang = {**host.spec("x")["gang"], "ports": {"c10d": other.getsockname()[1]}}
        paths, _ = host.launch(COUNT_STARTS, gang=gang, trial=TRIAL)
        record = stream_server.wait_for(stream_server.exit)
    assert (record["code"], record["port_in_use"]) == (None, gang["ports"]["c10d"])
    assert not (paths.root / "starts").exists()
    [sentence] = stream_server.texts("launcher.stderr")
    assert f"port {gang['ports']['c10d']} of this run is in use by another program" in sentence


def test_a_host_without_the_interface_of_its_gang_says_so_in_the_log(
    host: TestHost, stream_server: StreamServer
) -> None:
    gang = {**host.spec("x")["gang"], "interface": "absent7"}
    host.run_script("print('started')", gang=gang, remarks=["It is so."])
    assert stream_server.wait_for(stream_server.exit)["code"] == 0
    remark, sentence = stream_server.texts("launcher.stderr")
    assert remark == "WARNING: trainmaster: It is so."
    assert sentence.startswith("WARNING: trainmaster: host ") and "no network interface 'absent7'" in sentence
    assert f"reaches it at {gang['addresses'][0]}" in sentence


@pytest.mark.survive(39)
@needs_root
def test_a_job_runs_as_its_account_and_others_cannot_read_it(
    host: TestHost, stream_server: StreamServer
) -> None:
    script = "import os, time\nprint(os.getuid(), os.environ['USER'], flush=True)\ntime.sleep(600)"
    paths = host.run_script(script, unix_user=OTHER)
    stream_server.wait_for(lambda: stream_server.texts("launcher.stdout"))
    uid = paths.root.stat().st_uid
    assert uid != 0 and stream_server.texts("launcher.stdout") == [f"{uid} {OTHER}"]
    for role in ("launcher", "entrypoint", "runner"):
        pid = read_state(paths)[role]["pid"]  # type: ignore[literal-required]
        assert Path(f"/proc/{pid}").stat().st_uid == uid
    assert paths.root.stat().st_mode & 0o777 == 0o700
    for secret in (paths.spec, paths.code / "job.py", paths.outbox, paths.launcher_stream("stdout")):
        reading = subprocess.run(
            ["runuser", "-u", THIRD, "--", "cat", str(secret)], capture_output=True, check=False
        )
        assert reading.returncode != 0 and b"denied" in reading.stderr
    signalling = subprocess.run(
        ["runuser", "-u", THIRD, "--", "kill", str(read_state(paths)["entrypoint"]["pid"])], check=False
    )
    assert signalling.returncode != 0
    status = host.status(paths)
    assert status["state"] == "running" and len(status["pids"]) == 1
    host.verb("stop", {"runs": {paths.key: {"grace_seconds": 2, "reason": "x"}}})
    stream_server.wait_for(stream_server.exit)
    wait_until(lambda: read_shipped(paths)["finished"])
    assert host.verb("remove", {"runs": [paths.key]})["runs"][paths.key] == {"removed": True}
    assert not paths.root.exists() and paths.key not in marked()


@needs_root
def test_nothing_starts_under_an_account_with_other_numbers_than_its_user_is_linked_with(
    host: TestHost,
) -> None:
    for ids, what in (({"uid": 4242, "gid": None}, "UID"), ({"uid": None, "gid": 4242}, "GID")):
        answer = host.launch_spec(host.spec(COUNT_STARTS, unix_user=OTHER, unix_ids=ids), b"")
        assert answer["error"] == "no_account"
        assert f"here, and the user is linked with {what} 4242." in answer["message"]


@needs_root
@pytest.mark.parametrize("marker", [MARKER, KEEPER_MARKER])
def test_nothing_of_another_account_passes_for_the_run(host: TestHost, marker: str) -> None:
    spec = host.spec(COUNT_STARTS, unix_user=OTHER)
    given_up = host.spec(COUNT_STARTS, unix_user=OTHER)
    mark = host.workdir.run(spec["run_key"]).revoked
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
    shutil.chown(mark, THIRD)  # as a job could leave it where the login uses sudo
    others = [
        subprocess.Popen(["sleep", "600"], env={marker: each["run_key"]}, user=THIRD)
        for each in (spec, given_up)
    ]
    try:
        assert host.launch_spec(spec, code_archive({}))["state"] == "launched"
        assert starts(host.workdir.run(spec["run_key"])) == 1
        assert revoked(host, given_up["run_key"], unix_user=OTHER) == "revoked"
        assert [other.poll() for other in others] == [None, None]
    finally:
        for other in others:
            other.kill()
            other.wait()


@needs_root
def test_a_link_in_a_run_folder_does_not_lead_root_elsewhere(host: TestHost, tmp_path: Path) -> None:
    paths = host.run_script("import time; time.sleep(600)", unix_user=OTHER)
    tmp_path.chmod(0o700)
    (tmp_path / "exit.json").write_text('{"secret": 1}')
    paths.exit.symlink_to(tmp_path / "exit.json")
    answer = host.verb("status", {"runs": [paths.key]})
    assert "secret" not in json.dumps(answer)
    paths.exit.unlink()


@needs_root
def test_an_account_that_may_not_become_another_gets_a_sentence(host: TestHost) -> None:
    host.workdir.runs.mkdir(exist_ok=True)
    shutil.chown(host.workdir.root, OTHER)
    shutil.chown(host.workdir.runs, OTHER)
    answer = host.launch_spec(host.spec(COUNT_STARTS, unix_user=THIRD), b"", account=OTHER)
    assert answer["error"] in ("no_sudo", "sudo")
    assert "cannot switch to" in answer["message"]
    assert list(host.workdir.runs.glob("*")) == []


@needs_root
@pytest.mark.skipif(shutil.which("sudo") is None, reason="needs sudo")
def test_a_login_with_sudo_starts_runs_of_other_accounts(host: TestHost, stream_server: StreamServer) -> None:
    rule = Path("/etc/sudoers.d/trainmaster-test")
    rule.write_text(f"{OTHER} ALL=({THIRD}) NOPASSWD: {PYTHON}\n")
    rule.chmod(0o440)
    try:
        host.workdir.runs.mkdir(exist_ok=True)
        shutil.chown(host.workdir.root, OTHER)
        shutil.chown(host.workdir.runs, OTHER)
        spec = host.spec(["python3", "job.py"], unix_user=THIRD)
        paths = host.workdir.run(spec["run_key"])
        code = code_archive({"job.py": "import os, time; print(os.getuid(), flush=True); time.sleep(600)"})
        assert host.launch_spec(spec, code, account=OTHER)["state"] == "launched"
        stream_server.wait_for(lambda: stream_server.texts("launcher.stdout"))
        run = host.verb("status", {"runs": [paths.key]}, account=OTHER)["runs"][paths.key]
        assert run["state"] == "running" and len(run["pids"]) == 1
        host.verb("stop", {"runs": {paths.key: {"grace_seconds": 2, "reason": "x"}}}, account=OTHER)
        assert stream_server.wait_for(stream_server.exit)["stopped"] is True
        wait_until(lambda: read_shipped(paths)["finished"])
        removed = host.verb("remove", {"runs": [paths.key]}, account=OTHER)
        assert removed["runs"][paths.key] == {"removed": True} and not paths.root.exists()
    finally:
        rule.unlink()


def slow_launcher(host: TestHost) -> tuple[RunPaths, dict[str, object], subprocess.Popen[bytes]]:
    """A launch whose launcher hangs before it has written state.json, as on a network disk: its spec is a FIFO."""
    spec = host.spec(COUNT_STARTS)
    host.keys.append(spec["run_key"])
    paths = host.workdir.run(spec["run_key"])
    for folder in (paths.code, paths.control, paths.spool, paths.checkpoints):
        folder.mkdir(parents=True)
    os.mkfifo(paths.spec)
    paths.server.write_text(json.dumps(host.server.address))
    command = host_command(PYTHON, str(host.workdir.root), host.bundle.name, "launch")
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    request = {"spec": spec, "server": host.server.address, "code_bytes": 0}
    assert child.stdin is not None
    child.stdin.write(json.dumps(request).encode() + b"\n")
    child.stdin.flush()
    wait_until(lambda: marked(KEEPER_MARKER).get(paths.key))
    return paths, spec, child


def the_disk_answers(paths: RunPaths, spec: dict[str, object]) -> None:
    text = json.dumps(check_spec(spec))
    with paths.spec.open("w") as pipe:
        paths.spec.unlink()  # the runner, which comes later, finds a file
        paths.spec.write_text(text)
        pipe.write(text)


def answer_of(child: subprocess.Popen[bytes]) -> dict[str, object]:
    answer: dict[str, object] = json.loads(child.communicate(timeout=120)[0].splitlines()[-1])
    return answer


def revoked(host: TestHost, key: str, **more: object) -> str:
    return str(host.verb("revoke", {"run_key": key, **more})["state"])


@pytest.mark.survive(20)
def test_a_slow_launcher_is_starting_until_it_has_started(host: TestHost) -> None:
    paths, spec, child = slow_launcher(host)
    assert host.status(paths)["state"] == "starting"
    the_disk_answers(paths, spec)
    assert answer_of(child)["state"] == "launched"
    assert host.status(paths)["state"] == "running"
    assert revoked(host, paths.key) == "begun" and starts(paths) == 1


@pytest.mark.survive(20)
def test_a_launch_that_is_given_up_is_ended_first_and_none_comes_later(host: TestHost) -> None:
    paths, spec, child = slow_launcher(host)
    assert revoked(host, paths.key) == "revoked"
    assert answer_of(child)["error"] == "launcher"
    assert not marked(KEEPER_MARKER).get(paths.key) and not paths.root.exists()
    assert host.launch_spec(spec, code_archive({}))["error"] == "revoked"
    assert host.status(paths)["state"] == "absent" and not paths.root.exists()
    host.verb("remove", {"runs": [paths.key], "force": True})
    assert not list(host.workdir.runs.iterdir()), "nothing of it is left for ever"


@pytest.mark.survive(20)
def test_a_launcher_that_wakes_up_after_its_launch_was_given_up_starts_nothing(host: TestHost) -> None:
    paths, spec, child = slow_launcher(host)
    paths.revoked.touch()
    the_disk_answers(paths, spec)
    assert answer_of(child)["error"] == "launcher"
    assert not paths.state.exists() and not (paths.root / "starts").exists()


@pytest.mark.survive(20)
def test_a_launch_behind_a_slow_one_answers_that_it_is_starting(
    host: TestHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = host.spec(COUNT_STARTS)
    host.workdir.runs.mkdir(parents=True)
    lock = launch_lock.take(host.workdir.lock(spec["run_key"]), 0.0)
    assert lock is not None
    monkeypatch.setattr(launching, "_START_SECONDS", 0.05)
    request = {"spec": spec, "server": host.server.address, "code_bytes": 3}
    answer = launching.launch(request, io.BytesIO(b"tar"), host.workdir)
    os.close(lock)
    assert answer["state"] == "starting"


@needs_root
@pytest.mark.survive(20)
def test_the_launch_of_a_run_of_another_account_is_given_up(host: TestHost) -> None:
    spec = host.spec(COUNT_STARTS, unix_user=OTHER)
    assert revoked(host, spec["run_key"], unix_user=OTHER) == "revoked"
    assert host.launch_spec(spec, code_archive({}))["error"] == "revoked"


@pytest.mark.survive(13, 20)
def test_nothing_is_started_and_no_launch_is_given_up_while_ranks_of_the_run_live(host: TestHost) -> None:
    spec = host.spec(["true"])
    key = spec["run_key"]
    ranks = subprocess.Popen(["sleep", "600"], env={MARKER: key})
    try:
        launched = host.launch_spec(spec, code_archive({}))
        assert (launched["state"], launched["boot_id"]) == ("already", boot_id())
        assert not host.workdir.run(key).root.exists()
        assert host.verb("revoke", {"run_key": key, "unix_user": None})["state"] == "begun"
        assert ranks.poll() is None
    finally:
        ranks.kill()
        ranks.wait()
    assert host.verb("revoke", {"run_key": key, "unix_user": "no-such-account"})["state"] == "revoked"


@pytest.mark.parametrize("account", [None, pytest.param(OTHER, marks=needs_root)])
def test_a_launch_whose_code_is_still_coming_is_starting_and_goes_on(
    account: str | None, host: TestHost
) -> None:
    spec = host.spec(COUNT_STARTS, unix_user=account)
    host.keys.append(spec["run_key"])
    code = code_archive({"big": os.urandom(500_000).hex()})
    command = host_command(PYTHON, str(host.workdir.root), host.bundle.name, "launch")
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    request = {"spec": spec, "server": host.server.address, "code_bytes": len(code)}
    child.stdin.write(json.dumps(request).encode() + b"\n" + code[:1000])
    child.stdin.flush()
    paths = host.workdir.run(spec["run_key"])
    wait_until(lambda: host.workdir.unfinished(paths.key).exists())
    lock = host.workdir.lock(paths.key)
    os.utime(lock, (0, 0))  # long ago
    assert host.status(paths)["starting_seconds"] > 1e9
    child.stdin.write(code[1000:-1000])
    child.stdin.flush()
    wait_until(lambda: host.status(paths)["starting_seconds"] < 1e9)
    child.stdin.write(code[-1000:])
    assert answer_of(child)["state"] == "launched" and starts(paths) == 1

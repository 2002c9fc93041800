"""Whole runs on one host: launch, output, failures, stop, with real processes and a real server."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.trainmaster.conftest import TestHost, code_archive, kill, wait_until
from tests.trainmaster.counting_ranks import assert_complete, finish, ranks
from tests.trainmaster.stream_server import PROOF_KEY, StreamServer
from trainmaster.jsonfile import write_json
from trainmaster.paths import RunPaths
from trainmaster.processes import alive, marked, of_run
from trainmaster.runner.state import read_shipped, read_state


def test_every_rank_prints_1_to_n_once_and_in_order(host: TestHost, stream_server: StreamServer) -> None:
    paths = host.run_script(ranks(500, 0.001))
    record = finish(stream_server, paths)
    assert (record["code"], record["signal"], record["stopped"]) == (0, None, False)
    assert record["left"] == []
    assert_complete(stream_server, 500)
    assert [r["state"] for r in stream_server.records("state")] == ["running"]


UNTIL_TOLD = """
import os, time
run = os.environ["TRAINMASTER_RUN_DIR"]
files = [open(f"{run}/spool/rank{rank}.stdout", "ab", buffering=0) for rank in range(3)]
number = 0
while not os.path.exists(run + "/enough"):
    number += 1
    for file in files:
        file.write(b"%d\\n" % number)
    time.sleep(0.002)
print(number)
"""


def test_kill_9_of_the_runner_harms_neither_the_training_nor_the_log(
    host: TestHost, stream_server: StreamServer
) -> None:
    paths = host.run_script(UNTIL_TOLD)
    killed: set[int] = set()
    for _ in range(4):
        runner = wait_until(lambda: new_runner(paths, killed))
        count = len(stream_server.data)
        stream_server.wait_for(lambda seen=count: len(stream_server.data) > seen)
        kill(runner)
        killed.add(runner)
    wait_until(lambda: new_runner(paths, killed))
    (paths.root / "enough").touch()
    assert finish(stream_server, paths)["code"] == 0
    assert_complete(stream_server, int(stream_server.texts("launcher.stdout")[0]))


def new_runner(paths: RunPaths, known: set[int]) -> int | None:
    state = read_state(paths)
    pid: int | None = state["runner"]["pid"] if alive(state, "runner") else None
    return pid if pid not in known else None


def test_an_outage_of_the_server_loses_and_repeats_nothing(
    host: TestHost, stream_server: StreamServer
) -> None:
    paths = host.run_script(UNTIL_TOLD)
    for _ in range(2):
        seen = len(stream_server.data)
        stream_server.wait_for(lambda seen=seen: len(stream_server.data) > seen)
        stream_server.down()
        size = paths.outbox.stat().st_size
        wait_until(lambda seen=size: paths.outbox.stat().st_size > seen + 5000)
        stream_server.up()
    (paths.root / "enough").touch()
    assert finish(stream_server, paths)["code"] == 0
    assert_complete(stream_server, int(stream_server.texts("launcher.stdout")[0]))


def test_a_job_that_ends_during_an_outage_is_shipped_afterwards(
    host: TestHost, stream_server: StreamServer
) -> None:
    paths = host.run_script(UNTIL_TOLD + "\nraise SystemExit(3)\n")
    stream_server.wait_for(lambda: stream_server.texts("rank0.stdout"))
    stream_server.down()
    (paths.root / "enough").touch()
    wait_until(paths.exit.exists)
    status = wait_until(lambda: (s := host.status(paths))["state"] == "ended" and s)
    assert (status["exit"]["code"], status["finished"]) == (3, False)
    assert not host.verb("remove", {"runs": [paths.key]})["runs"][paths.key]["removed"]
    stream_server.up()
    assert finish(stream_server, paths)["code"] == 3
    assert_complete(stream_server, int(stream_server.texts("launcher.stdout")[0]))
    assert host.verb("remove", {"runs": [paths.key]})["runs"][paths.key] == {"removed": True}
    assert not paths.root.exists()
    assert host.status(paths)["state"] == "absent"


def test_the_runner_goes_on_from_where_the_server_stands(host: TestHost, stream_server: StreamServer) -> None:
    paths = host.run_script(UNTIL_TOLD)
    stream_server.wait_for(lambda: len(stream_server.data) > 2000)
    with stream_server.lock:  # a server that lost its last batches, as after a restored backup
        at = stream_server.data.index(b"\n", 800) + 1
        stream_server.data = stream_server.data[:at]
    (paths.root / "enough").touch()
    assert finish(stream_server, paths)["code"] == 0
    assert stream_server.conflicts >= 1
    assert_complete(stream_server, int(stream_server.texts("launcher.stdout")[0]))


def test_a_server_at_a_new_address_is_found_by_server_json(
    host: TestHost, stream_server: StreamServer
) -> None:
    paths = host.run_script(UNTIL_TOLD)
    stream_server.wait_for(lambda: stream_server.texts("rank2.stdout"))  # not its first word
    stream_server.down()
    stream_server.port = 0
    stream_server.up()
    assert host.verb("server", {"runs": [paths.key], "server": stream_server.address})["runs"][paths.key][
        "written"
    ]
    (paths.root / "enough").touch()
    assert finish(stream_server, paths)["code"] == 0
    assert_complete(stream_server, int(stream_server.texts("launcher.stdout")[0]))


@pytest.mark.survive(12)
def test_kill_9_of_the_launcher_leaves_the_training_alone(
    host: TestHost, stream_server: StreamServer
) -> None:
    paths = host.run_script(UNTIL_TOLD)
    stream_server.wait_for(lambda: stream_server.data)
    kill(read_state(paths)["launcher"]["pid"])
    kill(read_state(paths)["runner"]["pid"])
    wait_until(lambda: not alive(read_state(paths), "runner"))
    status = host.status(paths)
    assert (status["state"], status["runner_restarted"]) == ("running", True)
    (paths.root / "enough").touch()
    record = finish(stream_server, paths)
    assert (record["code"], record["signal"]) == (None, None), "nobody was there to see the exit code"
    assert_complete(stream_server, int(stream_server.texts("launcher.stdout")[0]))
    status = host.status(paths)
    assert (status["state"], status["exit"], status["finished"]) == ("ended", None, True)


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *a: print("asked to end", flush=True))
orphan = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", orphan], start_new_session=True)
unmarked = {k: v for k, v in os.environ.items() if k != "TRAINMASTER_RUN"}
child = subprocess.Popen([sys.executable, "-c", orphan], start_new_session=True, env=unmarked)
print("ready", child.pid, flush=True)
while True:
    time.sleep(0.1)
"""


@pytest.mark.survive(12, 13)
def test_stop_leaves_no_process_even_of_those_that_ignore_it(
    host: TestHost, stream_server: StreamServer
) -> None:
    paths = host.run_script(STUBBORN)
    unmarked = int(stream_server.wait_for(lambda: stream_server.texts("launcher.stdout"))[0].split()[1])
    began = time.monotonic()
    order = {"grace_seconds": 0.5, "reason": "cancelled"}
    assert host.verb("stop", {"runs": {paths.key: order}})["runs"][paths.key] == {"stopping": True}
    record = finish(stream_server, paths)
    assert (record["signal"], record["stopped"]) == (signal.SIGKILL, True)
    assert "asked to end" in stream_server.texts("launcher.stdout")
    assert time.monotonic() - began >= 0.5
    wait_until(lambda: not Path(f"/proc/{unmarked}").exists())


@pytest.mark.survive(15)
def test_the_jobs_own_grace_is_kept_behind_a_shell(host: TestHost, stream_server: StreamServer) -> None:
    saver = (
        "import signal, sys, time\n"
        "def save(*a):\n    time.sleep(1.5); print('saved', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\nprint('ready', flush=True)\ntime.sleep(600)\n"
    )
    paths, _ = host.launch("cd . && python3 job.py; true", {"job.py": saver})
    stream_server.wait_for(lambda: stream_server.texts("launcher.stdout"))
    host.verb("stop", {"runs": {paths.key: {"grace_seconds": 20, "reason": "cancelled"}}})
    finish(stream_server, paths)
    assert stream_server.texts("launcher.stdout") == ["ready", "saved"]


def test_a_kill_overtakes_a_gentle_stop(host: TestHost, stream_server: StreamServer) -> None:
    paths = host.run_script(STUBBORN)
    stream_server.wait_for(lambda: stream_server.texts("launcher.stdout"))
    host.verb("stop", {"runs": {paths.key: {"grace_seconds": 600, "reason": "cancelled"}}})
    stream_server.wait_for(lambda: "asked to end" in stream_server.texts("launcher.stdout"))
    host.verb("stop", {"runs": {paths.key: {"grace_seconds": 0, "reason": "killed"}}})
    assert finish(stream_server, paths)["stopped"] is True


def test_the_server_can_order_a_stop_by_itself(host: TestHost, stream_server: StreamServer) -> None:
    paths = host.run_script("import time\nprint('ready', flush=True)\ntime.sleep(600)\n")
    stream_server.wait_for(lambda: stream_server.texts("launcher.stdout"))
    stream_server.stop_order = {"grace_seconds": 5, "reason": "killed"}
    record = finish(stream_server, paths)
    assert (record["code"], record["signal"], record["stopped"]) == (143, signal.SIGTERM, True)


@pytest.mark.parametrize("road", ["server", "verb"])
def test_a_preemption_reaches_the_job(road: str, host: TestHost, stream_server: StreamServer) -> None:
    waits = (
        "import os, time\nprint('ready', flush=True)\n"
        "path = os.environ['TRAINMASTER_RUN_DIR'] + '/control/preempt.json'\n"
        "while not os.path.exists(path): time.sleep(0.01)\nprint(open(path).read())\n"
    )
    paths = host.run_script(waits)
    stream_server.wait_for(lambda: stream_server.texts("launcher.stdout"))
    if road == "server":
        stream_server.preempt = {"reason": "paused"}
    else:
        host.verb("preempt", {"runs": {paths.key: {"reason": "paused"}}})
    assert finish(stream_server, paths)["code"] == 0
    assert json.loads(stream_server.texts("launcher.stdout")[-1]) == {"reason": "paused"}


@pytest.mark.survive(36)
def test_what_a_restored_server_lacks_is_brought_once_more(
    host: TestHost, stream_server: StreamServer
) -> None:
    paths = host.run_script(ranks(50, 0.001))
    finish(stream_server, paths)
    whole = stream_server.data
    known = whole.index(b"\n") + 1
    assert host.status(paths)["outbox_bytes"] == len(whole)
    with stream_server.lock:
        stream_server.data = whole[:known]  # as it was when the backup was made
    host.verb("status", {"runs": [paths.key], "stored": {paths.key: known}})
    stream_server.wait_for(lambda: stream_server.data == whole)
    wait_until(lambda: read_shipped(paths)["finished"])


@pytest.mark.survive(37)
@pytest.mark.parametrize("about", [{"proof_key": PROOF_KEY}, {}], ids=["", "begun by an older server"])
def test_a_refused_run_stops_its_ranks_and_keeps_its_spool(
    about: dict[str, str], host: TestHost, stream_server: StreamServer
) -> None:
    paths = host.run_script(STUBBORN, cluster={"id": "c1", "name": "test", **about})
    stream_server.wait_for(lambda: stream_server.texts("launcher.stdout"))
    stream_server.refuse_with = 410
    wait_until(lambda: read_shipped(paths)["finished"] and not alive(read_state(paths), "launcher"))
    answer = host.status(paths)
    assert (answer["state"], answer["pids"]) == ("ended", [])
    assert answer["refused"].startswith("410")
    assert b"asked to end" in paths.outbox.read_bytes(), "the spool is kept"


@pytest.mark.parametrize(
    ("entrypoint", "code", "sentence"),
    [
        (["no-such-command", "x"], 127, "command not found: 'no-such-command'"),
        (["./data.txt"], 126, "cannot execute './data.txt'"),
        (["./script"], 127, "the interpreter that the first line of './script' names"),
        ("no-such-command x", 127, "not found"),
    ],
)
def test_what_cannot_be_executed_ends_with_a_sentence(
    entrypoint: Any, code: int, sentence: str, host: TestHost, stream_server: StreamServer
) -> None:
    spec = host.spec(entrypoint)
    archive = code_archive({"data.txt": "no program", "script": "#!/no/such/interpreter\n"})
    paths = host.workdir.run(spec["run_key"])
    paths_archive = executable(archive, "script")
    assert host.launch_spec(spec, paths_archive)["state"] == "launched"
    assert finish(stream_server, paths)["code"] == code
    [line] = [r for r in stream_server.lines() if r["f"] == "launcher.stderr"]
    assert sentence in line["m"]
    assert isinstance(entrypoint, str) or line["l"] == "ERROR"


def executable(archive: bytes, name: str) -> bytes:
    """The same archive with one member's execute bit set."""
    import io
    import tarfile

    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as old, tarfile.open(fileobj=out, mode="w:gz") as new:
        for member in old:
            member.mode = 0o755 if member.name == name else member.mode
            new.addfile(member, old.extractfile(member))
    return out.getvalue()


@pytest.mark.survive(11)
def test_the_first_failure_is_the_earliest_rank(host: TestHost, stream_server: StreamServer) -> None:
    script = (
        "import json, os, sys\nspool = os.environ['TRAINMASTER_RUN_DIR'] + '/spool'\n"
        "def say(n, **more):\n"
        "    with open(f'{spool}/core.rank{n}.jsonl', 'a') as f: f.write(json.dumps(more) + '\\n')\n"
        "say(1, type='rank_failed', rank=1, code=143, signal=15, t=20.0)\n"
        "say(2, type='rank_failed', rank=2, code=3, signal=None, t=10.0)\n"
        "sys.exit(1)\n"
    )
    paths = host.run_script(script)
    record = finish(stream_server, paths)
    assert record["first_failure"] == {"rank": 2, "code": 3, "signal": None, "t": 10.0}


SAVES = (
    "import json, os\nrun = os.environ['TRAINMASTER_RUN_DIR']\n"
    "os.makedirs(run + '/checkpoints/abc/sub dir')\n"
    "open(run + '/checkpoints/abc/sub dir/w.bin', 'wb').write(b'w' * 3000000)\n"
    "open(run + '/checkpoints/abc/metadata.json', 'w').write('{}')\n"
    "record = {'type': 'checkpoint', 'uuid': 'abc', 'steps_completed': 1, 'storage': 'server', 'metadata': {},\n"
    "  't': 1.0, 'resources': {'sub dir/': 0, 'sub dir/w.bin': 3000000, 'metadata.json': 2}}\n"
    "open(run + '/spool/core.rank0.jsonl', 'a').write(json.dumps(record) + '\\n')\n"
)


def test_checkpoints_are_uploaded_after_the_end_and_through_a_kill(
    host: TestHost, stream_server: StreamServer
) -> None:
    stream_server.hide_files_once = True
    stream_server.down()
    paths = host.run_script(SAVES)
    wait_until(lambda: paths.uploads.exists())
    kill(read_state(paths)["runner"]["pid"])
    stream_server.up()
    assert finish(stream_server, paths)["code"] == 0
    assert list(stream_server.completed) == ["abc"]
    assert stream_server.files["abc/sub dir/w.bin"] == b"w" * 3000000
    assert not paths.checkpoint("abc").exists(), "its place on the host's disk is free again"


@pytest.mark.survive(42)
def test_a_server_that_is_done_with_the_stream_still_gets_the_checkpoint(
    host: TestHost, stream_server: StreamServer
) -> None:
    stream_server.ends_with_410s = 3  # believed from the second on
    paths = host.run_script(SAVES)
    assert finish(stream_server, paths)["code"] == 0
    assert list(stream_server.completed) == ["abc"]
    assert stream_server.files["abc/sub dir/w.bin"] == b"w" * 3000000


LEAVES_A_CHILD = """
import subprocess, time
subprocess.Popen(["sleep", "600"], start_new_session=True)
while not os.path.exists("go"): time.sleep(0.05)
print("last", flush=True)
"""


@pytest.mark.survive(13, 42)
def test_heartbeats_that_are_refused_after_the_end_cost_neither_the_last_lines_nor_a_checkpoint(
    host: TestHost, stream_server: StreamServer
) -> None:
    stream_server.uploads_wait = True
    paths = host.run_script(SAVES + LEAVES_A_CHILD)
    stream_server.wait_for(lambda: stream_server.records("core"))
    launcher = read_state(paths)["launcher"]["pid"]
    kill(
        launcher, signal.SIGSTOP
    )  # it does not end the child, which so lives on as one that SIGKILL cannot end
    (paths.code / "go").touch()
    write_json(paths.exit, {"code": 0, "signal": None, "ended_at": time.time(), "stopped": False})
    stream_server.wait_for(lambda: stream_server.texts("launcher.stdout"))
    stream_server.beats_are_refused = True
    stream_server.wait_for(lambda: stream_server.said_410 > 15)  # of heartbeats for 3 s: believed after one
    assert stream_server.exit() is None and of_run(paths.key)
    for process in of_run(paths.key):
        kill(process["pid"])
    stream_server.wait_for(stream_server.exit)
    stream_server.uploads_wait = False
    stream_server.wait_for(lambda: list(stream_server.completed) == ["abc"])
    kill(launcher, signal.SIGCONT)


PRINTS_TWICE = """
import os, time
print("first", flush=True)
while not os.path.exists("go"): time.sleep(0.05)
print("last", flush=True)
"""


def test_heartbeats_say_how_it_stands(host: TestHost, stream_server: StreamServer) -> None:
    paths = host.run_script(PRINTS_TWICE)
    beats = stream_server.wait_for(lambda: [b for b in stream_server.heartbeats if b["state"] == "running"])
    assert set(beats[0]) == {"state", "spool_bytes", "unshipped_bytes", "dropped_bytes", "preempt", "pulse"}
    (paths.code / "go").touch()
    finish(stream_server, paths)


def test_no_process_holds_the_verbs_pipes_or_its_session(host: TestHost, stream_server: StreamServer) -> None:
    paths = host.run_script("import time\ntime.sleep(600)\n")
    state = read_state(paths)
    sessions = {os.getsid(state[role]["pid"]) for role in ("launcher", "entrypoint")}  # type: ignore[literal-required]
    assert os.getsid(0) not in sessions and len(sessions) == 2
    runner = wait_until(lambda: read_state(paths).get("runner"))["pid"]
    for pid in (state["launcher"]["pid"], runner):
        targets = [str(Path(f"/proc/{pid}/fd/{number}").readlink()) for number in (0, 1, 2)]
        assert targets == ["/dev/null", str(paths.runner_log), str(paths.runner_log)]
        assert paths.key not in marked() or pid not in [p["pid"] for p in marked()[paths.key]]


def test_lines_reach_the_server_while_the_run_goes_on_printing(
    host: TestHost, stream_server: StreamServer
) -> None:
    """How soon is measured by benchmarks/print_to_page.py."""
    paths = host.run_script(PRINTS_TWICE)
    stream_server.wait_for(lambda: stream_server.texts("launcher.stdout") == ["first"])
    (paths.code / "go").touch()
    finish(stream_server, paths)
    assert stream_server.texts("launcher.stdout") == ["first", "last"]

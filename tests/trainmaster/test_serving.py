"""Verbs by a process that stays: side by side, with bodies, and runs that look and end like any other."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.trainmaster.conftest import PYTHON, TestHost, code_archive, kill, wait_until
from trainmaster.processes import marked
from trainmaster.protocol import KEEPER_MARKER
from trainmaster.runner.state import read_exit, read_shipped, read_state

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another account")
#: counts a word in the memory of a process; the word comes in two parts, so that it is not found in the counter
COUNT_IN_MEMORY = """
import sys
found, readable = 0, 0
with open(f"/proc/{sys.argv[1]}/mem", "rb", 0) as memory:
    for line in open(f"/proc/{sys.argv[1]}/maps"):
        area, rights = line.split()[:2]
        begin, end = (int(part, 16) for part in area.split("-"))
        if rights.startswith("rw"):
            memory.seek(begin)
            text = memory.read(end - begin)
            readable += len(text)
            found += text.count((sys.argv[2] + sys.argv[3]).encode())
print(found, readable)
"""

SLOW = "import time\nprint('begun', flush=True)\ntime.sleep(600)\n"


def test_launcher_and_runner_look_as_if_they_had_been_executed(host: TestHost) -> None:
    paths = host.run_script(SLOW)
    wait_until(lambda: "runner" in read_state(paths))
    state = read_state(paths)
    for role, verb in (("launcher", "keep"), ("runner", "ship")):
        process = Path(f"/proc/{state[role]['pid']}")  # type: ignore[literal-required]  # one of the two roles
        words = process.joinpath("cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        assert words[4:6] == [verb.encode(), str(paths.root).encode()]
        assert f"{KEEPER_MARKER}={paths.key}".encode() in process.joinpath("environ").read_bytes().split(
            b"\0"
        )
        assert os.getsid(int(process.name)) == int(process.name)
    assert len(marked(KEEPER_MARKER)[paths.key]) == 2


def test_a_run_goes_on_when_the_process_that_started_it_has_ended(host: TestHost) -> None:
    paths = host.run_script(
        "import time\nfor n in range(30):\n    print(n, flush=True)\n    time.sleep(0.05)\n"
    )
    host.hang_up()
    wait_until(lambda: read_shipped(paths)["finished"])
    ended = read_exit(paths)
    assert ended is not None and ended["code"] == 0


def test_a_forked_runner_that_is_killed_comes_back(host: TestHost) -> None:
    paths = host.run_script(SLOW)
    wait_until(lambda: "runner" in read_state(paths))
    first = read_state(paths)["runner"]["pid"]
    kill(first)
    wait_until(lambda: read_state(paths)["runner"]["pid"] != first)


def test_a_job_inherits_nothing_of_the_process_that_serves(host: TestHost) -> None:
    script = (
        "import json, os, signal\n"
        "print(json.dumps({'open': sorted(int(n) for n in os.listdir('/proc/self/fd') if int(n) > 2),\n"
        "  'spare': os.environ.get('TRAINMASTER_SPARE'),\n"
        "  'blocked': [int(n) for n in signal.pthread_sigmask(0, [])]}))\n"
    )
    paths = host.run_script(script)
    wait_until(lambda: read_exit(paths) is not None)
    said = json.loads(paths.launcher_stream("stdout").read_text())
    assert len(said["open"]) <= 2, "only the folder that it lists, and where it shows its stacks"
    assert said["spare"] is None and said["blocked"] == []


@pytest.mark.parametrize("served", [True, False])
def test_a_large_code_folder_arrives_whole_either_way(host: TestHost, served: bool) -> None:
    text = "\n".join(f"# {os.urandom(48).hex()}" for _ in range(40_000))
    spec = host.spec(
        ["python3", "-c", "import hashlib; print(hashlib.md5(open('big.py','rb').read()).hexdigest())"]
    )
    code = code_archive({"big.py": text})
    assert len(code) > 2 * 1024 * 1024
    host.keys.append(spec["run_key"])
    request = {"spec": spec, "server": host.server.address, "code_bytes": len(code)}
    stdin = json.dumps(request).encode() + b"\n" + code
    answer = host.served("launch", stdin) if served else host.alone("launch", stdin)
    assert answer["state"] == "launched"
    paths = host.workdir.run(spec["run_key"])
    assert (paths.code / "big.py").read_text() == text


def test_a_verb_that_is_none_gets_a_sentence_and_the_next_one_an_answer(host: TestHost) -> None:
    answer = host.served("explode", b"{}\n")
    assert answer["error"] == "bad_request" and "explode" in answer["message"]
    assert "boot_id" in host.served("status", b"{}\n")


@needs_root
def test_no_account_finds_what_others_have_asked_for_in_the_memory_of_its_own_processes(
    host: TestHost,
) -> None:
    for _ in range(3):
        host.launch("true", unix_user="daemon", environment={"PASSWORD": "xyzzy-of-daemon"})
    paths, _ = host.launch(["sleep", "600"], unix_user="nobody")
    wait_until(lambda: "runner" in read_state(paths))
    state = read_state(paths)
    for pid in (state["launcher"]["pid"], state["runner"]["pid"]):
        counter = [PYTHON, "-c", COUNT_IN_MEMORY, str(pid), "xyzzy-of", "-daemon"]
        counted = subprocess.run(["runuser", "-u", "nobody", "--", *counter], capture_output=True, check=True)
        found, readable = map(int, counted.stdout.split())
        assert readable > 1_000_000 and found == 0

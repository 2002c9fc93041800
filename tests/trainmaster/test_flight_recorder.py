"""What a rank tells of torch's flight recorder when its host asks, and what a job may put in the place of that."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.rig.bundles import install
from tests.trainmaster.conftest import TestHost, wait_until
from trainmaster.host import flight
from trainmaster.host.flight import Recorder
from trainmaster.paths import RunPaths
from trainmaster.rank_processes import Seen

#: The names of torch that are asked, with one collective each; `hang` stands for a collective that never ends.
TORCH = {
    "torch/__init__.py": "",
    "torch/distributed/__init__.py": "",
    "torch/distributed/distributed_c10d.py": """
class _world:
    pg_names = {"group": "0"}
    pg_group_ranks = {"group": {1: 1, 0: 0}}
""",
    "torch/_C/__init__.py": "",
    "torch/_C/_distributed_c10d.py": """
import json
def _dump_fr_trace_json():
    call = {"collective_seq_id": 3, "profiling_name": "gloo:all_reduce", "output_sizes": [[8]],
            "output_dtypes": ["Float"], "process_group": ["0", "default_pg"], "retired": False, "is_p2p": False}
    return json.dumps({"entries": [call, {**call, "is_p2p": True}, "garbage"]}).encode()
""",
}
RANK = """
import threading
import torch.distributed.distributed_c10d, torch._C._distributed_c10d
open("ready", "w").close()
threading.Event().wait()
"""


def process(pid: int, state: str = "S") -> Seen:
    return Seen(pid, 1, 1, state, 0.0, 0)


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    paths = RunPaths(tmp_path)
    paths.stacks.mkdir()
    return paths


def test_a_rank_that_hangs_tells_its_collectives_beside_its_stacks(host: TestHost) -> None:
    paths, answer = host.launch(
        ["sh", "-c", "RANK=1 WORLD_SIZE=2 exec python3 train.py"], {**TORCH, "train.py": RANK}
    )
    assert answer.get("state") == "launched", answer
    wait_until((paths.code / "ready").exists)
    said = host.verb("stack", {"runs": {paths.key: {"ranks": [1], "collectives": True}}})
    told = said["runs"][paths.key]["ranks"]["1"]
    assert told["collectives"] == {
        "groups": {
            "0 gloo": {
                "members": [0, 1],
                "calls": [
                    {"number": 3, "name": "all_reduce", "sizes": "[[8]]", "types": "['Float']", "done": False}
                ],
            }
        }
    }
    assert "in wait" in told["text"] and "flight_recorder" not in told["text"]
    assert (
        told["call"] == "futex"
        and told["cpu_seconds"] >= 0
        and told["moved_bytes_after"] > told["moved_bytes"] > 0
    )
    again = host.verb("stack", {"runs": {paths.key: {"ranks": [1], "collectives": True}}})
    assert again["runs"][paths.key]["ranks"]["1"]["moved_bytes"] == told["moved_bytes_after"], (
        "our own are known"
    )
    plain = host.verb("stack", {"runs": {paths.key: {"ranks": [1]}}})["runs"][paths.key]["ranks"]["1"]
    assert "collectives" not in plain


def answered(paths: RunPaths, write: Any) -> Any:
    """What is read of a rank that does `write` with the answer's path when it is asked."""
    pipe, answer = paths.stacks / "flight.7", paths.stacks / "flight.7.json"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)

    def rank() -> None:
        os.read(reader, 1)
        write(answer)

    thread = threading.Thread(target=rank)
    thread.start()
    recorder = Recorder(paths, [process(7)])
    recorder.ask()
    thread.join()
    os.close(reader)
    return recorder.answer()


@pytest.mark.parametrize(
    "text",
    [b"", b"[1]", b"{", b"[" * 100_000, b'{"groups": 3, "traces": {}}', b'{"traces": [{"entries": 5}]}',
     b'{"traces": [{"entries": [{"process_group": [], "collective_seq_id": 1}]}]}'],
)  # fmt: skip
def test_an_answer_that_is_none_names_no_collective(paths: RunPaths, text: bytes) -> None:
    assert answered(paths, lambda path: path.write_bytes(text)) in (None, {"groups": {}})


def test_a_pipe_a_link_and_a_huge_file_are_not_waited_for(
    paths: RunPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight, "_ANSWER_BYTES_MAX", 1000)
    secret = tmp_path / "secret"
    secret.write_text('{"groups": {}, "traces": []}')
    for write in (
        os.mkfifo,
        lambda path: path.symlink_to(secret),
        lambda path: path.write_bytes(b" " * 1001),
    ):
        assert answered(paths, write) is None
        for name in ("flight.7", "flight.7.json"):
            (paths.stacks / name).unlink()


def test_only_a_pipe_that_somebody_reads_is_asked(paths: RunPaths, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("kept")
    for name, make in (
        ("1", os.mkfifo),
        ("2", lambda path: path.write_text("kept")),
        ("3", lambda path: path.symlink_to(other)),
    ):
        path = paths.stacks / f"flight.{name}"
        make(path)
        recorder = Recorder(paths, [process(int(name))])
        recorder.ask()
        assert not recorder.writes() and recorder.answer() is None
    assert other.read_text() == "kept" and (paths.stacks / "flight.2").read_text() == "kept"


def test_of_many_collectives_the_newest_and_the_one_that_waits_are_told(paths: RunPaths) -> None:
    entries = [
        {
            "collective_seq_id": number,
            "process_group": ["0"],
            "profiling_name": "nccl:x",
            "retired": number != 5,
        }
        for number in range(1, 2001)
    ]
    text = json.dumps({"groups": {"0": [0, "x", 1]}, "traces": [{"entries": entries}]})
    told = answered(paths, lambda path: path.write_text(text))
    numbers = [call["number"] for call in told["groups"]["0 nccl"]["calls"]]
    assert numbers == [5, *range(1989, 2001)] and told["groups"]["0 nccl"]["members"] == [0, 1]


def test_a_stopped_process_is_not_asked(paths: RunPaths) -> None:
    os.mkfifo(paths.stacks / "flight.7")
    recorder = Recorder(paths, [process(7, "T")])
    recorder.ask()
    assert not recorder.writes()


def entry(number: int, name: str, group: int = 0, **more: Any) -> dict[str, Any]:
    known = {"collective_seq_id": number, "process_group": ["0", "default_pg"], "profiling_name": name}
    return {**known, "pg_id": group, "retired": True, **more}


def test_collectives_of_two_backends_and_of_a_group_made_again_are_kept_apart(paths: RunPaths) -> None:
    """As torch tells them: `destroy_process_group` and `init_process_group` give the same name and count anew."""
    entries = [entry(n, "gloo:broadcast") for n in range(1, 6)]
    entries += [
        entry(1, "gloo:all_reduce", 2),
        entry(1, "nccl:all_gather", 2),
        entry(2, "gloo:all_reduce", 2),
    ]
    entries += [entry(9, "gloo:barrier", 1, process_group=["1", "was destroyed"], retired=False)]
    text = json.dumps({"groups": {"0": [0, 1]}, "traces": [{"entries": entries}]})
    told = answered(paths, lambda path: path.write_text(text))
    found = {
        name: [(call["number"], call["name"]) for call in group["calls"]]
        for name, group in told["groups"].items()
    }
    assert found == {"0 gloo": [(1, "all_reduce"), (2, "all_reduce")], "0 nccl": [(1, "all_gather")]}


def test_the_first_process_that_tells_of_collectives_answers_for_its_rank(paths: RunPaths) -> None:
    """A helper of the rank may have a pipe too, and what stands in an answer's place may not be a file."""
    text = json.dumps({"traces": [{"entries": [entry(1, "gloo:barrier")]}]})
    readers = []
    for pid in (5, 6, 7):
        os.mkfifo(paths.stacks / f"flight.{pid}")
        readers.append(os.open(paths.stacks / f"flight.{pid}", os.O_RDWR))
    (paths.stacks / "flight.5.json").mkdir()
    recorder = Recorder(paths, [process(5), process(6), process(7)])
    recorder.ask()
    assert recorder.writes()
    (paths.stacks / "flight.6.json").write_text('{"traces": []}')
    (paths.stacks / "flight.7.json").write_text(text)
    for reader in readers:
        os.close(reader)
    assert not recorder.writes() and list((recorder.answer() or {})["groups"]) == ["0 gloo"]


SIGNALS = """
import os, signal, sys
class Mine:
    def find_spec(self, name, path=None, target=None):
        if name == "torch.distributed":
            print("seen", flush=True)
sys.meta_path.insert(1, Mine())
import torch.distributed
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
os.kill(os.getpid(), signal.SIGUSR1)
assert signal.sigwait({signal.SIGUSR1}) == signal.SIGUSR1
print(len(os.listdir("/proc/self/task")), signal.pthread_sigmask(signal.SIG_BLOCK, ()) == {signal.SIGUSR1})
"""


def test_a_program_keeps_its_signals_and_its_finders_beside_our_thread(tmp_path: Path) -> None:
    for name, text in TORCH.items():
        path = tmp_path / "code" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    environment = {
        "PATH": os.environ["PATH"], "TRAINMASTER_RUN_DIR": str(tmp_path), "RANK": "1", "WORLD_SIZE": "2",
        "PYTHONPATH": os.pathsep.join([str(install(tmp_path / "work")), str(tmp_path / "code")]),
    }  # fmt: skip
    said = subprocess.run(
        [sys.executable, "-c", SIGNALS],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (said.stdout, said.stderr) == ("seen\n2 True\n", "")

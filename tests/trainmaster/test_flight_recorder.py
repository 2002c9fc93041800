"""What a rank tells of torch's flight recorder when its host asks, and what a job may put in the place of that."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

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
            "0": {
                "members": [0, 1],
                "calls": [
                    {"number": 3, "name": "all_reduce", "sizes": "[[8]]", "types": "['Float']", "done": False}
                ],
            }
        }
    }
    assert "in wait" in told["text"] and "flight_recorder" not in told["text"]
    assert told["call"] == "futex" and told["cpu_seconds"] >= 0 and told["moved_bytes"] > 0
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
    numbers = [call["number"] for call in told["groups"]["0"]["calls"]]
    assert numbers == [5, *range(1989, 2001)] and told["groups"]["0"]["members"] == [0, 1]


def test_a_stopped_process_is_not_asked(paths: RunPaths) -> None:
    os.mkfifo(paths.stacks / "flight.7")
    recorder = Recorder(paths, [process(7, "T")])
    recorder.ask()
    assert not recorder.writes()

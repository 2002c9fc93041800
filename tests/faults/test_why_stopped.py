"""Real runs that end badly, and what is told about it: REST, the log, and where the next attempt runs."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.rig.stack import LAUNCHER, Stack, config

pytestmark = pytest.mark.hosts
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")

RAISES = """
import os, pathlib, sys, time
begun = pathlib.Path(os.environ["BEGUN"])
(begun / sys.argv[1]).touch()
print("step 1", flush=True)
def train():
    raise RuntimeError("the loss is not a number")
if sys.argv[1] == "2":
    while len(list(begun.iterdir())) < 4:  # who is ended before it begins is no rank that ended
        time.sleep(0.05)
    train()
time.sleep(300)
"""
#: xid 79 in the log of every attempt but the second.
BAD_GPU = """
import os
print("xid 79 on this host", flush=True)
raise SystemExit(1)
"""


def why(stack: Stack, experiment: int, **query: int) -> dict[str, Any]:
    trial = stack.trial(experiment)["id"]
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    return stack.get(f"/api/v1/trials/{trial}/why-stopped?{asked}")


def test_a_rank_that_raises_is_told_with_its_traceback(stack: Stack, tmp_path: Path) -> None:
    variables = {"environment_variables": [f"BEGUN={tmp_path}"]}
    experiment = stack.submit({"launch.py": LAUNCHER, "worker.py": RAISES}, config(4, environment=variables))
    assert stack.wait_end(experiment) == "STATE_ERROR"
    story = why(stack, experiment)
    assert (story["rank"], story["exitCode"], story["traceback"]) == (2, 1, True)
    assert story["sentences"][0] == (
        f"Rank 2 on {story['host']} failed first: exit code 1: RuntimeError: the loss is not a number."
    )
    assert story["sentences"][1].startswith("3 other ranks then exited")
    assert story["lines"][0]["text"] == "Traceback (most recent call last):"
    assert story["lines"][-1]["text"] == "RuntimeError: the loss is not a number"
    numbered = {record["id"]: record for record in stack.records(stack.trial(experiment)["id"])}
    assert any("Traceback" in record["log"] for record in numbered.values())


def test_a_rank_that_is_killed_is_no_out_of_memory_without_evidence(stack: Stack) -> None:
    worker = (
        "import os, signal, sys\nprint('the last line', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    experiment = stack.submit({"launch.py": LAUNCHER, "worker.py": worker}, config(1))
    assert stack.wait_end(experiment) == "STATE_ERROR"
    story = why(stack, experiment)
    assert (story["rank"], story["exitCode"], story["signal"]) == (0, 137, 9)
    assert story["meaning"] == "exit code 137: killed by SIGKILL"
    assert story["sentences"][1].startswith(("Not out of memory", "It is unknown whether memory ran out"))
    assert [line["text"] for line in story["lines"]] == ["the last line"]


def test_a_command_that_is_not_found_says_where_to_look(stack: Stack) -> None:
    body = {"config": {"entrypoint": ["no-such-program", "x"], "resources": {"slots": 0}}}
    command = stack.post("/api/v1/commands", body)["command"]["id"]
    path = f"/api/v1/commands/{command}"
    stack.wait(lambda: "endTime" in stack.get(path)["command"], 60, "the command to end")
    story = stack.get(f"/api/v1/tasks/{command}/why-stopped")
    assert story["meaning"] == "exit code 127: command not found: no-such-program"
    assert story["sentences"][1].startswith("no-such-program is not on the PATH of jobs on gpu")
    assert any("no-such-program" in line["text"] for line in story["lines"])


def test_a_policy_excludes_the_host_and_the_retry_runs_elsewhere(stack: Stack) -> None:
    policy = {"name": "Bad GPU", "pattern": r"xid \d+", "action": "exclude_node"}
    experiment = stack.submit(
        {"worker.py": BAD_GPU}, config(1, "python3 worker.py", max_restarts=1, log_policies=[policy])
    )
    assert stack.wait_end(experiment) == "STATE_ERROR"
    first, second = why(stack, experiment, attempt=1), why(stack, experiment, attempt=2)
    assert {first["host"], second["host"]} == {"gpu1", "gpu2"}
    assert first["labels"] == ["Bad GPU"]
    assert f"{first['host']} will not be used for it again" in " ".join(first["sentences"])
    trial = stack.trial(experiment)
    assert (trial["restarts"], trial["logPolicyMatched"]) == (1, "Bad GPU")


def test_a_policy_cancels_the_retries(stack: Stack) -> None:
    policy = {"name": "Hopeless", "pattern": "xid 79", "action": "cancel_retries"}
    experiment = stack.submit(
        {"worker.py": BAD_GPU}, config(1, "python3 worker.py", max_restarts=3, log_policies=[policy])
    )
    assert stack.wait_end(experiment) == "STATE_ERROR"
    trial = stack.trial(experiment)
    assert trial["restarts"] == 0
    assert why(stack, experiment)["sentences"][-1] == ("Not retried: a log policy canceled its retries.")

    def said() -> bool:
        return any(
            "Log policy “Hopeless” matched line" in record["log"] for record in stack.records(trial["id"])
        )

    stack.wait(said, 60, "the log to name the policy")


GLOO = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == {failing}:
    raise ValueError("rank {failing} has had enough")
dist.all_reduce(torch.ones(1))
"""


@needs_torch
def test_of_a_gloo_gang_the_rank_is_named_whose_failure_made_its_peers_fail(stack: Stack) -> None:
    experiment = stack.submit(
        {"train.py": GLOO.format(failing=2)},
        config(
            4,
            "python3 -m determined.launch.torch_distributed train.py",
            environment={"python": sys.executable},
        ),
    )
    assert stack.wait_end(experiment) == "STATE_ERROR"
    story = why(stack, experiment)
    assert (story["rank"], story["exitCode"], story["traceback"]) == (2, 1, True)
    assert story["meaning"] == "exit code 1: ValueError: rank 2 has had enough"
    assert "3 other ranks then exited" in story["sentences"][1]


@needs_torch
def test_of_a_bare_torchrun_the_rank_is_read_from_its_own_report(stack: Stack) -> None:
    bare = "python3 -m torch.distributed.run --nproc_per_node=2 --master_port=29555 train.py"
    experiment = stack.submit(
        {"train.py": GLOO.format(failing=1)}, config(2, bare, environment={"python": sys.executable})
    )
    assert stack.wait_end(experiment) == "STATE_ERROR"
    story = why(stack, experiment)
    assert story["rank"] == 1
    assert story["meaning"] == "exit code 1: ValueError: rank 1 has had enough"

"""What scripts made for Determined look for in logs and records, in runs on a real host: each wording is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.rig.hosts import HostRig
from tests.rig.stack import Json, Stack, config, running_stack

pytestmark = pytest.mark.hosts

LIMIT_SECONDS = 180
TASK_LOG, EXIT_STATUS, EXIT_REASON = "the task's log", "a command's exitStatus", "an allocation's exitReason"


class Wording(NamedTuple):
    """Where a script looks for it, after what; `pattern` is a regular expression, searched for line by line."""

    of: str
    where: str
    pattern: str
    times: int | None = None


WORDINGS = [
    Wording("good", TASK_LOG, r"Trial \d+ \(Experiment \d+\) was assigned to an agent", 1),
    Wording("good", TASK_LOG, r"Resources for Trial \d+ \(Experiment \d+\) have started", 1),
    Wording("good", TASK_LOG, r"New trial runner in \(container \S+\) on agent \S+", 1),
    Wording("good", TASK_LOG, r"resources exited successfully with a zero exit code", 1),
    Wording(
        "good", TASK_LOG, r"Trial \d+ \(Experiment \d+\) was terminated: allocation stopped early after "
    ),
    Wording(
        "good", EXIT_REASON, r"^allocation stopped early after .* zero exit code — ended with exit code 0$"
    ),
    Wording("bad", TASK_LOG, r"New trial runner", 2),
    Wording("bad", TASK_LOG, r"crashed: resources failed with non-zero exit code: container failed with", 2),
    Wording("bad", TASK_LOG, r"container failed with non-zero exit code: 7\b"),
    Wording(
        "bad", TASK_LOG, r"was terminated: allocation failed: resources failed with non-zero exit code: ", 2
    ),
    Wording(
        "bad",
        EXIT_REASON,
        r"^allocation failed: resources failed with .*: 7 \(exit code 7\) — a rank failed$",
    ),
    Wording("not retried", TASK_LOG, r"trial failed and matched logs to a don't retry policy", 1),
    Wording("not retried", TASK_LOG, r"New trial runner", 1),
    Wording("excluded", TASK_LOG, r"matched regex no such gpu\) therefore will not schedule on gpu\w+ — ", 1),
    Wording("killed", TASK_LOG, r"was terminated: allocation killed after resources were killed"),
    Wording("command", TASK_LOG, r"Resources for Command .*have started"),
    Wording("command", TASK_LOG, r"resources exited successfully"),
    Wording("command", EXIT_STATUS, r"^allocation exited successfully — exit code 0 on \S+$"),
    Wording("bad command", TASK_LOG, r"resources failed with non-zero exit code"),
    Wording("bad command", EXIT_STATUS, r"^resources failed .*: 3 \(exit code 3\) — exit code 3 on \S+$"),
    Wording("shell", TASK_LOG, r"^Server listening on "),
]


@pytest.fixture(scope="module")
def stack(host_rig: HostRig) -> Iterator[Stack]:
    with running_stack(host_rig, 1) as stack:
        stack.add_hosts(slots=1)
        yield stack


def experiment(stack: Stack, entrypoint: str, **more: object) -> str:
    """The task of a trial whose experiment has ended."""
    number = stack.submit({}, config(1, entrypoint, **more))
    stack.wait_end(number, LIMIT_SECONDS)
    return str(stack.trial(number)["taskId"])


def excluded(stack: Stack) -> str:
    """Its only host is excluded, so it waits."""
    policy = {"pattern": "no such gpu", "action": "exclude_node"}
    number = stack.submit({}, config(1, "echo no such gpu; exit 7", log_policies=[policy], max_restarts=1))
    stack.wait(lambda: stack.trial(number)["restarts"] == 1, LIMIT_SECONDS, "the restart")
    stack.post(f"/api/v1/experiments/{number}/kill")
    stack.wait_end(number, LIMIT_SECONDS)
    return str(stack.trial(number)["taskId"])


def killed(stack: Stack) -> str:
    number = stack.submit({}, config(1, "sleep 600"))
    stack.wait(lambda: stack.experiment(number)["state"] == "STATE_RUNNING", LIMIT_SECONDS, "it to run")
    stack.post(f"/api/v1/experiments/{number}/kill")
    stack.wait_end(number, LIMIT_SECONDS)
    return str(stack.trial(number)["taskId"])


def command(stack: Stack, entrypoint: str) -> str:
    made = stack.post("/api/v1/commands", {"config": {"entrypoint": entrypoint, "resources": {"slots": 0}}})
    task = str(made["command"]["id"])
    stack.wait(lambda: record(stack, task)["state"] == "STATE_TERMINATED", LIMIT_SECONDS, "the command")
    return task


def record(stack: Stack, task: str) -> Json:
    return dict(stack.get(f"/api/v1/commands/{task}")["command"])


def shell(stack: Stack) -> str:
    made = stack.post("/api/v1/shells", {"config": {"resources": {"slots": 0}}})["shell"]
    path = f"/api/v1/shells/{made['id']}"
    stack.wait(lambda: bool(stack.get(path)["shell"]["ready"]), LIMIT_SECONDS, "the shell")
    stack.wait(lambda: bool(stack.task_records(made["id"], "sources=task")), LIMIT_SECONDS, "its first line")
    stack.post(f"{path}/kill")
    return str(made["id"])


@pytest.fixture(scope="module")
def tasks(stack: Stack) -> dict[str, str]:
    policy = {"pattern": "no such dataset", "action": "cancel_retries"}
    return {
        "good": experiment(stack, "true"),
        "bad": experiment(stack, "exit 7", max_restarts=1),
        "not retried": experiment(
            stack, "echo no such dataset; exit 7", max_restarts=5, log_policies=[policy]
        ),
        "excluded": excluded(stack),
        "killed": killed(stack),
        "command": command(stack, "true"),
        "bad command": command(stack, "exit 3"),
        "shell": shell(stack),
    }


@pytest.mark.parametrize("wording", WORDINGS, ids=lambda wording: f"{wording.of}: {wording.pattern[:40]}")
def test_a_wording_is_where_scripts_look_for_it(
    stack: Stack, tasks: dict[str, str], wording: Wording
) -> None:
    task = tasks[wording.of]
    if wording.where == TASK_LOG:
        texts = [each["log"] for each in stack.task_records(task)]
    elif wording.where == EXIT_REASON:
        allocations = stack.get(f"/api/v1/tasks/{task}")["task"]["allocations"]
        texts = [each["exitReason"] for each in allocations]
    else:
        texts = [record(stack, task)["exitStatus"]]
    found = [text for text in texts if re.search(wording.pattern, text)]
    assert found and len(found) == (wording.times or len(found)), texts

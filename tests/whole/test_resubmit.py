"""A submission sent twice is one; a job is cancelled in whatever state it is, and comes to rest."""

import json
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from tests.rig.hosts import HostRig
from tests.rig.stack import Json, Stack, config, counting, running_stack

pytestmark = pytest.mark.hosts

#: Ignores the first signal, so that a stop takes its grace.
SLOW_TO_STOP = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: None)
print("line 1", flush=True)
until = time.monotonic() + 300
while time.monotonic() < until:
    time.sleep(0.1)
"""
RANK_0 = "python3 -m determined.launch.wrap_rank 0 python3 worker.py"
SETTINGS = {"TRAINMASTER_STOP_GRACE_SECONDS": "2", "TRAINMASTER_PREEMPTION_TIMEOUT_SECONDS": "3"}


@pytest.fixture(scope="module")
def stack(host_rig: HostRig) -> Iterator[Stack]:
    with running_stack(host_rig, hosts=1, settings=SETTINGS) as stack:
        stack.add_hosts(slots=1)
        yield stack


def post_with_key(stack: Stack, key: str, name: str) -> Json:
    body = {"config": config(1, "true", name=name), "modelDefinition": [], "activate": True}
    headers = {
        "Content-Type": "application/json", "Authorization": f"Bearer {stack.token}", "Idempotency-Key": key,
    }  # fmt: skip
    request = urllib.request.Request(
        f"{stack.server.url}/api/v1/experiments", json.dumps(body).encode(), headers
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return dict(json.loads(answer.read())["experiment"])


@pytest.mark.survive(26)
def test_a_repeated_submission_with_its_key_is_the_first_one(stack: Stack) -> None:
    first = post_with_key(stack, "key-1", "first")
    again = post_with_key(stack, "key-1", "second")
    other = post_with_key(stack, "key-2", "other")
    assert (again["id"], again["name"]) == (first["id"], "first")
    assert other["id"] != first["id"]
    for experiment in (first["id"], other["id"]):
        assert stack.wait_end(experiment) == "STATE_COMPLETED"


def in_queue(stack: Stack) -> int:
    """One that waits behind a job which holds the only slot."""
    stack.submit({"worker.py": SLOW_TO_STOP}, config(1, RANK_0, name="holder"))
    stack.wait(stack.holders, 60, "the slot to be held")
    return stack.submit(counting(1, 0), config(1))


def never_fitting(stack: Stack) -> int:
    return stack.submit(counting(1, 0), config(64))


def paused(stack: Stack) -> int:
    experiment = never_fitting(stack)
    stack.post(f"/api/v1/experiments/{experiment}/pause")
    return experiment


def just_submitted(stack: Stack) -> int:
    return stack.submit({"worker.py": SLOW_TO_STOP}, config(1, RANK_0))


def launching(stack: Stack) -> int:
    experiment = just_submitted(stack)
    stack.wait(stack.holders, 60, "the slot to be held")
    return experiment


def running(stack: Stack) -> int:
    experiment = just_submitted(stack)
    stack.wait_lines(experiment, 1)
    return experiment


def pausing(stack: Stack) -> int:
    experiment = running(stack)
    stack.post(f"/api/v1/experiments/{experiment}/pause")
    return experiment


def cancelling(stack: Stack) -> int:
    experiment = running(stack)
    stack.post(f"/api/v1/experiments/{experiment}/cancel")
    return experiment


STATES = [in_queue, never_fitting, paused, just_submitted, launching, running, pausing, cancelling]


@pytest.fixture(autouse=True)
def clean(stack: Stack) -> Iterator[None]:
    """Each test ends with an idle host."""
    yield
    for row in stack.get("/api/v1/experiments?limit=0")["experiments"]:
        if row["state"] not in {"STATE_COMPLETED", "STATE_ERROR", "STATE_CANCELED"}:
            stack.post(f"/api/v1/experiments/{row['id']}/kill")
    stack.wait(lambda: not stack.holders(), 60, "the slot to be free")


def assert_at_rest(stack: Stack, experiment: int) -> None:
    assert stack.wait_end(experiment) == "STATE_CANCELED"
    trials = stack.get(f"/api/v1/experiments/{experiment}/trials")["trials"]
    assert {trial["state"] for trial in trials} <= {"STATE_CANCELED"}
    stack.assert_nothing_runs(stack.run_keys(experiment) if trials and attempts(stack, experiment) else [])
    job = stack.experiment(experiment)["jobId"]
    queue = stack.get("/api/v1/job-queues-v2")["jobs"]
    assert job not in json.dumps(queue)


def attempts(stack: Stack, experiment: int) -> list[Json]:
    task = stack.trial(experiment)["taskId"]
    return list(stack.get(f"/api/v1/tasks/{task}")["task"].get("allocations") or [])


@pytest.mark.survive(26)
@pytest.mark.parametrize("state", STATES)
def test_a_job_is_cancelled_in_every_state(stack: Stack, state: Callable[[Stack], int]) -> None:
    experiment = state(stack)
    stack.post(f"/api/v1/experiments/{experiment}/cancel")
    assert_at_rest(stack, experiment)


@pytest.mark.survive(26)
@pytest.mark.parametrize("state", [just_submitted, running])
def test_a_cancel_while_all_workers_are_dead_is_done_by_the_next_one(
    stack: Stack, state: Callable[[Stack], int]
) -> None:
    experiment = state(stack)
    victim = stack.server.kill_part("worker")
    stack.post(f"/api/v1/experiments/{experiment}/cancel")
    stack.server.wait_replaced("worker", victim)
    assert_at_rest(stack, experiment)


@pytest.mark.survive(6)
def test_an_ended_job_stays_as_it_ended(stack: Stack) -> None:
    experiment = stack.submit(counting(1, 0), config(1))
    assert stack.wait_end(experiment) == "STATE_COMPLETED"
    for action in ("cancel", "kill"):
        stack.post(f"/api/v1/experiments/{experiment}/{action}")
    assert stack.experiment(experiment)["state"] == "STATE_COMPLETED"

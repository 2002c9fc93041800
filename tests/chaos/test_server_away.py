"""The server is away for minutes: in the middle of a training, while it saves checkpoints, and when it ends.

The training notices nothing, and afterwards every metric, line and checkpoint is there once.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from tests.rig.hosts import processes_with_marker
from tests.rig.light_gang import LAUNCHER
from tests.rig.stack import Json, Stack, config

pytestmark = [pytest.mark.chaos, pytest.mark.hosts]

LIMIT_SECONDS = 240.0
SETTLED = ("STATE_COMPLETED", "STATE_DELETED")
#: A step must not wait for the server; this is what a busy machine may take for one.
LONGEST_STEP_SECONDS = 10.0
#: What the ranks tell the test lies in files of their own, which no server sees.
RANK = """
import json, pathlib, sys, time
import determined as det

rank, size, local, local_size, here, hosts = map(int, sys.argv[1:])
told = pathlib.Path({told!r})
info = det.get_cluster_info()
distributed = det.core.DistributedContext(
    rank=rank, size=size, local_rank=local, local_size=local_size, cross_rank=here, cross_size=hosts,
    chief_ip=info.container_addrs[0])
"""
WORKER = (
    RANK
    + """
step, longest, saved, before = 0, 0.0, {{}}, time.monotonic()
with det.core.init(distributed=distributed) as context:
    while True:
        step += 1
        print("line", step, flush=True)
        time.sleep(0.1)
        if rank == 0:
            context.train.report_training_metrics(step, {{"loss": 1 / step}})
            if step % 5 == 0:
                context.train.report_validation_metrics(step, {{"loss": 1 / step}})
        last = distributed.broadcast((told / "end").exists())
        if step % 20 == 0 or last:
            with context.checkpoint.store_path({{"steps_completed": step}}, shard=True) as (folder, uuid):
                (folder / f"rank{{rank}}").write_text(f"{{rank}} at {{step}}")
            saved[uuid] = step
        longest, before = max(longest, time.monotonic() - before), time.monotonic()
        (told / f"rank{{rank}}.new").write_text(json.dumps({{"steps": step, "longest": longest, "saved": saved}}))
        (told / f"rank{{rank}}.new").rename(told / f"rank{{rank}}")
        if last or context.preempt.should_preempt():
            break
"""
)
#: Saves many small checkpoints as fast as it can once it is told to begin.
SAVER = (
    RANK
    + """
with det.core.init(distributed=distributed) as context:
    print("line 1", flush=True)
    while not (told / "begin").exists():
        time.sleep(0.1)
    for step in range(1, {count} + 1):
        if rank == 0:
            context.train.report_validation_metrics(step, {{"loss": 1 / step}})
        with context.checkpoint.store_path({{"steps_completed": step}}, shard=True) as (folder, _):
            (folder / f"rank{{rank}}").write_text(f"{{rank}} at {{step}}")
    (told / f"saved{{rank}}").touch()
    while not (told / "end").exists():
        time.sleep(0.1)
"""
)
MANY = 300


def rank_says(told: Path, rank: int) -> dict[str, object]:
    path = told / f"rank{rank}"
    return dict(json.loads(path.read_text())) if path.exists() else {"steps": 0, "longest": 0.0, "saved": {}}


def steps_of(told: Path) -> int:
    return int(str(rank_says(told, 0)["steps"]))


def away(stack: Stack, told: Path, seconds: float) -> None:
    """The server is killed and starts again after so long, in which the training has saved more than once."""
    before = steps_of(told)
    stack.server.kill()
    threading.Event().wait(seconds)
    stack.wait(lambda: steps_of(told) > before + 45, LIMIT_SECONDS, "checkpoints without a server")
    stack.server.start()
    stack.token = stack.server.token()


def training_steps(stack: Stack, trial: int) -> list[int]:
    rows = stack.get(f"/api/v1/trials/{trial}/workloads?limit=0")["workloads"]
    return [row["training"]["totalBatches"] for row in rows if "training" in row]


@pytest.mark.survive(6)
def test_the_server_is_away_in_the_middle_at_checkpoints_and_at_the_end(
    stack: Stack, minute: float, tmp_path: Path
) -> None:
    seconds = max(20.0, 10 * minute)
    code = {"launch.py": LAUNCHER, "worker.py": WORKER.format(told=str(tmp_path))}
    experiment = stack.submit(code, config(4))
    stack.wait(lambda: steps_of(tmp_path) > 5, LIMIT_SECONDS, "the first steps")
    trial = stack.trial(experiment)["id"]
    keys = stack.run_keys(experiment)

    away(stack, tmp_path, seconds)
    now = steps_of(tmp_path)
    stack.wait(lambda: max(training_steps(stack, trial)) > now, LIMIT_SECONDS, "the metrics to catch up")

    stack.server.kill()
    (tmp_path / "end").touch()
    stack.wait(lambda: not any(processes_with_marker(key) for key in keys), LIMIT_SECONDS, "the ranks to end")
    threading.Event().wait(seconds)
    stack.server.start()
    stack.token = stack.server.token()
    assert stack.wait_end(experiment, LIMIT_SECONDS) == "STATE_COMPLETED"
    assert_all_is_there_once(stack, experiment, tmp_path)


def assert_all_is_there_once(stack: Stack, experiment: int, told: Path) -> None:
    trial = stack.trial(experiment)
    assert trial["restarts"] == 0
    says = [rank_says(told, rank) for rank in range(4)]
    last = steps_of(told)
    assert [one["steps"] for one in says] == [last] * 4
    assert max(float(str(one["longest"])) for one in says) < LONGEST_STEP_SECONDS
    stack.wait(
        lambda: training_steps(stack, trial["id"])[-1:] == [last], LIMIT_SECONDS, "the last step's metrics"
    )
    assert training_steps(stack, trial["id"]) == list(range(1, last + 1))
    stack.assert_complete(experiment, last)
    saved = dict(says[0]["saved"])  # type: ignore[call-overload]

    found = settled(stack, experiment, len(saved))
    assert found == saved
    assert_latest_is_whole(stack, found)
    stack.wait_free()


def records(stack: Stack, experiment: int) -> list[Json]:
    return list(stack.get(f"/api/v1/experiments/{experiment}/checkpoints?limit=-1")["checkpoints"])


def settled(stack: Stack, experiment: int, count: int) -> dict[str, int]:
    """Uuid -> step of all checkpoints, once all are uploaded; the superfluous are deleted then, or will be."""

    def all_are() -> bool:
        rows = records(stack, experiment)
        return len(rows) >= count and all(row["state"] in SETTLED for row in rows)

    stack.wait(all_are, LIMIT_SECONDS, f"{count} checkpoints to be uploaded")
    rows = records(stack, experiment)
    found = {str(row["uuid"]): int(row["metadata"]["steps_completed"]) for row in rows}
    assert len(found) == len(rows)
    return found


def assert_latest_is_whole(stack: Stack, found: dict[str, int]) -> None:
    newest = max(found, key=lambda uuid: found[uuid])
    for rank in range(4):
        stored = stack.server.data / "checkpoints" / newest / f"rank{rank}"
        assert stored.read_text() == f"{rank} at {found[newest]}"


def test_of_hundreds_of_small_checkpoints_none_is_lost_when_the_server_goes_away_while_they_come(
    stack: Stack, tmp_path: Path
) -> None:
    code = {"launch.py": LAUNCHER, "worker.py": SAVER.format(told=str(tmp_path), count=MANY)}
    experiment = stack.submit(code, config(4))
    stack.wait_lines(experiment, 4, LIMIT_SECONDS)
    keys = stack.run_keys(experiment)
    stack.server.kill()
    (tmp_path / "begin").touch()
    stack.wait(lambda: len(list(tmp_path.glob("saved*"))) == 4, LIMIT_SECONDS, f"{MANY} checkpoints")

    def count() -> int:
        return sum(row["state"] in SETTLED for row in records(stack, experiment))

    def start_and_wait_for(share: float) -> None:
        """Until so many are settled. The limit is for the next one: how long all take says how busy the machine is."""
        stack.server.start()
        stack.token = stack.server.token()
        while (before := count()) < share * MANY:
            stack.wait(lambda: count() > before, LIMIT_SECONDS, f"more than {before} checkpoints")

    start_and_wait_for(0.1)
    stack.server.kill()
    (tmp_path / "end").touch()
    stack.wait(lambda: not any(processes_with_marker(key) for key in keys), LIMIT_SECONDS, "the ranks to end")
    start_and_wait_for(0.5)
    stack.server.kill()
    start_and_wait_for(1.0)
    assert stack.wait_end(experiment, LIMIT_SECONDS) == "STATE_COMPLETED"
    found = settled(stack, experiment, MANY)
    assert sorted(found.values()) == list(range(1, MANY + 1))
    assert_latest_is_whole(stack, found)

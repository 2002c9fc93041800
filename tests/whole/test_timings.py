"""Timings of a gang in step, of which one rank is slow by design: it is named, and what the others wait for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rig.hosts import HostRig
from tests.rig.light_gang import LAUNCHER
from tests.rig.stack import Json, Stack, config, running_stack

pytestmark = pytest.mark.hosts

STEPS, SLOW_RANK = 30, 2
#: All ranks take equally long for a step, because they meet in each; they do not work equally long.
WORKER = f"""
import sys, time
import determined as det

rank, size, local, local_size, here, hosts = map(int, sys.argv[1:])
distributed = det.core.DistributedContext(
    rank=rank, size=size, local_rank=local, local_size=local_size, cross_rank=here, cross_size=hosts,
    chief_ip=det.get_cluster_info().chief_address)
with det.core.init(distributed=distributed) as context:
    profiler = context.profiler
    for step in range(1, {STEPS + 1}):
        with profiler.step(step):
            with profiler.timing("train_batch"):
                time.sleep(0.15 if rank == {SLOW_RANK} else 0.05)
            profiler.count("samples", 8)
            distributed.allgather(step)
        if context.preempt.should_preempt():
            break
"""


@pytest.fixture(scope="module")
def stack(host_rig: HostRig) -> Iterator[Stack]:
    with running_stack(host_rig) as stack:
        stack.add_hosts(slots=2)
        yield stack


def test_the_slow_rank_of_a_gang_in_step_is_named(stack: Stack) -> None:
    experiment = stack.submit({"launch.py": LAUNCHER, "worker.py": WORKER}, config(4))
    assert stack.wait_end(experiment, 120) == "STATE_COMPLETED"
    trial = stack.trial(experiment)["id"]
    found = stack.get(f"/api/v1/trials/{trial}/timings?points=5")
    hosts = {one["rank"]: one["host"] for one in found["ranks"]}
    assert sorted(hosts) == [0, 1, 2, 3] and hosts[0] == hosts[1] != hosts[2] == hosts[3]
    steps = [one for one in found["series"] if one["name"] == "step"]
    for one in steps:
        assert sum(one["count"]) == STEPS and len(one["steps"]) <= 5
        assert (one["firstSteps"][0], one["steps"][-1]) == (1, STEPS)
    means = [sum(one["seconds"]) / STEPS for one in steps]
    assert max(means) < 1.3 * min(means), "in step, all ranks take equally long"
    slow: Json = found["straggler"]
    assert (slow["rank"], slow["host"], slow["isSlow"]) == (SLOW_RANK, hosts[SLOW_RANK], True)
    assert slow["work"] >= 0.15 and 0.05 <= slow["medianWork"] < 0.15
    assert slow["lostShare"] > 0.3 and slow["lostSeconds"] > 0.05 * STEPS
    assert len(found["work"]["seconds"]) == 4
    (samples,) = found["throughput"]
    assert samples["name"] == "samples" and 0 < samples["perSecond"] < 4 * 8 / 0.15

"""Gangs of many small ranks: real processes under the launch module, of which only the chief prints."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.rig.stack import Json, Stack, config
from trainmaster.rank_processes import RankProcesses

#: The ranks of one host as forks of one small Python: each takes its part in the gang's collectives at every step.
LAUNCHER = """
import os, sys
import determined as det

info = det.get_cluster_info()
here, hosts = info.container_rank, len(info.container_addrs)
size = sum(info.container_slot_counts)
local_size = len(info.slot_ids)
command = [sys.executable, "-m", "determined.launch.wrap_rank"]
pids = []
for local in range(local_size):
    rank = here * local_size + local
    words = [*command, str(rank), sys.executable, "worker.py", *map(str, (rank, size, local, local_size, here, hosts))]
    pids.append(os.spawnv(os.P_NOWAIT, sys.executable, words))
codes = [os.waitpid(pid, 0)[1] for pid in pids]
sys.exit(1 if any(codes) else 0)
"""
#: On SIGUSR2 a rank hangs in its own code, asleep, as one does that waits for data.
WORKER = """
import signal, sys, time
import determined as det

rank, size, local, local_size, here, hosts = map(int, sys.argv[1:])

def hangs(*_):
    time.sleep(90)

def wait_for_the_others(distributed, step):
    return distributed.allgather(step)

signal.signal(signal.SIGUSR2, hangs)
distributed = det.core.DistributedContext(
    rank=rank, size=size, local_rank=local, local_size=local_size, cross_rank=here, cross_size=hosts,
    chief_ip=det.get_cluster_info().chief_address)
with det.core.init(distributed=distributed) as context:
    for step in range(1, 100000):
        time.sleep(0.5)
        wait_for_the_others(distributed, step)
        if rank == 0:
            print("step", step, flush=True)
        if context.preempt.should_preempt():
            break
"""


@dataclass
class LightGang:
    """A running gang; `pids` are those of its ranks."""

    stack: Stack
    trial_id: int
    task_id: str
    pids: dict[int, int]

    def pulse(self) -> list[Json]:
        return list(self.stack.get(f"/api/v1/tasks/{self.task_id}/pulse")["ranks"])

    def marks(self) -> dict[int, str]:
        return {one["rank"]: one["mark"] for one in self.pulse() if "mark" in one}

    def wait_marks(self, ranks: set[int], seconds: float) -> float:
        """Until these ranks are marked; the seconds that it took."""
        begun = time.monotonic()
        self.stack.wait(lambda: set(self.marks()) == ranks, seconds, f"marks of {ranks or 'no rank'}")
        return time.monotonic() - begun

    def keeps(self, marked: set[int], seconds: float) -> None:
        """These ranks are marked, and no others, for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found = self.marks()
            assert set(found) == marked, found
            time.sleep(0.5)

    def hang(self, rank: int) -> None:
        """Let the rank sleep in its own code for 90 s while the others wait for it."""
        os.kill(self.pids[rank], signal.SIGUSR2)

    @contextmanager
    def stopped(self, rank: int) -> Iterator[None]:
        """The rank's process is stopped by a signal meanwhile."""
        os.kill(self.pids[rank], signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pids[rank], signal.SIGCONT)


@contextmanager
def light_gang(stack: Stack, ranks: int) -> Iterator[LightGang]:
    """A gang that is in step, over all hosts of the stack; nothing of it is left afterwards."""
    experiment = stack.submit({"launch.py": LAUNCHER, "worker.py": WORKER}, config(ranks))
    stack.wait_lines(experiment, 3, 180)
    trial = stack.trial(experiment)
    gang = LightGang(stack, int(trial["id"]), str(trial["taskId"]), {})
    stack.wait(
        lambda: sum(one.get("stepAgeSeconds", 99) < 10 for one in gang.pulse()) == ranks,
        60,
        "a pulse of every rank",
    )
    for key in stack.run_keys(experiment):
        for rank, processes in RankProcesses(key, alone=False).look().items():
            gang.pids[rank] = processes[0].pid
    assert sorted(gang.pids) == list(range(ranks))
    try:
        yield gang
    finally:
        stack.post(f"/api/v1/experiments/{experiment}/kill")
        stack.wait_end(experiment)
    stack.assert_nothing_runs(stack.run_keys(experiment))

"""Timings of DistributedDataParallel on two ranks that exchange gradients: who is slow, and who waits."""

from pathlib import Path

import pytest

from tests.rig.ports import free_port
from tests.trainmaster.made_run import Ranks, make_run, records, said

STEPS, DELAY = 12, 0.05

PROGRAM = """
import torch, torch.distributed
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", init_method="tcp://127.0.0.1:{port}", rank=rank, world_size=size)
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(8, 8))
with det.core.init(distributed=distributed()) as context:
    profiler = context.profiler
    for step in range(1, {steps} + 1):
        with profiler.step(step):
            with profiler.timing("dataloader_next"):
                time.sleep({delay} if rank == 1 else 0.0)
            with profiler.timing("train_batch"):
                loss = model(torch.ones(4, 8)).sum()
                with profiler.timing("train_batch.backward", waits=True):
                    loss.backward()
torch.distributed.destroy_process_group()
say("done")
"""


def test_the_backward_pass_of_a_rank_that_waits_is_no_work_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    run = make_run(tmp_path / "run", slots=2)
    program = PROGRAM.format(port=free_port(), steps=STEPS, delay=DELAY)
    with Ranks(program, [run], 2) as ranks:
        assert said(ranks, 120) == [["done"], ["done"]]
    seconds: list[dict[str, float]] = []
    for rank in (0, 1):
        timed = [record["v"] for record in records(run, rank) if record["type"] == "timings"]
        names = {name for values in timed for name in values}
        seconds.append(
            {name: sum(values[name]["sum"] for values in timed if name in values) for name in names}
        )
        assert sum(values["step"]["n"] for values in timed if "step" in values) == STEPS
    fast, slow = seconds
    assert slow["step"] >= STEPS * DELAY and fast["step"] >= 0.7 * slow["step"], "both take equally long"
    assert fast["train_batch.backward"] > 0.5 * STEPS * DELAY, "the fast one waits in its backward pass"
    assert slow["step.work"] - fast["step.work"] > 0.7 * STEPS * DELAY

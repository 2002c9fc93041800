"""Step 4: one worker per slot, on any number of hosts, started by a launcher of our own.

The script plays two parts: `4_distributed.py launcher` runs on every host and starts one worker per slot;
`4_distributed.py worker RANK LOCAL_RANK` is such a worker. A real training would rather use a ready launcher, such
as `determined.launch.torch_distributed`; this one shows what a launcher has to do.
"""

from __future__ import annotations

import logging
import pathlib
import queue
import subprocess
import sys
import threading
import time

import determined as det


def save_state(x: int, steps_completed: int, trial_id: int, folder: pathlib.Path) -> None:
    (folder / "state").write_text(f"{x},{steps_completed},{trial_id}")


def load_state(trial_id: int, folder: pathlib.Path) -> tuple[int, int]:
    """x and the batch to start with; a checkpoint of another trial (a fork) lends its x only."""
    x, steps_completed, saved_by = (int(part) for part in (folder / "state").read_text().split(","))
    return x, steps_completed if saved_by == trial_id else 0


def launcher_main(slots_per_node: int, cross_rank: int) -> int:
    """Start the workers of this host and wait; when one fails, end the others and return its exit code."""
    workers = []
    for local_rank in range(slots_per_node):
        rank = cross_rank * slots_per_node + local_rank
        # wrap_rank lets the log be filtered by rank.
        command = [sys.executable, "-m", "determined.launch.wrap_rank", str(rank), "--"]
        command += [sys.executable, __file__, "worker", str(rank), str(local_rank)]
        workers.append(subprocess.Popen(command))

    ended: queue.Queue[int] = queue.Queue()
    for worker in workers:
        threading.Thread(target=lambda process=worker: ended.put(process.wait()), daemon=True).start()
    first_failure = 0
    for _ in workers:
        code = ended.get()
        if code != 0 and first_failure == 0:
            first_failure = code
            for worker in workers:
                worker.terminate()
    return first_failure


def worker_main(info: det.ClusterInfo, rank: int, local_rank: int) -> None:
    slots_per_node, nodes = len(info.slot_ids), len(info.container_addrs)
    distributed = det.core.DistributedContext(
        rank=rank,
        size=nodes * slots_per_node,
        local_rank=local_rank,
        local_size=slots_per_node,
        cross_rank=info.container_rank,
        cross_size=nodes,
        chief_ip=info.container_addrs[0],
    )
    with det.core.init(distributed=distributed) as core_context:
        train(core_context, info.latest_checkpoint, info.trial.trial_id, info.trial.hparams["increment_by"])


def train(
    core_context: det.core.Context, latest_checkpoint: str | None, trial_id: int, increment_by: int
) -> None:
    chief = core_context.distributed.rank == 0
    x, batch, last_checkpoint = 0, 0, None
    if latest_checkpoint is not None:
        with core_context.checkpoint.restore_path(latest_checkpoint) as folder:
            x, batch = load_state(trial_id, folder)
        last_checkpoint = batch

    def save() -> None:
        with core_context.checkpoint.store_path({"steps_completed": batch}) as (folder, _uuid):
            save_state(x, batch, trial_id, folder)

    for op in core_context.searcher.operations():
        while batch < op.length:
            # Every worker brings its increment, and all of them know the sum.
            x += sum(core_context.distributed.allgather(increment_by))
            batch += 1
            time.sleep(0.1)
            if batch % 10 == 0:
                if chief:  # one voice is enough
                    logging.info(f"x is now {x}")
                    core_context.train.report_training_metrics(steps_completed=batch, metrics={"x": x})
                    op.report_progress(batch)
                    save()
                last_checkpoint = batch
                if core_context.preempt.should_preempt():  # the same answer for all workers
                    return
        if chief:
            core_context.train.report_validation_metrics(steps_completed=batch, metrics={"x": x})
            op.report_completed(x)
    if chief and last_checkpoint != batch:
        save()


def main() -> int:
    info = det.get_cluster_info()
    if info is None:
        print("This step needs the cluster: `trainmaster e create 4_distributed.yaml .`", file=sys.stderr)
        return 2
    if sys.argv[1:] == ["launcher"]:
        return launcher_main(len(info.slot_ids), info.container_rank)
    if len(sys.argv) == 4 and sys.argv[1] == "worker":
        logging.info("worker starting")
        worker_main(info, rank=int(sys.argv[2]), local_rank=int(sys.argv[3]))
        return 0
    raise ValueError(f"The arguments are {sys.argv[1:]}; `launcher` or `worker RANK LOCAL_RANK` is expected.")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")
    sys.exit(main())

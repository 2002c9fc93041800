"""Two ranks in detached mode: each reports its own batches and stores its shard of a checkpoint.

python3 -m torch.distributed.run --nproc_per_node=2 ... detached_sharded.py FOLDER NAME [fail]
"""

import sys

import torch.distributed as dist
from determined.core import TensorboardMode
from determined.experimental import core_v2

BATCHES = 20


def main() -> None:
    folder, name, *fails = sys.argv[1:]
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    core_v2.init(
        config=core_v2.Config(
            name=name,
            hparams={"lr": 0.5},
            searcher={"name": "single", "metric": "loss"},
            checkpoint_storage=folder,
            external_experiment_id=name,
            external_trial_id="only",
        ),
        distributed=core_v2.DistributedContext.from_torch_distributed(),
        tensorboard_mode=TensorboardMode.MANUAL,  # of its own it wants TensorBoard installed
    )
    info = core_v2.info
    print(f"rank {rank} goes on from step {info.trial._steps_completed}")
    for i in range(BATCHES):
        if i % size == rank:
            core_v2.train.report_training_metrics(
                steps_completed=i + 1, metrics={"loss": 1 / (i + 1), "rank": rank}
            )
        if (i + 1) % 10 == 0 and rank == 0:
            core_v2.train.report_validation_metrics(steps_completed=i + 1, metrics={"loss": 1 / (i + 1)})
    with core_v2.checkpoint.store_path({"steps_completed": BATCHES, f"rank_{rank}": "ok"}, shard=True) as (
        path,
        _,
    ):
        (path / f"state_{rank}").write_text(str(rank))
    if rank == 0:
        core_v2.train.set_status("checkpoint stored")
        print("See the experiment at:", core_v2.url_reverse_webui_exp_view(), info.trial.trial_id)
    if fails:
        raise RuntimeError("as it was told to")
    core_v2.close()


if __name__ == "__main__":
    main()

"""Several ranks that report to one experiment and store its checkpoints together, each its own shard.

    python3 -m torch.distributed.run --nnodes=1 --nproc_per_node=2 --master_addr 127.0.0.1 --master_port 29400 \\
        --max_restarts 0 sharded.py
"""

import random

import torch.distributed as dist
from determined.experimental import core_v2


def main():
    dist.init_process_group("gloo")
    distributed = core_v2.DistributedContext.from_torch_distributed()
    core_v2.init(config=core_v2.Config(name="detached-sharded"), distributed=distributed)

    rank, size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        print("See the experiment at:", core_v2.url_reverse_webui_exp_view())
    for i in range(100):
        if i % size == rank:
            loss = random.random()
            print(f"batch {i}: loss {loss:.3f}")
            core_v2.train.report_training_metrics(steps_completed=i, metrics={"loss": loss, "rank": rank})
            if (i + 1) % 10 == 0:
                core_v2.train.report_validation_metrics(
                    steps_completed=i, metrics={"loss": loss, "rank": rank}
                )
        if (i + 1) % 10 == 0:
            metadata = {"steps_completed": i, f"rank_{rank}": "ok"}
            with core_v2.checkpoint.store_path(metadata, shard=True) as (path, _uuid):
                (path / f"state_{rank}").write_text(f"{i},{rank}")
    core_v2.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

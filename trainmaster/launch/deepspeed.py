"""Start this host's ranks with DeepSpeed.

`python3 -m trainmaster.launch.deepspeed [[DEEPSPEED_ARGS...] --] (--trial MODULE:CLASS) | (SCRIPT [ARGS...])`

DEEPSPEED_ARGS are those of `deepspeed.launcher.launch`, the part of DeepSpeed that starts the ranks of one host, for
example `--bind_cores_to_rank`. Each host of the gang runs it by itself: no host file, no pdsh and no SSH between hosts.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import sys
from typing import Dict, List, Optional, Sequence, Union

from trainmaster._info import ClusterInfo
from trainmaster.launch.rank_group import rank_command, run, without
from trainmaster.launch.torch_distributed import launch_module, parse, rendezvous_port

USAGE = (
    "usage: python3 -m trainmaster.launch.deepspeed "
    "[[DEEPSPEED_ARGS...] --] (--trial MODULE:CLASS) | (SCRIPT [ARGS...])\n"
    "DEEPSPEED_ARGS are options of deepspeed.launcher.launch."
)


def world_info(info: Optional[ClusterInfo]) -> str:
    """The gang as DeepSpeed's launcher wants it: base64 of {node: [device of each of its ranks]}.

    A host's own devices become its CUDA_VISIBLE_DEVICES, so they are our GPUs' UUIDs; the others' are only counted.
    """
    counts = info.container_slot_counts if info else [1]
    world: Dict[str, List[Union[int, str]]] = {
        f"host{member}": list(range(max(1, count))) for member, count in enumerate(counts)
    }
    if info and info.gpu_uuids:
        world[f"host{info.container_rank}"] = list(info.gpu_uuids)
    return base64.urlsafe_b64encode(json.dumps(world).encode()).decode()


def deepspeed_command(
    info: Optional[ClusterInfo], overrides: Sequence[str], script: Sequence[str]
) -> List[str]:
    """DeepSpeed's launcher for this member of the gang; later options win, so the overrides come last."""
    command = [sys.executable, "-m", "deepspeed.launcher.launch", f"--world_info={world_info(info)}"]
    command += [f"--node_rank={info.container_rank if info else 0}"]
    command += [f"--master_addr={info.chief_address if info else '127.0.0.1'}"]
    command += [f"--master_port={rendezvous_port(info)}", "--no_python", "--no_local_rank", *overrides]
    return [*command, *rank_command(script)]


def environment_for(info: Optional[ClusterInfo]) -> Dict[str, str]:
    """Our environment plus what DeepSpeed leaves out of torchrun's variables, so that either kind of code runs."""
    slots = max(1, len(info.slot_ids)) if info else 1
    return {
        **os.environ,
        "DET_CHIEF_IP": info.chief_address if info else "127.0.0.1",
        "LOCAL_WORLD_SIZE": str(slots),
        "GROUP_RANK": str(info.container_rank if info else 0),
        "GROUP_WORLD_SIZE": str(len(info.container_addrs) if info else 1),
    }


@launch_module(USAGE)
def main(words: List[str], info: Optional[ClusterInfo]) -> int:
    overrides, script = parse(words, USAGE)
    if importlib.util.find_spec("deepspeed") is None:
        print(without("DeepSpeed", "deepspeed"), file=sys.stderr)
        return 1
    return run(deepspeed_command(info, overrides, script), environment_for(info), slow_to_stop=True)


if __name__ == "__main__":
    sys.exit(main())

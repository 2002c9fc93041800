"""Start this host's ranks for Horovod.

`python3 -m trainmaster.launch.horovod [[HVD_OVERRIDES...] --] (--trial MODULE:CLASS) | (SCRIPT [ARGS...])`

On one host horovodrun does. Across hosts it would start its ranks by SSH from the first, outside the run that owns them
there and without its environment; so each host of the run starts its own (gloo_ranks.py), and no SSH is needed.
horovodrun writes the environment that it is given into the arguments of a shell, where every account of the host can
read it; so it gets little, and its ranks get the rest from a file of the run.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from typing import Dict, List, Optional, Sequence, Tuple

from trainmaster._info import ClusterInfo
from trainmaster.launch import torch_distributed
from trainmaster.launch.rank_group import rank_command, run, without
from trainmaster.launch.torch_distributed import UsageError, launch_module, parse, rendezvous_port
from trainmaster.protocol import MARKER, RUN_DIR

USAGE = (
    "usage: python3 -m trainmaster.launch.horovod "
    "[[HVD_OVERRIDES...] --] (--trial MODULE:CLASS) | (SCRIPT [ARGS...])\n"
    "HVD_OVERRIDES are options of horovodrun; across hosts those that Horovod has variables for."
)
AUTO = "--autohorovod"  # before the script: where there is one slot, the script is started without Horovod
# Its rank's number, under horovodrun's own start and under the mpirun that it may use.
_RANK_NAMES = "HOROVOD_RANK,OMPI_COMM_WORLD_RANK,PMI_RANK"
_SHOWN = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TMPDIR|LD_LIBRARY_PATH|PYTHONPATH|VIRTUAL_ENV|(HOROVOD|NCCL|GLOO|OMPI)_\w+"
    rf"|{MARKER}|{RUN_DIR}"
)


#: options of horovodrun that are variables for its ranks, and what their value is multiplied by; 0: they have none
_VARIABLES = {
    "--fusion-threshold-mb": ("HOROVOD_FUSION_THRESHOLD", 1024 * 1024),
    "--cycle-time-ms": ("HOROVOD_CYCLE_TIME", 1),
    "--cache-capacity": ("HOROVOD_CACHE_CAPACITY", 1),
    "--num-nccl-streams": ("HOROVOD_NUM_NCCL_STREAMS", 1),
    "--timeline-filename": ("HOROVOD_TIMELINE", 1),
    "--log-level": ("HOROVOD_LOG_LEVEL", 1),
    "--autotune": ("HOROVOD_AUTOTUNE", 0),
    "--gloo": ("HOROVOD_CONTROLLER", 0),
}


def hosts_command(info: ClusterInfo, script: Sequence[str]) -> List[str]:
    """What starts this host's ranks of a gang of several hosts."""
    counts = dict(enumerate(info.container_slot_counts))
    hosts = [f"{address}:{counts[member]}" for member, address in enumerate(info.container_addrs)]
    command = [sys.executable, "-m", "trainmaster.launch.gloo_ranks"]
    command += [str(info.container_rank), str(rendezvous_port(info)), *hosts, "--"]
    return [*command, *rank_command(script, _RANK_NAMES)]


def override_variables(overrides: Sequence[str]) -> Dict[str, str]:
    """Options of horovodrun as the variables that they become; UsageError for one that has none."""
    found, words = {}, list(overrides)
    while words:
        option, _, value = words.pop(0).partition("=")
        if option not in _VARIABLES:
            raise UsageError(
                f"{option} is not available across hosts, where horovodrun is not used; allowed: "
                f"{', '.join(sorted(_VARIABLES))}."
            )
        name, factor = _VARIABLES[option]
        if factor and not value:
            if not words:
                raise UsageError(f"{option} needs a value.")
            value = words.pop(0)
        if factor > 1:
            if not value.isdigit():
                raise UsageError(f"{option} is {value!r}; it must be a whole number.")
            value = str(int(value) * factor)
        found[name] = value if factor else "gloo" if option == "--gloo" else "1"
    return found


def horovodrun_command(
    info: Optional[ClusterInfo], overrides: Sequence[str], script: Sequence[str]
) -> List[str]:
    """horovodrun for a gang of one host."""
    slots = max(1, len(info.slot_ids)) if info else 1
    command = ["horovodrun", "-np", str(slots), "-H", f"localhost:{slots}"]
    command += [] if "--mpi" in overrides else ["--gloo"]
    return [*command, *overrides, *rank_command(script, _RANK_NAMES)]


def split_environment(environment: Dict[str, str]) -> Tuple[Dict[str, str], Dict[str, str]]:
    """(what horovodrun gets and shows, what its ranks alone get)."""
    shown = {name: value for name, value in environment.items() if _SHOWN.fullmatch(name)}
    return shown, {name: value for name, value in environment.items() if name not in shown}


@launch_module(USAGE)
def main(words: List[str], info: Optional[ClusterInfo]) -> int:
    auto = words[:1] == [AUTO]
    overrides, script = parse(words[1:] if auto else words, USAGE)
    if script[:2] == ["-m", torch_distributed.TRIAL_MODULE]:
        print("The ranks of a PyTorchTrial use torch.distributed, which starts them here instead of Horovod.")
        return torch_distributed.main(["--trial", script[2]])
    environment = {**os.environ, "DET_CHIEF_IP": info.chief_address if info else "127.0.0.1"}
    if info is not None and len(info.container_addrs) > 1:
        environment.update(override_variables(overrides))
        if importlib.util.find_spec("horovod") is None:
            print(without("Horovod", "horovod"), file=sys.stderr)
            return 1
        return run(hosts_command(info, script), environment, slow_to_stop=True)
    command = horovodrun_command(info, overrides, script)
    if auto and (not info or len(info.slot_ids) <= 1):
        return run(rank_command(script, "0"), environment)
    if shutil.which(command[0]) is None:
        print(without("Horovod", "horovod"), file=sys.stderr)
        return 1
    return run(command, *split_environment(environment), slow_to_stop=True)


if __name__ == "__main__":
    sys.exit(main())

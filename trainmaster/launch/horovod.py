"""Start this host's ranks with horovodrun.

`python3 -m trainmaster.launch.horovod [[HVD_OVERRIDES...] --] (--trial MODULE:CLASS) | (SCRIPT [ARGS...])`

One host only: across hosts horovodrun starts its ranks by SSH from the first, outside the run that owns them there.
horovodrun writes the environment that it is given into the arguments of a shell, where every account of the host can
read it; so it gets little, and its ranks get the rest from a file of the run.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from typing import Dict, List, Optional, Sequence, Tuple

from trainmaster._info import ClusterInfo, get_cluster_info
from trainmaster.launch import torch_distributed
from trainmaster.launch.rank_group import rank_command, run, without
from trainmaster.launch.torch_distributed import UsageError, parse
from trainmaster.protocol import MARKER, RUN_DIR

USAGE = (
    "usage: python3 -m trainmaster.launch.horovod "
    "[[HVD_OVERRIDES...] --] (--trial MODULE:CLASS) | (SCRIPT [ARGS...])\n"
    "HVD_OVERRIDES are options of horovodrun."
)
AUTO = "--autohorovod"  # before the script: where there is one slot, the script is started without Horovod
# Its rank's number, under horovodrun's own start and under the mpirun that it may use.
_RANK_NAMES = "HOROVOD_RANK,OMPI_COMM_WORLD_RANK,PMI_RANK"
_SHOWN = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TMPDIR|LD_LIBRARY_PATH|PYTHONPATH|VIRTUAL_ENV|(HOROVOD|NCCL|GLOO|OMPI)_\w+"
    rf"|{MARKER}|{RUN_DIR}"
)


def horovodrun_command(
    info: Optional[ClusterInfo], overrides: Sequence[str], script: Sequence[str]
) -> List[str]:
    """horovodrun for a gang of one host; UsageError for one of several."""
    hosts = len(info.container_addrs) if info else 1
    if hosts > 1:
        raise UsageError(
            f"Horovod starts the ranks of one host, and this trial has {hosts}: let resources.slots_per_trial "
            "fit one host, or use trainmaster.launch.torch_distributed across hosts."
        )
    slots = max(1, len(info.slot_ids)) if info else 1
    command = ["horovodrun", "-np", str(slots), "-H", f"localhost:{slots}"]
    command += [] if "--mpi" in overrides else ["--gloo"]
    return [*command, *overrides, *rank_command(script, _RANK_NAMES)]


def split_environment(environment: Dict[str, str]) -> Tuple[Dict[str, str], Dict[str, str]]:
    """(what horovodrun gets and shows, what its ranks alone get)."""
    shown = {name: value for name, value in environment.items() if _SHOWN.fullmatch(name)}
    return shown, {name: value for name, value in environment.items() if name not in shown}


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Returns the exit code for this host."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    auto = words[:1] == [AUTO]
    try:
        overrides, script = parse(words[1:] if auto else words, USAGE)
        info = get_cluster_info()
        if script[:2] == ["-m", torch_distributed.TRIAL_MODULE]:
            print(
                "A PyTorchTrial's ranks talk by torch.distributed, which starts them here instead of Horovod."
            )
            return torch_distributed.main(["--trial", script[2]])
        command = horovodrun_command(info, overrides, script)
    except (UsageError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 2
    environment = {**os.environ, "DET_CHIEF_IP": "127.0.0.1"}
    if auto and (not info or len(info.slot_ids) <= 1):
        return run(rank_command(script, "0"), environment)
    if shutil.which(command[0]) is None:
        print(without("Horovod", "horovod"), file=sys.stderr)
        return 1
    return run(command, *split_environment(environment), slow_to_stop=True)


if __name__ == "__main__":
    sys.exit(main())

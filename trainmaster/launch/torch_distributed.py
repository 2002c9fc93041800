"""Start this host's ranks with torchrun.

`python3 -m trainmaster.launch.torch_distributed [[TORCH_OVERRIDES...] --] (--trial MODULE:CLASS) | (SCRIPT
[ARGS...])`

Each rank runs under trainmaster.launch.wrap_rank, and this process stays beside torchrun (rank_group.py).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from trainmaster._info import ClusterInfo, get_cluster_info
from trainmaster.launch import wrap_rank
from trainmaster.launch.rank_group import RankGroup
from trainmaster.protocol import RUN_DIR

USAGE = (
    "usage: python3 -m trainmaster.launch.torch_distributed "
    "[[TORCH_OVERRIDES...] --] (--trial MODULE:CLASS) | (SCRIPT [ARGS...])"
)
DEFAULT_PORT = 29400
TRIAL_MODULE = "trainmaster.pytorch.run_trial"
# Torchrun's own patience in a stop; ours is the job's grace, which the host enforces.
_FOREVER_SECONDS = 10**6


class UsageError(ValueError):
    """The command line is wrong; the message is a sentence."""


def parse(arguments: Sequence[str]) -> Tuple[List[str], List[str]]:
    """(overrides for torchrun, script and its arguments); UsageError when there is no script."""
    overrides: List[str] = []
    script = list(arguments)
    if script and script[0] != "--trial" and "--" in script and script[0].startswith("-"):
        cut = script.index("--")
        overrides, script = script[:cut], script[cut + 1 :]
    if script and script[0] == "--":
        script = script[1:]
    if not script:
        raise UsageError(f"An empty script is not allowed.\n{USAGE}")
    if script[0] == "--trial":
        if len(script) != 2:
            raise UsageError(
                "--trial takes one MODULE:CLASS and no further arguments; give a script or a trial, not both."
            )
        return overrides, ["-m", TRIAL_MODULE, script[1]]
    if script[0].startswith("-") and script[0] != "-m":
        raise UsageError(
            f"{script[0]} stands where the script is expected; options for torchrun end with `--`.\n{USAGE}"
        )
    return overrides, script


def torchrun_command(
    info: Optional[ClusterInfo], overrides: Sequence[str], script: Sequence[str]
) -> List[str]:
    """torchrun for this member of the gang; later options win, so the overrides come last."""
    addresses = info.container_addrs if info else ["127.0.0.1"]
    here = info.container_rank if info else 0
    slots = len(info.slot_ids) if info else 1
    command = [sys.executable, "-m", "torch.distributed.run"]
    command += [f"--nnodes={len(addresses)}", f"--nproc_per_node={max(1, slots)}", f"--node_rank={here}"]
    command += ["--max_restarts=0", "--rdzv_backend=static"]
    command += [f"--master_addr={'127.0.0.1' if len(addresses) == 1 else addresses[0]}"]
    command += [f"--master_port={_port(info)}", "--no_python", *overrides]
    # By its path and isolated: no package, no site, and so a start of a few milliseconds per rank.
    command += [sys.executable, "-I", "-S", str(Path(wrap_rank.__file__).resolve()), "RANK"]
    python = script[0].endswith(".py") or script[0] == "-m" or shutil.which(script[0]) is None
    return [*command, *([sys.executable] if python else []), *script]


def _port(info: Optional[ClusterInfo]) -> int:
    leased = info.ports.get("c10d") if info else None
    return int(os.environ.get("C10D_PORT") or leased or DEFAULT_PORT)


def environment_for(info: Optional[ClusterInfo], ranks_dir: str) -> Dict[str, str]:
    """Our environment plus what torchrun and the ranks need."""
    environment = dict(os.environ)
    environment[wrap_rank.RANKS_DIR] = ranks_dir
    environment["USE_TORCH_DISTRIBUTED"] = "True"
    environment["DET_CHIEF_IP"] = info.chief_address if info else "127.0.0.1"
    environment.setdefault("OMP_NUM_THREADS", "1")  # torchrun's own default, without its warning
    environment.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(_FOREVER_SECONDS))
    return environment


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Returns the exit code for this host."""
    try:
        overrides, script = parse(sys.argv[1:] if arguments is None else arguments)
        info = get_cluster_info()
    except (UsageError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 2
    if importlib.util.find_spec("torch") is None:
        print(
            f"{sys.executable} on {socket.gethostname()} has no PyTorch: give the host or its pool "
            "another `python` or `activate`, or install torch there.",
            file=sys.stderr,
        )
        return 1
    # In a run its folder holds this one, so that it goes with the run whatever ends us.
    with tempfile.TemporaryDirectory(prefix="ranks-", dir=os.environ.get(RUN_DIR)) as ranks_dir:
        command = torchrun_command(info, overrides, script)
        return RankGroup(command, environment_for(info, ranks_dir), ranks_dir).wait()


if __name__ == "__main__":
    sys.exit(main())

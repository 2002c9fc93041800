"""`sbatch` within a batch script: the command line that is installed in the job, as the user of an access token.

A run's own token submits nothing. So a job can do what a user allows it by passing a token, and no more.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Collection, Dict, Mapping, NoReturn

from trainmaster._info import read_server_address
from trainmaster.environment import INTERFACES, PORTS
from trainmaster.protocol import RUN_DIR
from trainmaster.slurm.batch import BIN, configured
from trainmaster.slurm.handed import FOLDER

TOKEN, MASTER = "TRAINMASTER_TOKEN", "TRAINMASTER_MASTER"
_PROGRAM = "trainmaster"
_BUNDLE = Path(__file__).resolve().parents[2]
_REFUSED, _LACKING = 1, 127
_WITHOUT_TOKEN = (
    f"a job submits others only with an access token. Create one with `trainmaster token create --scope write -e 7`, "
    f"and submit this script with it in {TOKEN} and with --export=ALL,{TOKEN} (docs/slurm.md)."
)
_WITHOUT_PROGRAM = (
    f"the job has no program {_PROGRAM} on its PATH. Install it in the Python that the script activates."
)


def main() -> NoReturn:
    """Becomes `trainmaster sbatch`; without a token Slurm's own, where the node has one."""
    environment = without_ours(os.environ, configured(os.environ))
    if not environment.get(TOKEN):
        slurms = shutil.which("sbatch", path=environment["PATH"])
        if slurms is not None:  # of the cluster to which this node belongs
            os.execve(slurms, [slurms, *sys.argv[1:]], environment)
        _refuse(_WITHOUT_TOKEN, _REFUSED)
    program = shutil.which(_PROGRAM, path=environment["PATH"])
    if program is None:
        _refuse(_WITHOUT_PROGRAM, _LACKING)
    urls = read_server_address(environment[RUN_DIR])["urls"] if RUN_DIR in environment else []
    if urls:
        environment.setdefault(MASTER, urls[0])  # a tunnel may have got another port since the job began
    os.execve(program, [program, "sbatch", *sys.argv[1:]], environment)


def without_ours(own: Mapping[str, str], configured: Collection[str]) -> Dict[str, str]:
    """The environment without what is there for this run alone: its ports and the interface of its gang, which the next
    job has from its own host, and what would hide the package that is installed.

    `configured`: the variables of the config, as `batch.configured` has them.
    """
    interface = own.get("DET_INTER_NODE_NETWORK_INTERFACE")
    ours_alone = [name for name in INTERFACES if name not in configured and own.get(name) == interface]
    found = {name: value for name, value in own.items() if name not in (*PORTS.values(), *ours_alone)}
    for name, is_ours in (("PATH", _has_programs), ("PYTHONPATH", _is_bundle)):
        parts = filter(None, own.get(name, "").split(":"))
        found[name] = ":".join(part for part in parts if not is_ours(Path(part)))
    return found


def _has_programs(folder: Path) -> bool:
    """Of this job, or of one from which its PATH was passed on: that one's `sbatch` is ours, too."""
    return folder.parts[-2:] == (FOLDER, BIN)


def _is_bundle(folder: Path) -> bool:
    return folder.resolve() == _BUNDLE


def _refuse(sentence: str, code: int) -> NoReturn:
    print(f"sbatch: {sentence}", file=sys.stderr)
    raise SystemExit(code)

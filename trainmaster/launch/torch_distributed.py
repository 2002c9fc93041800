"""Start this host's ranks with torchrun.

`python3 -m trainmaster.launch.torch_distributed [[TORCH_OVERRIDES...] --] (--trial MODULE:CLASS) | (SCRIPT
[ARGS...])`

Each rank runs under trainmaster.launch.wrap_rank, and this process stays beside torchrun (rank_group.py).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from trainmaster._info import ClusterInfo, get_cluster_info
from trainmaster.core._star import join
from trainmaster.launch.rank_group import rank_command, rank_words, run, without
from trainmaster.launch.warm_ranks import warmed

USAGE = (
    "usage: python3 -m trainmaster.launch.torch_distributed "
    "[[TORCH_OVERRIDES...] --] (--trial MODULE:CLASS) | (SCRIPT [ARGS...])"
)
DEFAULT_PORT = 29400
TRIAL_MODULE = "trainmaster.pytorch.run_trial"
# Torchrun's own patience in a stop; ours is the job's grace, which the host enforces.
_FOREVER_SECONDS = 10**6
_PURPOSE = b"|versions"  # so that nobody takes this group for that of the ranks
_UNKNOWN = "unknown"
Told = Dict[str, str]


class UsageError(ValueError):
    """The command line is wrong; the message is a sentence."""


Main = Callable[[List[str], Optional[ClusterInfo]], int]


def as_called(text: str) -> str:
    """A usage with the module's name as it was typed: that of Determined's package, or ours."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    module = spec.name if spec is not None else ""
    package = module.rpartition(".")[0]
    if package not in ("determined.launch", "determined.launcher", "trainmaster.launch"):
        return text
    text = re.sub(r"(?<=usage: python3 -m )[\w.]+", module, text)
    return text.replace("trainmaster.launch.", f"{package}.")


def launch_module(usage: str) -> Callable[[Main], Callable[..., int]]:
    """Make a `main` that is given its words and the run into one that takes the program's arguments, or others.

    It returns the exit code for this host: 0 after --help, 2 for a wrong command line or an unreadable run.
    """

    def made(main: Main) -> Callable[..., int]:
        def called(arguments: Optional[Sequence[str]] = None) -> int:
            words = list(sys.argv[1:] if arguments is None else arguments)
            if words[:1] in (["-h"], ["--help"]):
                print(as_called(usage))
                return 0
            try:
                return main(words, get_cluster_info())
            except (UsageError, RuntimeError) as error:
                print(as_called(str(error)), file=sys.stderr)
                return 2

        return called

    return made


def parse(arguments: Sequence[str], usage: str = USAGE) -> Tuple[List[str], List[str]]:
    """(overrides for the launcher, script and its arguments); UsageError when there is no script."""
    overrides: List[str] = []
    script = list(arguments)
    if script and script[0] != "--trial" and "--" in script and script[0].startswith("-"):
        cut = script.index("--")
        overrides, script = script[:cut], script[cut + 1 :]
    if script and script[0] == "--":
        script = script[1:]
    if not script:
        raise UsageError(f"An empty script is not allowed.\n{usage}")
    if script[0] == "--trial":
        if len(script) != 2:
            raise UsageError(
                "--trial takes one MODULE:CLASS and no further arguments; give either a script or a trial."
            )
        return overrides, ["-m", TRIAL_MODULE, script[1]]
    if script[0].startswith("-") and script[0] != "-m":
        raise UsageError(
            f"found {script[0]} instead of the script; options for the launcher end with `--`.\n{usage}"
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
    command += [f"--master_port={rendezvous_port(info)}", "--no_python", *overrides]
    return [*command, *rank_command(script)]


def rendezvous_port(info: Optional[ClusterInfo]) -> int:
    leased = info.ports.get("c10d") if info else None
    return int(os.environ.get("C10D_PORT") or leased or DEFAULT_PORT)


def environment_for(info: Optional[ClusterInfo]) -> Dict[str, str]:
    """Our environment plus what torchrun and the ranks need."""
    environment = dict(os.environ)
    environment["USE_TORCH_DISTRIBUTED"] = "True"
    environment["DET_CHIEF_IP"] = info.chief_address if info else "127.0.0.1"
    environment.setdefault("OMP_NUM_THREADS", "1")  # torchrun's own default, without its warning
    environment.setdefault("PYTHONUNBUFFERED", "1")  # as wrap_rank sets it for the ranks
    environment.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(_FOREVER_SECONDS))
    return environment


def version_fault(info: ClusterInfo, port: int) -> Optional[str]:
    """Why this gang cannot train together, naming two of its hosts; None if it can, or if nobody can tell.

    Ranks of different releases mostly hang until a timeout of 15 minutes that names nobody, so the hosts tell each
    other their versions of PyTorch before they start ranks. They meet at the port at which torchrun meets right
    afterwards: whatever keeps them apart would keep torchrun apart. Waits until all hosts of the gang are here, as
    torchrun does.
    """
    here = {"host": info.agent_id, "torch": _torch(), "python": ".".join(map(str, sys.version_info[:2]))}
    size, address = len(info.container_addrs), (info.chief_address, port)
    secret = info._secret.encode() + _PURPOSE
    try:
        with contextlib.closing(join("versions", info.container_rank, size, address, secret)) as group:
            gang: List[Told] = group.allgather(here)
    except (RuntimeError, OSError) as error:
        print(f"WARNING: trainmaster: the versions of this gang were not compared: {error}", file=sys.stderr)
        return None
    return compared_versions(gang)


def compared_versions(gang: List[Told]) -> Optional[str]:
    """The sentence about a host whose release of PyTorch is not that of the first. Prints lesser differences."""
    first = gang[0]
    for other in gang[1:]:
        both = f"{other['host']} has {{}} {{}}, {first['host']} has {{}}"
        if _UNKNOWN in (other["torch"], first["torch"]):
            continue
        if _release(other["torch"]) != _release(first["torch"]):
            found = both.format("torch", other["torch"], first["torch"])
            return f"{found}. All hosts of a gang need the same release; set the same `python` for them or their pool."
        for name, title in (("torch", "torch"), ("python", "Python")):
            if other[name] != first[name]:
                found = both.format(title, other[name], first[name])
                print(f"WARNING: trainmaster: {found}: the ranks may fail or hang.", file=sys.stderr)
    return None


def _release(text: str) -> List[str]:
    return text.split("+")[0].split(".")[:2]


def _torch() -> str:
    try:
        return version("torch")
    except PackageNotFoundError:  # built in place
        return _UNKNOWN


@launch_module(USAGE)
def main(words: List[str], info: Optional[ClusterInfo]) -> int:
    overrides, script = parse(words)
    if importlib.util.find_spec("torch") is None:
        print(without("PyTorch", "torch"), file=sys.stderr)
        return 1
    if info is not None and len(info.container_addrs) > 1:
        sentence = version_fault(info, rendezvous_port(info))
        if sentence is not None:
            print(f"ERROR: trainmaster: {sentence} No rank was started.", file=sys.stderr)
            return 1
    command, environment = torchrun_command(info, overrides, script), environment_for(info)
    return run(*warmed(command, environment, rank_words(script), overrides, TRIAL_MODULE))


if __name__ == "__main__":
    sys.exit(main())

"""Start this host's ranks with torchrun.

`python3 -m trainmaster.launch.torch_distributed [[TORCH_OVERRIDES...] --] (--trial MODULE:CLASS) | (SCRIPT
[ARGS...])`

Each rank runs under trainmaster.launch.wrap_rank. This process stays beside torchrun, in a session of its
own, for
what torchrun does not give: the exit code of the rank that failed first, and a stop that leaves the ranks
the job's own grace (torchrun would kill them 30 s after the first of them has ended).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from trainmaster._info import ClusterInfo, get_cluster_info
from trainmaster.launch import wrap_rank
from trainmaster.protocol import RUN_DIR

USAGE = (
    "usage: python3 -m trainmaster.launch.torch_distributed "
    "[[TORCH_OVERRIDES...] --] (--trial MODULE:CLASS) | (SCRIPT [ARGS...])"
)
DEFAULT_PORT = 29400
TRIAL_MODULE = "trainmaster.pytorch.run_trial"
# After a stop, when all ranks here have ended: torchrun may say goodbye to its peers.
_END_TORCHRUN_SECONDS = 5.0
_POLL_SECONDS = 0.05
_STOPS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
# Torchrun's own patience in a stop; ours is the job's grace, which the host enforces.
_FOREVER_SECONDS = 10**6


class RankEnd(NamedTuple):
    """How a rank ended; `with_peer`: it was stopped because another one had failed."""

    rank: int
    code: int
    signal: Optional[int]
    t: float
    with_peer: bool


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


class Launch:
    """torchrun and its ranks, from start to the exit code."""

    def __init__(self, command: List[str], environment: Dict[str, str], ranks_dir: str) -> None:
        self._ranks_dir = Path(ranks_dir)
        self._stopping = False
        self._ended_at: Optional[float] = None
        # Taken by sigtimedwait: no handler that could come between two lines of ours.
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS | {signal.SIGCHLD})
        # Its own session: the stop's SIGTERM goes to our group, and we pass it to the ranks, not to torchrun.
        self._torchrun = subprocess.Popen(
            command, env=environment, start_new_session=True, preexec_fn=_unblock_signals
        )

    def wait(self) -> int:
        """The exit code of the rank that failed first, else torchrun's."""
        while self._torchrun.poll() is None:
            info = signal.sigtimedwait(_STOPS | {signal.SIGCHLD}, _POLL_SECONDS if self._stopping else 60.0)
            if info is not None and info.si_signo != signal.SIGCHLD:
                self._stop(info.si_signo)
            if self._stopping:
                self._pass_on_the_stop()
        code = self._torchrun.returncode
        if self._living():  # torchrun was killed and left its ranks behind
            self._end_ranks()
        return self._exit_code(code if code >= 0 else 128 - code)

    def _stop(self, number: int) -> None:
        # Before the pids are read: a rank that starts later sees it.
        (self._ranks_dir / wrap_rank.STOPPING).touch()
        self._stopping = True
        living = self._living()
        for pid in living:
            _signal(pid, number)
        if not living and not self.ends():  # nothing to save yet: torchrun is still starting
            _signal(self._torchrun.pid, number)

    def _pass_on_the_stop(self) -> None:
        """Once all ranks here have ended, torchrun waits for its peers' goodbye a little, not for minutes."""
        if self._living() or not self.ends():
            self._ended_at = None
            return
        now = time.monotonic()
        self._ended_at = self._ended_at or now
        if now - self._ended_at > _END_TORCHRUN_SECONDS:
            _signal(self._torchrun.pid, signal.SIGKILL)

    def _end_ranks(self) -> None:
        for pid in self._living():  # wrap_rank kills its rank when the peers' grace is over
            _signal(pid, signal.SIGTERM)
        while self._living():
            time.sleep(_POLL_SECONDS)

    def ends(self) -> List[RankEnd]:
        """The ranks that have ended here, first failure first."""
        found = []
        for path in self._ranks_dir.glob("rank*.exit"):
            code, number, t, with_peer = path.read_text(encoding="ascii").split()
            rank = int(path.name[len("rank") : -len(".exit")])
            found.append(RankEnd(rank, int(code), int(number) or None, float(t), with_peer == "1"))
        return sorted(found, key=lambda end: (end.with_peer, end.t))

    def _living(self) -> List[int]:
        pids = []
        for path in self._ranks_dir.glob("rank*.pid"):
            pid = int(path.read_text(encoding="ascii"))
            if not path.with_suffix(".exit").exists() and _is_wrapper(pid):
                pids.append(pid)
        return pids

    def _exit_code(self, torchrun: int) -> int:
        failed = [end for end in self.ends() if end.code and not end.with_peer]
        return failed[0].code if failed else torchrun


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _is_wrapper(pid: int) -> bool:
    """True if this pid is a wrap_rank: a pid may be given to another process once its owner is gone."""
    try:
        return b"wrap_rank" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


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
        return Launch(command, environment_for(info, ranks_dir), ranks_dir).wait()


if __name__ == "__main__":
    sys.exit(main())

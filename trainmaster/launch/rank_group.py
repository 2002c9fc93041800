"""The ranks of one host under a launcher of the field (torchrun, DeepSpeed's, horovodrun).

Its launcher starts each rank under trainmaster.launch.wrap_rank. We stay beside it, in a session of its own, for what
launchers do not give: the exit code of the rank that failed first, and a stop that leaves the ranks the job's own
grace (torchrun and DeepSpeed would kill them 30 s after the first of them has ended).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence

from trainmaster.launch import wrap_rank
from trainmaster.protocol import RUN_DIR

# After a stop, when all ranks here have ended: the launcher may say goodbye to its peers.
_END_LAUNCHER_SECONDS = 5.0
_POLL_SECONDS = 0.05
# From one look for a failed rank to the next, under a launcher that is slow to stop its peers.
_LOOK_SECONDS = 0.5
_STOPS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


def rank_command(script: Sequence[str], names: str = "RANK") -> List[str]:
    """What the launcher starts for each rank: the script under wrap_rank, which finds its rank in one of `names`."""
    # By its path and isolated: no package, no site, and so a start of a few milliseconds per rank.
    wrapper = [sys.executable, "-I", "-S", str(Path(wrap_rank.__file__).resolve()), names]
    return [*wrapper, *rank_words(script)]


def rank_words(script: Sequence[str]) -> List[str]:
    """What wrap_rank starts."""
    python = script[0].endswith(".py") or script[0] == "-m" or shutil.which(script[0]) is None
    return [*([sys.executable] if python else []), *script]


def run(
    command: List[str],
    environment: Mapping[str, str],
    ranks_only: Optional[Mapping[str, str]] = None,
    slow_to_stop: bool = False,
) -> int:
    """Run a launcher to its end; the exit code for this host.

    `ranks_only` are variables that the launcher is not given, for it would show them in its arguments; its ranks are.
    `slow_to_stop`: it ends the peers of a failed rank one after the other, or not at all; then all are told at once.
    """
    # In a run its folder holds this one, so that it goes with the run whatever ends us.
    with tempfile.TemporaryDirectory(prefix="ranks-", dir=os.environ.get(RUN_DIR)) as ranks_dir:
        if ranks_only:
            entries = [os.fsencode(f"{name}={value}") for name, value in ranks_only.items()]
            Path(ranks_dir, wrap_rank.ENVIRONMENT).write_bytes(b"\0".join(entries))
        group = RankGroup(command, {**environment, wrap_rank.RANKS_DIR: ranks_dir}, ranks_dir)
        return group.wait(slow_to_stop)


def without(title: str, package: str) -> str:
    """The sentence that this host's Python lacks what the launch module starts."""
    return (
        f"{sys.executable} on {socket.gethostname()} has no {title}: set for the host or its pool "
        f"another `python` or `activate`, or install {package} on the host."
    )


class RankEnd(NamedTuple):
    """How a rank ended, and when; `with_peer`: it was stopped because another one had failed."""

    with_peer: bool
    t: float
    code: int


class RankGroup:
    """A launcher and the ranks that it starts here, from start to the exit code."""

    def __init__(self, command: List[str], environment: Dict[str, str], ranks_dir: str) -> None:
        self._ranks_dir = Path(ranks_dir)
        self._stopping = False
        self._ended_at: Optional[float] = None
        # Taken by sigtimedwait: no handler that could come between two lines of ours.
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS | {signal.SIGCHLD})
        # Its own session: the stop's SIGTERM goes to our group, and we pass it to the ranks, not to the launcher.
        self._launcher = subprocess.Popen(
            command, env=environment, start_new_session=True, preexec_fn=_unblock_signals
        )

    def wait(self, slow_to_stop: bool) -> int:
        """The exit code of the rank that failed first, else the launcher's."""
        ends_peers = slow_to_stop
        while self._launcher.poll() is None:
            seconds = _POLL_SECONDS if self._stopping else _LOOK_SECONDS if ends_peers else 60.0
            info = signal.sigtimedwait(_STOPS | {signal.SIGCHLD}, seconds)
            if info is not None and info.si_signo != signal.SIGCHLD:
                self._stop(info.si_signo)
            if self._stopping:
                self._pass_on_the_stop()
            elif ends_peers and self._failed():
                ends_peers = False
                self._signal_ranks(signal.SIGTERM)  # wrap_rank kills its rank when the peers' grace is over
        code = self._launcher.returncode
        if self._signal_ranks(signal.SIGTERM):  # the launcher was killed and left its ranks behind
            while self._living():
                time.sleep(_POLL_SECONDS)
        failed = self._failed()
        return failed[0].code if failed else code if code >= 0 else 128 - code

    def _stop(self, number: int) -> None:
        # Before the pids are read: a rank that starts later sees it.
        (self._ranks_dir / wrap_rank.STOPPING).touch()
        self._stopping = True
        # Without ranks there is nothing to save yet: the launcher is still starting.
        if not self._signal_ranks(number) and not self.ends():
            _signal(self._launcher.pid, number)

    def _pass_on_the_stop(self) -> None:
        """Once all ranks here have ended, torchrun, for one, waits for its peers' goodbye a little, not for minutes."""
        if self._living() or not self.ends():
            self._ended_at = None
            return
        now = time.monotonic()
        self._ended_at = self._ended_at or now
        if now - self._ended_at > _END_LAUNCHER_SECONDS:
            _signal(self._launcher.pid, signal.SIGKILL)

    def ends(self) -> List[RankEnd]:
        """The ranks that have ended here, first failure first."""
        found = []
        for path in self._ranks_dir.glob("rank*.exit"):
            code, t, with_peer = path.read_text(encoding="ascii").split()
            found.append(RankEnd(with_peer == "1", float(t), int(code)))
        return sorted(found)

    def _living(self) -> List[int]:
        pids = []
        for path in self._ranks_dir.glob("rank*.pid"):
            pid = int(path.read_text(encoding="ascii"))
            if not path.with_suffix(".exit").exists() and _is_wrapper(pid):
                pids.append(pid)
        return pids

    def _signal_ranks(self, number: int) -> bool:
        """False if no rank lives here."""
        living = self._living()
        for pid in living:
            _signal(pid, number)
        return bool(living)

    def _failed(self) -> List[RankEnd]:
        """The ranks that failed by themselves, the first of them first."""
        return [end for end in self.ends() if end.code and not end.with_peer]


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

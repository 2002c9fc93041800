"""The pulse of a run's ranks here: how far each has come, and whether its processes do anything.

Looked at every two seconds from outside: a rank's sign of life (core/_sign.py) where it uses the SDK, and what the
kernel and the GPU's driver say of its processes in any case. It goes with the heartbeats; what it means is the
server's to say, which sees all hosts of the gang (logs/pulse_marks.py). Nothing here can hold up or end a training.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from trainmaster.paths import SIGN_BYTES, RunPaths, rank_of
from trainmaster.protocol import Spec
from trainmaster.rank_processes import ProcessesOfRanks, RankProcesses, Seen, waits_in
from trainmaster.runner.gpu_samples import GpuWork
from trainmaster.runner.shipping import say

SAMPLE_SECONDS = 2.0
#: a heartbeat stays a small request, whatever a host runs
_MOST_RANKS = 512
#: of one processor: below it a rank's processes only wait, apart from timers and the watchdogs of libraries
IDLE_CPU = 0.1
#: where a rank sleeps is asked once it has been idle for so long
_WAITS_SECONDS = 4.0
#: the usual pause between two signs of life shrinks by this at each, so that one long pause is forgotten
_FORGETTING = 0.9
#: states of processes, the most telling first: stopped by a signal or a debugger, waiting in the kernel, running
_STATES = ("T", "t", "D", "R")
#: the state of a rank of which no process is left
ENDED = "ended"
#: what a sign of life may say (core/_sign.py)
_SIGN = {"step": int, "calls": int, "waits": bool, "beats": int, "doing": str}


class RankPulse:
    """What was seen of one rank. All times are this host's monotonic clock."""

    def __init__(self, rank: int, now: float) -> None:
        self.rank = rank
        self._state, self._state_at, self._pid = "", now, 0
        self._used: Dict[int, float] = {}
        self._seen_at: Optional[float] = None
        self._busy_at = now
        self._cpu: Optional[float] = None
        self._memory = 0
        self._gpu: Optional[int] = None
        self._sign: Dict[str, Any] = {}
        self._beat_at = now
        self._gap = 0.0
        self._waits_in = ""
        self.wrote: Optional[float] = None

    def look(self, processes: Sequence[Seen], sign: Dict[str, Any], gpu: Optional[int], now: float) -> None:
        """Take in one sample."""
        self._note_state(processes, now)
        self._note_cpu(processes, now)
        self._memory = sum(seen.resident_bytes for seen in processes)
        self._gpu = gpu
        if gpu:
            self._busy_at = now
        if sign and sign != self._sign:
            if self._sign:
                self._gap = max(self._gap * _FORGETTING, now - self._beat_at)
            self._sign, self._beat_at = sign, now
        self._waits_in = waits_in(processes[0].pid) if now - self._busy_at >= _WAITS_SECONDS else ""

    def facts(self, now: float) -> Dict[str, Any]:
        """As it goes to the server (docs/protocol.md, "Shipping")."""
        facts = {
            "rank": self.rank,
            "state": self._state,
            "pid": self._pid,
            "state_seconds": round(now - self._state_at, 1),
            "cpu": round(self._cpu or 0.0, 2),
            "idle_seconds": round(now - self._busy_at, 1),
            "gpu": self._gpu,
            "waits_in": self._waits_in,
            "wrote_seconds": self.wrote,
        }
        if self._sign:
            facts.update(self._sign)
            facts["beat_seconds"] = round(now - self._beat_at, 1)
            facts["gap_seconds"] = round(self._gap, 1)
        return {name: value for name, value in facts.items() if value is not None and value != ""}

    def work(self) -> Tuple[int, Optional[float]]:
        """(resident bytes, processors in use) at the last look; the first one cannot know the latter."""
        return self._memory, self._cpu

    def _note_state(self, processes: Sequence[Seen], now: float) -> None:
        """The most telling state of all its processes: one that is stopped stops its rank."""
        telling = min(processes, key=lambda seen: _STATES.index(seen.state) if seen.state in _STATES else 9)
        if telling.state != self._state:
            self._state, self._state_at = telling.state, now
        self._pid = telling.pid

    def _note_cpu(self, processes: Sequence[Seen], now: float) -> None:
        used = {seen.pid: seen.cpu_seconds for seen in processes}
        if self._seen_at is not None and now > self._seen_at:
            spent = sum(seconds - self._used.get(pid, 0.0) for pid, seconds in used.items())
            self._cpu = max(0.0, spent) / (now - self._seen_at)
            if self._cpu >= IDLE_CPU:
                self._busy_at = now
        self._used, self._seen_at = used, now


class Pulse:
    """The ranks of a run on this host; `run` is the body of a thread, `facts` the newest answer."""

    def __init__(self, paths: RunPaths, spec: Spec, processes: Optional[ProcessesOfRanks] = None) -> None:
        """`processes` tells those of each rank; without it they are found by the run's marker."""
        self._paths = paths
        self._processes = processes or RankProcesses(paths.key, alone=spec["members"] == 1)
        self._gpus = GpuWork([slot["uuid"] for slot in spec["slots"] if slot["kind"] == "cuda"])
        self._ranks: Dict[int, RankPulse] = {}
        self._ended: Dict[int, float] = {}  # -> when it was first seen without a process
        self._files_of: Set[int] = set()
        self._spool_changed = -1
        self._looked_at: Optional[float] = None
        self._complained = False

    def run(self, ended: threading.Event) -> None:
        """Until the run has ended. Whatever goes wrong costs one look: it is said once, and tried again."""
        while not ended.wait(SAMPLE_SECONDS):
            try:
                self.look(time.monotonic())
            except Exception as error:
                if not self._complained:
                    say(f"The pulse of {self._paths.key} cannot be taken: {error!r}. Retrying.")
                self._complained = True

    def look(self, now: float) -> None:
        were = self._ranks if self._processes.ranked else {}  # without ranks it is the run itself that ends
        found = self._processes.look()
        gpus = self._gpus.by_pid()
        ranks: Dict[int, RankPulse] = {}
        for rank, processes in found.items():
            work = None if gpus is None else sum(gpus.get(seen.pid, 0) for seen in processes)
            ranks[rank] = self._ranks.get(rank) or RankPulse(rank, now)
            ranks[rank].look(processes, self._sign(rank), work, now)
            ranks[rank].wrote = self._wrote(rank)
        gone = self._begun() if self._processes.ranked else set()
        self._ended = {
            rank: self._ended.get(rank, now) for rank in gone.union(were, self._ended) - found.keys()
        }
        self._ranks = ranks
        self._looked_at = now

    def work(self) -> Tuple[Optional[float], Dict[int, Tuple[int, Optional[float]]]]:
        """(when it was looked, what each rank used then: RankPulse.work), for the samples."""
        looked_at, ranks = self._looked_at, self._ranks
        return looked_at, {rank: ranks[rank].work() for rank in sorted(ranks)[:_MOST_RANKS]}

    def facts(self) -> List[Dict[str, Any]]:
        """The ranks as they go to the server, those that have ended too."""
        ranks, ended, looked_at, now = self._ranks, self._ended, self._looked_at, time.monotonic()
        facts = {rank: ranks[rank].facts(now) for rank in ranks}
        for rank, since in ended.items():
            # one look may be before its exec
            if rank not in facts and looked_at is not None and since < looked_at:
                facts[rank] = {"rank": rank, "state": ENDED, "state_seconds": round(max(0.0, now - since), 1)}
        return [facts[rank] for rank in sorted(facts)[:_MOST_RANKS]]

    def _begun(self) -> Set[int]:
        """The ranks that `wrap_rank` has started here, by their files; one may be over between two looks."""
        with contextlib.suppress(OSError):
            changed = self._paths.spool.stat().st_mtime_ns
            if changed != self._spool_changed:
                names = [name for name in os.listdir(self._paths.spool) if name.endswith(".stdout")]  # noqa: PTH208
                self._files_of = {rank for rank in map(rank_of, names) if rank is not None}
                self._spool_changed = changed
        return self._files_of

    def _wrote(self, rank: int) -> Optional[float]:
        """Seconds since it wrote to stdout or stderr, None where it has written nothing that is known."""
        ages = []
        for stream in ("stdout", "stderr"):
            with contextlib.suppress(OSError):
                file = self._paths.rank_stream(rank, stream).stat()
                if file.st_size:
                    ages.append(max(0.0, time.time() - file.st_mtime))
        return round(min(ages), 1) if ages else None

    def _sign(self, rank: int) -> Dict[str, Any]:
        """What of it is a sign; empty where there is none, or where it was read while it was written.

        The job's own account may have written anything there, of any size, or have put a pipe in its place.
        """
        try:
            descriptor = os.open(str(self._paths.sign(rank)), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                sign = json.loads(os.read(descriptor, SIGN_BYTES))
            finally:
                os.close(descriptor)
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(sign, dict):
            return {}
        return {name: sign[name] for name, kind in _SIGN.items() if type(sign.get(name)) is kind}

"""A rank's sign of life: a few numbers that the SDK overwrites in place at each of its calls.

Only the chief reports metrics, so every rank needs a sign of its own. It is one small write into the page cache at
calls that cost more anyway: no network, no thread, nothing that could hold up a training. Written and not mapped,
because a mapped page of a full disk would end the process. The runner reads it (trainmaster/runner/pulse.py).
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Dict, Iterator, Optional, Tuple

from trainmaster._info import ClusterInfo
from trainmaster.paths import SIGN_BYTES, RunPaths


class Sign:
    """`spool/sign.rank<N>` of the run; off the cluster (`path` None) nothing is written.

    `calls` counts collectives of the whole gang that this rank has entered: all ranks make the same ones, so who
    has entered fewer is the one that the others wait for. `reached` is the step that this rank has come to, `waited`
    counts the seconds that it has spent waiting for its peers; the profiler reads both.
    """

    def __init__(self, path: Optional[Path]) -> None:
        self._path = path
        self._descriptor: Optional[int] = None
        self.reached: Optional[int] = None
        self.waited = 0.0
        self._calls = 0
        self._waits = False
        self._beats = 0
        self._doing = ""

    @contextlib.contextmanager
    def collective(self) -> Iterator[None]:
        """This rank is in a collective of the whole gang, where it may wait for others."""
        self._calls += 1
        self._waits = True
        self.beat()
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.waited += time.perf_counter() - begun
            self._waits = False
            self.beat()

    def beat(self) -> None:
        """This rank has come to a call of the SDK."""
        self._beats += 1
        if self._path is None:
            return
        text = '{"step": %s, "calls": %d, "waits": %s, "beats": %d, "doing": "%s"}' % (  # at every step
            "null" if self.reached is None else self.reached,
            self._calls,
            "true" if self._waits else "false",
            self._beats,
            self._doing,
        )
        try:
            if self._descriptor is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
                self._descriptor = os.open(self._path, flags, 0o600)
            os.pwrite(self._descriptor, text.ljust(SIGN_BYTES - 1).encode("ascii", "replace") + b"\n", 0)
        except OSError:  # the disk is full or the folder gone: the sign is missing, and nothing else
            self._path = None

    def step(self, steps_completed: int) -> None:
        """This rank has completed so many steps; a report that counts otherwise, in epochs say, takes none back."""
        self.reached = max(self.reached or 0, steps_completed)
        self.beat()

    @contextlib.contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Long work of this rank alone, in a word or two: the others may wait for it with good reason."""
        before, self._doing = self._doing, what
        self.beat()
        try:
            yield
        finally:
            self._doing = before
            self.beat()

    def leave(self) -> None:
        """This rank has nothing more to do with its peers."""
        self._doing = "has left"
        self.beat()


_known: Dict[Tuple[str, int], Sign] = {}


def sign_of(info: Optional[ClusterInfo], rank: int) -> Sign:
    """The one sign of this rank in this process."""
    if info is None:
        return Sign(None)
    key = (info._run_dir, rank)
    if key not in _known:
        _known[key] = Sign(RunPaths(Path(info._run_dir)).sign(rank))
    return _known[key]

"""`core_context.profiler`: where the time of a step goes, and how many samples pass.

A timing is two looks at the clock and one append. About once a second they become one record (n, sum, min, max, p50
and p95 of each name) in the rank's spool file: no network and no thread.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
import time
from time import perf_counter
from typing import Any, ContextManager, Dict, Mapping, NamedTuple, Optional, TypeVar, Union

from trainmaster._info import ClusterInfo
from trainmaster.core._records import Records
from trainmaster.core._sign import Sign
from trainmaster.core._timings import HELD_BACK, Durations, Total

logger = logging.getLogger("trainmaster.core")

#: of a record: at least that long where it ends with a step, at most that long outside of steps and within a long one
STEPS_SECONDS = 1.0
LOOSE_SECONDS = 2.0
LONG_STEP_SECONDS = 30.0
#: a whole step, and the part of it in which the rank did not wait for its peers: it tells a straggler from its victims
STEP, WORK = "step", "step.work"
MOST_NAMES = 200
NAME_CHARACTERS = 128

_Kept = TypeVar("_Kept", Durations, Total)


class Profiling(NamedTuple):
    """The config's section `profiling`. Without `enabled` all steps are timed, and no timing waits for the GPU."""

    enabled: bool = False
    begin_on_batch: int = 0
    end_after_batch: Optional[int] = None
    sync_timings: bool = True

    def covers(self, step: int) -> bool:
        """Whether this step is to be timed."""
        if not self.enabled:
            return True
        return self.begin_on_batch <= step and (self.end_after_batch is None or step <= self.end_after_batch)


def profiling_of(info: Optional[ClusterInfo]) -> Profiling:
    """As the trial's config says; the server has checked it."""
    config: Mapping[str, Any] = info._trial._config if info and info._trial else {}
    section = config.get("profiling") or {}
    known = {name: value for name, value in section.items() if name in Profiling._fields}
    return Profiling(**known)


_NOTHING = contextlib.nullcontext()  # what is not recorded costs nothing


class _Timing:
    __slots__ = ("_kept", "_profiler", "_start")

    def __init__(self, profiler: ProfilerContext, kept: Durations) -> None:
        self._profiler = profiler
        self._kept = kept

    def __enter__(self) -> None:
        self._start = perf_counter()

    def __exit__(self, *_: object) -> None:
        now = perf_counter()
        pending = self._kept.pending
        pending.append(now - self._start)
        if now >= self._profiler._due or len(pending) >= HELD_BACK:
            self._profiler._upkeep(now)


class _Waiting(_Timing):
    """A timing in which the rank waits for its peers: not a part of its own work."""

    __slots__ = ("_waited",)

    def __enter__(self) -> None:
        self._waited = self._profiler._sign.waited
        super().__enter__()

    def __exit__(self, *_: object) -> None:
        # what was waited for inside, in collectives of the SDK, is a part of this
        self._profiler._sign.waited = self._waited + perf_counter() - self._start
        super().__exit__()


class _Synchronized:
    """Another timing that ends when the GPU has done what it was given meanwhile."""

    __slots__ = ("_timing",)

    def __init__(self, timing: Union[_Timing, _Step]) -> None:
        self._timing = timing

    def __enter__(self) -> None:
        self._timing.__enter__()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:  # a failing step must not end in another error than its own
            synchronize()
        self._timing.__exit__()


class _Step:
    __slots__ = ("_profiler", "_start", "_waited")

    def __init__(self, profiler: ProfilerContext) -> None:
        self._profiler = profiler

    def __enter__(self) -> None:
        profiler = self._profiler
        self._waited = profiler._sign.waited
        self._start = perf_counter()
        profiler._due = self._start + LONG_STEP_SECONDS

    def __exit__(self, *_: object) -> None:
        now = perf_counter()
        taken = now - self._start
        waited = self._profiler._sign.waited - self._waited
        self._profiler._step_ended(now, taken, max(0.0, taken - waited))


class ProfilerContext:
    """Timings and counts of this rank; off the cluster (`records` None) everything here does nothing.

    System metrics of the hosts are taken anyway. Timings are recorded from the start until `off`, and again from `on`;
    with `profiling.enabled` in the config only from `begin_on_batch` to `end_after_batch`, and with its
    `sync_timings` each waits for the GPU before it ends. Processes that a rank forks record nothing.
    """

    def __init__(
        self,
        records: Optional[Records],
        sign: Sign,
        rank: int = 0,
        profiling: Optional[Profiling] = None,
        step: int = 0,
    ) -> None:
        self._records = records
        self._sign = sign
        self._rank = rank
        self._profiling = profiling or Profiling()
        self._synchronizes = self._profiling.enabled and self._profiling.sync_timings
        self._on = records is not None
        #: where the trial goes on from, and what `step` named last: else the steps are those of reports
        self._first_step, self._named = step, -1
        self._durations: Dict[str, Durations] = {STEP: Durations(), WORK: Durations()}
        self._totals: Dict[str, Total] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._complained = False
        self._fresh = True
        self._begin(perf_counter())
        self._recording = self._on and self._profiling.covers(step)
        if self._on:
            atexit.register(self.close)

    def on(self, sampling_interval: float = 1, samples_per_report: int = 10) -> None:
        """Record timings from here on. ValueError for an interval under 0.1 s or fewer than 1 sample per report.

        Both numbers are checked as in Determined and change nothing: the server says how often hosts are sampled.
        """
        number = isinstance(sampling_interval, (int, float)) and not isinstance(sampling_interval, bool)
        if not number or not sampling_interval >= 0.1:
            raise ValueError(f"sampling_interval is {sampling_interval!r}; it must be 0.1 seconds or more.")
        whole = isinstance(samples_per_report, int) and not isinstance(samples_per_report, bool)
        if not whole or samples_per_report < 1:
            raise ValueError(
                f"samples_per_report is {samples_per_report!r}; it must be a whole number, 1 or more."
            )
        self._on = self._records is not None
        self._note_step()

    def off(self) -> None:
        """Record no timings until `on`."""
        self.flush()
        self._on = self._recording = False

    def timing(self, name: str, waits: bool = False) -> ContextManager[None]:
        """`with profiler.timing("to_device"):` records how long the block takes; nested and in threads as you like.

        `a.b` is a part of `a`. `waits` marks a block in which the rank waits for its peers, as the backward pass
        of DDP does: it counts as no work of its own when the slowest rank is looked for. ValueError for a name
        that is empty or longer than 128 characters.
        """
        if not self._recording:
            return _NOTHING
        kept = self._durations.get(name) or self._new(self._durations, name, Durations())
        timing = _Waiting(self, kept) if waits else _Timing(self, kept)
        return _Synchronized(timing) if self._synchronizes else timing

    def count(self, name: str, number: float = 1) -> None:
        """`profiler.count("samples", len(batch))`: adds up to a rate per second. Raises ValueError as `timing`."""
        if not self._recording:
            return
        kept = self._totals.get(name) or self._new(self._totals, name, Total())
        kept.pending.append(float(number))
        now = perf_counter()
        if now >= self._due or len(kept.pending) >= HELD_BACK:
            self._upkeep(now)

    def step(self, steps_completed: int) -> ContextManager[None]:
        """`with profiler.step(n):` is the n-th step, n as in `report_training_metrics`; a plain call marks it.

        What is timed inside belongs to it, it is itself timed as `step`, and as `step.work` without the time in
        which the rank waited: in collectives of the SDK and in timings that `wait`. It is a sign of life, too.
        ValueError for what is no whole number from 0.
        """
        if (
            isinstance(steps_completed, bool)
            or not hasattr(steps_completed, "__index__")
            or steps_completed < 0
        ):
            raise ValueError(f"The step is {steps_completed!r}; it must be a whole number, 0 or more.")
        if self._records is None:
            return _NOTHING
        self._named = int(steps_completed)
        self._sign.step(self._named)
        self._note_step()
        if not self._recording:
            return _NOTHING
        return _Synchronized(_Step(self)) if self._synchronizes else _Step(self)

    def flush(self) -> None:
        """Write down what was recorded so far."""
        if self._on:
            self._upkeep(perf_counter(), write=True)

    def close(self) -> None:
        """Write down the rest; nothing is recorded any more."""
        self.off()
        atexit.unregister(self.close)

    def _step_now(self) -> int:
        if self._named >= 0:
            return self._named
        return self._first_step if self._sign.reached is None else self._sign.reached

    def _note_step(self) -> None:
        recording = self._on and self._profiling.covers(self._step_now())
        if self._recording and not recording:
            self.flush()
        elif recording and not self._recording:
            self._begin(perf_counter())
        self._recording = recording
        if self._fresh:
            self._from_step, self._fresh = self._step_now(), False

    def _step_ended(self, now: float, taken: float, work: float) -> None:
        self._durations[STEP].pending.append(taken)
        self._durations[WORK].pending.append(work)
        whole = now - self._started >= STEPS_SECONDS
        self._due = now if whole else self._started + LOOSE_SECONDS
        if whole or len(self._durations[STEP].pending) >= HELD_BACK:
            self._upkeep(now)

    def _upkeep(self, now: float, write: bool = False) -> None:
        """Write a record if it is time or `write`, else take in what is pending. Of two threads the first does it."""
        if not self._lock.acquire(False):
            return
        try:
            if write or now >= self._due:
                self._write(now)
            else:
                for durations in list(self._durations.values()):
                    durations.fold()
                for total in list(self._totals.values()):
                    total.fold()
        finally:
            self._lock.release()

    def _begin(self, now: float) -> None:
        self._started, self._started_at = now, time.time()
        self._due = now + LOOSE_SECONDS
        self._from_step, self._fresh = self._step_now(), True

    def _write(self, now: float) -> None:
        summaries = {name: kept.summary() for name, kept in self._durations.copy().items()}
        totals = {name: kept.summary() for name, kept in self._totals.copy().items()}
        reached, end = self._step_now(), self._profiling.end_after_batch
        if self._profiling.enabled and end is not None:
            reached = min(reached, end)  # the first step beyond it is what ends the recording
        record = {
            "r": self._rank,
            "t": [round(self._started_at, 3), round(self._started_at + now - self._started, 3)],
            "s": [min(self._from_step, reached), reached],
            "v": {name: summary for name, summary in summaries.items() if summary},
            "c": {name: total for name, total in totals.items() if total},
        }
        self._begin(now)
        if os.getpid() != self._pid:
            self._on = self._recording = False
        elif self._records is not None and (record["v"] or record["c"]):
            self._records.append("timings", **record)

    def _new(self, kept: Dict[str, _Kept], name: str, empty: _Kept) -> _Kept:
        if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARACTERS:
            raise ValueError(f"The name {name!r} must be text of 1 to {NAME_CHARACTERS} characters.")
        if len(kept) < MOST_NAMES:
            return kept.setdefault(name, empty)
        if not self._complained:
            logger.warning("At most %d names are timed and counted; %r is skipped.", MOST_NAMES, name)
            self._complained = True
        return empty


def synchronize() -> None:
    """Wait for this process's GPU, if it uses one by PyTorch, which is never imported here."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        cuda.synchronize()

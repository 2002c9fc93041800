"""Samples of the host while a run is there: a thread takes them, the runner's main thread puts them into the outbox.

Several seconds of them make one record, a column per metric (docs/protocol.md, "The outbox"). Nothing here can hold
up a training or the runner: a source that fails costs its values and is said once.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Callable, Dict, List, Optional

from trainmaster.protocol import Limits, Spec
from trainmaster.runner.gpu_samples import GpuSamples
from trainmaster.runner.host_samples import HostSamples
from trainmaster.runner.pulse import Pulse
from trainmaster.runner.shipping import say

_LEAST_SECONDS = 0.1
#: work that is over sooner than this costs its host nothing
_QUIET_START_SECONDS = 0.5

Values = Dict[str, float]
Source = Callable[[float], Values]


class Sampler:
    """`run` is the body of a thread; `take` gives what is to be shipped."""

    def __init__(self, spec: Spec, limits: Limits, pulse: Pulse) -> None:
        self._seconds = limits["sample_seconds"]
        self._record_seconds = limits["sample_record_seconds"]
        self._key = spec["run_key"]
        gpus = [slot["uuid"] for slot in spec["slots"] if slot["kind"] == "cuda"]
        self._sources: Dict[str, Source] = {
            "host": HostSamples().read,
            "GPUs": GpuSamples(gpus).read,
            "ranks": RankSamples(pulse).read,
        }
        self._complained: Dict[str, bool] = {}
        self._columns = Columns()

    def run(self, ended: threading.Event) -> None:
        """Until the run has ended. No samples are taken where the server wants none (`sample_seconds` 0)."""
        if self._seconds <= 0:
            return
        interval = max(_LEAST_SECONDS, self._seconds)
        ended.wait(min(interval, _QUIET_START_SECONDS))
        self._values(time.monotonic())  # rates are known from the next look on
        due = time.monotonic() + interval
        while not ended.wait(max(0.0, due - time.monotonic())):
            self.look(time.monotonic(), time.time())
            due = max(due + interval, time.monotonic())  # what a slow look has missed is not made up for

    def look(self, now: float, at: float) -> None:
        """Take one sample: `now` is the monotonic clock, `at` the host's."""
        self._columns.add(at, self._values(now))

    def _values(self, now: float) -> Values:
        values: Values = {}
        for name, read in self._sources.items():
            try:
                values.update(read(now))
            except Exception as error:
                if not self._complained.get(name):
                    say(f"Samples of the {name} of {self._key} cannot be taken: {error!r}. Retrying.")
                self._complained[name] = True
        return values

    def take(self, all_of_them: bool = False) -> bytes:
        """The record once it is long enough; empty where there is none yet."""
        return self._columns.take(0.0 if all_of_them else self._record_seconds)


class RankSamples:
    """Memory and CPU of each rank, as the pulse has seen them last: each of its looks counts once."""

    def __init__(self, pulse: Pulse) -> None:
        self._pulse = pulse
        self._looked_at: Optional[float] = None

    def read(self, now: float) -> Values:
        looked_at, ranks = self._pulse.work()
        if looked_at == self._looked_at:
            return {}
        self._looked_at = looked_at
        found: Values = {}
        for rank, (resident, cores) in ranks.items():
            found[f"rank_memory/{rank}"] = resident
            if cores is not None:
                found[f"rank_cpu/{rank}"] = round(cores, 2)
        return found


class Columns:
    """Samples that were not taken yet, as columns of equal length; None stands where a sample had no such value."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: List[float] = []
        self._columns: Dict[str, List[Optional[float]]] = {}

    def add(self, at: float, values: Values) -> None:
        with self._lock:
            for name in values.keys() - self._columns.keys():
                self._columns[name] = [None] * len(self._times)
            self._times.append(round(at, 3))
            for name, column in self._columns.items():
                column.append(values.get(name))

    def take(self, seconds: float) -> bytes:
        """The record if it spans so many seconds, else nothing."""
        with self._lock:
            if not self._columns or abs(self._times[-1] - self._times[0]) < seconds:
                return b""
            times, columns = self._times, self._columns
            self._times, self._columns = [], {}
        return samples_record(times, columns)


def samples_record(times: List[float], columns: Dict[str, List[Optional[float]]]) -> bytes:
    """The record of the outbox."""
    record: Dict[str, object] = {"k": "samples", "t": times, "v": columns}
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"

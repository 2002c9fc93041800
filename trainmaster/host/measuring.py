"""One sample of this host for whoever asks, with rates since the look before, which may be another process's.

What a run measures each second while it is there, a verb measures when dispatch asks: nothing runs here in between,
so the counters of the last look lie in a file of the workdir.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Dict

from trainmaster.jsonfile import read_object, write_json
from trainmaster.paths import Workdir
from trainmaster.processes import boot_id
from trainmaster.runner.host_samples import HostSamples

#: an older look tells nothing about now
LONGEST_SECONDS = 300.0

Json = Dict[str, Any]


def measure(question: Json, workdir: Workdir, of_gpus: Dict[str, float]) -> Json:
    """A record of one sample (docs/protocol.md, "Samples"): `of_gpus`, and with `host` all else too.

    What cannot be measured, whatever the reason, is left out: how the runs stand is what was asked.
    """
    values: Dict[str, float] = {}
    if question.get("host"):
        with contextlib.suppress(Exception):
            values.update(_of_host(workdir))
    values.update(of_gpus)
    return {
        "k": "samples",
        "t": [round(time.time(), 3)],
        "v": {name: [value] for name, value in values.items()},
    }


def _of_host(workdir: Workdir) -> Dict[str, float]:
    now, boot = time.monotonic(), boot_id()
    meter = HostSamples()
    before = read_object(workdir.measured)
    with contextlib.suppress(KeyError, TypeError, ValueError):  # of another version of ours
        if before and before["boot_id"] == boot and 0 < now - float(before["at"]) <= LONGEST_SECONDS:
            meter.resume(before)
    values = meter.read(now)
    with contextlib.suppress(OSError):  # a full disk: the next look knows no rates
        write_json(workdir.measured, {"boot_id": boot, **meter.kept()})
    return values

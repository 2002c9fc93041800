"""A job that writes without end."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.chaos

MEBIBYTE = 1024**2

#: reads a file of one line, as a runner does, and says (bytes of text, records, peak of memory in KiB)
COLLECTS = """
import json, resource, sys
from pathlib import Path
from trainmaster.paths import RunPaths
from trainmaster.protocol import DEFAULT_LIMITS
from trainmaster.runner.collecting import Collector
from trainmaster.runner.outbox import Outbox

paths = RunPaths(Path(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
outbox = Outbox(paths)
collector = Collector(paths, outbox, DEFAULT_LIMITS, lambda: 0, lambda record: None)
while collector.poll():
    pass
text = records = longest = 0
with paths.outbox.open("rb") as file:
    for line in file:
        record = json.loads(line)
        if record["k"] == "lines":
            records, longest = records + 1, max(longest, len(line))
            text += len(record["m"])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([text, records, longest, peak - before]))
"""


def test_a_line_of_a_gigabyte_is_cut_and_needs_no_memory(tmp_path: Path) -> None:
    for name in ("spool", "control", "checkpoints"):
        (tmp_path / "x.1.0" / name).mkdir(parents=True)
    size = 1_000_000_000
    with (tmp_path / "x.1.0/spool/rank0.stdout").open("wb") as file:
        for _ in range(size // 10_000_000):
            file.write(b"x" * 10_000_000)
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", COLLECTS, str(tmp_path / "x.1.0")], capture_output=True, text=True, check=True
    )
    text, records, longest, grown = json.loads(done.stdout)
    print(f"{records} records in {time.monotonic() - begun:.1f} s; the runner grew by {grown // 1024} MiB")
    assert 0 < size - text < 100_000, "the rest waits for its end"
    assert longest < MEBIBYTE and grown < 100 * 1024

"""The kernel's own count of processes that it ended for want of memory: a real one is ended in a small cgroup."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from trainmaster.runner import oom_kills

LIMIT_BYTES = 50_000_000
COUNTS = """
import subprocess, sys
from trainmaster.runner import oom_kills
before = oom_kills.counted()
ended = subprocess.run([sys.executable, "-c", "len(bytearray(200_000_000))"])
print(ended.returncode, oom_kills.since(before))
"""


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A cgroup of 50 MB below our own, where this account may make one."""
    group, limits = _places()
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        for name in limits:
            with suppress(OSError):  # swap is not counted everywhere
                (group / name).write_text(str(LIMIT_BYTES))
        yield group
    finally:
        group.rmdir()


def _places() -> tuple[Path, list[str]]:
    rows = [row.split(":", 2) for row in Path("/proc/self/cgroup").read_text().splitlines()]
    name = f"trainmaster-test-{os.getpid()}"
    for _, controllers, path in rows:
        if controllers == "memory":
            root = Path("/sys/fs/cgroup/memory") / path.lstrip("/")
            return root / name, ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
    path = next(path for number, _, path in rows if number == "0")
    return Path("/sys/fs/cgroup") / path.lstrip("/") / name, ["memory.max", "memory.swap.max"]


def test_a_process_that_the_kernel_ends_is_counted_for_its_cgroup(small_group: Path) -> None:
    enter = f'echo $$ > {small_group}/cgroup.procs && exec {sys.executable} -c "$1"'
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        ["sh", "-c", enter, "sh", COUNTS],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    code, _, counts = done.stdout.strip().partition(" ")
    assert code == "-9"
    assert "'cgroup': 1" in counts


def test_nothing_is_counted_where_nothing_happened() -> None:
    before = oom_kills.counted()
    assert all(count >= 0 for count in before.values())
    assert oom_kills.since({}) == {}

"""`make demo` on a clean clone until the first line with a loss, downloads apart, and where its time goes.

The commit that is checked out is cloned twice, beside each other. The first demo fills the caches of pip, uv and npm
with what it downloads; the second, which finds all of it there, is measured. uv's cache has packages unpacked, except
PyTorch. Each line that it prints is kept with its time, so the report has the steps, and whatever warning a newcomer
would see. `python -m benchmarks.first_minutes` writes benchmarks/reports/first_minutes.md. It needs the network, git,
make and a Python; WARM=1 leaves out the first demo.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.rows import ROOT, Row, finish
from tests.rig.ports import free_port

GOAL_SECONDS = 60.0
LIMIT_SECONDS = 1800.0
END_SECONDS = 180.0
LOSS = re.compile(r"\bloss\b.*\d")
REPORT = Path(__file__).parent / "reports" / "first_minutes.md"


class Played(NamedTuple):
    """A demo until its first loss: (seconds since `make demo`, line) of all that it printed, and its processor time.

    The latter is of all processes that have ended by its end, so the end is in it too.
    """

    lines: list[tuple[float, str]]
    processor_seconds: float
    load: float


def play(folder: Path) -> Played:
    """Clone into the folder and start the demo there; end it at the first loss."""
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(ROOT), str(folder)], check=True)
    before, begin, lines = _processor(), time.monotonic(), []
    process = subprocess.Popen(
        ["make", "--no-print-directory", "demo", f"UP=--port {free_port()} --data {folder}/data"],
        cwd=folder,
        env=_newcomers(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    assert process.stdout is not None
    limit = threading.Timer(
        LIMIT_SECONDS, os.killpg, (process.pid, signal.SIGINT)
    )  # also while it prints nothing
    limit.start()
    try:
        for line in process.stdout:
            lines.append((time.monotonic() - begin, line.rstrip()))
            print(f"{lines[-1][0]:6.1f} s  {line.rstrip()}", flush=True)
            if LOSS.search(line):
                break
        else:
            raise RuntimeError(
                f"no loss: the demo ended, or took {LIMIT_SECONDS:.0f} s; see what it printed above"
            )
        load = os.getloadavg()[0]
    finally:
        limit.cancel()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C in a terminal
        try:
            process.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:  # its folder is about to go: better none than one without its files
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return Played(lines, _processor() - before, load)


def _newcomers() -> dict[str, str]:
    """The environment without what this run's own has set: Python, make, Trainmaster."""
    ours = ("PYTHON", "VIRTUAL_ENV", "MAKE", "MFLAGS", "TRAINMASTER_", "VENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    path = [each for each in kept["PATH"].split(":") if Path(each) != Path(sys.executable).parent]
    return {**kept, "PATH": ":".join(path), "PYTHONUNBUFFERED": "1"}


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def report(played: Played) -> str:
    seconds = played.lines[-1][0]
    return "\n".join(
        [
            "# `make demo` on a clean clone",
            "",
            f"{seconds:.0f} s from `make demo` to the first line with a loss, with all downloads in the caches of pip, "
            f"uv and npm; {played.processor_seconds:.0f} s of the processor with the end of the demo, on "
            f"{os.cpu_count()} cores with a load of {played.load:.1f}. Each line that was printed, and when:",
            "",
            "| s | line |",
            "|---|---|",
            *(f"| {at:.1f} | {_cell(line)} |" for at, line in played.lines if line.strip()),
            "",
        ]
    )


def _cell(line: str) -> str:
    shown = re.sub(r"(password) \S+", r"\1 …", line)[:160].replace("|", "\\|")
    return f"`{shown}`"


def main() -> int:
    # both end the demo; SIGINT is ignored, also by the demo, behind a shell's `&`
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="first-minutes-") as name:
        Path(name).chmod(0o711)
        if not os.environ.get("WARM"):
            play(Path(name) / "first")
        played = play(Path(name) / "second")
    seconds = played.lines[-1][0]
    return finish(
        REPORT, report(played), [Row("`make demo` to the first loss", seconds, "s", goal=GOAL_SECONDS)]
    )


if __name__ == "__main__":
    sys.exit(main())

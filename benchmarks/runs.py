"""Benchmarks one after the other, then the table of what they have found and of what each of them took.

`python -m benchmarks.runs NAME...` prints the table and keeps it in build/bench/table.md. It fails if a benchmark does:
a bound that is missed, or a program that the machine lacks, is a word in the table.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks import rows

#: in which one that is interrupted ends its servers
END_SECONDS = 60.0


def took(name: str) -> tuple[float, float]:
    """Run one; how many seconds it took, and how many of the processor in all processes that it has ended."""
    print(f"== {name}", flush=True)
    (rows.KEPT / f"{name}.json").unlink(missing_ok=True)
    before, begin = _processor(), time.monotonic()
    with subprocess.Popen([sys.executable, "-m", f"benchmarks.{name}"], cwd=rows.ROOT) as process:
        try:
            process.wait()
        except (
            KeyboardInterrupt
        ):  # it has heard it too; `subprocess.run` would kill it after a quarter of a second
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
    return time.monotonic() - begin, _processor() - before


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(names: Sequence[str]) -> int:
    times = {name: took(name) for name in names}
    text, failed = rows.table(names)
    total = [sum(column) for column in zip(*times.values(), strict=True)]
    lines = [
        f"On {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end{', QUICK' if rows.QUICK else ''}.",
        "",
        text,
        "",
        "| benchmark | seconds | of the processor |",
        "|---|---|---|",
        *(f"| {name} | {wall:.0f} | {cpu:.0f} |" for name, (wall, cpu) in times.items()),
        f"| all | {total[0]:.0f} | {total[1]:.0f} |",
    ]
    rows.KEPT.mkdir(parents=True, exist_ok=True)
    (rows.KEPT / "table.md").write_text("\n".join([*lines, ""]))
    print("", *lines, sep="\n")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

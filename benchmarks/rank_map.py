"""The heat map of 512 ranks on the log page, in headless Chromium: how long its first drawing and each change take.

The map is the page's own, on the page of a real trial; what it is told of the ranks is made up, so that every rank
changes each time, which is the worst case. `python -m benchmarks.rank_map` writes benchmarks/reports/rank_map.md.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.rows import Row, finish, not_measured, size
from tests.rig import long_log
from tests.rig.browser import Browser, programs, running_browser
from tests.rig.server import Server

HOSTS, LOCAL_RANKS = 64, 8
ROUNDS, CHANGES = size("ROUNDS", 5, quick=2), size("CHANGES", 20, quick=5)
MOST_MS = 50.0
REPORT = Path(__file__).parent / "reports" / "rank_map.md"

#: Milliseconds of scripts, styles and layout: [the first drawing, each change…].
DRAW = """
const [hosts, locals, changes, done] = arguments;
const told = (round) => Array.from({ length: hosts * locals }, (_, rank) => ({
  rank, host: `gpu-${Math.floor(rank / locals)}`, lines: 1000 + round, age: 1, step: round,
  stepAge: (rank * 37 + round * 91) % 400, ...(rank === 133 && { mark: "rank 133 on gpu-16 stands still." }),
}));
(async () => {
  document.getElementById("pulse").hidden = false;
  document.getElementById("pulse").open = true;
  document.getElementById("rank-map").hidden = false;
  const { showMap } = await import("/static/js/logs/rank_map.js");
  const taken = [];
  for (let round = 0; round <= changes; round += 1) {
    const entries = told(round);
    await new Promise(requestAnimationFrame);
    const begun = performance.now();
    showMap(entries);
    document.body.getBoundingClientRect();
    taken.push(performance.now() - begun);
  }
  done(document.querySelectorAll(".cell").length === hosts * locals ? taken : []);
})();
"""


def measure(browser: Browser, path: str) -> tuple[list[float], list[float]]:
    """First drawings and changes, in milliseconds."""
    first, later = [], []
    for _ in range(ROUNDS):
        browser.open(path)
        browser.wait(lambda: browser.all(".log-row:not(.absent)"), "the lines", 60)
        found: list[float] = browser.driver.execute_async_script(DRAW, HOSTS, LOCAL_RANKS, CHANGES)
        assert found, "not every rank has a cell"
        first.append(found[0])
        later += found[1:]
    return first, later


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def main() -> int:
    if programs() is None:
        return not_measured(REPORT, "chromium and chromedriver are not installed")
    with tempfile.TemporaryDirectory(prefix="rank-map-") as name:
        Path(name).chmod(0o711)
        server = Server(Path(name) / "data")
        try:
            server.start()
            path = f"/trials/{long_log.write(server, 1000)}/logs"
            with running_browser(server.url) as browser:
                browser.look(dark=False, width=1440)
                browser.login("admin", server.password)
                first, later = measure(browser, path)
        finally:
            server.close()
    text = f"""# The heat map of {HOSTS * LOCAL_RANKS} ranks

Chromium without a GPU, {ROUNDS} pages, {CHANGES} changes of all ranks on each; scripts, styles and layout, median and
(least to most), on {os.cpu_count()} cores with a load of {os.getloadavg()[0]:.1f} at the end.

| what | milliseconds | goal |
|---|---|---|
| the first drawing | {spread(first)} | median under {MOST_MS:.0f} |
| a change of all ranks | {spread(later)} | median under {MOST_MS:.0f} |
"""
    return finish(
        REPORT,
        text,
        [
            Row("the first drawing of the ranks' map", statistics.median(first), "ms", goal=MOST_MS),
            Row("a change of all ranks", statistics.median(later), "ms", goal=MOST_MS),
        ],
    )


if __name__ == "__main__":
    sys.exit(main())

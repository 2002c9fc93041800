"""The pages of a search of 2,000 trials with 5 hyperparameters in headless Chromium: when each can be used.

The server is the one that `up` starts, on this machine. Usable: the tree or the table stands, or every chart in the
window is drawn. The browser has opened a page of charts before: its first opening fetches and compiles plotly.js, and
is told apart. The server's CPU is what its web and database processes have used meanwhile, for the page and for all
that the page fetches. A search of 10,000 trials is looked at beside it, as a tree and as a table.
`python -m benchmarks.search_pages` writes benchmarks/reports/search_pages.md.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.rows import Row, finish, not_measured, size
from tests.rig.browser import Browser, programs, running_browser
from tests.rig.server import Server

TRIALS = size("TRIALS", 2_000, quick=200)
MANY = size("MANY", 10_000, quick=500)
RUNS = size("RUNS", 9, quick=2)
WARM_UP = 1
USABLE_MS = 1500.0
REPORT = Path(__file__).parent / "reports" / "search_pages.md"
PAGES = {
    "Search": "search",
    "Trials": "trials",
    "Trials, filtered and sorted by a hyperparameter": "trials?min.lr=0.001&sort=hp.lr&c=hp.lr&c=best",
    "Learning curves": "visualization",
    "Parallel coordinates": "visualization/parallel",
    "Scatter plots": "visualization/scatter",
    "Heat maps": "visualization/heat-maps",
    "Importance": "visualization/importance",
}
OF_MANY = ("Search", "Trials", "Trials, filtered and sorted by a hyperparameter")
#: Notes when the page can be used, in milliseconds since the navigation.
WATCH = """
const inWindow = (place) => {
  const { top, bottom } = place.getBoundingClientRect();
  return bottom > 0 && top < innerHeight;
};
const look = () => {
  const section = document.getElementById("charts");
  const shown = section ? [...section.querySelectorAll(".chart")].filter(inWindow) : [];
  const stands = section
    ? shown.length && shown.every((place) => place.querySelector(".main-svg .trace, .main-svg .hm, .main-svg .point"))
    : document.querySelector("#search-tree .entries a, #trials tbody a");
  if (stands) window.usableAt = performance.now(); else requestAnimationFrame(look);
};
addEventListener("DOMContentLoaded", look);
"""


#: (milliseconds until it can be used, milliseconds of the server's CPU) of each load, by page
Loads = dict[str, list[tuple[float, float]]]


def usable(browser: Browser, path: str) -> float:
    browser.driver.get("about:blank")
    browser.open(path)
    browser.wait(lambda: browser.run("return window.usableAt"), "the page", 60)
    return float(browser.run("return window.usableAt"))


def cpu_ms(server: Server) -> float:
    """Return the CPU milliseconds that the web and database processes have used since they began."""
    parts = {
        child.pid for name, child in server.children().items() if name == "postgres" or name.startswith("web")
    }
    found = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            fields = stat.read_text().rpartition(")")[2].split()
            if parts & {int(stat.parent.name), int(fields[1])}:  # or a child of one
                found += int(fields[11]) + int(fields[12])
    return found * 1000 / os.sysconf("SC_CLK_TCK")


def loads(server: Server, browser: Browser, experiment: int, pages: Mapping[str, str], runs: int) -> Loads:
    found: Loads = {name: [] for name in pages}
    for number in range(WARM_UP + runs):
        for name, path in pages.items():
            before = cpu_ms(server)
            took = usable(browser, f"/experiments/{experiment}/{path}")
            if number >= WARM_UP:
                found[name].append((took, cpu_ms(server) - before))
    return found


def measured(server: Server, some: int, many: int) -> tuple[float, Loads, Loads]:
    """Milliseconds of the first page of charts, and the loads of the pages of both searches."""
    with running_browser(server.url) as browser:
        browser.look(dark=False, width=1440)
        browser.login("admin", server.password)
        browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
        first = usable(browser, f"/experiments/{some}/visualization")
        of_some = loads(server, browser, some, PAGES, RUNS)
        of_many = loads(server, browser, many, {name: PAGES[name] for name in OF_MANY}, max(3, RUNS // 3))
    return first, of_some, of_many


def table(found: Loads) -> str:
    lines = ["| page | median | least to most | CPU of the server |", "|---|---|---|---|"]
    for name, pairs in found.items():
        took, cpu = zip(*pairs, strict=True)
        spread = f"{min(took):.0f} to {max(took):.0f}"
        lines.append(f"| {name} | {statistics.median(took):.0f} | {spread} | {statistics.median(cpu):.0f} |")
    return "\n".join(lines)


def main() -> int:
    if programs() is None:
        return not_measured(REPORT, "chromium and chromedriver are not installed")
    with tempfile.TemporaryDirectory(prefix="search-pages-") as folder:
        Path(folder).chmod(0o711)
        server = Server(Path(folder) / "data")
        try:
            server.start()
            some, many = (
                int(server.shell(f"from tests.rig import swept; print(swept.add({what}))"))
                for what in (f"'some', {TRIALS}", f"'many', {MANY}, in_full=200")
            )
            first, of_some, of_many = measured(server, some, many)
        finally:
            server.close()
    text = f"""# The pages of a search of {TRIALS:,} trials with 5 hyperparameters

Milliseconds until a page can be used, {RUNS} runs each, Chromium without a GPU, on {os.cpu_count()} cores with a
load of {os.getloadavg()[0]:.1f} at the end; where other work takes the processor, it stretches all of them. The goal is
a median under {USABLE_MS:.0f}. The CPU is that of the server's web and database processes for the page and what it
fetches, milliseconds, median. The browser's first page of charts, which fetches and compiles plotly.js, took
{first:.0f}.

{table(of_some)}

Of a search of {MANY:,} trials:

{table(of_many)}
"""
    found = [
        Row(
            f"{name} of {trials:,} trials usable",
            statistics.median(took for took, _ in pairs),
            "ms",
            goal=USABLE_MS,
        )
        for trials, pages in ((TRIALS, of_some), (MANY, of_many))
        for name, pairs in pages.items()
    ]
    return finish(REPORT, text, found)


if __name__ == "__main__":
    sys.exit(main())

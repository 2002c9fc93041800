"""The pages of a search of 2,000 trials with 5 hyperparameters in headless Chromium: when each can be used.

The server is the one that `up` starts, on this machine. Usable: the tree or the table stands, or every chart in the
window is drawn. The browser has opened a page of charts before: its first opening fetches and compiles plotly.js, and
is told apart. `python -m benchmarks.search_pages` writes benchmarks/reports/search_pages.md.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from pathlib import Path

from tests.rig import crowd
from tests.rig.browser import Browser, programs, running_browser
from tests.rig.server import Server

TRIALS = int(os.environ.get("TRIALS", "2000"))
RUNS = int(os.environ.get("RUNS", "9"))
WARM_UP = 1
USABLE_MS = 1500.0
REPORT = Path(__file__).parent / "reports" / "search_pages.md"
PAGES = {
    "Search": "search",
    "Trials": "trials",
    "Trials, filtered and sorted by a hyperparameter": "trials?min.lr=0.001&sort=hp.lr&c=hp.lr&c=best",
    "Learning curves": "visualisation",
    "Parallel coordinates": "visualisation/parallel",
    "Scatter plots": "visualisation/scatter",
    "Heat maps": "visualisation/heat-maps",
    "Importance": "visualisation/importance",
}
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


def usable(browser: Browser, path: str) -> float:
    browser.driver.get("about:blank")
    browser.open(path)
    browser.wait(lambda: browser.run("return window.usableAt"), "the page", 60)
    return float(browser.run("return window.usableAt"))


def measured(server: Server, experiment: int) -> tuple[float, dict[str, list[float]]]:
    """Milliseconds of the first page of charts, and of each page by its name."""
    found: dict[str, list[float]] = {name: [] for name in PAGES}
    with running_browser(server.url) as browser:
        browser.look(dark=False, width=1440)
        browser.login("admin", server.password)
        browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
        first = usable(browser, f"/experiments/{experiment}/visualisation")
        for number in range(WARM_UP + RUNS):
            for name, path in PAGES.items():
                took = usable(browser, f"/experiments/{experiment}/{path}")
                if number >= WARM_UP:
                    found[name].append(took)
    return first, found


def main() -> int:
    if programs() is None:
        print("needs chromium and chromedriver")
        return 2
    with tempfile.TemporaryDirectory(prefix="search-pages-") as folder:
        Path(folder).chmod(0o711)
        server = Server(Path(folder) / "data")
        try:
            server.start()
            code = f"from tests.rig import swept; print(swept.add('many', {TRIALS}))"
            first, found = measured(server, int(crowd.shell(server, code)))
        finally:
            server.close()
    lines = [
        f"| {name} | {statistics.median(values):.0f} | {min(values):.0f} to {max(values):.0f} |"
        for name, values in found.items()
    ]
    text = f"""# The pages of a search of {TRIALS:,} trials with 5 hyperparameters

Milliseconds until a page can be used, {RUNS} runs each, Chromium without a GPU, on {os.cpu_count()} cores with a
load of {os.getloadavg()[0]:.1f} at the end; where other work takes the processor, it stretches all of them. The goal is
a median under {USABLE_MS:.0f}. The browser's first page of charts, which fetches and compiles plotly.js, took
{first:.0f}.

| page | median | least to most |
|---|---|---|
{chr(10).join(lines)}
"""
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(text)
    print(text)
    return 0 if all(statistics.median(values) < USABLE_MS for values in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

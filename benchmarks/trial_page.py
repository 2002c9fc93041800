"""The Metrics page of a trial with 40 metrics of 100,000 points in headless Chromium: when it can be used, and how soon
a zoom shows its detail.

The server is the one that `up` starts, on this machine. Usable: the table stands and every chart in the window is
drawn, with its points' number beside it. The first opening of a browser fetches and compiles plotly.js and is told
apart, on this machine and by way of a phone's connection (SLOW), which the browser emulates. A zoom is done when every
chart in the window shows the points of the new window. `python -m benchmarks.trial_page` writes
benchmarks/reports/trial_page.md.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.rows import Row, finish, not_measured, size
from tests.rig import long_run
from tests.rig.browser import Browser, programs, running_browser
from tests.rig.server import Server

METRICS = size("METRICS", 40, quick=10)
POINTS = size("POINTS", 100_000, quick=5_000)
MANY = size("MANY", 1_000, quick=50)
RUNS = size("RUNS", 15, quick=2)
WARM_UP = 2
COLD_RUNS = 3
USABLE_MS = 1500.0
FIRST_MS, FIRST_KB = 500.0, 400.0
#: 3G: 300 ms, 0.8 Mbit/s
SLOW = {"offline": False, "latency": 300, "downloadThroughput": 100_000, "uploadThroughput": 100_000}
FAST = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
SLOW_MS = 6000.0
REPORT = Path(__file__).parent / "reports" / "trial_page.md"

#: Notes when every chart in the window is drawn and the table stands, in milliseconds since the navigation.
WATCH = """
const inWindow = (place) => {
  const { top, bottom } = place.getBoundingClientRect();
  return bottom > 0 && top < innerHeight;
};
const isDrawn = (place) => place.querySelector(".main-svg .trace path")
  && place.panel?.points.textContent !== "Loading";
const look = () => {
  const shown = [...document.querySelectorAll("#charts .chart")].filter(inWindow);
  if (shown.length && document.querySelector("#metric-table td") && shown.every(isDrawn)) {
    window.usableAt = performance.now();
    window.chartsInWindow = shown.length;
  } else requestAnimationFrame(look);
};
addEventListener("DOMContentLoaded", look);
"""
#: Zooms by a key and waits for the new numbers of points; then milliseconds.
ZOOM = """
const done = arguments[0];
const charts = [...document.querySelectorAll("#charts .chart")];
const shown = charts.filter((place) => place.getBoundingClientRect().top < innerHeight);
const begun = performance.now();
shown[0].dispatchEvent(new KeyboardEvent("keydown", { key: "+", bubbles: true }));
const asked = () => new URLSearchParams(location.search).get("from");
const isFine = ({ panel }) => panel.detail && String(panel.detail.from) === asked() && panel.points.textContent !== "";
const look = () => { if (shown.every(isFine)) done(performance.now() - begun); else requestAnimationFrame(look); };
requestAnimationFrame(look);
"""


#: What came over the network for this page: address, bytes, and bytes when unpacked.
CAME = """
const came = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
return came.filter(({ startTime }) => startTime < window.usableAt)
  .map(({ name, transferSize, decodedBodySize }) => [name, transferSize, decodedBodySize]);
"""
#: what a table calls it, and a part of its address; the first that fits, the page itself last
KINDS = {
    "plotly.js": "/plotly/",
    "curves of the charts in the window": "/curves?",
    "the typeface": "/fonts/",
    "htmx": "/django_htmx/",
    "scripts of ours": "/js/",
    "style sheets": "/css/",
    "the page": "",
}


@contextmanager
def opened(server: Server) -> Iterator[Browser]:
    """A browser without any cache, logged in, that notes when the page can be used."""
    with running_browser(server.url) as browser:
        browser.look(dark=False, width=1440)
        browser.login("admin", server.password)
        browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
        browser.driver.set_script_timeout(60)
        yield browser


def usable(browser: Browser, path: str) -> float:
    browser.driver.get("about:blank")
    browser.open(path)
    browser.wait(lambda: browser.run("return window.usableAt"), "the charts", 60)
    return float(browser.run("return window.usableAt"))


def measured(server: Server, path: str, many: str) -> tuple[dict[str, list[float]], int, list[list[Any]]]:
    """Milliseconds of each opening and zoom, how many charts stood in the window, and what a first opening fetched."""
    found: dict[str, list[float]] = {"first": [], "slow": [], "again": [], "many": [], "zoom": []}
    for _ in range(COLD_RUNS):
        with opened(server) as browser:
            command = browser.driver.execute_cdp_cmd
            command("Network.enable", {})
            for name, network in (("first", FAST), ("slow", SLOW)):
                browser.driver.get("about:blank")  # after which nothing is fetched ahead
                command("Network.clearBrowserCache", {})
                command("Network.emulateNetworkConditions", network)
                found[name].append(usable(browser, path))
                came = browser.run(CAME)
            command("Network.emulateNetworkConditions", FAST)  # Chromium keeps it, for the next browser too
    with opened(server) as browser:
        for number in range(WARM_UP + RUNS):
            times = {"again": usable(browser, path)}
            charts = int(browser.run("return window.chartsInWindow"))
            times["zoom"] = float(browser.driver.execute_async_script(ZOOM))
            times["many"] = usable(browser, many)
            for name, value in times.items():
                if number >= WARM_UP:
                    found[name].append(value)
    return found, charts, came


def row(name: str, values: list[float], goal: str) -> str:
    return f"| {name} | {statistics.median(values):.0f} | {min(values):.0f} to {max(values):.0f} | {goal} |"


def by_kind(came: list[list[Any]]) -> list[str]:
    """The lines of a table: kilobytes as sent, and when unpacked, by kind; then of all."""
    sums = {kind: [0, 0, 0] for kind in KINDS}
    for address, *sizes in came:
        kind = next(kind for kind, part in KINDS.items() if part in address)
        sums[kind] = [old + new for old, new in zip(sums[kind], [1, *sizes], strict=True)]
    sums["all"] = [sum(column) for column in zip(*sums.values(), strict=True)]
    return [
        f"| {kind} | {files} | {sent / 1000:,.1f} | {decoded / 1000:,.0f} |"
        for kind, (files, sent, decoded) in sums.items()
    ]


def main() -> int:
    if programs() is None:
        return not_measured(REPORT, "chromium and chromedriver are not installed")
    with tempfile.TemporaryDirectory(prefix="trial-page-") as name:
        Path(name).chmod(0o711)
        server = Server(Path(name) / "data")
        try:
            server.start()
            path = f"/trials/{long_run.write(server, METRICS, POINTS)}/metrics"
            many = f"/trials/{long_run.write(server, MANY, 20, name='many')}/metrics"
            begun = time.monotonic()
            found, charts, came = measured(server, path, many)
            took = time.monotonic() - begun
        finally:
            server.close()
    kilobytes = sum(sent for _, sent, _ in came) / 1000
    lines = [
        row("usable", found["again"], f"median under {USABLE_MS:.0f}"),
        row(
            "usable, first opening of a browser",
            found["first"],
            f"median under {FIRST_MS:.0f}; {kilobytes:.0f} kB, at most {FIRST_KB:.0f}",
        ),
        row("usable, first opening, 3G", found["slow"], f"median under {SLOW_MS:.0f}"),
        row("a zoom to half shows its detail", found["zoom"], ""),
        row(f"usable, {MANY:,} metrics of 20 points", found["many"], f"median under {USABLE_MS:.0f}"),
    ]
    text = f"""# The Metrics page of a trial with {METRICS} metrics of {POINTS:,} points

Milliseconds, {RUNS} runs each ({COLD_RUNS} of the first opening) over {took:.0f} s, Chromium without a GPU, on
{os.cpu_count()} cores with a load of {os.getloadavg()[0]:.1f} at the end; where other work takes the processor, it
stretches all of them. Usable: the table stands and the {charts} charts in the window are drawn. 3G: {SLOW["latency"]}
ms and {SLOW["downloadThroughput"] * 8 / 1e6} Mbit/s, as Chromium emulates them.

| what | median | least to most | goal |
|---|---|---|---|
{chr(10).join(lines)}

What a first opening fetches until it can be used:

| what | files | kB | unpacked |
|---|---|---|---|
{chr(10).join(by_kind(came))}
"""
    return finish(
        REPORT,
        text,
        [
            Row("metrics page usable", statistics.median(found["again"]), "ms", goal=USABLE_MS),
            Row(
                "metrics page usable, first opening, 3G", statistics.median(found["slow"]), "ms", goal=SLOW_MS
            ),
            Row(
                f"metrics page usable, {MANY:,} metrics",
                statistics.median(found["many"]),
                "ms",
                goal=USABLE_MS,
            ),
            Row("a zoom shows its detail", statistics.median(found["zoom"]), "ms"),
            Row("metrics page usable, first opening", statistics.median(found["first"]), "ms", goal=FIRST_MS),
            Row("a first opening fetches", kilobytes, "kB", most=FIRST_KB),
        ],
    )


if __name__ == "__main__":
    sys.exit(main())

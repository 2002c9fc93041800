"""The log viewer with a log of a million lines, in headless Chromium: frames while it is scrolled from its beginning to
its end, beside a bare virtual list of the same rows in the same run, and how soon a link to a line stands.

The server is the one that `up` starts, on this machine. Each round scrolls both by the same steps, one a frame: the
whole log in SWEEP of them, which outruns every fetch, then READ steps of five rows, as somebody does who reads on. The
bare list has its rows in memory and does nothing else. `python -m benchmarks.logs_viewer` writes
benchmarks/reports/logs_viewer.md.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.rows import Row, finish, not_measured, size
from tests.rig import long_log
from tests.rig.browser import Browser, programs, running_browser
from tests.rig.server import Server

LINES = size("LINES", 1_000_000, quick=50_000)
ROUNDS = size("ROUNDS", 5, quick=1)
OPENINGS = size("OPENINGS", 9, quick=2)
SWEEP, READ, READ_PIXELS = 400, 300, 95
RATIO, TASK_MS, OPEN_MS, ROWS = 0.8, 100.0, 1000.0, 150
REPORT = Path(__file__).parent / "reports" / "logs_viewer.md"

#: Steps of the scroll bar, one a frame; then [frames a second of both parts, longest task, most rows in the page].
SCROLL = """
const [sweep, read, pixels, done] = arguments;
const view = document.getElementById("log-view");
const tasks = [];
const observer = new PerformanceObserver((list) => tasks.push(...list.getEntries().map((task) => task.duration)));
observer.observe({ type: "longtask" });
let most = 0;
const frame = () => new Promise(requestAnimationFrame);
const run = async (steps, step) => {
  const begun = await frame();
  let now = begun;
  for (let index = 1; index <= steps; index += 1) {
    step(index);
    now = await frame();
    most = Math.max(most, view.querySelectorAll(".log-row").length);
  }
  return (steps * 1000) / (now - begun);
};
(async () => {
  view.scrollTop = 0;
  await frame();
  await frame();
  const way = view.scrollHeight - view.clientHeight;
  const whole = await run(sweep, (index) => { view.scrollTop = (way * index) / sweep; });
  view.scrollTop = view.scrollHeight / 2;
  await frame();
  await frame();
  const onward = await run(read, () => { view.scrollTop += pixels; });
  observer.disconnect();
  done([whole, onward, Math.max(0, ...tasks), most]);
})();
"""
#: A virtual list of the same rows and nothing else: all in memory, one height.
BARE = """
const [lines, top] = arguments;
document.body.innerHTML = `<div id="log-view"><div id="space"></div><div id="rows"></div></div>`;
const style = document.createElement("style");
style.textContent = `body { margin: 0 }
  #log-view { position: relative; height: ${top}px; overflow: auto; font: 12px/19px monospace }
  #rows { position: absolute; left: 0; top: 0; min-width: 100% }
  .log-row { display: flex; gap: 12px; height: 19px; white-space: pre }
  .no { width: 74px; text-align: right } .rank { min-width: 30px; text-align: center }`;
document.head.append(style);
const view = document.getElementById("log-view"), rows = document.getElementById("rows");
document.getElementById("space").style.height = `${lines * 19}px`;
const cell = (name, text) => {
  const span = document.createElement("span");
  span.className = name;
  span.textContent = text;
  return span;
};
const time = (number) => new Date((1795255200 + number / 100) * 1000).toISOString().slice(11, 23);
const row = (number) => {
  const line = document.createElement("div");
  line.className = "log-row";
  line.append(cell("no", number), cell("at", time(number)), cell("rank", number % 8), cell("host", "gpu-1"),
    cell("text", `step ${number} loss ${(2 - number / 1e7).toFixed(5)} lr 2.8e-4 ${5000 + number % 300} tok/s`));
  return line;
};
const draw = () => {
  const first = Math.max(0, Math.floor(view.scrollTop / 19) - 20);
  const last = Math.min(lines, Math.ceil((view.scrollTop + view.clientHeight) / 19) + 20);
  rows.style.transform = `translateY(${first * 19}px)`;
  rows.replaceChildren(...Array.from({ length: last - first }, (_, index) => row(first + index + 1)));
};
view.addEventListener("scroll", draw, { passive: true });
draw();
"""
#: Notes when the line that the link names stands in the page, in milliseconds since the navigation.
WATCH = """
const number = location.hash.slice(2);
const look = () => {
  const row = document.querySelector(`.log-row.pointed[data-number="${number}"]:not(.absent)`);
  if (row) window.stoodAt = performance.now(); else requestAnimationFrame(look);
};
addEventListener("DOMContentLoaded", look);
"""


def scroll(browser: Browser) -> list[float]:
    found: list[float] = browser.driver.execute_async_script(SCROLL, SWEEP, READ, READ_PIXELS)
    return found


def rounds(browser: Browser, path: str) -> tuple[list[list[float]], list[list[float]]]:
    """What `scroll` finds for the viewer and for the bare list, in turns."""
    viewer, bare = [], []
    browser.driver.set_script_timeout(300)
    for _ in range(ROUNDS):
        browser.open(path)
        browser.wait(lambda: browser.all(".log-row:not(.absent)"), "the lines", 60)
        height = browser.run("return document.getElementById('log-view').clientHeight")
        viewer.append(scroll(browser))
        browser.driver.get("about:blank")
        browser.run(BARE, LINES, height)
        bare.append(scroll(browser))
    return viewer, bare


def openings(browser: Browser, path: str) -> list[float]:
    """Milliseconds from the navigation until the line of the link stands in view, each at another place."""
    script: Any = browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
    found = []
    for index in range(OPENINGS + 1):
        browser.driver.get("about:blank")
        browser.open(f"{path}#L{LINES * (index + 1) // (OPENINGS + 2)}")
        browser.wait(lambda: browser.run("return window.stoodAt"), "the line of the link", 60)
        if index:  # the first one fills the caches
            found.append(float(browser.run("return window.stoodAt")))
    browser.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
    return found


def report(viewer: list[list[float]], bare: list[list[float]], opened: list[float]) -> tuple[str, list[Row]]:
    """The table, and its figures."""
    lines, kept = [], []
    for index, name in enumerate(("from the beginning to the end", "five rows a frame")):
        ours, theirs = ([each[index] for each in found] for found in (viewer, bare))
        ratio, what = statistics.median(ours) / statistics.median(theirs), f"frames a second, {name}"
        lines.append(f"| {what} | {spread(ours)} | {spread(theirs)} | {ratio:.2f} x; at least {RATIO} x |")
        kept.append(Row(what, ratio, "x a bare list", least=RATIO))
    tasks, most = max(each[2] for each in viewer), max(each[3] for each in viewer)
    bare_task, bare_rows = max(each[2] for each in bare), max(each[3] for each in bare)
    lines.append(f"| longest task, ms | {tasks:.0f} | {bare_task:.0f} | none over {TASK_MS:.0f} |")
    lines.append(f"| most rows in the page | {most:.0f} | {bare_rows:.0f} | at most {ROWS} |")
    lines.append(f"| a link to a line stands, ms | {spread(opened)} | | median under {OPEN_MS:.0f} |")
    kept += [
        Row("longest task while one scrolls", tasks, "ms", goal=TASK_MS),
        Row("most rows in the page", most, "rows", most=ROWS),
        Row("a link to a line stands", statistics.median(opened), "ms", goal=OPEN_MS),
    ]
    return "\n".join(lines), kept


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


def main() -> int:
    if programs() is None:
        return not_measured(REPORT, "chromium and chromedriver are not installed")
    with tempfile.TemporaryDirectory(prefix="logs-viewer-") as name:
        Path(name).chmod(0o711)
        server = Server(Path(name) / "data")
        try:
            server.start()
            path = f"/trials/{long_log.write(server, LINES)}/logs"
            with running_browser(server.url) as browser:
                browser.look(dark=False, width=1440)
                browser.login("admin", server.password)
                begun = time.monotonic()
                opened = openings(browser, path)
                viewer, bare = rounds(browser, path)
                took = time.monotonic() - begun
        finally:
            server.close()
    table, found = report(viewer, bare, opened)
    text = f"""# The log viewer with {LINES:,} lines

Chromium without a GPU, {ROUNDS} rounds of each in turns over {took:.0f} s, median and (least to most), on
{os.cpu_count()} cores with a load of {os.getloadavg()[0]:.1f} at the end; where other work takes the processor, it
stretches tasks and frames of both. Each round scrolls the whole log in {SWEEP} frames and reads on for {READ}.
The bare list is a virtual list of the same rows in memory.

| what | viewer | bare list | goal |
|---|---|---|---|
{table}
"""
    return finish(REPORT, text, found)


if __name__ == "__main__":
    sys.exit(main())

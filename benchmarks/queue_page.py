"""The queue page with 10,000 jobs: its first byte beside an empty queue's of the same run, when it can be used, and how
soon an edit is seen in a second browser, and how soon a click or a key is answered by a frame.

The server is the one that `up` starts, on this machine, with its scheduler at work on the whole queue. First bytes are
taken in turns with those of the empty queue, over one kept connection each; the rest in Chromium.
`python -m benchmarks.queue_page` writes benchmarks/reports/queue_page.md.
"""

from __future__ import annotations

import http.client
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from benchmarks.rows import Row, finish, not_measured, size
from embedded.processes import wait_until
from tests.rig import crowd
from tests.rig.browser import Browser, programs, running_browser
from tests.rig.server import Server

JOBS = size("JOBS", 10_000, quick=1_000)
MINE, SWEEP = JOBS // 30, JOBS // 20
RUNS = size("RUNS", 15, quick=3)
WARM_UP = size("WARM_UP", 3, quick=1)
RATIO, USABLE_MS, EDIT_MS, INP_MS = 1.5, 1000.0, 100.0, 200.0
REPORT = Path(__file__).parent / "reports" / "queue_page.md"
VIEWS = {
    "opening (mine, next departures)": "/jobs/default",
    "all, first page": "/jobs/default?show=all",
    "all, page 40": "/jobs/default?show=all&page=40",
    "a search": "/jobs/default?q=job-12",
}
EMPTY = "/jobs/empty"
LIVE_VIEW = "/jobs/default?show=mine"

USABLE = """
const [page] = performance.getEntriesByType("navigation");
const paint = performance.getEntriesByName("first-contentful-paint")[0];
return page.domContentLoadedEventEnd > 0 && paint ? Math.max(page.domContentLoadedEventEnd, paint.startTime) : null;
"""
WATCH = """
const [id, priority] = arguments;
window.seenAt = 0;
const look = () => {
  if (document.getElementById(`job-${id}`)?.dataset.priority === String(priority)) window.seenAt = Date.now();
  else requestAnimationFrame(look);
};
look();
"""
INTERACTIONS = """
window.slowest = new Map();
new PerformanceObserver((list) => {
  for (const { interactionId: id, duration } of list.getEntries()) {
    if (id) window.slowest.set(id, Math.max(duration, window.slowest.get(id) ?? 0));
  }
}).observe({ type: "event", durationThreshold: 16, buffered: true });
"""
EDIT = """
const [id, priority, done] = arguments;
const headers = {...JSON.parse(document.body.getAttribute("hx-headers")), "Content-Type": "application/json"};
const body = JSON.stringify({updates: [{jobId: id, priority}]});
const begun = Date.now();
fetch("/api/v1/job-queues", {method: "POST", headers, body}).then(
  (answer) => done([begun, Date.now() - begun, answer.status]));
"""


def first_bytes(server: Server, cookie: str, paths: list[str]) -> dict[str, list[float]]:
    """Milliseconds from the request to the first byte of the answer's body, in turns."""
    found: dict[str, list[float]] = {path: [] for path in paths}
    connections = {path: http.client.HTTPConnection("127.0.0.1", server.port, timeout=60) for path in paths}
    for number in range(WARM_UP + RUNS):
        for path, connection in connections.items():
            begun = time.perf_counter()
            connection.request("GET", path, headers={"Cookie": cookie})
            answer = connection.getresponse()
            answer.read(1)
            took = (time.perf_counter() - begun) * 1000
            answer.read()
            if answer.status != 200:
                raise RuntimeError(f"{path} answers {answer.status}")
            if number >= WARM_UP:
                found[path].append(took)
    return found


def usable(browser: Browser, path: str) -> list[float]:
    """Milliseconds from the navigation until the page is painted and its scripts have run."""
    found = []
    for number in range(WARM_UP + RUNS):
        browser.open(path)
        browser.wait(lambda: browser.run(USABLE) is not None, "the page")
        if number >= WARM_UP:
            found.append(float(browser.run(USABLE)))
    return found


def edits(editor: Browser, viewer: Browser, job: str) -> tuple[list[float], list[float]]:
    """Milliseconds from the edit in one browser until the other shows it, and until the first has its answer."""
    seen, answered = [], []
    for number in range(WARM_UP + RUNS):
        priority = 10 + number
        viewer.run(WATCH, job, priority)
        begun, took, status = editor.driver.execute_async_script(EDIT, job, priority)
        if status != 200:
            raise RuntimeError(f"the edit was answered with {status}")
        viewer.wait(lambda: viewer.run("return window.seenAt"), "the edit to be seen", 30)
        if number >= WARM_UP:
            seen.append(float(viewer.run("return window.seenAt")) - begun)
            answered.append(float(took))
        # not a wait for something, but the pause between two edits: always the same one would always meet the fetch
        # that follows the pass after the edit before
        time.sleep(random.uniform(1.0, 3.0))
    return seen, answered


def interactions(browser: Browser) -> list[float]:
    """Milliseconds from each click or key to the next frame, as browsers count them for INP; 8 where none is told."""
    browser.open(VIEWS["all, first page"])
    browser.run(INTERACTIONS)
    row = "tr[data-job]:nth-of-type(3)"
    done = 0
    for _ in range(RUNS):
        for selector in (f"{row} input[name=job]", f"{row} [data-menu]", "#select-all"):
            browser.one(selector).click()
            done += 1
        for key in (Keys.ESCAPE, "k", "j", "j", "x", "x", Keys.ESCAPE):
            ActionChains(browser.driver).send_keys(key).perform()
            done += 1
    time.sleep(1.0)  # entries are told behind the frames
    told = [float(each) for each in browser.run("return [...window.slowest.values()]")]
    return told + [8.0] * max(0, done - len(told))


def planned(server: Server) -> bool:
    """Whether a pass has seen the whole queue."""
    code = (
        "from dispatch.passes import kept_plan; from hosts.models import ResourcePool as P;"
        "print(len(kept_plan.read(P.objects.get(name='default').pk).document.get('waits', ())))"
    )
    return int(server.shell(code)) >= JOBS


def row(name: str, values: list[float], goal: str) -> str:
    ordered = sorted(values)
    return f"| {name} | {statistics.median(ordered):.0f} | {ordered[0]:.0f} to {ordered[-1]:.0f} | {goal} |"


def cookie_of(browser: Browser) -> str:
    return "; ".join(f"{each['name']}={each['value']}" for each in browser.driver.get_cookies())


def measure(server: Server) -> tuple[str, list[Row]]:
    """The report's table, and its figures."""
    with running_browser(server.url) as editor, running_browser(server.url) as viewer:
        for browser in (editor, viewer):
            browser.look(dark=False, width=1440)
            browser.login("admin", server.password)
        bytes_ms = first_bytes(server, cookie_of(editor), [EMPTY, *VIEWS.values()])
        viewer.open(LIVE_VIEW)
        viewer.wait(lambda: viewer.text("#connection .word") == "Connected", "the connection")
        editor.open(EMPTY)
        job = viewer.run("return document.querySelector('tr[data-job]').dataset.job")
        seen, answered = edits(editor, viewer, job)
        inp = interactions(editor)
        usable_ms = {name: usable(editor, path) for name, path in VIEWS.items()}
    empty = statistics.median(bytes_ms[EMPTY])
    lines, kept = [row("first byte, empty queue", bytes_ms[EMPTY], "")], []

    def told(what: str, values: list[float], goal: float) -> None:
        lines.append(row(what, values, f"median under {goal:.0f}"))
        kept.append(Row(what, statistics.median(values), "ms", goal=goal))

    for name, path in VIEWS.items():
        what, ratio = f"first byte, {name}", statistics.median(bytes_ms[path]) / empty
        lines.append(row(what, bytes_ms[path], f"{ratio:.2f} x empty; at most {RATIO:g} x"))
        kept.append(Row(what, ratio, "x the empty queue", most=RATIO))
    for name, values in usable_ms.items():
        told(f"usable, {name}", values, USABLE_MS)
    told("edit seen in a second browser", seen, EDIT_MS)
    slow = sorted(inp)[int(0.98 * len(inp))]
    lines.append(
        row(f"a click or key is answered, {len(inp)} of them", inp, f"98 % within {INP_MS:.0f}: {slow:.0f}")
    )
    kept.append(Row("98 % of clicks and keys are answered", slow, "ms", goal=INP_MS))
    lines.append(row("edit answered to the first", answered, ""))
    return "\n".join(lines), kept


def main() -> int:
    if programs() is None:
        return not_measured(REPORT, "chromium and chromedriver are not installed")
    with tempfile.TemporaryDirectory(prefix="queue-page-") as name:
        Path(name).chmod(0o711)
        server = Server(Path(name) / "data")
        try:
            server.start()
            crowd.gather(server, JOBS, mine=MINE, sweep=SWEEP)
            server.shell("from hosts.models import ResourcePool; ResourcePool.objects.create(name='empty')")
            if not wait_until(lambda: planned(server), 120):
                raise RuntimeError("no pass has seen the whole queue")
            table, found = measure(server)
        finally:
            server.close()
    load = os.getloadavg()[0]
    text = "\n".join(
        [
            f"# The queue page with {JOBS:,} jobs",
            "",
            f"Milliseconds, {RUNS} runs each, on {os.cpu_count()} cores with a load of {load:.1f} at the end. "
            f"{MINE} jobs are the viewer's, {SWEEP} one sweep. Usable: painted, and its scripts have run.",
            "",
            "| what | median | least to most | goal |",
            "|---|---|---|---|",
            table,
            "",
        ]
    )
    return finish(REPORT, text, found)


if __name__ == "__main__":
    sys.exit(main())

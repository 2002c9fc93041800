"""How late a line is in the page: from a rank's print on a host, through runner, server and socket, to Chromium's DOM.

Two hosts x two ranks, together 5,000 lines a second. Every line begins with the time of its print; the page notes the
highest line number in its DOM whenever that changes. Host, server and browser share this machine and its clock.
"""

from __future__ import annotations

import bisect
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.rows import size

LINES_PER_SECOND, SECONDS = 5000, size("PAGE_SECONDS", 15, quick=5)
RANKS = 4

WORKER = f"""
import sys, time
rate, total = {LINES_PER_SECOND // RANKS}, {LINES_PER_SECOND // RANKS * SECONDS}
begin, done = time.monotonic(), 0
while done < total:
    due = min(total, int((time.monotonic() - begin) * rate) + 1)
    for number in range(done, due):
        print(f"{{time.time():.6f}} step {{number}} loss 0.123456 lr 1.000e-03 throughput 123456 samples/s", flush=True)
    done = due
    time.sleep(0.005)
"""
WATCH = """
const rows = document.querySelector(".log-rows");
window.seen = [];
let newest = 0;
new MutationObserver(() => {
  const all = rows.querySelectorAll("[data-number]:not(.absent)");
  const last = all.length ? Number(all[all.length - 1].dataset.number) : 0;
  if (last > newest) { newest = last; window.seen.push([last, Date.now()]); }
}).observe(rows, { childList: true, subtree: true, characterData: true, attributes: true });
"""


def ages(stack: Any, browser: Any) -> list[float]:
    """Milliseconds from print to DOM of every line that was printed after the page watched."""
    from tests.rig.stack import LAUNCHER, config

    experiment = stack.submit({"launch.py": LAUNCHER, "worker.py": WORKER}, config(RANKS))
    stack.wait(lambda: stack.get(f"/api/v1/experiments/{experiment}/trials")["trials"], 30, "a trial")
    trial = stack.trial(experiment)["id"]
    browser.open(f"/trials/{trial}/logs")
    browser.run(WATCH)
    browser.wait(lambda: browser.run("return window.seen.length > 5"), "the first lines", 60)
    if stack.wait_end(experiment, 180) != "STATE_COMPLETED":
        raise RuntimeError("the experiment did not complete")
    browser.wait(lambda: browser.text("#log-state") == "Complete", "the log to be complete", 60)
    seen = browser.run("return window.seen")
    numbers, times = [number for number, _ in seen], [at for _, at in seen]
    printed = {
        int(record["id"]): 1000 * float(record["log"].split()[0])
        for record in stack.records(trial)
        if record.get("rankId") is not None
    }
    if len(printed) != LINES_PER_SECOND * SECONDS:
        raise RuntimeError(f"{len(printed)} of {LINES_PER_SECOND * SECONDS} lines are stored")
    return [
        times[bisect.bisect_left(numbers, number)] - at
        for number, at in printed.items()
        if numbers[2] < number <= numbers[-1]
    ]


def measure() -> list[float]:
    """Parts of its own, started and ended here."""
    from tests.rig.browser import running_browser
    from tests.rig.hosts import HostRig
    from tests.rig.server import Server
    from tests.rig.stack import Stack

    with tempfile.TemporaryDirectory(prefix="print-to-page-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "server").mkdir(mode=0o755)
        rig = HostRig(folder / "hosts")
        server = Server(folder / "server" / "data", rig.server_address)
        try:
            stack = Stack(server.start(), rig.take(2))
            stack.add_hosts()
            with running_browser(server.url) as browser:
                browser.look(dark=False, width=1440)
                browser.login("admin", server.password)
                return ages(stack, browser)
        finally:
            server.close()
            rig.close()

"""The pictures of docs/img, taken from the running product: `make screenshots`.

A server of its own, this machine as its host, a training with four ranks, a search and a queue of other people's jobs.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from pathlib import Path

from tests.rig import crowd, parts
from tests.rig.browser import WIDE, Browser, programs, running_browser
from tests.rig.server import ROOT, Server
from tests.rig.stack import Stack, config, local_host

FOLDER = ROOT / "docs" / "img"
MOST_BYTES = 150 * 1024
QUALITY = 80
HEIGHT = 860
RANKS, STEPS = 4, 400

#: Starts the ranks, and reports what a training would.
LAUNCHER = f"""
import math, subprocess, sys, time
import determined as det

ranks = [
    subprocess.Popen([sys.executable, "-m", "determined.launch.wrap_rank", str(n), sys.executable, "rank.py", str(n)])
    for n in range({RANKS})
]
with det.core.init() as core_context:
    for step in range(10, {STEPS} + 1, 10):
        loss = 0.2 + 2.1 * math.exp(-step / 90) + 0.04 * math.sin(step / 7)
        core_context.train.report_training_metrics(step, {{"loss": loss, "accuracy": 1 - loss / 2.5}})
        if step % 50 == 0:
            core_context.train.report_validation_metrics(step, {{"loss": loss + 0.05}})
while not core_context.preempt.should_preempt():
    time.sleep(1)
for rank in ranks:
    rank.terminate()
"""
RANK = f"""
import logging, math, sys, time

number = int(sys.argv[1])
print(f"rank {{number}} of {RANKS}: model of 86 M parameters, batch 64", flush=True)
for step in range(10, {STEPS} + 1, 10):
    loss = 0.2 + 2.1 * math.exp(-step / 90) + 0.03 * math.sin(step / 7 + number)
    print(f"step {{step:4d}}  loss {{loss:.4f}}  {{118 + number + step % 7}} samples/s", flush=True)
    if number == 2 and step % 150 == 0:
        print("WARNING: 3 samples of this batch could not be read and were left out", file=sys.stderr, flush=True)
    time.sleep(0.05)
time.sleep(3600)
"""


def main() -> int:
    if programs() is None:
        sys.stderr.write("SKIPPED: no chromium here.\n")
        return 1
    FOLDER.mkdir(exist_ok=True)
    with parts.private_folder("pictures") as path:
        path.chmod(0o711)
        server = Server(path / "data")
        try:
            with (
                local_host(server.start(), "gpu1", slots=RANKS) as stack,
                running_browser(server.url) as browser,
            ):
                browser.look(dark=False, width=WIDE)
                browser.login("admin", server.password)
                _take_all(stack, browser)
        finally:
            server.close()
    return 0


def _take_all(stack: Stack, browser: Browser) -> None:
    training = stack.submit(
        {"launcher.py": LAUNCHER, "rank.py": RANK},
        config(RANKS, "python3 launcher.py", name="vit-base", labels=["vision"]),
    )
    trial = stack.trial(training)["id"]
    stack.wait(lambda: len(stack.records(trial)) >= RANKS * STEPS // 10, 180, "the log")
    # the training holds all slots: these wait
    crowd.gather(stack.server, 24, mine=5, sweep=8)
    added = crowd.shell(
        stack.server, "from tests.rig import swept; print(swept.add('lr-sweep', 48, validations=90))"
    )
    search = int(added.split()[-1])
    jobs = stack.get("/api/v1/job-queues?resourcePool=default&limit=100")["jobs"]
    mine = next(job["jobId"] for job in jobs if job["name"] == "job-9")

    _take(
        browser, "experiment", f"/experiments/{training}", lambda: browser.all("#charts .main-svg, .main-svg")
    )
    _take(browser, "logs", f"/trials/{trial}/logs", lambda: "step" in browser.text("main"))
    for theme in ("light", "dark"):
        _take(browser, "queue", "/jobs/default?show=all", lambda: browser.all("tr[data-place]"), theme=theme)
    _take(browser, "manage-job", f"/jobs/manage/{mine}", lambda: browser.text("main"))
    _take(browser, "search-tree", f"/experiments/{search}/search", lambda: browser.text("main"))
    _take(
        browser,
        "search-parallel",
        f"/experiments/{search}/visualisation/parallel",
        lambda: browser.all("#charts .main-svg"),
    )


def _take(
    browser: Browser, name: str, address: str, ready: Callable[[], object], *, theme: str = "light"
) -> None:
    browser.look(dark=theme == "dark", width=WIDE, height=HEIGHT)
    browser.open(address)
    browser.wait(ready, f"{address} to be drawn")
    browser.wait(lambda: not browser.complaints(), f"{address} to be quiet")
    target = FOLDER / f"{name}-{theme}.webp"
    shot = browser.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    target.write_bytes(base64.b64decode(shot["data"]))
    if len(sys.argv) > 1:  # a folder for those who want to look at them as they are
        browser.save(Path(sys.argv[1], f"{name}-{theme}.png"))
    size = target.stat().st_size
    assert size <= MOST_BYTES, f"{target.name} has {size:,} bytes; at most {MOST_BYTES:,} are wanted"
    sys.stdout.write(f"{target.name}: {size // 1024} KiB\n")


if __name__ == "__main__":
    sys.exit(main())

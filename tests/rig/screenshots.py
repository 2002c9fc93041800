"""The pictures of docs/img, taken from the running product: `make screenshots`.

A server of its own, this machine as its host, a training with four ranks, a search and a queue of other people's jobs.
"""

from __future__ import annotations

import base64
import sys
import time
from pathlib import Path

from tests.rig import crowd, parts, profiled_run
from tests.rig.browser import WIDE, Browser, programs, running_browser
from tests.rig.server import ROOT, Server
from tests.rig.stack import Stack, config, local_host

FOLDER = ROOT / "docs" / "img"
MOST_BYTES = 150 * 1024
QUALITY = 80
HEIGHT = 860
RANKS, STEPS = 4, 400
ENDED = {"STATE_COMPLETED", "STATE_ERROR", "STATE_CANCELED"}

#: name of a picture -> its page, and the element that is there once the page is drawn
Pages = dict[str, tuple[str, str]]
TEMPLATE = {
    "environment": {"environment_variables": ["OMP_NUM_THREADS=4"]},
    "checkpoint_policy": "best",
    "resources": {"resource_pool": "default", "priority": 40},
    "max_restarts": 3,
}

#: Starts the ranks, and reports what a training would.
LAUNCHER = f"""
import math, subprocess, sys, time
import determined as det

ranks = [
    subprocess.Popen([sys.executable, "-m", "determined.launch.wrap_rank", str(n), sys.executable, "rank.py", str(n)])
    for n in range({RANKS})
]
alone = det.core.DistributedContext(rank=0, size=1, local_rank=0, local_size=1, cross_rank=0, cross_size=1)
with det.core.init(distributed=alone) as core_context:
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
        sys.stderr.write(
            "make screenshots needs chromium and chromedriver; install Debian's chromium-driver.\n"
        )
        return 1
    FOLDER.mkdir(exist_ok=True)
    begin = time.monotonic()
    with parts.private_folder("pictures") as path:
        path.chmod(0o711)
        server = Server(path / "data")
        try:
            _say(begin, "starting a server with a host")
            with running_browser(server.start().url) as browser:
                browser.driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
                browser.look(dark=False, width=WIDE)
                browser.login("admin", server.password)
                with local_host(server, "gpu1", slots=RANKS) as stack:
                    _say(begin, "training, and filling the queue")
                    _take_all(begin, browser, _queued(stack))
                    _say(begin, "ending what runs")
                _take_all(begin, browser, _measured(server))
        finally:
            server.close()
    return 0


def _take_all(begin: float, browser: Browser, pages: Pages) -> None:
    for name, (address, ready) in pages.items():
        for theme in ("light", "dark"):
            _say(begin, _take(browser, f"{name}-{theme}", address, ready))


def _queued(stack: Stack) -> Pages:
    """A training on all slots, and much that waits for it."""
    training = stack.submit(
        {"launcher.py": LAUNCHER, "rank.py": RANK},
        config(
            RANKS,
            "python3 launcher.py",
            name="vit-base",
            labels=["vision"],
            resources={"slots_per_trial": RANKS, "priority": 30},
            hyperparameters={"learning_rate": 0.0003, "patch_size": 16, "batch_size": 64},
            searcher={"name": "single", "metric": "loss", "max_length": {"batches": STEPS}},
        ),
    )
    trial = stack.trial(training)["id"]
    stack.wait(
        lambda: len(stack.records(trial)) >= RANKS * STEPS // 10 or _has_ended(stack, training),
        180,
        "the log",
    )
    assert not _has_ended(stack, training), "\n".join(each["log"] for each in stack.records(trial)[-20:])
    stack.server.request("PUT", "/api/v1/templates/vision", {"config": TEMPLATE}, stack.token)
    # the training holds all slots: these wait
    crowd.gather(stack.server, 24, mine=5, sweep=8)
    search = stack.server.shell(
        "from tests.rig import swept; print(swept.add('lr-sweep', 48, validations=55))"
    ).split()[-1]
    jobs = stack.get("/api/v1/job-queues?resourcePool=default&limit=100")["jobs"]
    mine = next(job["jobId"] for job in jobs if job["name"] == "job-9")
    return {
        "experiment": (f"/experiments/{training}", ".main-svg"),
        "logs": (f"/trials/{trial}/logs", "main"),
        "create": (f"/experiments/{training}/fork", "main form"),
        "template": ("/templates/vision", "main form"),
        "notebook": ("/tasks/+new?type=notebook", "main form"),
        "queue": ("/jobs/default?show=all", "tr[data-place]"),
        "manage-job": (f"/jobs/manage/{mine}", "main form"),
        "search-tree": (f"/experiments/{search}/search", "li.rung"),
        "search-parallel": (f"/experiments/{search}/visualization/parallel", ".main-svg"),
    }


def _measured(server: Server) -> Pages:
    """An ended trial of four GPUs whose hardware and steps were measured for a quarter of an hour."""
    trial = profiled_run.write(server, 1, 4, 900, name="node")
    ended = f"""
from experiments.models import Experiment, Trial
from hosts.models import Host
Trial.objects.filter(pk={trial}).update(state="COMPLETED")
Experiment.objects.filter(trials={trial}).update(state="COMPLETED")
Host.objects.filter(name="node1").update(enabled=False)
"""
    server.shell(ended)
    return {"profiler": (f"/trials/{trial}/profiler", ".main-svg")}


def _has_ended(stack: Stack, experiment: int) -> bool:
    return str(stack.get(f"/api/v1/experiments/{experiment}")["experiment"]["state"]) in ENDED


def _take(browser: Browser, name: str, address: str, ready: str) -> str:
    """Take one picture and return what there is to say of it."""
    browser.look(dark=name.endswith("dark"), width=WIDE, height=HEIGHT)
    browser.open(address)
    browser.live()
    browser.wait(lambda: browser.all(ready), f"{ready} of {address}")
    if address.startswith("/jobs/manage"):  # with what a higher priority would change
        browser.one("[name=priority]").fill("10")
        browser.wait(lambda: "Nothing yet" not in browser.text("main"), "the preview")
    browser.wait(lambda: not browser.complaints(), f"{address} to be quiet")
    target = FOLDER / f"{name}.webp"
    shot = browser.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    target.write_bytes(base64.b64decode(shot["data"]))
    if len(sys.argv) > 1:  # a folder for those who want to look at them as they are
        browser.save(Path(sys.argv[1], f"{name}.png"))
    size = target.stat().st_size
    assert size <= MOST_BYTES, f"{target.name} has {size:,} bytes; at most {MOST_BYTES:,} are wanted"
    return f"{target.name}: {size // 1024} KiB"


def _say(begin: float, what: str) -> None:
    sys.stdout.write(f"{time.monotonic() - begin:5.0f} s  {what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

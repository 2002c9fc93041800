"""Why did it stop: the story on the pages of a trial and a command, its way into the log, and every look of it."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.keys import Keys

from tests.rig.browser import NARROW, WIDE, Browser
from tests.rig.stack import LAUNCHER, Stack, config

pytestmark = [pytest.mark.browser, pytest.mark.hosts]

RAISES = """
import os, pathlib, sys, time
begun = pathlib.Path(os.environ["BEGUN"])
(begun / sys.argv[1]).touch()
for step in range(40):
    print("step", step, "<script>", flush=True)
def train(batch):
    raise RuntimeError("the loss of batch %d is not a number <b>" % batch)
if sys.argv[1] == "2":
    while len(list(begun.iterdir())) < 4:  # who is ended before it begins is no rank that ended
        time.sleep(0.05)
    train(7)
time.sleep(300)
"""
POLICY = {
    "name": "NaN loss in the middle of a long training run",
    "pattern": "is not a number",
    "action": "cancel_retries",
}


@pytest.fixture(scope="module")
def failed(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> int:
    """The id of a trial whose rank 2 raised."""
    variables = {"environment_variables": [f"BEGUN={tmp_path_factory.mktemp('begun')}"]}
    experiment = stack.submit(
        {"launch.py": LAUNCHER, "worker.py": RAISES},
        config(4, max_restarts=2, log_policies=[POLICY], environment=variables),
    )
    assert stack.wait_end(experiment) == "STATE_ERROR"
    return int(stack.trial(experiment)["id"])


def test_the_page_of_a_failed_trial_tells_why_and_leads_to_the_line(browser: Browser, failed: int) -> None:
    browser.open(f"/trials/{failed}")
    for words in (
        "failed first: exit code 1: RuntimeError: the loss of batch 7 is not a number <b>.",
        "3 other ranks then exited",
        "a log policy canceled its retries",
    ):
        browser.wait(lambda words=words: words in browser.text("#why"), words)
    assert "NaN loss" in browser.text(".head .log-label")
    browser.click("#why > a")
    browser.wait(lambda: browser.path() == f"/trials/{failed}/logs", "the log")
    browser.wait(lambda: "Traceback" in browser.text("#log-view"), "the line")
    browser.wait(lambda: "rank=2" in browser.driver.current_url, "the rank in the address")
    assert "#L" in browser.driver.current_url


def test_the_log_of_a_failed_trial_opens_where_it_failed_first(browser: Browser, failed: int) -> None:
    browser.open(f"/trials/{failed}/logs")
    browser.wait(lambda: "Traceback" in browser.text(".log-row.failure"), "the first line that tells why")
    browser.wait(lambda: "exit 1" in browser.text(".rank-chip.marked .age"), "the chip of the rank")
    assert browser.attributes(".rank-chip.marked .pill", "data-rank") == ["2"]
    browser.one("#log-view").send_keys(Keys.HOME)
    browser.wait(lambda: not browser.all(".log-row.failure"), "the beginning of the log")
    browser.click("#log-failed")
    browser.wait(lambda: "Traceback" in browser.text(".log-row.failure"), "the line again")
    browser.one("#log-search").send_keys("step 39")
    browser.wait(lambda: "found" in browser.text("#log-matches"), "the matches")
    browser.keep("log-failed")
    assert browser.violations() == []


def test_each_attempt_has_its_own_story(browser: Browser, failed: int) -> None:
    browser.open(f"/trials/{failed}")
    browser.click("td[data-label='Cause'] a")
    browser.wait(lambda: "attempt=1" in browser.driver.current_url, "the attempt's address")
    browser.wait(lambda: "Rank 2 on" in browser.text("#why"), "its story")


def test_the_page_of_a_failed_command_tells_why(browser: Browser, stack: Stack) -> None:
    body = {"config": {"entrypoint": "echo before; ls /no/such/folder; exit 3", "resources": {"slots": 0}}}
    command = stack.post("/api/v1/commands", body)["command"]["id"]
    path = f"/api/v1/commands/{command}"
    stack.wait(lambda: "endTime" in stack.get(path)["command"], 60, "the command to end")
    browser.open(f"/commands/{command}")
    browser.wait(lambda: "exit code 3" in browser.text("#why"), "how it ended")
    browser.wait(lambda: "/no/such/folder" in browser.text("#why pre"), "its last lines")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_story_fits_every_look(
    browser: Browser, stack: Stack, failed: int, dark: bool, width: int
) -> None:
    browser.look(dark=dark, width=width)
    experiment = stack.get(f"/api/v1/trials/{failed}")["trial"]["experimentId"]
    for path in (f"/trials/{failed}", "/experiments", f"/experiments/{experiment}"):
        browser.open(path)
        assert browser.sticking_out() == []
    browser.look(dark=False, width=WIDE)

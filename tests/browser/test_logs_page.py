"""The Logs page in a real browser: live, by rank, paused by scrolling, complete at the end."""

import re

import pytest

from tests.rig.browser import Browser
from tests.rig.stack import LAUNCHER, Stack, config

pytestmark = [pytest.mark.browser, pytest.mark.hosts]

#: (rank, number of the line) of the rows that exist in the page
ROWS = """
return [...document.querySelectorAll(".log-row[data-rank]")].map((row) =>
  [Number(row.dataset.rank), row.querySelector(".text").textContent]);
"""
NUMBER = re.compile(r"line (\d+)")


def rows(browser: Browser) -> list[tuple[int, int]]:
    """(rank, n) of each `line n` in the page, from top to bottom."""
    return [
        (rank, int(found[1]))
        for rank, text in browser.run(ROWS)
        if rank >= 0 and (found := NUMBER.fullmatch(text))
    ]


def highest(browser: Browser, rank: int) -> int:
    return max((number for row_rank, number in rows(browser) if row_rank == rank), default=0)


#: Scrolls, and two frames later: heights of log and view, whether a line is still being read, and (number, rank, text).
STEP = """
const [position, done] = arguments;
const view = document.getElementById("log-view");
view.scrollTop = position;
const rows = () => [...document.querySelectorAll(".log-row[data-rank]")].map((row) =>
  [Number(row.dataset.number), Number(row.dataset.rank), row.querySelector(".text").textContent]);
requestAnimationFrame(() => requestAnimationFrame(() =>
  done([view.scrollHeight, view.clientHeight, document.querySelector(".log-row.absent") !== null, rows()])));
"""


def read_through(browser: Browser) -> list[tuple[int, int]]:
    """All rows, as a person sees them who scrolls from the top to the end."""
    found: dict[int, tuple[int, int]] = {}
    position = 0
    while True:
        height, step, is_reading, seen = browser.driver.execute_async_script(STEP, position)
        if is_reading:
            continue
        for number, rank, text in seen:
            if match := NUMBER.fullmatch(text):
                found[number] = (rank, int(match[1]))
        if position + step >= height:
            return [found[number] for number in sorted(found)]
        position += step


#: Ranks count until a file is there that the test makes: none of them can end before a person has seen enough.
WORKER = """
import pathlib, time
number = 0
while not pathlib.Path("enough").exists():
    number += 1
    print(f"line {number}", flush=True)
    time.sleep(0.1)
"""


def test_a_person_follows_one_rank_of_a_gang_live(stack: Stack, browser: Browser) -> None:
    experiment = stack.submit({"launch.py": LAUNCHER, "worker.py": WORKER}, config(4))
    stack.wait(lambda: stack.get(f"/api/v1/experiments/{experiment}/trials")["trials"], 60, "a trial")
    browser.open(f"/trials/{stack.trial(experiment)['id']}/logs")

    browser.wait(lambda: {rank for rank, _ in rows(browser)} == {0, 1, 2, 3}, "lines of all ranks", 60)
    # the first lines are history; the socket may open after them
    browser.wait(lambda: browser.text("#log-state") == "Live", "the log to be live")

    browser.click('.ranks [data-rank="2"]')
    browser.wait(lambda: "rank=2" in browser.driver.current_url, "the address to name the rank")
    browser.wait(lambda: {rank for rank, _ in rows(browser)} == {2}, "only lines of rank 2")
    for _ in range(3):  # they go on arriving, each time further, and nobody else's
        before = highest(browser, 2)
        browser.wait(lambda before=before: highest(browser, 2) > before, "more lines of rank 2")
        assert {rank for rank, _ in rows(browser)} == {2}

    pausing(browser)

    for key in stack.run_keys(experiment):
        for host in stack.hosts:
            if (folder := host.workdir / "runs" / key / "code").is_dir():
                (folder / "enough").touch()
    assert stack.wait_end(experiment) == "STATE_COMPLETED"
    browser.wait(lambda: browser.text("#log-state") == "Complete", "the log to be complete")
    browser.driver.refresh()
    stored = stack.lines_by_rank(experiment)
    last = len(stored[2])
    assert stored[2] == [f"line {number}" for number in range(1, last + 1)], "rank 2 has a gap or a repeat"
    browser.wait(lambda: highest(browser, 2) == last, "the end of rank 2 after a reload")
    assert {rank for rank, _ in rows(browser)} == {2}, "the address keeps the filter"
    pressed = ["true"]
    browser.wait(
        lambda: browser.attributes('.ranks [data-rank="2"]', "aria-pressed") == pressed, "the chip of rank 2"
    )

    browser.click('.ranks [data-rank="all"]')
    browser.wait(lambda: {rank for rank, _ in rows(browser)} == {0, 1, 2, 3}, "all ranks again")
    everything = read_through(browser)
    for rank in range(4):
        numbers = [number for row_rank, number in everything if row_rank == rank]
        assert numbers == list(range(1, len(stored[rank]) + 1)), (
            f"rank {rank} has a gap or a repeat: {numbers}"
        )
    assert browser.complaints() == []


def pausing(browser: Browser) -> None:
    """Scrolling up pauses the view and counts what is new; the button goes on."""
    browser.wait(lambda: highest(browser, 2) > 60, "more lines than fit the view", 120)
    browser.run("const view = document.getElementById('log-view'); view.scrollTop -= 300;")
    browser.wait(lambda: browser.one("#log-paused").is_displayed(), "the view to pause")
    top = browser.run("return document.getElementById('log-view').scrollTop")
    browser.wait(
        lambda: re.search(r"[1-9]\d* new lines?", browser.text("#log-paused")), "new lines to be counted"
    )
    clock = re.compile(r"View paused at \d\d:\d\d:\d\d UTC")
    browser.wait(lambda: clock.search(browser.text("#log-paused")), "since when it is paused")
    assert browser.run("return document.getElementById('log-view').scrollTop") == top, "the view stands still"
    browser.click("#log-paused")
    browser.wait(lambda: not browser.one("#log-paused").is_displayed(), "the view to follow again")
    newest = highest(browser, 2)
    browser.wait(lambda: highest(browser, 2) > newest, "lines after the jump")
    assert browser.run("return history.state?.line ?? null") is None, "no place to come back to but the end"

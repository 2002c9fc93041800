"""Twelve things that people come for, each from the start page in at most three clicks.

What is typed (a search, a number, Enter) is no click. Each is tried as somebody who knows the console would do it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser.test_compare_page import SWEEP
from tests.browser.test_why_stopped import RAISES
from tests.rig.browser import WIDE, Browser
from tests.rig.stack import LAUNCHER, Stack, config, counting

pytestmark = [pytest.mark.browser, pytest.mark.hosts]

MOST_CLICKS = 3


@dataclass
class Person:
    """Who begins at the overview and counts what they click."""

    browser: Browser
    clicks: int = 0
    begun: float = field(default_factory=time.monotonic)

    def click(self, selector: str) -> None:
        self.clicks += 1
        self.browser.wait(lambda: self.browser.all(selector), selector)
        self.browser.click(selector)

    def room(self, name: str) -> None:
        """One click into the side bar."""
        self.click(f".rooms a[href='/{name}']")

    def sees(self, words: str, within: str = "main") -> None:
        self.browser.wait(lambda: words in self.browser.text(within), f"{words!r} in {within}")

    def find(self, text: str, hit: str) -> None:
        """Ctrl-K, the text, and a click on what was found."""
        self.browser.press("k", held=Keys.CONTROL)
        self.browser.wait(lambda: self.browser.all("dialog#find[open]"), "the search")
        self.browser.one("dialog#find input").send_keys(text)
        self.click(f"dialog#find a[href='{hit}']")


@pytest.fixture(scope="module")
def runs(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Experiments: one whose rank 2 failed first, a search with settings to compare, one that runs, one that waits."""
    variables = {"environment_variables": [f"BEGUN={tmp_path_factory.mktemp('begun')}"]}
    failed = stack.submit(
        {"launch.py": LAUNCHER, "worker.py": RAISES},
        config(4, name="broken", environment=variables, hyperparameters={"lr": 0.037}),
    )
    assert stack.wait_end(failed) == "STATE_ERROR"
    search, first = map(int, stack.server.shell(f"MARKUP = 'x'\n{SWEEP}").split())
    running = stack.submit(counting(100_000, 0.2), config(4, name="long"))
    stack.wait_lines(running, 4)
    waiting = stack.submit(counting(1, 1), config(4, name="late"))
    found = {"failed": failed, "search": search, "running": running, "waiting": waiting, "best": first}
    return found | {f"trial of {name}": int(stack.trial(found[name])["id"]) for name in ("failed", "running")}


@pytest.fixture
def person(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Person]:
    browser.look(dark=False, width=WIDE)
    browser.open("/overview")
    browser.live()
    person = Person(browser)
    yield person
    print(f"{request.node.name}: {person.clicks} clicks, {time.monotonic() - person.begun:.1f} s")
    assert person.clicks <= MOST_CLICKS
    browser.press(Keys.ESCAPE)


def menu_of(person: Person, name: str) -> None:
    """From anywhere: the queue, and the menu of a job in it."""
    person.room("jobs")
    person.click(f"tr[data-name='{name}'] [data-menu]")


def test_why_does_my_job_wait(person: Person, runs: dict[str, int]) -> None:
    person.sees("late", "section:has(#waiting)")
    person.click("section:has(#waiting) .why a")
    person.sees(f"waiting for exp {runs['running']} to end")
    person.sees(f"held by exp {runs['running']}")


def test_which_rank_failed_first_and_what_it_said(person: Person, runs: dict[str, int]) -> None:
    person.sees("broken", ".failures")
    person.click(".failures a.button[href*='/logs']")
    person.sees("RuntimeError: the loss of batch 7", "#log-view")
    assert "rank=2" in person.browser.driver.current_url


def test_who_is_stopped_if_my_job_goes_first(person: Person, runs: dict[str, int]) -> None:
    menu_of(person, "late")
    person.click(".queue-menu a[href*='/jobs/manage/']")
    person.browser.wait(lambda: person.browser.all("dialog.over [name=priority]"), "the dialog")
    person.browser.one("dialog.over [name=priority]").fill("10")
    person.sees("Stops long", ".manage-preview")


def test_a_priority_is_changed(person: Person, runs: dict[str, int], stack: Stack) -> None:
    menu_of(person, "late")
    person.click(".queue-menu a[href*='/jobs/manage/']")
    person.browser.wait(lambda: person.browser.all("dialog.over [name=priority]"), "the dialog")
    person.browser.one("dialog.over [name=priority]").fill("60")
    person.browser.one("dialog.over [name=priority]").send_keys(Keys.ENTER)
    stack.wait(lambda: priority_of(stack, "late") == 60, 60, "the priority")


def test_who_changed_this_priority(person: Person, runs: dict[str, int]) -> None:
    person.room("jobs")
    person.click("tr[data-name='late'] a.label")
    person.sees("admin")
    person.sees("60")


def test_a_job_moves_to_the_top(person: Person, runs: dict[str, int]) -> None:
    menu_of(person, "late")
    person.click(".queue-menu [data-move='top'], .queue-menu button[value='top']")
    person.browser.wait(lambda: person.browser.all("dialog.over, .toast"), "the answer")


def test_the_live_log_of_one_rank(person: Person, runs: dict[str, int]) -> None:
    person.click("section:has(#running) li a")
    person.click("a[href$='/logs']")
    person.click(".ranks [data-rank='1']")
    person.browser.wait(lambda: "rank=1" in person.browser.driver.current_url, "the rank in the address")


def test_the_slow_rank(person: Person, runs: dict[str, int]) -> None:
    person.click("section:has(#running) li a")
    person.click(f"a[href='/trials/{runs['trial of running']}']")
    person.click("a[href$='/profiler']")
    person.browser.wait(lambda: person.browser.path().endswith("/profiler"), "the profiler")


def test_the_best_trial_of_a_search_and_its_values(person: Person, runs: dict[str, int]) -> None:
    person.find("sweep of", f"/experiments/{runs['search']}")
    person.click(f"a[href='/trials/{runs['best']}']")
    person.sees("optimizer.name")


def test_seeds_of_two_settings_are_compared(person: Person, runs: dict[str, int]) -> None:
    person.room("experiments")
    person.browser.one("main input[type=search]").send_keys("sweep", Keys.ENTER)
    person.browser.wait(lambda: "q=sweep" in person.browser.driver.current_url, "the search in the address")
    person.click(".views > a.button")
    person.browser.wait(lambda: person.browser.all("select[name=group]"), "the charts")
    person.clicks += 1
    person.browser.one("select[name=group]").send_keys("opt")
    person.browser.wait(lambda: len(person.browser.texts(".compared .name")) == 2, "a row for each setting")


def test_last_weeks_failed_run_by_a_hyperparameter(person: Person, runs: dict[str, int]) -> None:
    person.find("lr=0.037", f"/experiments/{runs['failed']}")
    person.sees("broken")


def test_the_running_one_is_paused(person: Person, runs: dict[str, int], stack: Stack) -> None:
    """Last: what waited runs then."""
    person.click("section:has(#running) li a")
    person.click("button[formaction$='/pause'], form[action$='/pause'] button")
    if person.browser.all("dialog.confirm[open]"):
        person.click("dialog.confirm button.primary")
    stack.wait(lambda: stack.get(f"/api/v1/experiments/{runs['running']}")["experiment"]["state"] == "STATE_PAUSED",
               60, "the pause")  # fmt: skip


def priority_of(stack: Stack, name: str) -> int:
    jobs = stack.get("/api/v1/job-queues?resourcePool=default&limit=100")["jobs"]
    return next(int(job["priority"]) for job in jobs if job["name"] == name)

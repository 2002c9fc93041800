"""Manage Job, menu, keys, drag, selection and undo on the board, in a real browser over a server with real runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from tests.rig.browser import LOOKS, WIDE, Browser
from tests.rig.stack import Stack, config, counting

pytestmark = [pytest.mark.browser, pytest.mark.hosts]

PASSWORD = "Long enough, 1"
POOLS = """
from hosts.models import ResourcePool
for name in ("idle", "spare"):
    ResourcePool.objects.get_or_create(name=name)
ResourcePool.objects.get_or_create(name="shares", defaults={"scheduler": "fair_share"})
"""
ORDER = 'return [...document.querySelectorAll("tr[data-job]")].map((row) => row.dataset.name)'


@dataclass
class Queue:
    """Jobs of the admin in pools without hosts, which wait for ever, and those of jun that run."""

    stack: Stack
    jun: Stack

    def jobs(self, pool: str) -> dict[str, dict[str, Any]]:
        """Name -> job, in the order of the queue."""
        found = self.stack.get(f"/api/v1/job-queues?resourcePool={pool}&limit=100")["jobs"]
        return {job["name"]: job for job in found}

    def order(self, pool: str = "idle") -> list[str]:
        return list(self.jobs(pool))

    def fill(self, pool: str, *names: str) -> list[str]:
        """Only these wait in the pool, in this order; their ids."""
        for job in self.jobs(pool).values():
            self.stack.post(f"/api/v1/experiments/{job['entityId']}/kill")
        for name in names:
            resources = {"slots_per_trial": 1, "resource_pool": pool}
            self.stack.submit(counting(1, 1), config(1, name=name, resources=resources))
        self.stack.wait(lambda: self.order(pool) == list(names), 60, f"{names} to wait")
        jobs = self.jobs(pool)
        return [str(jobs[name]["jobId"]) for name in names]


@pytest.fixture(scope="module")
def queue(stack: Stack) -> Queue:
    stack.server.shell(POOLS)
    for name in ("jun", "vera"):
        user = {"username": name, "active": True, "role": "viewer" if name == "vera" else "editor"}
        stack.post("/api/v1/users", {"user": user, "password": PASSWORD, "isHashed": False})
    jun = Stack(stack.server, stack.hosts)
    login = {"username": "jun", "password": PASSWORD, "isHashed": False}
    jun.token = stack.server.request("POST", "/api/v1/auth/login", login)["token"]
    return Queue(stack, jun)


@pytest.fixture
def page(browser: Browser) -> Iterator[Browser]:
    browser.complaints()
    yield browser
    browser.look(dark=False, width=WIDE)
    assert browser.complaints() == []


def board(page: Browser, pool: str, *names: str) -> None:
    """The whole board of a pool, live."""
    page.open(f"/jobs/{pool}?show=all")
    page.live()
    page.wait(lambda: page.run(ORDER) == list(names), f"the rows {names}")


def within(name: str, selector: str) -> str:
    """The selector of something in the row of a job."""
    return f'tr[data-name="{name}"] {selector}'


def set_field(page: Browser, name: str, value: str) -> None:
    page.one(f"dialog.over [name={name}]").fill(value)


def focused(page: Browser) -> str:
    return str(page.run("return document.activeElement.textContent.trim()"))


def said(page: Browser, *words: str) -> None:
    page.wait(lambda: all(word in page.text("#toasts") for word in words), f"{words} in the toast")


def looks_right(page: Browser) -> list[str]:
    """What is wrong with the page as it stands, in both themes, wide and narrow."""
    wrong = []
    for dark, width in LOOKS:
        page.look(dark=dark, width=width)
        where = f"{width} px, {'dark' if dark else 'light'}"
        wrong += [f"{where}: wider than the window by {each}" for each in page.sticking_out()]
        wrong += [f"{where}: {each}" for each in page.violations()]
    page.look(dark=False, width=WIDE)
    return wrong


def test_two_fields_changed_at_once_both_take_effect_and_are_undone(page: Browser, queue: Queue) -> None:
    queue.fill("idle", "one", "two", "three")
    board(page, "idle", "one", "two", "three")
    page.click(within("three", "[data-menu]"))
    page.wait(lambda: "Manage Job" in page.text(".queue-menu"), "the menu")
    page.press(Keys.ENTER)
    page.wait(lambda: page.all("dialog.over[open]"), "the dialog")
    page.press("7")  # the priority is selected, so what is typed replaces it
    page.wait(lambda: "was #2" in page.text(".manage-preview"), "the new order")
    assert "It gets priority 7." in page.text(".manage-preview .consequence")
    page.one("dialog.over [name=pool]").choose("spare")
    page.wait(
        lambda: page.text("#manage-numbers") == "spare: 0 / 0 slots used · 0 scheduled · 0 queued",
        "its numbers",
    )
    page.wait(
        lambda: "resource pool spare" in page.text(".manage-preview .consequence"), "the move to be foreseen"
    )
    assert looks_right(page) == []
    page.click("dialog.over button.primary")
    said(page, "three: it gets priority 7", "resource pool spare")
    page.wait(lambda: page.run(ORDER) == ["one", "two"], "the row to leave the board")
    assert queue.jobs("spare")["three"]["priority"] == 7
    page.one("#toasts form button").focus()  # what has the focus stays
    assert looks_right(page) == []
    page.click("#toasts form button")
    said(page, "again")
    page.wait(lambda: page.run(ORDER) == ["one", "two", "three"], "the row to come back")
    assert queue.jobs("idle")["three"]["priority"] == 42


def test_the_preview_names_who_is_stopped_before_anything_is_saved(page: Browser, queue: Queue) -> None:
    resources = {"slots_per_trial": 4}
    victim = queue.jun.submit(counting(100_000, 0.2), config(4, name="asr-base", resources=resources))
    queue.stack.wait_lines(victim, 4)
    mine = queue.stack.submit(counting(1, 1), config(4, name="clip-finetune", resources=resources))
    queue.stack.wait(lambda: queue.order("default") == ["asr-base", "clip-finetune"], 60, "both jobs")
    board(page, "default", "asr-base", "clip-finetune")
    page.press("j", "j", "m")
    page.wait(lambda: page.all("dialog.over[open]"), "the dialog")
    set_field(page, "priority", "10")
    page.wait(lambda: "Stops asr-base of jun" in page.text(".manage-preview"), "who is stopped")
    assert "has never saved and loses" in page.text(".manage-preview")
    assert page.texts(".manage-preview table.stops td")[:2] == ["asr-base", "jun"]
    primary = "dialog.over button.primary"
    page.wait(lambda: page.text(primary) == "OK: stop 1 job", "the button to say so")
    assert looks_right(page) == []
    page.press(Keys.ESCAPE)
    page.wait(lambda: not page.all("dialog.over"), "the dialog to close")
    page.press("t")
    page.wait(lambda: "Stops asr-base of jun" in page.text("dialog.over"), "the question after one key")
    assert looks_right(page) == []
    page.click("dialog.over [data-close]")
    page.wait(lambda: not page.all("dialog.over"), "the question to go")
    assert queue.order("default") == ["asr-base", "clip-finetune"]
    page.press("t")
    page.wait(lambda: page.all("dialog.over button.primary"), "the question again")
    page.click("dialog.over button.primary")
    said(page, "ahead of")
    queue.stack.wait(lambda: queue.jobs("default")["asr-base"]["stopping"], 60, "the run to be asked to stop")
    for experiment in (mine, victim):
        queue.stack.post(f"/api/v1/experiments/{experiment}/kill")
        queue.stack.wait_end(experiment)


def test_the_keyboard_moves_selects_and_changes_places(page: Browser, queue: Queue) -> None:
    queue.fill("idle", "one", "two", "three")
    board(page, "idle", "one", "two", "three")
    page.press("j", "j", Keys.ARROW_DOWN, "k", "j", "t")
    said(page, "ahead of")
    page.wait(lambda: page.run(ORDER) == ["three", "one", "two"], "the job on top")
    page.wait(
        lambda: page.run("return document.activeElement.dataset.name") == "three", "the focus to go along"
    )
    page.press(Keys.ARROW_DOWN, held=Keys.ALT)
    page.wait(lambda: page.run(ORDER) == ["one", "three", "two"], "the job one place lower")
    page.press("x", "k", "x")
    page.wait(lambda: page.text("#selected-count") == "2 selected", "two selected")
    page.press(Keys.ESCAPE)
    page.wait(lambda: not page.one("#bulk").is_displayed(), "none selected, and no bar")
    page.press("?")
    page.wait(lambda: "move it to the top" in page.text("#keys"), "the keys")
    page.press(Keys.ESCAPE)
    page.run("document.querySelector('[data-key=\"/\"]')?.focus()")
    if page.run("return document.activeElement.matches('input')"):
        page.press("t", "x", "m")
        assert not page.all("dialog.over")
        assert not page.one("#bulk").is_displayed()
    assert queue.order() == ["one", "three", "two"]


def test_a_row_is_dragged_to_where_the_line_shows(page: Browser, queue: Queue) -> None:
    ids = queue.fill("idle", "one", "two", "three")
    edit = {"updates": [{"jobId": ids[0], "priority": 20}]}
    queue.stack.post("/api/v1/job-queues", edit)
    board(page, "idle", "one", "two", "three")
    handle, top = within("three", '[data-label="#"]'), 'tr[data-name="one"]'
    page.drag(handle, top, down=-8, drop=False)
    page.wait(lambda: page.all("tr.lands-before"), "the line")
    page.wait(lambda: page.text(".drag-label") == "ahead of one, takes priority 20", "what it would do")
    page.press(Keys.ESCAPE)
    page.let_go()
    assert queue.order() == ["one", "two", "three"]
    page.drag(handle, top, down=-8)
    said(page, "takes its priority 20")
    page.wait(lambda: page.run(ORDER) == ["three", "one", "two"], "the row on top")


def test_many_are_changed_at_once_and_the_result_is_summed_up(page: Browser, queue: Queue) -> None:
    queue.fill("idle", "one", "two", "three")
    board(page, "idle", "one", "two", "three")
    page.click(within("two", "input[name=job]"))
    page.click(within("three", "input[name=job]"))
    page.wait(lambda: page.text("#selected-count") == "2 selected", "two selected")
    assert looks_right(page) == []
    page.one("#bulk [name=priority]").fill("0")
    page.click("#bulk button[value=priority]")
    sentence = "Priority must be between 1 and 99; 1 is the highest. Found: 0."
    page.wait(lambda: page.text("#bulk-error").lower() == sentence.lower(), "the sentence in the bar")
    assert page.run("return document.activeElement.name") == "priority"
    assert looks_right(page) == []
    page.one("#bulk [name=priority]").fill("7")
    page.click("#bulk button[value=priority]")
    said(page, "it gets priority 7")
    assert page.text("#bulk-error") == ""
    page.wait(lambda: page.run(ORDER) == ["two", "three", "one"], "the new order")
    page.click("#undo-last")
    page.wait(lambda: "Undo the last edit" in page.text("dialog.over"), "what would be undone")
    page.click("dialog.over button.primary")
    page.wait(lambda: page.run(ORDER) == ["one", "two", "three"], "the old order")
    page.click("#select-all")
    page.wait(lambda: page.text("#selected-count") == "3 selected", "all by the box of the head")
    page.click("#bulk button[value=cancel]")
    page.wait(lambda: "cancel these 3 jobs?" in page.text("dialog.over"), "the question")
    assert looks_right(page) == []
    page.click("dialog.over button.primary")
    said(page, "3 canceled.")
    page.wait(lambda: queue.order() == [], "the queue to be empty")


#: the pointer's place and the menu's box: does one lie in the other, and does the menu leave the window?
UNDER_THE_POINTER = """
const { left, right, top, bottom } = document.querySelector(".queue-menu").getBoundingClientRect();
const [x, y] = arguments[0] ?? (({ left, right, top, bottom }) => [(left + right) / 2, (top + bottom) / 2])(
  document.activeElement.closest("main").querySelector("[data-menu][aria-expanded=true]").getBoundingClientRect());
const inside = left >= 0 && top >= 0 && right <= innerWidth && bottom <= innerHeight;
return !inside || (x >= left && x <= right && y >= top && y <= bottom);
"""


def test_the_menu_opens_beside_its_row_with_nothing_under_the_pointer(page: Browser, queue: Queue) -> None:
    queue.fill("idle", "one", "two")
    board(page, "idle", "one", "two")
    for width, height in ((WIDE, 860), (390, 860), (WIDE, 330)):
        page.look(dark=False, width=width, height=height)
        page.click(within("two", "[data-menu]"))
        page.wait(lambda: page.text(".queue-menu .menu-head").startswith("two exp "), "the job's name")
        assert not page.run(UNDER_THE_POINTER), (width, height)
        page.press(Keys.ESCAPE)
    page.look(dark=False, width=WIDE)


def test_a_right_click_opens_the_menu_of_the_row(page: Browser, queue: Queue) -> None:
    queue.fill("idle", "one", "two")
    board(page, "idle", "one", "two")
    page.one(within("two", "td.why")).right_click()
    page.wait(lambda: "Move to Top" in page.text(".queue-menu"), "the menu")
    assert looks_right(page) == []
    for key, words in (("", "Manage Job"), (Keys.ARROW_DOWN, "Move to Top"), (Keys.END, "Kill")):
        page.press(key)
        page.wait(lambda words=words: focused(page).startswith(words), f"the focus on {words}")
    page.press(Keys.ENTER)
    page.wait(lambda: "Are you sure you want to kill job two?" in page.text("dialog.over"), "the question")
    page.wait(lambda: page.all("dialog.over button.danger"), "its button")
    page.press(Keys.ESCAPE)
    page.wait(lambda: not page.all("dialog.over"), "the question to go")
    assert queue.order() == ["one", "two"]


@pytest.mark.parametrize("found", ["0", "100", "1.5", "x"])
def test_a_wrong_priority_is_said_beside_the_field(page: Browser, queue: Queue, found: str) -> None:
    [job] = queue.fill("idle", "one") if found == "0" else [queue.jobs("idle")["one"]["jobId"]]
    page.open(f"/jobs/manage/{job}")
    page.one("[name=priority]").fill(found)
    sentence = f"priority must be between 1 and 99; 1 is the highest. Found: {found}."
    page.wait(lambda: page.text("#error-priority") == sentence, "the sentence while typing")
    page.one("button.primary").click()
    page.wait(lambda: page.text("#error-priority") == sentence, "the sentence after OK")
    assert queue.jobs("idle")["one"]["priority"] == 42
    page.wait(page.complaints, "the browser's note of the answer 400")


def test_a_fair_share_pool_has_weights_and_no_places(page: Browser, queue: Queue) -> None:
    [job] = queue.fill("shares", "one")
    page.open(f"/jobs/manage/{job}")
    assert not page.all("[name=position]") and not page.all("[name=priority]")
    page.one("[name=weight]").fill("2.5")
    page.wait(lambda: "weight 2.5" in page.text(".manage-preview"), "the preview")
    assert looks_right(page) == []
    page.one("button.primary").click()
    page.wait(lambda: "it gets weight 2.5" in page.text("main"), "the change")
    assert queue.jobs("shares")["one"]["weight"] == 2.5


def test_a_viewer_finds_every_control_disabled_with_the_reason(page: Browser, queue: Queue) -> None:
    [job] = queue.fill("idle", "one")
    reason = "vera is a viewer and cannot change anything."
    page.driver.delete_all_cookies()
    page.login("vera", PASSWORD)
    try:
        board(page, "idle", "one")
        page.click("#select-all")
        page.wait(lambda: reason in page.text("#bulk"), "the reason")
        assert not page.one("#bulk button[value=kill]").is_enabled()
        page.click("[data-menu]")
        page.wait(lambda: reason in page.text(".queue-menu"), "the reason in the menu")
        assert looks_right(page) == []
        page.press(Keys.ESCAPE)
        page.open(f"/jobs/manage/{job}")
        assert reason in page.text(".manage") and not page.one("[name=priority]").is_enabled()
        assert not page.one(".manage button.primary").is_enabled()
    finally:
        page.driver.delete_all_cookies()
        page.login("admin", queue.stack.server.password)

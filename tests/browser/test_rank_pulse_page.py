"""The log page of a gang that hangs: which rank its peers wait for, and what that rank is doing."""

import pytest

from tests.rig.browser import Browser
from tests.rig.light_gang import light_gang
from tests.rig.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.hosts]


def test_the_page_marks_the_rank_that_hangs_and_shows_its_stack(stack: Stack, browser: Browser) -> None:
    with light_gang(stack, 4) as gang:
        browser.open(f"/trials/{gang.trial_id}/logs")
        browser.wait(
            lambda: len(browser.all(".ranks .rank-chip")) >= 4, "a chip of every rank, printing or not"
        )
        gang.hang(3)
        browser.wait(lambda: "Rank 3 on" in browser.text("#rank-marks"), "the mark in words", 90)
        browser.run("document.getElementById('pulse').open = true")
        browser.wait(lambda: browser.all("#pulse-rows .pulse-row.marked button"), "the marked row")
        browser.click("#pulse-rows .pulse-row.marked button:last-of-type")
        browser.wait(lambda: "in hangs" in browser.text("dialog.stack"), "the stack of rank 3", 90)
        assert not browser.complaints()

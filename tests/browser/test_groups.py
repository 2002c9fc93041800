"""The pages of groups, and of a pool that shares its slots among them, in a real browser."""

import os
from pathlib import Path

import pytest

from tests.browser.test_pages import look_at
from tests.rig.browser import NARROW, WIDE, Browser
from tests.rig.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.hosts]


def test_groups_and_what_they_hold_of_a_pool_are_clean_pages(stack: Stack, browser: Browser) -> None:
    wrong = look_at(browser, "/groups", {}) + look_at(browser, "/groups/+new", {})
    browser.one("#name").send_keys("research")
    browser.one(".submit button").click()
    browser.wait(lambda: browser.path() == "/groups/research", "the new group")
    stack.post("/api/v1/groups", {"name": "vision", "parent": "research"})
    shares = {"research": {"guarantee": 1}, "vision": {"limit": 1, "weight": 2}}
    rules = {"groupShares": shares}
    stack.server.request("PATCH", "/api/v1/resource-pools/default", rules, token=stack.token)
    for page in ("/groups", "/groups/research", "/groups/vision", "/groups/vision/edit", "/pools/default"):
        wrong += look_at(browser, page, {})
    if folder := os.environ.get("PICTURES"):
        for page in ("groups", "groups/vision", "groups/vision/edit", "pools/default", "pools/default/edit"):
            for dark, width in ((False, WIDE), (True, WIDE), (False, NARROW)):
                browser.look(dark=dark, width=width)
                browser.open(f"/{page}")
                name = f"{page.replace('/', '-')}-{'dark' if dark else 'light'}-{width}.png"
                browser.save(Path(folder) / name)
    assert not wrong, "\n".join(wrong)

"""Pools and hosts in a real browser: 200 hosts in one screen, lamps that speak, the form, live changes."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from selenium.webdriver.common.keys import Keys

from dispatch.ssh.server_key import fingerprint
from tests.browser.test_pages import look_at
from tests.rig.browser import NARROW, WIDE, Browser, programs, running_browser
from tests.rig.server import Server
from tests.rig.stack import Stack, config

pytestmark = [pytest.mark.browser, pytest.mark.hosts]

SCREEN_HEIGHT = 900
#: 200 hosts of 8 slots in four pools, behind which there is nothing
MANY = """
from datetime import timedelta
from django.utils import timezone
from hosts import pool_edits
from hosts.models import Host, Slot
from hosts.pools import default_pool

default_pool()
pools = [default_pool(), *(pool_edits.create(f"pool-{n}", {}, actor="user:admin") for n in range(3))]
now = timezone.now()
hosts = Host.objects.bulk_create(
    Host(name=f"gpu-{n:03}.lab", pool=pools[n % 4], admission="ready", address=f"10.9.0.{n}",
         last_seen_at=now, probe_after=now + timedelta(seconds=100),
         contact="silent" if n % 40 == 1 else "reachable", draining=n % 40 == 2, enabled=n % 40 != 3)
    for n in range(200)
)
Slot.objects.bulk_create(
    Slot(host=host, index=index, kind="cuda", brand="H200" if n % 2 else "A100",
         outside={"user": "root"} if n == 4 and index == 5 else {})
    for n, host in enumerate(hosts) for index in range(8)
)
"""


@contextmanager
def nobody_looks(server: Server) -> Iterator[None]:
    """Meanwhile no sweep and no probe finds that there is nothing behind these hosts."""
    worker = server.children()["worker"]
    worker.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        worker.signal(signal.SIGCONT)


def test_200_hosts_stand_in_one_screen_and_each_says_itself_to_the_keyboard(empty_server: Server) -> None:
    if programs() is None:
        pytest.skip("needs chromium and chromedriver")
    with running_browser(empty_server.url) as window, nobody_looks(empty_server):
        window.look(dark=False, width=WIDE)
        window.login("admin", empty_server.password)
        paints: dict[str, float] = {}
        wrong = look_at(window, "/hosts", paints) + look_at(window, "/pools", paints)
        empty_server.shell(MANY)
        for address in ("/hosts", "/hosts?view=list&show=silent", "/pools", "/pools/pool-1"):
            wrong += look_at(window, address, paints)
        window.look(dark=False, width=WIDE, height=SCREEN_HEIGHT)
        window.open("/hosts")
        window.wait(lambda: len(window.all(".cell")) == 200, "a cell for each host")
        last = window.run("return Math.max(...[...document.querySelectorAll('.cell')].map("
                          "(cell) => cell.getBoundingClientRect().bottom))")  # fmt: skip
        assert last <= SCREEN_HEIGHT, "all hosts in one screen, without scrolling"
        window.one('a.cell[href="/hosts/gpu-000.lab"]').send_keys(Keys.TAB)  # to the next of its pool
        shown = "return getComputedStyle(document.activeElement.querySelector('.tip')).display"
        window.wait(lambda: window.run(shown) == "block", "what has the focus to say itself")
        outsider = "slot 5: used outside the queue by root"
        window.wait(lambda: outsider in window.text("a.cell:focus .tip"), "the host's outsider in words")
        window.open("/hosts?show=outsiders&model=A100")
        assert window.attributes(".cell", "href") == ["/hosts/gpu-004.lab"]
        print("first paints:", {where: round(paint) for where, paint in paints.items()})
    assert not wrong, "\n".join(wrong)


def test_a_pool_is_made_and_its_rules_are_told_beside_the_fields(stack: Stack, browser: Browser) -> None:
    wrong = look_at(browser, "/pools/+new", {})
    browser.look(dark=False, width=NARROW)
    browser.open("/pools/+new")
    browser.one("#name").send_keys("night")
    browser.one("#default_priority").fill("100")
    browser.one(".submit button").click()
    browser.wait(lambda: browser.text("#default_priority_error"), "the refusal beside its field")
    assert browser.text("#default_priority_error") == "Found 100; allowed: a whole number from 1 to 99."
    assert browser.run("return document.querySelector('#name').value") == "night"
    wrong += [f"with an error: {each}" for each in browser.violations()]
    browser.one("#default_priority").fill("60")
    browser.one(".submit button").click()
    browser.wait(lambda: browser.path() == "/pools/night", "the new pool")
    browser.complaints()  # the refusal's own status
    browser.look(dark=False, width=WIDE)
    for tab in ("", "/pairs", "/stats", "/history", "/configuration", "/edit"):
        wrong += look_at(browser, f"/pools/night{tab}", {})
    assert not wrong, "\n".join(wrong)


def test_users_and_what_they_changed_are_clean_pages(stack: Stack, browser: Browser) -> None:
    stack.post("/api/v1/users", {"user": {"username": "ada", "role": "editor"}})
    wrong = look_at(browser, "/users", {}) + look_at(browser, "/users/+new", {})
    browser.open("/users?q=ada")
    browser.click("td a.name")
    browser.wait(lambda: browser.text("h1") == "ada", "the page of the user")
    wrong += look_at(browser, browser.path(), {})
    browser.click('a[href^="/audit?kind=user"]')
    browser.wait(lambda: browser.text("td.what") == "Created", "what was done to them")
    assert not wrong + look_at(browser, "/audit", {}), "\n".join(wrong)


def test_a_drained_host_is_shown_so_without_a_reload(stack: Stack, browser: Browser) -> None:
    wrong = look_at(browser, "/pools/default", {})
    browser.open("/pools/default")
    browser.live()
    browser.run("window.sameDocument = true")
    stack.post("/api/v1/hosts/gpu2/drain")
    browser.wait(lambda: "Draining" in browser.text(".box.away"), "the word in the host's box")
    assert browser.run("return window.sameDocument")
    browser.click('button[formaction="/hosts/gpu2/enable"]')
    browser.wait(lambda: not browser.all(".box.away"), "the host to be ready again")
    assert browser.path() == "/pools/default"
    assert not wrong, "\n".join(wrong)


#: what of the page is replaced by a live update, and what is left as it is: true and false
NOTE_SWAPS = """
window.swaps = [];
document.addEventListener("htmx:beforeSwap", (event) => window.swaps.push(event.detail.shouldSwap));
"""
FIELD = """
const field = document.activeElement;
return [field.id, field.value, field.selectionStart];
"""


def test_a_live_update_takes_nothing_from_under_ones_hands(stack: Stack, browser: Browser) -> None:
    browser.open("/hosts")
    browser.run(NOTE_SWAPS)
    browser.live()
    browser.one("#filter-q").send_keys("gpu", Keys.ARROW_LEFT)
    browser.run("document.getElementById('filter-q').marked = true")
    stack.post("/api/v1/hosts/gpu2/drain")
    replaced = "return !document.getElementById('filter-q').marked"
    browser.wait(lambda: browser.run(replaced), "the drained host's word")
    assert browser.run(FIELD) == ["filter-q", "gpu", 2]
    browser.hold("#filter-q")
    browser.run("document.getElementById('filter-q').marked = true; window.swaps = []")
    stack.post("/api/v1/hosts/gpu2/enable")
    browser.wait(lambda: False in browser.run("return window.swaps"), "the update, which waits")
    assert not browser.run(replaced)
    browser.let_go()
    browser.wait(lambda: browser.run(replaced), "the update, once the button is let go")


#: another Python is chosen, the part swapped, and what was chosen before is chosen again
OTHER_AND_SWAP = """
const part = document.getElementById("adding");
const chosen = () => document.querySelector("[name=python]:checked");
const before = chosen().value;
document.querySelector("[name=python][value=other]").checked = true;
htmx.swap(part, part.innerHTML, { swapStyle: "innerHTML" });
const after = chosen().value;
document.querySelector(`[name=python][value="${before}"]`).checked = true;
return after;
"""


def test_a_host_is_added_with_three_clicks_runs_a_job_and_is_removed_by_its_menu(
    stack: Stack, browser: Browser
) -> None:
    """Last here: gpu2 has another name afterwards, and is gone."""
    host = stack.hosts[1]
    stack.server.request("DELETE", "/api/v1/hosts/gpu2", token=stack.token)
    wrong = look_at(browser, "/hosts/+new", {})
    browser.look(dark=False, width=WIDE)
    browser.open("/hosts?view=list")
    browser.click('a[href="/hosts/+new"]')
    browser.one("#target").send_keys(f"{host.logins[0]}@{host.address}:{host.port}", Keys.ENTER)
    page = f"/hosts/{host.address}/adding"
    browser.wait(lambda: browser.text(".fingerprint"), "the fingerprint", 60)
    assert browser.path() == page and browser.text(".fingerprint") == fingerprint(host.host_key)
    wrong += look_at(browser, page, {})
    browser.look(dark=False, width=WIDE)
    browser.click('form[action$="/accept-key"] button.primary')
    browser.wait(lambda: browser.all(".host-choice button.primary"), "the choice, without a reload", 120)
    wrong += look_at(browser, page, {})
    browser.look(dark=False, width=WIDE)
    assert browser.run(OTHER_AND_SWAP) == "other", "a live refresh takes no choice back"
    browser.one("#count").fill("1")
    browser.click(".host-choice button.primary")
    browser.wait(lambda: "is in the pool default" in browser.text("#adding"), "the host to be in use")
    stack.post("/api/v1/hosts/gpu1/drain")
    job = stack.submit({}, config(1, "echo here"))
    assert stack.wait_end(job) == "STATE_COMPLETED", "it ran on the new host, the only one that gets work"
    stack.post("/api/v1/hosts/gpu1/enable")
    stack.wait_free()
    browser.open("/hosts?view=list")
    browser.live()
    browser.click(f'[data-menu="/hosts/{host.address}/menu"]')
    browser.wait(lambda: browser.text(".menu-head") == host.address, "the menu")
    wrong += [f"the menu: {each}" for each in browser.violations()]
    browser.click('.queue-menu button[formaction$="/remove"]')
    browser.click("dialog.confirm button.primary")
    browser.wait(lambda: host.address not in browser.text("#main"), "the host to be gone")
    assert browser.path() == "/hosts" and not browser.complaints()
    assert not wrong, "\n".join(wrong)

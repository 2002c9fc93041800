"""The departures board in a real browser: with no row, one and a thousand; live, windowed, and by links alone."""

import re
from collections.abc import Iterator
from functools import partial

import httpx
import pytest
from selenium.webdriver.common.keys import Keys

from tests.rig import crowd, long_run
from tests.rig.browser import LOOKS, Browser, programs, running_browser
from tests.rig.server import ROOT, Server
from webui import collected

pytestmark = [pytest.mark.browser]

THOUSAND, MINE, SWEEP = 1_000, 3, 40
ROWS = "tr[data-version]"
PLACES = "return [...document.querySelectorAll('tr[data-place]')].map((row) => Number(row.dataset.place))"
MARKED = "return document.querySelector(arguments[0])?.marked === true"
#: whether the browser has fetched the small file of the typeface
HAS_FACE = """
const basic = [...document.fonts].filter((face) => face.unicodeRange.toUpperCase().startsWith("U+20-7E"));
return basic.length === 1 && basic[0].status === "loaded";
"""


@pytest.fixture(scope="module")
def server(empty_server: Server) -> Server:
    crowd.gather(empty_server, THOUSAND, mine=MINE, sweep=SWEEP)
    crowd.gather(empty_server, 1, pool="lonely", mine=1)
    make = "from hosts.models import ResourcePool; [ResourcePool.objects.create(name=name) for name in {names!r}]"
    empty_server.shell(make.format(names=["empty", *(f"spare-{number}" for number in range(6))]))
    return empty_server


@pytest.fixture(scope="module")
def browser(server: Server) -> Iterator[Browser]:
    if programs() is None:
        pytest.skip("needs chromium and chromedriver")
    with running_browser(server.url) as window:
        window.look(dark=False, width=1440)
        window.login("admin", server.password)
        yield window


def opened(browser: Browser, address: str) -> None:
    browser.open(address)
    browser.live()


def job_id(server: Server, name: str) -> str:
    found = server.shell(f"from jobs.models import Job; print(Job.objects.get(name={name!r}).pk)")
    return found.strip()


@pytest.mark.parametrize(
    "address",
    ["/jobs/empty", "/jobs/lonely", "/jobs/default", "/jobs/default?show=all", "/jobs/default?q=nobody"],
)
def test_the_board_is_clean_in_both_themes_wide_and_narrow(browser: Browser, address: str) -> None:
    opened(browser, address)
    wrong = []
    for dark, width in LOOKS:
        browser.look(dark=dark, width=width)
        where = f"{address} at {width} px, {'dark' if dark else 'light'}"
        wrong += [f"{where}: {each}" for each in (*browser.violations(), *browser.sticking_out())]
    browser.look(dark=False, width=1440)
    assert wrong + browser.complaints() == []


def test_the_page_opens_on_mine_and_the_next_departures_and_chips_lead_on(browser: Browser) -> None:
    opened(browser, "/jobs/default")
    groups = browser.run(
        "return [...document.querySelectorAll('tr.group')].map((row) => row.innerText.trim())"
    )
    assert groups == ["Yours", "Starting next"]
    assert len(browser.all("tr[data-mine]")) == MINE
    assert browser.all("a.fold"), "the sweep of somebody else is one of the departures"
    browser.click('#queue-chips a[href$="show=mine"]')
    browser.wait(lambda: "show=mine" in browser.driver.current_url, "the chip's address")
    browser.wait(lambda: browser.run(PLACES) == [SWEEP, SWEEP + 1, SWEEP + 2], "the rows of mine")


#: heights of the rows, how many of them the window shows whole, and how many lines any cell has
LINES = """
const rows = [...document.querySelectorAll("tr[data-version]")];
const heights = rows.map((row) => row.getBoundingClientRect().height);
const whole = rows.filter((row) => row.getBoundingClientRect().bottom <= innerHeight).length;
return [Math.min(...heights), Math.max(...heights), whole];
"""
CUT = """
const cut = document.querySelector("tr[data-job] .cut");
return [cut.scrollWidth > cut.clientWidth, cut.getBoundingClientRect().height];
"""


def test_a_row_is_one_line_and_the_whole_reason_appears_over_it(browser: Browser) -> None:
    browser.look(dark=False, width=1440, height=900)
    opened(browser, "/jobs/default?show=all")
    browser.run("for (const banner of document.querySelectorAll('.banner')) banner.hidden = true")
    lowest, highest, whole = browser.run(LINES)
    assert (lowest, highest) == (35, 35) and whole >= 22
    assert browser.run("return [...document.querySelectorAll('#select-all')].length") == 1
    browser.run(
        "document.querySelector('tr[data-job] .cut').textContent = 'it waits for this and that '.repeat(20)"
    )
    is_cut, height = browser.run(CUT)
    assert is_cut and height < 35
    browser.one("tr[data-job] a.cut").focus()
    is_cut, height = browser.run(CUT)
    assert not is_cut and height > 35
    assert browser.run(LINES)[1] == 35, "nothing moves"
    browser.look(dark=False, width=1440)


def test_a_sweep_is_one_row_and_its_link_unfolds_it(browser: Browser) -> None:
    opened(browser, "/jobs/default?show=all")
    assert browser.run(PLACES)[:2] == [0, SWEEP]
    assert "0/40" in browser.text("tr.alike")
    browser.click("a.fold")
    browser.wait(lambda: len(browser.all("tr[data-job]")) == SWEEP, "the forty")
    browser.wait(lambda: "similar: 40" in browser.text("#queue-chips"), "the chip")


def test_pages_come_while_one_scrolls_and_leave_when_they_are_far(browser: Browser) -> None:
    opened(browser, "/jobs/default?show=all")
    first = len(browser.all(ROWS))
    assert first <= 150
    browser.run("scrollTo(0, document.body.scrollHeight)")
    browser.wait(lambda: THOUSAND - 1 in browser.run(PLACES), "the last row")
    browser.wait(lambda: 0 not in browser.run(PLACES), "the first page to have left")
    browser.wait(lambda: len(browser.all(ROWS)) < 400, "no more rows than near the view")
    browser.run("scrollTo(0, 0)")
    browser.wait(lambda: browser.run(PLACES)[:1] == [0], "the first page again")
    places = browser.run(PLACES)
    assert places == sorted(set(places)), "a row is there once, in its order"


#: Answers come a second late, as over a slow line.
SLOWLY = """
const usual = window.fetch;
window.shown = 0;
document.addEventListener("queue:shown", () => { window.shown += 1; });
window.fetch = async (...asked) => {
  const answer = await usual(...asked);
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  return answer;
};
"""


def test_a_page_that_has_left_while_it_was_asked_for_stays_away(browser: Browser) -> None:
    opened(browser, "/jobs/default?show=all")
    browser.run(SLOWLY)
    browser.run("document.getElementById('queue').dispatchEvent(new CustomEvent('wake'))")
    browser.run("scrollTo(0, document.body.scrollHeight)")
    first = "return document.querySelector('tbody[data-part=\"1\"]').classList.contains('unloaded')"
    browser.wait(lambda: browser.run(first), "the first page to leave")
    browser.wait(lambda: browser.run("return window.shown") >= 2, "both answers")
    browser.wait(lambda: THOUSAND - 1 in browser.run(PLACES), "the last row")
    assert browser.run(first)
    browser.run("scrollTo(0, 0)")
    browser.wait(lambda: browser.run(PLACES)[:1] == [0], "the first page again")


def test_without_scripts_pages_are_links(browser: Browser) -> None:
    opened(browser, "/jobs/default?show=all&page=2")
    # the document as the server sent it: a browser with scripts scrolls on when it comes to the links
    sent = "return fetch(location.href).then((answer) => answer.text()).then((text) => new DOMParser()"
    sent += ".parseFromString(text, 'text/html').querySelector('#queue-pages'))"
    assert "page 2 of" in browser.run(f"{sent[:-1]}.textContent)")
    browser.open(
        "/jobs/default" + browser.run(f"{sent[:-1]}.querySelector('[rel=prev]').getAttribute('href'))")
    )
    browser.wait(lambda: browser.run(PLACES)[:1] == [0], "the page before")


#: What was fetched of the page, in order.
PARTS = """
return performance.getEntriesByType("resource").map(({ name }) => new URL(name).searchParams.get("part"))
  .filter((part) => part !== null);
"""


def test_an_edit_elsewhere_moves_the_row_and_leaves_the_others_alone(
    browser: Browser, server: Server
) -> None:
    moved = job_id(server, "job-60")
    opened(browser, "/jobs/default?show=all")
    still = browser.run(
        """
        const row = document.querySelectorAll('tr[data-job]')[3];
        row.marked = true;
        row.querySelector('input').click();
        row.querySelector('.menu').focus();
        window.told = [];
        document.getElementById('queue').addEventListener('wake', ({ detail }) => window.told.push(...detail.topics));
        return row.id;
        """
    )
    update = {"updates": [{"jobId": moved, "priority": 3}]}
    server.request("POST", "/api/v1/job-queues", update, server.token())
    first = "return document.querySelector('tr[data-version]').dataset.job"
    browser.wait(lambda: browser.run(first) == moved, "the moved row at the top")
    row = f"#{still}"
    assert browser.run("return document.querySelector(arguments[0] + ' input').checked", row)
    assert browser.run("return document.activeElement.closest('tr')?.id") == still
    assert any(topic.startswith("pool:") for topic in browser.run("return window.told")), "not only a pass"

    def follows() -> bool:
        parts = browser.run(PARTS)
        return "rows" in parts and "" in parts[parts.index("rows") :]

    browser.wait(follows, "the numbers around the table behind the rows")
    assert browser.complaints() == []


def test_rows_that_show_the_same_are_not_touched(browser: Browser, server: Server) -> None:
    opened(browser, "/jobs/default?show=mine")
    first, second = (f"#job-{job_id(server, f'job-{SWEEP + n}')}" for n in (0, 1))
    for row in (first, second):
        browser.run("document.querySelector(arguments[0]).marked = true", row)
    changed = {"updates": [{"jobId": second.removeprefix("#job-"), "priority": 50}]}
    server.request("POST", "/api/v1/job-queues", changed, server.token())
    browser.wait(lambda: not browser.run(MARKED, second), "the changed row to be replaced")
    last = "return [...document.querySelectorAll('tr[data-job]')].at(-1).id"
    assert f"#{browser.run(last)}" == second
    places = browser.run(PLACES)
    assert places == sorted(places)


#: The first two answers wait until they are let go.
HOLDING = """
const usual = window.fetch;
[window.held, window.read] = [[], 0];
window.fetch = async (...asked) => {
  const { ok, url, status, text } = await usual(...asked).then(async (answer) => (
    { ok: answer.ok, url: answer.url, status: answer.status, text: await answer.text() }));
  if (window.held.length < 2) await new Promise((resolve) => window.held.push(resolve));
  return { ok, url, status, text: async () => { window.read += 1; return text; } };
};
"""
FRAMES = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"


def test_an_edit_is_asked_for_while_older_answers_are_on_their_way(browser: Browser, server: Server) -> None:
    shown = "return Number(document.querySelector('tr[data-job]').dataset.priority)"
    opened(browser, "/jobs/lonely?show=mine")
    job, former = browser.run("return document.querySelector('tr[data-job]').dataset.job"), browser.run(shown)

    def is_asked(before: int) -> bool:
        return int(browser.run("return window.held.length")) > before

    def set_priorities(*priorities: int) -> None:
        """Each once the one before has been asked for; both answers are held."""
        opened(browser, "/jobs/lonely?show=mine")
        browser.run(HOLDING)
        for priority in priorities:
            before = browser.run("return window.held.length")
            update = {"updates": [{"jobId": job, "priority": priority}]}
            server.request("POST", "/api/v1/job-queues", update, server.token())
            browser.wait(partial(is_asked, before), f"what answers to {priority}")

    set_priorities(20, former)
    browser.run("window.held[0]()")
    browser.wait(lambda: browser.run(shown) == 20, "what the first answer says")
    browser.run(
        "window.held[1]()"
    )  # it says that the row is as it was when this was asked for, and it no longer is
    browser.wait(lambda: browser.run(shown) == former, "what has become of it since")

    set_priorities(20, 30)
    browser.run("window.held[1]()")
    browser.wait(lambda: browser.run(shown) == 30, "what the second answer says")
    browser.run("window.held[0]()")
    browser.wait(lambda: browser.run("return window.read") == 2, "the first answer, which is the older one")
    browser.driver.execute_async_script(FRAMES)
    assert browser.run(shown) == 30


def test_what_is_told_under_two_topics_wakes_a_part_once(browser: Browser, server: Server) -> None:
    opened(browser, f"/jobs/job/{job_id(server, 'job-60')}")
    pool, _, job = browser.run("return document.querySelector('main [data-topics]').dataset.topics").split()
    browser.run(
        "window.woken = []; document.addEventListener('wake', ({ detail }) => window.woken.push(detail.topics), true)"
    )
    server.shell(f"from events.announce import announce; announce({job!r}, {pool!r})")
    browser.wait(lambda: any(job in topics for topics in browser.run("return window.woken")), "the call")
    assert all(pool in topics for topics in browser.run("return window.woken") if job in topics)


def test_more_than_six_pools_are_a_list_with_a_search(browser: Browser) -> None:
    opened(browser, "/jobs/default")
    browser.click("#pool-list summary")
    browser.one("#pool-name").send_keys("lonely\n")
    browser.wait(lambda: browser.path() == "/jobs/lonely", "the pool's queue")
    numbers = ["0", "/", "0"]
    browser.wait(lambda: browser.text("#queue-numbers").split()[:3] == numbers, "its numbers")


def test_the_job_page_says_why_it_waits_and_what_was_changed(browser: Browser, server: Server) -> None:
    job = job_id(server, "job-60")
    opened(browser, f"/jobs/job/{job}")
    browser.wait(lambda: "has no hosts yet" in browser.text("ul.blockers"), "why it waits")
    browser.wait(lambda: re.search(r"priority 42 to 3", browser.text("ol.timeline")), "what was changed")
    assert browser.violations() == []


def test_pages_work_with_the_scripts_and_the_typeface_that_set_up_has_made(
    browser: Browser, server: Server
) -> None:
    if (ROOT / "build/assets/.built").read_text().startswith("without"):
        pytest.skip("needs npm: `setup.sh assets` could fetch nothing that packs scripts")
    assert collected.is_packed_of_these(), (
        "run `sh deploy/setup.sh assets --quick`: static/ has changed since"
    )
    trial = long_run.write(server, 1, 50, state="ACTIVE")

    opened(browser, "/jobs/default?show=all")
    address = browser.run("return document.querySelector('script[src$=\"js/queue/board.js\"]').src")
    assert httpx.get(address).content == (ROOT / "build/assets/packed/js/queue/board.js").read_bytes()
    browser.wait(lambda: browser.run(HAS_FACE), "the typeface")
    browser.press("j")
    browser.wait(
        lambda: browser.run("return document.activeElement.matches('tr[data-version]')"),
        "the row that j marks",
    )

    opened(browser, "/experiments")
    browser.click("#list-filter summary")
    browser.press(Keys.ESCAPE)
    browser.wait(lambda: not browser.all("#list-filter[open]"), "the menu to close")

    browser.open(f"/trials/{trial}/metrics")
    browser.wait(lambda: browser.all("#chart-loss .main-svg"), "the chart of the loss")
    assert browser.complaints() == []

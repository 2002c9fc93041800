"""Ranks of a log in a real browser: chips for few, a box and a heat map for many, columns side by side."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client
from selenium.webdriver.common.keys import Keys

from accounts.models import User
from commands.models import Command
from embedded.redis import Redis
from jobs.models import Member
from logs import pulse, store
from logs.lines import NewLine, blocks_of
from tests.rig.browser import Browser, programs, running_browser
from tests.rig.rows import make_command
from tests.rig.web import Web, running_web

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

LOCAL_RANKS = 8
SHOWN = """
const ranks = [...document.querySelectorAll(".log-row[data-rank]")].map((row) => Number(row.dataset.rank));
return [...new Set(ranks)].sort((one, other) => one - other);
"""
WORST_HOST = """
const hosts = [...document.querySelectorAll(".map-host")];
return hosts.sort((one, other) => one.style.order - other.style.order)[0].textContent;
"""
#: the time of each row of columns, and its cells from left to right
GRID = """
return [...document.querySelectorAll("#column-rows .column-row")].map((row) =>
  [...row.children].map((cell) => cell.textContent));
"""

#: texts of chips that lie under the arrow of the chip's menu, where there is a mouse, which this Chromium lacks
COVERED = """
const told = { "(hover: hover)": "all", "(hover: none)": "not all" };
for (const { cssRules } of document.styleSheets) {
  for (const { media } of cssRules) if (media?.mediaText in told) media.mediaText = told[media.mediaText];
}
return [...document.querySelectorAll(".rank-chip")].flatMap((chip) => {
  const { left } = chip.querySelector(".more").getBoundingClientRect();
  const under = (part) => part.getBoundingClientRect().right > left;
  return [...chip.querySelectorAll(".pill > *")].filter(under).map((part) => part.textContent);
});
"""


@pytest.fixture(scope="module")
def web(
    django_db_setup: None, redis_server: Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Web]:
    folder: Path = tmp_path_factory.mktemp("web")
    with running_web(folder) as process:
        yield process


@pytest.fixture(scope="module")
def window(web: Web) -> Iterator[Browser]:
    if programs() is None:
        pytest.skip("needs chromium and chromedriver")
    with running_browser(web.url) as browser:
        browser.look(dark=False, width=1440)
        yield browser


@pytest.fixture
def browser(window: Browser, client: Client, db: None) -> Browser:
    """Logged in anew: each test has a database of its own."""
    client.force_login(User.objects.create(username="ada", role=User.Role.ADMIN))
    window.open("/login")
    window.driver.delete_all_cookies()
    name = settings.SESSION_COOKIE_NAME
    window.driver.add_cookie({"name": name, "value": client.cookies[name].value})
    return window


def gang(hosts: int) -> tuple[Command, list[Member]]:
    command = make_command(hosts)
    return command, list(command.task.allocations.get().members.order_by("index"))


def write(member: Member, *lines: tuple[int | None, str], at: float | None = None) -> int:
    """Lines as (rank, text), as the member's runner ships them; says the number of the last."""
    now = time.time() if at is None else at
    blocks = blocks_of([NewLine(now, rank, "stdout", None, text) for rank, text in lines])
    return store.append(member.allocation.task_id, member, member.host.name, blocks)[1]


def ranks_of(member: Member) -> range:
    return range(member.index * LOCAL_RANKS, (member.index + 1) * LOCAL_RANKS)


def write_all(members: list[Member], count: int = 1) -> None:
    for member in members:
        write(
            member,
            *(
                (rank, f"rank {rank} line {number}")
                for rank in ranks_of(member)
                for number in range(1, count + 1)
            ),
        )


def beat(members: list[Member], stopped: frozenset[int] = frozenset(), step: int = 1248) -> None:
    """What the runners say of their ranks: all train, those of `stopped` were stopped by a signal 20 s ago."""
    for member in members:
        said = [
            {"rank": rank, "pid": 100 + rank, "step": step, "cpu": 0.9, "beats": 500, "beat_seconds": 0.3}
            | (
                {"state": "T", "state_seconds": 20.0}
                if rank in stopped
                else {"state": "S", "state_seconds": 1.0}
            )
            for rank in ranks_of(member)
        ]
        pulse.keep(member.pk, said)


def complaints(browser: Browser) -> list[str]:
    """Chromium drops what it loads when an interface comes or goes, as those of other tests' hosts do."""
    return [text for text in browser.complaints() if "ERR_NETWORK_CHANGED" not in text]


def show(browser: Browser, path: str) -> None:
    """Open a page, and again while a part of it was dropped on the way."""

    def opened() -> bool:
        browser.open(path)
        return not any("ERR_NETWORK_CHANGED" in text for text in browser.complaints())

    browser.wait(opened, "the page with all its parts", 60)


def shows(browser: Browser, *ranks: int) -> None:
    browser.wait(
        lambda: browser.run(SHOWN) == list(ranks), f"lines of {ranks} alone, not {browser.run(SHOWN)}"
    )


def test_few_ranks_are_chosen_by_click_and_by_key(browser: Browser) -> None:
    command, members = gang(1)
    write_all(members, 2)
    write(members[0], (None, "the launcher says hello"))
    show(browser, f"/commands/{command.pk}")
    browser.wait(lambda: browser.all('.ranks [data-rank="7"]'), "eight chips")
    shows(browser, *range(8))
    assert browser.run(COVERED) == [], "the arrow of a menu takes the clicks on its chip"

    browser.click('.ranks [data-rank="3"]')
    shows(browser, 3)
    browser.press(Keys.ARROW_RIGHT, Keys.ENTER)
    shows(browser, 4)
    browser.press(Keys.ARROW_RIGHT)
    browser.press(Keys.ENTER, held=Keys.CONTROL)
    shows(browser, 4, 5)
    browser.wait(lambda: "rank=4-5" in browser.driver.current_url, "the address of both")
    browser.click('.ranks [data-rank="-1"]')
    shows(browser)
    browser.wait(lambda: "the launcher says hello" in browser.text("#log-view"), "the launcher's line")

    browser.driver.back()
    shows(browser, 4, 5)
    show(browser, browser.run("return location.pathname + location.search"))
    shows(browser, 4, 5)
    press_menu(browser, 5, "All but this rank")
    shows(browser, 0, 1, 2, 3, 4, 6, 7)
    browser.wait(lambda: browser.one("#rank-text").get_attribute("value") == "!5", "the choice as a text")
    assert complaints(browser) == []


def press_menu(browser: Browser, rank: int, words: str) -> None:
    browser.wait(lambda: browser.all(f'.ranks [data-menu="{rank}"]'), f"the chip of rank {rank}")
    browser.one(f'.ranks [data-rank="{rank}"]').send_keys(Keys.ARROW_DOWN)
    browser.wait(lambda: words in browser.texts(".rank-menu button"), f"the menu with {words}")
    browser.all(".rank-menu button")[browser.texts(".rank-menu button").index(words)].click()


def test_a_rank_is_marked_by_its_progress_and_not_by_its_silence(browser: Browser) -> None:
    command, members = gang(1)
    now = time.time()
    for rank in range(LOCAL_RANKS):  # only the chief goes on printing
        write(members[0], (rank, "started"), at=now - 60)
    write(members[0], (0, "step 1248"))
    beat(members)
    show(browser, f"/commands/{command.pk}?pulse=1")
    browser.wait(lambda: "step 1,248" in browser.text("#pulse-rows"), "the pulse of the ranks")
    assert not browser.all(".rank-chip.marked, .pulse-row.marked")

    beat(members, frozenset({5}))
    browser.wait(lambda: browser.all(".rank-chip.marked"), "a mark")
    assert browser.attributes(".rank-chip.marked [data-rank]", "data-rank") == ["5"]
    sentence = f"Rank 5 on {members[0].host.name} has made no progress"
    browser.wait(lambda: browser.text("#rank-marks").startswith(sentence), "the mark in words")
    title = "return document.querySelector('.ranks [data-rank=\"5\"]').title"
    browser.wait(lambda: browser.text("#rank-marks") in browser.run(title), "the words at its chip")
    beat(members)
    browser.wait(lambda: not browser.all(".rank-chip.marked"), "the mark to go when the rank goes on")
    assert complaints(browser) == []


def test_why_a_rank_is_not_asked_what_it_does_is_said_in_a_dialog(browser: Browser) -> None:
    User.objects.filter(username="ada").update(role=User.Role.VIEWER)
    command, members = gang(1)
    write_all(members)
    show(browser, f"/commands/{command.pk}")
    press_menu(browser, 5, "What is it doing?")
    browser.wait(lambda: browser.all("dialog.stack .failed-text"), "the sentence why there is no stack")
    assert browser.text("dialog.stack h2") == f"What is rank 5 on {members[0].host.name} doing?"
    assert browser.text("dialog.stack .failed-text").startswith("ada is a viewer and cannot")
    browser.press(Keys.ESCAPE)
    browser.wait(lambda: not browser.all("dialog.stack"), "the dialog to close")


def test_512_ranks_have_a_box_and_a_heat_map(browser: Browser) -> None:
    command, members = gang(64)
    write_all(members)
    beat(members, frozenset({133}))
    browser.look(dark=False, width=1440, height=1000)
    show(browser, f"/commands/{command.pk}?ranks=marked")
    browser.wait(lambda: browser.all('.cell[data-rank="511"]'), "a cell for each rank", 60)
    assert not browser.all(".rank-chip")
    shows(browser, 133)
    browser.wait(lambda: browser.text("#rank-says") == "1 of 512 ranks", "how many are chosen")
    worst = f"{members[16].host.name}rank 133: step 1,248"
    browser.wait(lambda: browser.run(WORST_HOST).startswith(worst), "its host first")

    beat(members, frozenset({133, 200}))
    shows(browser, 133, 200)  # the choice follows the marks

    box = browser.one("#rank-text")
    box.fill(f"0-127,!5 host:{members[0].host.name}", Keys.ENTER)
    shows(browser, 0, 1, 2, 3, 4, 6, 7)
    box.send_keys(" quiet", Keys.ENTER)
    browser.wait(
        lambda: "'quiet' is not a rank expression" in browser.text("#rank-says"), "the fault in words"
    )
    shows(browser, 0, 1, 2, 3, 4, 6, 7)

    cell = browser.one('.cell[data-rank="10"]')
    cell.show()
    cell.click()
    shows(browser, 10)
    browser.wait(lambda: box.get_attribute("value") == "10", "the choice as a text")
    browser.press(Keys.ARROW_RIGHT)
    browser.press(Keys.ENTER, held=Keys.CONTROL)
    shows(browser, 10, 11)
    assert complaints(browser) == []


def test_ranks_stand_side_by_side_in_time(browser: Browser) -> None:
    command, members = gang(1)
    start = float(int(time.time()) - 3000)
    for step in range(1, 1001):
        said = [(rank, f"step {step}") for rank in (0, 1, 5) if not (rank == 5 and 900 < step <= 910)]
        write(members[0], *said, at=start + step)
    show(browser, f"/commands/{command.pk}")
    browser.click('.ranks [data-rank="0"]')
    press_menu(browser, 5, "Side by side: 0, 5")
    browser.wait(lambda: browser.path().endswith("/logs/columns"), "the page of columns")
    browser.wait(lambda: grid(browser)[-1:] == [("step 1000", "step 1000")], "the end of both")

    write(members[0], (5, "alone"), at=start + 1001)
    write(members[0], (1, "not asked for"), (0, "late"), at=start + 1002)
    browser.wait(lambda: grid(browser)[-2:] == [("", "alone"), ("late", "")], "live lines, with gaps")

    write(members[0], (0, "a"), (0, "b"), (5, "c"), (5, "d"), (5, "e"), at=start + 1003)
    browser.wait(
        lambda: grid(browser)[-3:] == [("a", "c"), ("b", "d"), ("", "e")],
        "what was written together in the same rows",
    )

    browser.one("#log-view").click()
    seen: dict[str, tuple[str, ...]] = {}

    def at_the_beginning() -> bool:
        seen.update((row[0] or row[1], row) for row in grid(browser))
        browser.run(
            "const view = document.getElementById('log-view'); view.scrollTop -= view.clientHeight / 2"
        )
        return "step 1" in seen

    browser.wait(at_the_beginning, "earlier lines while one scrolls up", 60)
    browser.wait(lambda: browser.one("#log-paused").is_displayed(), "the view to pause")
    for step in range(1, 1001):
        pause = 900 < step <= 910
        assert seen[f"step {step}"] == (f"step {step}", "" if pause else f"step {step}")
    assert complaints(browser) == []


def grid(browser: Browser) -> list[tuple[str, ...]]:
    """The cells of the rows that exist in the page, without their times."""
    return [tuple(cells[1:]) for cells in browser.run(GRID)]

"""The log viewer in a real browser: long logs, links, search, filters, colors, wrapping, copying, lines that come."""

import re
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from selenium.webdriver.common.keys import Keys

from tests.rig import long_log
from tests.rig.browser import NARROW, WIDE, Browser, programs, running_browser
from tests.rig.server import Server

pytestmark = pytest.mark.browser

LINES = 120_000
ROWS_MAX = 150
#: lines that differ in the long log, by number
ODD = {
    70: "\x1b[1;31mred\x1b[0m \x1b[38;5;208morange\x1b[0m \x1b[48;2;0;90;0mpaper\x1b[0m"
    " \x07 <script>window.hurt = 1</script>",
    71: "wide " + "word " * 120 + "end",
    72: "x" * 9_000,
    73: "right \u202eto left",
    74: "\x1b]8;;javascript:window.hurt=1\x1b\\link\x1b]8;;\x07 \x1b]0;title\x07\x1b]8;;data:text/html,x never ended",
    60_000: "needle in the middle",
    60_010: "Needle again",
    119_990: "needle at the end",
    90_000: "a" * 5000 + "b" * 5000 + "!",
}
#: lines 101 to 113 of one rank, in which seven and then two belong to frames of the launcher; then many more than a
#: traceback has, and a line that only begins like a frame
TRACED = {
    101 + index: text
    for index, text in enumerate(
        """Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "<frozen runpy>", line 88, in _run_code
  File "/var/lib/bundle/ab12/trainmaster/launch/wrap_rank.py", line 31, in <module>
    main()
    ~~~~^^
  File "/var/lib/bundle/ab12/trainmaster/launch/wrap_rank.py", line 24, in main
    runpy.run_path(path)
  File "/var/lib/runs/7.0/code/train.py", line 9, in <module>
    step(batch)
  File "/opt/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 355, in wrapper
    return f(*args, **kwargs)
ValueError: no needle""".splitlines()
    )
} | {
    **dict.fromkeys(range(130, 200), '  File "/x/trainmaster/runner/a.py", line 1, in f'),
    120: '  File "' + "/trainmaster/runner/" * 2_000,
}
VISIBLE = """
const view = document.getElementById("log-view").getBoundingClientRect();
return [...document.querySelectorAll(".log-row:not(.absent)")].filter((row) => {
  const box = row.getBoundingClientRect();
  return box.top >= view.top - 1 && box.bottom <= view.bottom + 1;
}).map((row) => Number(row.dataset.number));
"""


@pytest.fixture(scope="module")
def browser(empty_server: Server) -> Iterator[Browser]:
    if programs() is None:
        pytest.skip("needs chromium and chromedriver")
    with running_browser(empty_server.url) as window:
        window.look(dark=False, width=1440)
        window.login("admin", empty_server.password)
        yield window


@pytest.fixture(scope="module")
def log(empty_server: Server) -> str:
    """The address of a long log that has ended."""
    return f"/trials/{long_log.write(empty_server, LINES, odd=ODD)}/logs"


def visible(browser: Browser) -> list[int]:
    """Numbers of the lines that stand whole in the view."""
    found: list[int] = browser.run(VISIBLE)
    return found


def shows(browser: Browser, number: int) -> None:
    browser.wait(lambda: number in visible(browser), f"line {number} in view, not {visible(browser)[:3]}")


def has_no_gap(seen: list[int]) -> bool:
    return seen == list(range(seen[0], seen[0] + len(seen)))


def scroll(browser: Browser, to: str) -> None:
    browser.run(f"const view = document.getElementById('log-view'); view.scrollTop = {to};")


def text_of(browser: Browser, number: int) -> str:
    return browser.text(f'.log-row[data-number="{number}"] .text')


def choose(browser: Browser, field: str, value: str) -> None:
    browser.one(field).choose(value)


def address(browser: Browser) -> str:
    return browser.driver.current_url.partition("/logs")[2]


def test_one_goes_far_back_and_forward_again_with_few_rows_in_the_page(browser: Browser, log: str) -> None:
    browser.open(log)
    shows(browser, LINES)
    for place, number in (("0", 1), ("view.scrollHeight / 2", None), ("view.scrollHeight", LINES), ("0", 1)):
        scroll(browser, place)
        if number is None:
            browser.wait(
                lambda: (seen := visible(browser)) and abs(seen[0] - LINES / 2) < 100, "the middle of the log"
            )
        else:
            shows(browser, number)
        browser.wait(lambda: has_no_gap(visible(browser)), "lines without gap")
        assert len(browser.all(".log-row")) < ROWS_MAX
    view = browser.one("#log-view")
    view.send_keys(Keys.END)
    shows(browser, LINES)
    browser.run(
        "const view = document.getElementById('log-view');"
        "view.style.maxHeight = `${view.clientHeight - 40}px`; view.scrollTop = 0;"  # something came above it
    )
    shows(browser, 1)
    view.send_keys(Keys.END)
    shows(browser, LINES)
    view.send_keys(Keys.HOME)
    shows(browser, 1)
    view.send_keys("f")
    shows(browser, LINES)
    browser.wait(lambda: f"of {LINES:,}" in browser.text("#log-where"), "the place in the log")
    assert browser.complaints() == []


def test_a_link_to_lines_is_made_by_clicks_and_opens_there(browser: Browser, log: str) -> None:
    browser.open(f"{log}#L60005")
    shows(browser, 60_005)
    browser.wait(lambda: browser.all('.log-row.pointed[data-number="60005"]'), "the line pointed at")
    browser.click('.log-row[data-number="60003"] .no')
    browser.wait(lambda: address(browser) == "#L60003", "the address of the line")
    browser.run(
        "document.querySelector('.log-row[data-number=\"60006\"] .no').dispatchEvent("
        "new MouseEvent('click', {bubbles: true, cancelable: true, shiftKey: true}))"
    )
    browser.wait(lambda: address(browser) == "#L60003-L60006", "the address of the range")
    browser.wait(lambda: len(browser.all(".log-row.pointed")) == 4, "the range")
    browser.driver.refresh()
    browser.wait(lambda: len(browser.all(".log-row.pointed")) == 4, "the range after a reload")
    browser.driver.back()
    browser.wait(lambda: len(browser.all(".log-row.pointed")) == 1, "the link before")
    browser.open(f"{log}#L999999999")
    browser.wait(lambda: "There is no line 999,999,999 yet" in browser.text("#log-error"), "a sentence")


def points_at(browser: Browser, clock: str) -> None:
    browser.wait(lambda: browser.text(".log-row.pointed .at").startswith(clock), f"the line of {clock}")


def test_a_time_is_a_place_too(browser: Browser, log: str) -> None:
    browser.open(f"{log}?at=2026-11-21T10:10:00Z")
    points_at(browser, "10:10:00")
    for text, at in (("10:05", "10:05:00"), ("2026-11-21 10:15:30", "10:15:30")):
        browser.one("#log-go").fill(text, Keys.ENTER)
        points_at(browser, at)
        assert f"T{at}Z" in address(browser)
    browser.one("#log-go").fill("soon", Keys.ENTER)
    browser.wait(
        lambda: "“soon” is neither a line number nor a time" in browser.text("#log-error"), "a sentence"
    )
    browser.one("#log-go").fill("77,000", Keys.ENTER)
    shows(browser, 77_000)
    browser.wait(lambda: address(browser) == "#L77000", "the address of the line")
    browser.wait(lambda: browser.text("#log-error") == "", "no fault any more")


def test_a_search_marks_counts_and_goes_from_match_to_match(browser: Browser, log: str) -> None:
    browser.open(f"{log}#L60003")
    shows(browser, 60_000)
    browser.one("#log-view").send_keys("/")
    field = browser.one("#log-search")
    field.send_keys("needle")
    browser.wait(lambda: browser.text("#log-matches") == "3 found", "the count of matches")
    assert 60_003 in visible(browser), "a search in place leaves the lines where they are"
    browser.wait(lambda: len(browser.all(".log-row mark")) == 2, "both matches in view, in whatever case")
    field.send_keys(Keys.ENTER)
    browser.wait(lambda: browser.text("#log-matches").endswith("/ 3"), "a match to be chosen")
    browser.one("#log-view").send_keys("n", "n")
    browser.wait(lambda: browser.text("#log-matches") == "3 / 3", "the last match")
    shows(browser, 119_990)
    browser.one("#log-view").send_keys("N")
    browser.wait(lambda: browser.text("#log-matches") == "2 / 3", "the match before")
    shows(browser, 60_010)
    browser.run("document.activeElement.blur()")
    browser.one("body").send_keys("N")
    browser.wait(lambda: browser.text("#log-matches") == "1 / 3", "the first match, with the focus nowhere")
    browser.one("body").send_keys("N")
    browser.wait(
        lambda: browser.text("#log-matches") == "1 / 3, none further up", "to be told that it is the first"
    )
    browser.one("body").send_keys("n")
    shows(browser, 60_010)

    browser.click("#log-only")
    browser.wait(lambda: visible(browser) == [60_000, 60_010, 119_990], "only the lines that match")
    choose(browser, "#log-context", "3")
    browser.wait(lambda: visible(browser)[:7] == list(range(59_997, 60_004)), "the lines around them")
    browser.wait(lambda: browser.all('.log-row.context[data-number="59999"]'), "the line before the match")
    browser.driver.back()
    browser.wait(lambda: visible(browser) == [60_000, 60_010, 119_990], "no context again")
    browser.driver.back()
    browser.wait(lambda: len(visible(browser)) > 10, "all lines again")
    browser.wait(lambda: address(browser).startswith("?q=needle"), "the address of the search")


def test_a_bad_and_a_slow_pattern_say_so(browser: Browser, log: str) -> None:
    browser.open(f"{log}?q=%28a&regex=1")
    browser.wait(lambda: "'(a' is not a regular expression" in browser.text("#log-error"), "the sentence")
    field = browser.one("#log-search")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(r"needle (in|at)")
    browser.wait(lambda: browser.text("#log-matches") == "2 found", "the matches of a pattern")
    browser.wait(lambda: browser.text("#log-error") == "", "no fault any more")
    browser.open(f"{log}?{urlencode({'q': '^(a+|b+|(ab|a|b)+)+$', 'regex': 1})}#L90000")
    browser.wait(lambda: "takes longer than" in browser.text("#log-error"), "the sentence about time")
    shows(browser, 90_000)  # the page itself goes on
    browser.complaints()


def test_filters_are_links_and_going_back_undoes_them(browser: Browser, log: str) -> None:
    browser.look(dark=False, width=1440, height=1000)  # the lines of the range fit below a banner, too
    browser.open(log)
    shows(browser, LINES)
    choose(browser, "#log-level", "WARNING")
    browser.wait(lambda: visible(browser)[-2:] == [LINES - 1000, LINES], "only warnings")
    assert address(browser) == "?level=WARNING"
    browser.wait(lambda: "120 matching lines" in browser.text("#log-where"), "their number")
    browser.wait(lambda: len(browser.all("#log-host option")) == 3, "the hosts to be known")
    choose(browser, "#log-host", "gpu-1")
    browser.wait(lambda: "60 matching lines" in browser.text("#log-where"), "one host's warnings")
    browser.driver.back()
    browser.wait(lambda: "120 matching lines" in browser.text("#log-where"), "the warnings of all hosts")
    browser.driver.back()
    browser.wait(
        lambda: f"of {LINES:,}" in browser.text("#log-where") and LINES in visible(browser), "all again"
    )
    browser.click("#log-time-menu summary")
    browser.one("#log-from").send_keys("2026-11-21 10:00:10")
    browser.one("#log-to").send_keys("10:00:10.05", Keys.ENTER)
    browser.wait(
        lambda: visible(browser) == list(range(1001 - 1, 1026)) or len(visible(browser)) == 25, "the range"
    )
    assert "from=2026-11-21T10:00:10Z" in address(browser)
    [link] = browser.attributes("#log-download-found", "href")
    assert link and "from=" in link and "to=" in link
    browser.driver.refresh()
    browser.wait(lambda: len(visible(browser)) == 25, "the range after a reload")
    browser.look(dark=False, width=1440)


@pytest.mark.survive(29)
def test_terminal_colors_are_shown_and_nothing_of_a_line_acts(browser: Browser, log: str) -> None:
    browser.open(f"{log}#L71")
    shows(browser, 70)
    row = '.log-row[data-number="70"] .text'
    words = "red orange paper ^G <script>window.hurt = 1</script>"
    browser.wait(lambda: text_of(browser, 70) == words, "the text of the line")
    for colors in (".ink-red.t-bold", ".ink-own", ".paper-own"):
        assert browser.all(f"{row} {colors}"), colors
    assert browser.run("return window.hurt") is None
    assert "\u202e" not in text_of(browser, 73)
    assert text_of(browser, 74) == "link 8;;data:text/html,x never ended"
    assert not browser.all("#log-view .text a")
    browser.wait(lambda: len(text_of(browser, 72)) == 4_000, "the beginning of the long line")
    browser.run("document.querySelector('.more-text').click()")
    browser.wait(lambda: len(text_of(browser, 72)) == 9_000, "the whole long line")


def test_what_is_copied_has_no_numbers_times_and_ranks(browser: Browser, log: str) -> None:
    browser.open(f"{log}#L100")
    for number in (99, 100, 101):
        shows(browser, number)
    copied = browser.run(
        """
        const text = (number) => document.querySelector(`.log-row[data-number="${number}"] .text`).firstChild;
        getSelection().setBaseAndExtent(text(99), 5, text(101), 8);
        const event = new ClipboardEvent("copy", {clipboardData: new DataTransfer(), bubbles: true, cancelable: true});
        document.getElementById("log-view").dispatchEvent(event);
        return event.clipboardData.getData("text/plain");
        """
    )
    first, second, third = copied.split("\n")
    assert (first[:3], third) == ("99 ", "step 101")
    assert re.fullmatch(r"step 100 loss [\d.]+ lr 2.8e-4 5100 tok/s", second)


def top(browser: Browser) -> int:
    """The number of the line at the upper edge, as the page says it."""
    found = re.match(r"Lines ([\d,]+) to", browser.text("#log-where"))
    assert found
    return int(found[1].replace(",", ""))


def drawn(browser: Browser) -> bool:
    """After two more frames, whether every row in the page has its line."""
    return bool(
        browser.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() =>"
            " done(!document.querySelector('.log-row.absent'))));"
        )
    )


def test_wrapped_lines_are_scrolled_like_others(browser: Browser, log: str) -> None:
    browser.open(f"{log}?wrap=1#L71")
    shows(browser, 71)
    height = browser.run("return document.querySelector('.log-row[data-number=\"71\"]').offsetHeight")
    assert height > 2 * 19
    scroll(browser, "0")
    shows(browser, 1)
    tops = [top(browser)]
    for step in range(1, 41):
        scroll(browser, str(300 * step))
        browser.wait(lambda: drawn(browser), "the rows of the step")
        tops.append(top(browser))
    assert tops == sorted(tops)
    assert 200 < tops[-1] < 40 * 300 / 19, "a step is one of pixels, whatever the heights of the rows"
    scroll(browser, "view.scrollHeight")
    shows(browser, LINES)
    browser.one("#log-view").send_keys("w")
    browser.wait(lambda: address(browser) == "#L71", "the address of lines in one row each")
    shows(browser, LINES)


def folds(browser: Browser) -> list[tuple[int, str]]:
    """Line and words of each fold in the page."""
    script = """
    return [...document.querySelectorAll(".log-row:has(.unfold)")].map((row) =>
      [Number(row.dataset.number), row.querySelector(".unfold").dataset.note]);
    """
    return [(number, words) for number, words in browser.run(script)]


def test_frames_of_the_launcher_are_one_line_until_they_are_asked_for(
    browser: Browser, empty_server: Server
) -> None:
    path = f"/trials/{long_log.write(empty_server, 200, name='traced', odd=TRACED)}/logs"
    first, second = (102, "… 4 frames of the launcher"), (111, "… 1 frame of the launcher")
    browser.look(dark=False, width=WIDE)
    browser.open(f"{path}#L101")
    browser.wait(lambda: folds(browser) == [first, second], f"the folds, not {folds(browser)}")
    browser.wait(lambda: {101, 102, 109, 110, 111, 113, 120} <= set(visible(browser)), "the rows around them")
    assert not {103, 104, 105, 106, 107, 108, 112} & set(visible(browser))
    copied = browser.run(
        """
        const text = (number) => document.querySelector(`.log-row[data-number="${number}"] .text`).firstChild;
        getSelection().setBaseAndExtent(text(101), 0, text(113), 10);
        const event = new ClipboardEvent("copy", {clipboardData: new DataTransfer(), bubbles: true, cancelable: true});
        document.getElementById("log-view").dispatchEvent(event);
        getSelection().removeAllRanges();
        return event.clipboardData.getData("text/plain");
        """
    )
    assert copied.splitlines()[:-1] == [TRACED[number] for number in range(101, 113)]
    browser.one("#log-search").send_keys("wrap_rank")
    browser.wait(lambda: not folds(browser) and browser.all(".log-row mark"), "the found lines")
    assert {104, 107} <= set(visible(browser))
    browser.one("#log-search").send_keys(Keys.CONTROL, "a", Keys.DELETE)
    browser.wait(lambda: folds(browser) == [first, second], "the folds without a search")
    browser.one(".unfold").send_keys(Keys.ENTER)
    browser.wait(
        lambda: folds(browser) == [second] and {102, 105, 108} <= set(visible(browser)), "the frames"
    )
    browser.open(f"{path}?wrap=1#L112")
    browser.wait(lambda: folds(browser) == [first] and 112 in visible(browser), "the line of the address")
    assert browser.violations() == [] and browser.complaints() == []


#: keeps what the log has looked like, as [rows, what is said instead of rows, the place], each time that it changed
NOTE_LOOKS = """
window.looks = [];
const text = (id) => document.getElementById(id).innerText;
const rows = document.getElementsByClassName("log-row");
const note = () => window.looks.push([rows.length, text("log-nothing"), text("log-where")]);
const all = { subtree: true, childList: true, characterData: true, attributes: true };
new MutationObserver(note).observe(document.getElementById("log"), all);
"""


def slow_network(browser: Browser, milliseconds: int) -> None:
    browser.driver.execute_cdp_cmd("Network.enable", {})
    conditions = {
        "offline": False,
        "latency": milliseconds,
        "downloadThroughput": -1,
        "uploadThroughput": -1,
    }
    browser.driver.execute_cdp_cmd("Network.emulateNetworkConditions", conditions)


def test_lines_of_before_go_while_only_matching_ones_are_searched_for(browser: Browser, log: str) -> None:
    browser.open(f"{log}?q=needle")
    shows(browser, LINES)
    begins = view_top(browser)
    browser.run(NOTE_LOOKS)
    slow_network(browser, 3000)
    try:
        browser.click("#log-only")
        searching = [0, f"Searching … 0 of {LINES:,} lines searched", ""]
        browser.wait(lambda: searching in browser.run("return window.looks"), "the other lines to go")
        browser.wait(lambda: len(browser.all(".log-row")) == 3, "the three matches")
    finally:
        slow_network(browser, 0)
    choose(browser, "#log-context", "3")
    browser.wait(lambda: browser.all(".log-row.context"), "the lines around")
    assert view_top(browser) == begins, "fields that come and go move no line"


def view_top(browser: Browser) -> float:
    return float(browser.run("return document.getElementById('log-view').getBoundingClientRect().top"))


def test_wrapping_keeps_the_line_that_one_looks_at(browser: Browser, log: str) -> None:
    browser.open(f"{log}#L73")  # below lines of thousands of characters
    shows(browser, 73)
    before = row_top(browser, 73)
    for _ in range(2):
        browser.one("#log-view").send_keys("w")
        browser.wait(lambda: abs(row_top(browser, 73) - before) < 2, "line 73 where it was")
    browser.open(f"{log}#L60003")
    shows(browser, 60_003)
    browser.one("#log-view").send_keys(Keys.ESCAPE)  # points at none
    first = visible(browser)[0]
    browser.one("#log-view").send_keys("w")
    browser.wait(lambda: "wrap=1" in address(browser) and visible(browser)[0] == first, "the line on top")


def row_top(browser: Browser, number: int) -> float:
    """Pixels from the edge of the view to the line; far away where it is not in the page."""
    script = "return document.querySelector(arguments[0])?.getBoundingClientRect().top ?? 1e6"
    return float(browser.run(script, f'.log-row[data-number="{number}"]')) - view_top(browser)


def test_a_narrow_window_folds_the_fields_under_one_button(browser: Browser, log: str) -> None:
    browser.look(dark=False, width=390, height=844)
    try:
        browser.open(f"{log}?level=WARNING")
        shows(browser, LINES)
        begins = browser.run("return document.getElementById('log').getBoundingClientRect().top")
        assert view_top(browser) - begins < 80, "two rows of fields above the lines"
        browser.wait(lambda: browser.text("#log-filters") == "Filters · 1", "the one filter to be counted")
        assert browser.one("#log-search").is_displayed() and not browser.one("#log-level").is_displayed()
        browser.click("#log-filters")
        choose(browser, "#log-level", "")
        browser.wait(lambda: browser.text("#log-filters") == "Filters", "no filter to be counted")
    finally:
        browser.look(dark=False, width=1440)


def test_one_rank_is_no_choice(browser: Browser, empty_server: Server, log: str) -> None:
    alone = long_log.write(empty_server, 50, name="alone", ranks=1)
    browser.open(f"/trials/{alone}/logs")
    shows(browser, 50)
    browser.wait(lambda: browser.text("#log-state") == "Complete", "the ranks to be known")
    browser.wait(lambda: not browser.one("#log .ranks").is_displayed(), "no chips")
    browser.open(log)
    browser.wait(lambda: browser.one("#log .ranks").is_displayed(), "the chips of a gang")


def test_lines_that_come_move_nothing_while_one_reads(browser: Browser, empty_server: Server) -> None:
    trial = long_log.write(empty_server, 500, name="live", state="ACTIVE")
    browser.open(f"/trials/{trial}/logs")
    shows(browser, 500)
    browser.wait(lambda: browser.text("#log-state .word") == "Queued", "the connection")
    for width, height in ((WIDE, 1400), (WIDE, 700), (NARROW, 1400), (WIDE, 1200), (WIDE, 860)):
        browser.look(dark=False, width=width, height=height)  # nobody scrolls who makes a window larger
        browser.run("return document.getElementById('log-view').clientHeight")
        shows(browser, 500)
    append(empty_server, trial, 501, 100)
    shows(browser, 600)
    scroll(browser, "view.scrollTop - 1000")
    browser.wait(lambda: browser.one("#log-paused").is_displayed(), "the view to pause")
    before = visible(browser)
    append(empty_server, trial, 601, 100)
    browser.wait(lambda: "100 new lines" in browser.text("#log-paused"), "the new lines to be counted")
    assert visible(browser) == before
    browser.look(dark=False, width=NARROW)
    browser.wait(lambda: browser.run("return innerWidth") == NARROW, "the narrow window")
    assert browser.sticking_out() == []
    browser.look(dark=False, width=WIDE)
    browser.click("#log-paused")
    shows(browser, 700)
    choose(browser, "#log-stream", "stdout")
    browser.wait(lambda: "matching line" in browser.text("#log-where"), "the filter")
    append(empty_server, trial, 701, 50)
    shows(browser, 750)
    choose(browser, "#log-stream", "stderr")
    browser.wait(lambda: 750 not in visible(browser), "the other stream")
    append(empty_server, trial, 751, 50)
    browser.wait(lambda: "of 800" in browser.text("#log-where"), "the log to grow")
    assert 751 not in visible(browser)
    assert browser.complaints() == []


def test_ten_million_lines_of_which_most_are_no_longer_kept(browser: Browser, empty_server: Server) -> None:
    """The numbers of a log are what its place is reckoned by; the lines between were removed."""
    trial, newest = long_log.write(empty_server, 1000, name="old", state="ACTIVE"), 10_000_000
    empty_server.shell(
        f"""
from experiments.models import Trial
from logs.models import TaskLog
task = Trial.objects.get(pk={trial}).task_id
TaskLog.objects.filter(task_id=task).update(next_line={newest - 999}, merged_line={newest - 1000})
""",
    )
    append(empty_server, trial, newest - 999, 1000)
    browser.open(f"/trials/{trial}/logs")
    shows(browser, newest)
    view = browser.one("#log-view")
    view.send_keys(Keys.HOME)
    shows(browser, 1)
    for _ in range(8):
        scroll(browser, "view.scrollTop + 400")
        browser.wait(lambda: drawn(browser), "the rows of the step")
    assert top(browser) == 1 + 8 * 400 // 19, "at its ends the bar is true to the pixel"
    scroll(browser, "view.scrollHeight / 2")
    browser.wait(lambda: drawn(browser) and abs(top(browser) - newest / 2) < 2000, "the middle")
    browser.wait(lambda: len(browser.all(".log-row.gone")) > 20, "the rows of what is no longer kept")
    view.send_keys(Keys.END)
    shows(browser, newest)
    scroll(browser, "view.scrollTop - 400")
    browser.wait(lambda: drawn(browser) and newest not in visible(browser), "the lines before")
    first = visible(browser)[0]
    browser.wait(lambda: text_of(browser, first) == f"came {first}", "the line's own text")


def append(server: Server, trial: int, first: int, count: int) -> None:
    server.shell(
        f"""
import time
from experiments.models import Trial
from logs import store
from logs.lines import Block
text = "\\n".join(f"came {{number}}" for number in range({first}, {first + count}))
store.append(Trial.objects.get(pk={trial}).task_id, None, "gpu-1", [Block(time.time(), 0, "stdout", [], [], text)])
""",
    )


def test_the_page_fits_narrow_windows_and_axe_finds_nothing(browser: Browser, log: str) -> None:
    for dark, width in ((False, 1440), (True, 1440), (True, 390)):
        browser.look(dark=dark, width=width)
        browser.open(f"{log}?q=needle#L60003")
        browser.wait(lambda: browser.all(".log-row mark"), "the marks")
        assert browser.sticking_out() == []
        assert browser.violations() == []
    browser.look(dark=False, width=1440)
    browser.one("#log-view").send_keys("z")
    browser.wait(lambda: not browser.one(".side").is_displayed(), "the full width")
    browser.wait(lambda: "wide=1" in address(browser), "its address")
    browser.one("#log-view").send_keys("z", "?")
    browser.wait(lambda: "next, previous match" in browser.text("#keys"), "the keys of the log in the help")
    browser.one("#keys button").click()


@pytest.mark.survive(30)
def test_an_outage_is_shown_and_mended_without_a_reload(
    browser: Browser, empty_server: Server, log: str
) -> None:
    trial = long_log.write(empty_server, 100, name="outage", state="ACTIVE")
    browser.open(f"/trials/{trial}/logs")
    shows(browser, 100)
    empty_server.stop()
    browser.wait(
        lambda: re.search(r"Reconnecting\s+\d+ s old", browser.text("#log-state")), "the mark and the age", 90
    )
    assert 100 in visible(browser), "what was read stays"
    empty_server.start()
    append(empty_server, trial, 101, 10)
    browser.wait(lambda: browser.text("#log-state .word") == "Queued", "the connection", 90)
    shows(browser, 110)

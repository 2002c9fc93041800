"""Every page in a real browser: both themes, wide and narrow, with no row, one and a thousand."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from tests.rig.browser import LOOKS, NARROW, WIDE, Browser, programs, running_browser
from tests.rig.hosts import Host, make_key
from tests.rig.server import Server
from tests.rig.stack import LAUNCHER, Stack, config, counting

pytestmark = [pytest.mark.browser, pytest.mark.hosts]

FAILS_ON_2 = """
import sys, time
if sys.argv[1] == "2":
    print("the last words of rank 2", flush=True)
    sys.exit(3)
time.sleep(60)
"""
REPORTS = """
import determined as det
with det.core.init() as core:
    for step in range(1, 20):
        core.train.report_training_metrics(step, {"loss": 1 / step})
    core.train.report_validation_metrics(20, {"loss": 0.04})
    with core.checkpoint.store_path({"steps_completed": 20}) as (path, _):
        (path / "weights").write_text("some")
"""
MANY = """
import uuid
from accounts.models import User
from experiments.models import Experiment, Project
from submissions.models import Context
from hosts.pools import default_pool
from jobs.models import Job

owner, pool, project = User.objects.get(username="admin"), default_pool(), Project.objects.first()
nothing = {"archive": b"", "size_bytes": 0, "listing": []}
context, _ = Context.objects.get_or_create(sha256="0" * 64, defaults=nothing)
common = {"owner": owner, "pool": pool, "kind": "EXPERIMENT", "state": "ENDED"}
jobs = Job.objects.bulk_create(Job(name=f"old-{n}", position=float(n), **common) for n in range(1000))
config = {"searcher": {"name": "single", "metric": "loss"}, "resources": {"slots_per_trial": 1}, "entrypoint": "x"}
Experiment.objects.bulk_create(
    Experiment(job=job, state="COMPLETED", name=job.name, owner=owner, project=project, config=config,
               original_config="", context=context, seed=1)
    for job in jobs
)
"""
#: of Activate, Pause, Cancel, Kill
HAS_ENDED = "All selected experiments have ended"


@pytest.fixture(scope="module")
def seen(stack: Stack) -> dict[str, int]:
    """Trials that have ended well and badly, one that runs, and one that can never fit."""
    ended = stack.submit({"train.py": REPORTS}, config(1, "python3 train.py"))
    failed = stack.submit({"launch.py": LAUNCHER, "worker.py": FAILS_ON_2}, config(4))
    assert stack.wait_end(ended) == "STATE_COMPLETED"
    assert stack.wait_end(failed) == "STATE_ERROR"
    running = stack.submit(counting(100_000, 0.3), config(4))
    stack.wait_lines(running, 4)
    never = stack.submit(counting(1, 1), config(3))
    trials = {"ended": ended, "failed": failed, "running": running, "never": never}
    stack.wait(lambda: "trials" in stack.get(f"/api/v1/experiments/{never}/trials"), 60, "the last trial")
    return {f"{name} trial": int(stack.trial(each)["id"]) for name, each in trials.items()} | trials


@pytest.fixture
def page(browser: Browser) -> Iterator[Browser]:
    browser.complaints()
    yield browser
    browser.look(dark=False, width=WIDE)


def addresses(seen: dict[str, int]) -> list[str]:
    experiment, trial = f"/experiments/{seen['ended']}", f"/trials/{seen['ended trial']}"
    return [
        "/overview",
        "/experiments",
        experiment,
        *(f"{experiment}/{tab}" for tab in ("config", "code", "timeline")),
        trial,
        *(f"{trial}/{tab}" for tab in ("metrics", "profiler", "checkpoints", "logs", "timeline")),
        f"/trials/{seen['failed trial']}",
        f"/trials/{seen['running trial']}",
        f"/trials/{seen['running trial']}/logs",
        f"/trials/{seen['never trial']}",
        "/jobs",
        "/hosts",
        "/hosts/gpu1",
        "/hosts/gpu1?range=day",
        "/cluster",
        "/api/v1/docs",
    ]


def drawn(browser: Browser) -> bool:
    """Whether a chart is drawn; scrolls to them each time, since the parts above may still grow."""
    browser.run("document.getElementById('charts').scrollIntoView()")
    return bool(browser.all("#charts .main-svg"))


def too_wide(browser: Browser, where: str) -> list[str]:
    return [f"{where}: wider than the window by {each}" for each in browser.sticking_out()]


def look_at(browser: Browser, address: str, paints: dict[str, float], complained: str = "") -> list[str]:
    """What is wrong with the page in any theme and width; it is loaded once, and follows both live."""
    browser.look(dark=False, width=WIDE)
    browser.open(address)
    if browser.all("#connection"):
        browser.live()
    if browser.all("#charts") and not browser.all("#charts .empty"):  # drawn once they are in view
        browser.wait(lambda: drawn(browser), "the charts")
    browser.look(dark=False, width=WIDE // 2, height=450, scale=2)
    wrong = too_wide(browser, f"{address} at 200 %")  # of axe's rules none depends on the scale
    for dark, width in LOOKS:
        browser.look(dark=dark, width=width)
        where = f"{address} at {width} px, {'dark' if dark else 'light'}"
        wrong += too_wide(browser, where) + [f"{where}: {each}" for each in browser.violations()]
    said = [each for each in browser.complaints() if not complained or complained not in each]
    paints[address] = browser.first_paint_ms() or 0.0
    return wrong + [f"{address}: console: {each}" for each in said]


def report(paints: dict[str, float]) -> None:
    """First paints are reported, not asserted: a shared machine may be slow."""
    slowest = sorted(paints.items(), key=lambda entry: -entry[1])
    median = slowest[len(slowest) // 2][1]
    print(
        f"first paint of {len(slowest)} pages: median {median:.0f} ms, slowest {slowest[0][1]:.0f} ms ({slowest[0][0]})"
    )
    if folder := os.environ.get("TRAINMASTER_TEST_REPORTS"):
        text = "".join(f"{paint:6.0f} ms  {where}\n" for where, paint in slowest)
        (Path(folder) / "first_paint.txt").write_text(text)


def test_every_page_is_clean_in_both_themes_wide_and_narrow(page: Browser, seen: dict[str, int]) -> None:
    paints: dict[str, float] = {}
    wrong = [each for address in addresses(seen) for each in look_at(page, address, paints)]
    assert not wrong, "\n".join(wrong)
    report(paints)


def test_pages_without_a_row_say_what_will_stand_there(empty_server: Server) -> None:
    if programs() is None:
        pytest.skip("needs chromium and chromedriver")
    with running_browser(empty_server.url) as browser:
        paints: dict[str, float] = {}
        wrong = look_at(browser, "/login", paints)
        browser.login("admin", empty_server.password)
        for address, words in {
            "/experiments": "trainmaster e create",
            "/jobs": "in start order",
            "/hosts": "host add",
            "/cluster": "host add",
        }.items():
            wrong += look_at(browser, address, paints)
            assert words in browser.text("main")
        assert not wrong, "\n".join(wrong)
        report(paints)


def test_errors_have_pages_of_their_own(page: Browser) -> None:
    paints: dict[str, float] = {}
    wrong = look_at(page, "/trials/999999", paints, complained="404")
    assert "There is no trial 999999." in page.text("main")
    wrong += look_at(page, "/nowhere", paints, complained="404")
    assert "nothing at this address" in page.text("main")
    assert not wrong, "\n".join(wrong)


def test_a_thousand_experiments_are_pages_of_fifty(stack: Stack, page: Browser) -> None:
    stack.server.shell(MANY)
    paints: dict[str, float] = {}
    assert look_at(page, "/experiments", paints) == []
    assert len(page.all("tbody tr")) == 50
    page.look(dark=False, width=WIDE)
    page.click('nav[aria-label="Pages"] a')
    page.wait(lambda: "51 to 100" in page.text("main"), "the second page")
    page.open("/experiments?q=old-777")
    page.wait(lambda: len(page.all("tbody tr")) == 1, "the one that is searched for")
    page.click("tbody input[name=experiment]")
    page.wait(
        lambda: page.attributes("#compare button:disabled", "title") == [HAS_ENDED] * 4, "what is senseless"
    )
    report(paints)


def test_a_failed_trial_says_which_rank_and_its_last_words(page: Browser, seen: dict[str, int]) -> None:
    page.open(f"/trials/{seen['failed trial']}")
    assert "Rank 2 on gpu2 failed first: exit code 3." in page.text(".banner.failed")
    assert "the last words of rank 2" in page.text(".banner.failed pre")


def test_a_job_that_can_never_fit_says_so_everywhere(page: Browser, seen: dict[str, int]) -> None:
    said = "needs 3 slots; hosts here have 2: ask for 2 or fewer, or a multiple of 2"
    page.open("/jobs")
    page.wait(lambda: said in page.text("main") and "Never" in page.text("main"), "the reason in the queue")
    for address in (f"/experiments/{seen['never']}", f"/trials/{seen['never trial']}", "/experiments?q=rig"):
        page.open(address)
        assert said in page.text("main"), address


def test_pausing_by_the_button_changes_the_state_without_a_reload(
    page: Browser, stack: Stack, seen: dict[str, int]
) -> None:
    page.open(f"/experiments/{seen['never']}")
    page.wait(lambda: "Queued" in page.text(".strip"), "the queued experiment")
    page.driver.switch_to.new_window("tab")
    try:
        page.open("/experiments?q=rig")
        page.live()
        page.run("window.isTheSamePage = true")
        row = f'tr:has(a[href="/experiments/{seen["never"]}"])'
        stack.post(f"/api/v1/experiments/{seen['never']}/pause")
        page.wait(lambda: "Paused" in page.text(row), "the list to show the pause")
        assert page.run("return window.isTheSamePage === true")
    finally:
        page.driver.close()
        page.driver.switch_to.window(page.driver.window_handles[0])
    page.wait(lambda: "Paused" in page.text(".strip"), "the other page to show it too")
    page.click('form[action$="/activate"] button')
    page.wait(lambda: "Queued" in page.text(".strip"), "the button to have activated it")
    page.click('form[action$="/pause"] button')
    page.wait(lambda: "Paused" in page.text(".strip"), "the button to have paused it")


def test_the_first_screen_of_a_trial_has_its_facts_and_curves(page: Browser, seen: dict[str, int]) -> None:
    for dark, width, height in ((False, WIDE, 900), (True, NARROW, 844)):
        for address in (f"/experiments/{seen['ended']}", f"/trials/{seen['ended trial']}"):
            page.look(dark=dark, width=width, height=height)
            page.open(address)
            page.wait(lambda: page.all("#charts .main-svg"), "the curves")
            assert "Completed" in page.text(".strip") and "admin" in page.text(".strip")
            begins = page.run("return document.querySelector('#charts .chart').getBoundingClientRect().top")
            needs = 300 if width == WIDE else 150  # whole, or half of it
            assert begins + needs <= height, f"{address} at {width} px: the first chart begins at {begins}"


#: on a slow network a fold can be opened before its module has come
OPENED_EARLY = """
history.replaceState(null, "", location.pathname);
import(document.querySelector("script[src*='js/fold.']").src + "?later");
"""


def test_details_are_open_while_the_address_says_so(
    page: Browser, stack: Stack, seen: dict[str, int]
) -> None:
    for address in (f"/experiments/{seen['never']}", f"/trials/{seen['never trial']}"):
        page.open(address)
        assert not page.one("#details dl").is_displayed()
        page.click("#details summary")
        page.wait(lambda: page.run("return location.search") == "?details=1", "the address")
        page.run(OPENED_EARLY)
        page.wait(
            lambda: page.run("return location.search") == "?details=1", "the address, though opened early"
        )
        page.open(f"{address}?details=1")
        page.live()
        page.run("window.charts = document.getElementById('charts')")
        for act, word, is_open in (("pause", "Paused", True), ("activate", "Queued", False)):
            if not is_open:
                page.click("#details summary")
                page.wait(lambda: page.run("return location.search") == "", "the address without them")
            stack.post(f"/api/v1/experiments/{seen['never']}/{act}")
            page.wait(lambda word=word: word in page.text(".strip"), word)
            assert page.one("#details dl").is_displayed() == is_open
            assert page.run("return document.getElementById('charts') === window.charts")


def goes(page: Browser, keys: str, path: str) -> bool:
    """Whether the page has changed by two keys, which count only where they follow fast on one another."""
    if page.path() != path:
        page.one("body").send_keys(keys)
    return page.path() == path


def test_keys_lead_to_rooms_and_can_be_switched_off(page: Browser) -> None:
    page.open("/experiments")
    for keys, path in (("gj", "/jobs"), ("gh", "/hosts"), ("ge", "/experiments")):
        page.wait(lambda keys=keys, path=path: goes(page, keys, path), path)
        page.live()
    page.one("body").send_keys("/")
    page.wait(lambda: page.run("return document.activeElement.id") == "q", "the focus in the field")
    page.one("#q").send_keys("gj?")
    assert page.run("return document.querySelector('#q').value") == "gj?", "no key acts in a field"
    page.open("/experiments")
    page.one("body").send_keys("?")
    page.wait(lambda: page.one("#keys").is_displayed(), "the keys")
    assert page.violations() == []
    page.one("#keys-on").click()
    page.one("#keys button").click()
    page.wait(lambda: not page.one("#keys").is_displayed(), "the keys to go")
    page.one("body").send_keys("gj?")
    assert not page.one("#keys").is_displayed()
    assert page.path() == "/experiments"
    page.one(".side .show-keys").click()
    page.one("#keys-on").click()


def test_everything_is_found_and_done_by_keys_from_any_page(page: Browser, seen: dict[str, int]) -> None:
    page.open(f"/experiments/{seen['ended']}")
    page.open("/cluster")
    page.press("k", held=Keys.CONTROL)
    page.wait(lambda: "visited lately" in page.text("#find").lower(), "what was visited")
    assert f"experiment {seen['ended']}" in page.text("#find")
    page.one("#find input").send_keys("logs of exp {}".format(seen["ended"]))
    logs = f"/trials/{seen['ended trial']}/logs"
    page.wait(lambda: page.attributes("#find .hit", "href")[:1] == [logs], "the log to be offered")
    assert page.violations() == []
    page.press(Keys.ARROW_DOWN)
    page.press(Keys.ENTER)
    page.wait(lambda: page.path() == logs, "the log")
    page.press("k", held=Keys.CONTROL)
    page.one("#find input").send_keys(f"kill {seen['never']}", Keys.ENTER)
    page.wait(
        lambda: "cannot be undone" in page.text("dialog.confirm") or "lost" in page.text("dialog.confirm"),
        "the question",
    )
    page.press(Keys.ESCAPE)
    assert look_at(page, "/find?q=rig", {}) == []


def test_the_first_job_is_three_tabs_away(page: Browser) -> None:
    page.open("/jobs")
    page.live()
    page.press(Keys.TAB)
    page.press(Keys.TAB)
    assert page.run("return document.activeElement.textContent") == "Skip to the jobs"
    page.press(Keys.ENTER)
    page.press(Keys.TAB)
    assert page.run("return document.activeElement.closest('tr').dataset.job ?? ''")


#: the theme that is shown, and what the choice in the side bar says
THEMES = """
const side = document.querySelector(".side .theme");
return [document.documentElement.dataset.theme ?? "system", side.value];
"""


def test_a_narrow_page_has_the_theme_and_the_keys_at_its_foot(page: Browser) -> None:
    page.look(dark=False, width=NARROW)
    page.open("/experiments")
    page.one(".choices .show-keys").click()
    page.wait(lambda: page.one("#keys").is_displayed(), "the keys")
    page.one("#keys form button").click()
    for theme in ("dark", "system"):
        page.one(".choices .theme").choose(theme)
        page.wait(lambda theme=theme: page.run(THEMES) == [theme, theme], f"the theme {theme}")


def test_a_killed_web_process_shows_reconnecting_and_then_connected(page: Browser, stack: Stack) -> None:
    page.open("/jobs")
    page.live()
    page.run(
        """
        window.words = [];
        const word = document.querySelector("#connection .word");
        const note = () => window.words.push(word.textContent);
        new MutationObserver(note).observe(word, {childList: true, characterData: true});
        """
    )
    victim = stack.server.kill_part("web")
    page.wait(lambda: "Reconnecting" in page.run("return window.words"), "Reconnecting")
    stack.server.wait_replaced("web", victim)
    page.wait(lambda: page.run("return window.words")[-1] == "Connected", "Connected again", 120)
    page.complaints()


@contextmanager
def another_host_key(host: Host) -> Iterator[None]:
    """The host's sshd shows a new key meanwhile, as after a reinstallation."""
    names = ("host_key", "host_key.pub")
    former = {name: (host.folder / name).rename(host.folder / f"former_{name}") for name in names}
    make_key(host.folder / "host_key")
    host.stop_sshd()
    host.start_sshd()
    try:
        yield
    finally:
        for name, path in former.items():
            path.replace(host.folder / name)
        host.stop_sshd()
        host.start_sshd()


def test_a_changed_host_key_is_shown_beside_the_old_one_and_accepted(page: Browser, stack: Stack) -> None:
    host = stack.hosts[1]
    known = stack.get(f"/api/v1/hosts/{host.name}")["host"]["hostKey"]["fingerprint"]
    with another_host_key(host):
        page.open("/hosts")
        page.wait(lambda: "has changed" in page.text(".banner.failed"), "the banner", 120)
        offered = stack.get(f"/api/v1/hosts/{host.name}")["host"]["hostKey"]["offered"]
        assert offered != known
        for address in ("/hosts", f"/hosts/{host.name}"):
            assert look_at(page, address, {}) == []
            for key in (known, offered):
                page.wait(lambda key=key: key in page.text(".banner.failed dl"), f"the key {key}")
        page.click('form[action$="/accept-key"] button')
        page.wait(lambda: offered in page.text("dialog.confirm"), "the question")
        page.click("dialog.confirm .primary")
        page.wait(lambda: not page.all(".banner.failed"), "the banner to go")
        assert stack.get(f"/api/v1/hosts/{host.name}")["host"]["hostKey"]["fingerprint"] == offered

"""The Metrics page of a trial, and the pages of a search, in a real browser: tables, charts, by pointer and keys."""

from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser.test_pages import look_at
from tests.rig import long_run
from tests.rig.browser import WIDE, Browser
from tests.rig.server import Server

pytestmark = pytest.mark.browser

STEPS = 3000
MORE = """
from experiments import metric_reports
from experiments.models import Trial
from metrics.ingest import Report
trial = Trial.objects.select_related("experiment").get(pk={trial})
reports = [Report(0, "training", step, {begin} + step / 10, dict(loss=9.0)) for step in range({first}, {first} + 50)]
metric_reports.store(trial.experiment, trial, reports)
"""
STILL = """
from experiments import metric_reports
from metrics.ingest import Report
from tests.rig import trial_rows
trial = trial_rows.add("still", "COMPLETED")
values = dict(loss=0.003, large=123456.0)
metric_reports.store(trial.experiment, trial, [Report(0, "training", step, 1e9 + step, values) for step in range(9)])
print(trial.pk)
"""
MEDIA = """
from events.announce import announce
from experiments import media
from experiments.models import Trial
from tests.experiments.test_media import image
from tests.rig import trial_rows
trial = Trial.objects.get(pk={trial}) if {trial} else trial_rows.add("digits", "ACTIVE")
table = dict(kind="table", name="errors", columns=["label"], rows=[[7]])
bars = dict(kind="histogram", name="weights", counts=[1, 3], edges=[0, 1, 2])
for step in {steps}:
    for record in (image(step, caption="a 7"), dict(table, step=step), dict(bars, step=step)):
        media.reported(trial, None, record)
announce(f"experiment:{{trial.experiment_id}}")
print(trial.pk)
"""
#: what the y axis of a chart shows
UPRIGHT = "return document.querySelector(`#chart-${arguments[0]} .chart`)._fullLayout.yaxis.range"
TITLES = """
const chart = document.getElementById("chart-loss");
return [...chart.querySelectorAll(".xtitle, .ytitle")].map((title) => title.textContent);
"""
#: first and last place, and the extremes, of the first line of the chart of the loss
DRAWN = """
const { x, y } = document.querySelector("#chart-loss .chart").data[0];
const values = y.filter((value) => value !== null);
return [x[0], x.at(-1), Math.min(...values), Math.max(...values)];
"""
RANGE = "return document.querySelector(`#chart-${arguments[0]} .chart`).layout?.xaxis.range ?? null"
#: how many charts hold something of this kind
HOLDING = "return document.querySelectorAll(`#charts .chart:has(${arguments[0]})`).length"
#: the middle of the third axis of parallel coordinates as it stands in the window, and how long the axis is
THIRD_AXIS = """
const chart = document.querySelector("#charts .chart");
chart.scrollIntoView({ block: "center" });
const { left, top } = chart.getBoundingClientRect();
const { xaxis, _size: size } = chart._fullLayout;
return [left + size.l + xaxis.l2p(2), top + size.t + size.h / 2, size.h].map(Math.round);
"""


#: how wide the place of the charts is
WIDTH = "return document.getElementById('charts').clientWidth"


@pytest.fixture(scope="module")
def trial(empty_server: Server) -> int:
    return long_run.write(empty_server, 12, STEPS, state="ACTIVE")


def opened(window: Browser, path: str) -> None:
    window.look(dark=False, width=WIDE)
    window.open(path)
    window.wait(lambda: window.all("#chart-loss .main-svg"), "the chart of the loss")
    window.live()


@pytest.mark.survive(35)
def test_the_page_is_clean_and_mounts_the_charts_in_view(window: Browser, trial: int, tmp_path: Path) -> None:
    assert look_at(window, f"/trials/{trial}/metrics", {}) == []
    assert look_at(window, f"/trials/{trial}/metrics?x=wall&smooth=0.6&log=1&expand=loss", {}) == []
    opened(window, f"/trials/{trial}/metrics")
    window.wait(lambda: len(window.all("#charts .panel")) == 12, "a place for each chart")
    assert window.run(HOLDING, ".main-svg") < 12
    window.wait(lambda: "of 3,050 points" in window.text("#chart-loss .points"), "how many points are drawn")
    alone = int(window.run(WIDTH))
    window.press("t")
    window.wait(lambda: window.one("#metric-drawer").is_displayed(), "the table")
    assert window.run("return location.search") == "?table=1"
    fits = "const table = document.querySelector('.table'); return table.scrollWidth <= table.clientWidth"
    window.wait(lambda: window.run(fits), "the table to fit its place")
    assert window.run(WIDTH) < alone
    assert look_at(window, f"/trials/{trial}/metrics?table=1", {}) == []
    window.click("#metric-open")
    window.wait(lambda: not window.one("#metric-drawer").is_displayed(), "the table to go")
    assert window.run(WIDTH) == alone
    window.click(".help summary")
    window.wait(lambda: "pins the metric" in window.text("#metric-help"), "the help")
    assert window.violations() == []
    window.press(Keys.ESCAPE)
    window.wait(lambda: not window.one("#metric-help").is_displayed(), "the help to go")
    kept = {"behavior": "allow", "downloadPath": str(tmp_path)}
    window.driver.execute_cdp_cmd("Browser.setDownloadBehavior", kept)
    window.one('[aria-label="Save loss as PNG"]').click()
    window.wait((tmp_path / f"trial-{trial}-loss.png").exists, "the picture")
    window.keep("trial-metrics")


def test_axes_name_what_they_measure_and_its_unit(window: Browser, trial: int) -> None:
    for axis, title in {
        "step": "steps completed",
        "wall": "wall time (UTC)",
        "epoch": "epoch",
    }.items():
        opened(window, f"/trials/{trial}/metrics?m=loss&x={axis}")
        window.wait(lambda title=title: window.run(TITLES) == [title, "loss"], f"the titles by {axis}")
    opened(window, f"/trials/{trial}/metrics?m=loss&x=relative")
    since = "time since the first start ("
    window.wait(lambda: window.run(TITLES)[0].startswith(since), "the title of the relative time")


def test_a_metric_that_never_changes_is_drawn_around_its_value(window: Browser, empty_server: Server) -> None:
    still = int(empty_server.shell(STILL))
    opened(window, f"/trials/{still}/metrics")
    for name, value in (("loss", 0.003), ("large", 123_456.0)):
        low, high = window.run(UPRIGHT, name)
        assert 0.8 * value < low < value < high < 1.2 * value, name


def test_one_window_for_all_charts_brings_detail_and_stands_in_the_address(
    window: Browser, trial: int
) -> None:
    opened(window, f"/trials/{trial}/metrics")
    window.wait(lambda: window.all("#chart-epoch .main-svg"), "a second chart")
    there = "return location.search.includes('from=')"
    window.press_until("#chart-loss .chart", "++", lambda: window.run(there), "the window in the address")
    window.wait(lambda: window.run(RANGE, "loss") == window.run(RANGE, "epoch"), "the other chart to follow")
    window.wait(lambda: window.text("#chart-loss .points") == "", "every point of the window")
    address = window.run("return location.search")
    assert window.run("return document.getElementById('metric-from').value") in address
    window.driver.back()
    window.wait(lambda: window.run("return location.search") != address, "the address before")
    window.driver.forward()
    window.wait(lambda: window.run("return location.search") == address, "the address to come back")
    window.one("#metric-reset").click()
    window.wait(lambda: window.run("return location.search") == "", "the whole range")
    window.wait(lambda: window.run(DRAWN)[:2] == [1, STEPS], "the whole curve")
    window.wait(lambda: window.run(DRAWN)[3] > 3, "the spike of one step")
    window.wait(lambda: hovering(window) > 1, "the hover in the other charts")
    ActionChains(window.driver).click_and_hold().move_by_offset(70, 5).release().perform()
    window.wait(lambda: "from=" in window.run("return location.search"), "the dragged window")


def hovering(window: Browser) -> int:
    """How many charts show a hover while the pointer moves within one; what is drawn anew loses it until then."""
    chart = window.one("#chart-loss .chart")
    chart.hover()
    chart.hover(right=8, down=4)
    return int(window.run(HOLDING, ".hoverlayer *"))


def test_new_points_come_live_and_leave_a_window_where_it_is(
    window: Browser, trial: int, empty_server: Server
) -> None:
    opened(window, f"/trials/{trial}/metrics?m=loss&from=100&to=200")
    begin = {"trial": trial, "begin": long_run.BEGIN}
    empty_server.shell(MORE.format(first=STEPS + 1, **begin))
    window.wait(lambda: window.run(DRAWN)[1] == STEPS + 50, "the new points")
    window.wait(lambda: window.run(RANGE, "loss") == [100, 200], "the window where it was")
    window.click("#metric-open")
    window.wait(lambda: f"{STEPS + 50}" in window.text("#metric-table"), "the table")


def test_metrics_are_searched_ticked_pinned_and_read_as_a_table(window: Browser, trial: int) -> None:
    opened(window, f"/trials/{trial}/metrics")
    window.one("body").send_keys("/")
    window.wait(lambda: window.run("return document.activeElement.matches('input')"), "the focus in a field")
    window.press("loss")
    window.wait(lambda: len(window.all("#charts .panel")) == 1, "the search")
    window.wait(lambda: window.run("return location.search") == "?q=loss", "its address")
    window.click('#chart-loss button[aria-label="Values of loss"]')
    window.wait(lambda: len(window.all("#chart-loss .values tbody tr")) > 20, "the values")
    assert "steps completed" in window.text("#chart-loss .values thead")
    label = "loss over steps completed: training loss "
    window.wait(
        lambda: window.attributes("#chart-loss .chart", "aria-label")[0].startswith(label), "its words"
    )
    window.open(f"/trials/{trial}/metrics?table=1")
    window.click('[data-pin="grad_norm"]')

    def stands_first(name: str) -> bool:
        return bool(window.run("return document.querySelector('#charts .panel')?.id") == f"chart-{name}")

    window.wait(lambda: stands_first("grad_norm"), "the pin")
    window.click('[data-tick="epoch"]')
    window.wait(lambda: len(window.all("#charts .panel")) == 2, "the pinned and the ticked")
    assert window.run("return location.search") == "?table=1&m=epoch", (
        "a pin is the user's, not the address's"
    )
    window.open(f"/trials/{trial}/metrics")
    window.wait(lambda: stands_first("grad_norm"), "the pin, which has been kept")
    window.one("#chart-grad_norm .chart").send_keys("p")
    window.wait(lambda: stands_first("loss"), "the order without it")
    assert window.complaints() == []


def brushed(window: Browser) -> bool:
    """Drag along the third axis, again where the chart was still being laid out; whether the address has it."""
    if not window.run("return location.search.includes('min.lr=')"):
        x, y, length = window.run(THIRD_AXIS)
        actions = ActionChains(window.driver)
        pointer = actions.w3c_actions.pointer_action
        pointer.move_to_location(x, y - length // 4).pointer_down().move_to_location(x, y).pointer_up()
        actions.perform()
    return bool(window.run("return location.search.includes('min.lr=')"))


def test_the_pages_of_a_search_are_clean_brushed_by_pointer_and_act_by_keys(
    window: Browser, empty_server: Server
) -> None:
    code = "from tests.rig import swept; print(swept.add('sixteen', 16, validations=14))"
    at = f"/experiments/{int(empty_server.shell(code))}"
    charts = f"{at}/visualization"
    pages = (
        f"{at}/search?rung=1.1",
        f"{at}/trials?c=state&min.lr=1e-5",
        f"{charts}/parallel?is.optimizer.name=sgd",
    )
    wrong = [each for address in pages for each in look_at(window, address, {})]
    assert wrong == []
    window.look(dark=False, width=WIDE)
    window.open(f"{charts}/parallel")
    window.wait(lambda: window.all("#charts .main-svg"), "the lines")
    window.wait(lambda: brushed(window), "the brush in the address")
    window.wait(lambda: "trials selected" in window.text("#charts .points"), "the brushed trials")
    window.open(f"{charts}/parallel{window.run('return location.search')}")
    window.wait(lambda: "trials selected" in window.text("#charts .points"), "the same by the address")
    window.click("#sweep-reset")
    window.wait(lambda: window.text("#charts .points") == "14 of 16 trials", "all of them")
    window.click("#charts button[aria-expanded]")
    window.wait(lambda: len(window.all("#charts .values tbody a")) == 14, "the table")
    window.open(f"{at}/trials?state=QUEUED")
    window.click("#tick-all")
    window.wait(lambda: window.text("#ticked") == "7 trials selected", "the count")
    window.click("#kill-ticked button.danger")
    window.wait(lambda: "7 trials (" in window.text("dialog.confirm"), "what it would do")
    window.click("dialog.confirm button.primary")
    window.wait(lambda: "7 trials are being killed." in window.text("main"), "the answer")
    assert window.complaints() == []


def test_media_follow_the_latest_step_until_one_is_chosen(window: Browser, empty_server: Server) -> None:
    trial = int(empty_server.shell(MEDIA.format(trial=0, steps=[10, 20, 30])))
    at = f"/trials/{trial}/media"
    assert look_at(window, at, {}) == []
    window.look(dark=False, width=WIDE)
    window.open(at)
    window.live()
    empty_server.shell(MEDIA.format(trial=trial, steps=[40]))
    shown = f"digits of trial {trial} at step %d, image 1: a 7"
    window.wait(lambda: window.attributes("#media img", "alt") == [shown % 40], "the new step")
    window.one("#media-step").send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    window.wait(lambda: window.attributes("#media img", "alt") == [shown % 20], "the step before the last")
    assert window.run("return location.search") == "?step=20" and window.text("#media-at") == "20"
    window.open(f"{at}?step=20")  # anew: what is slid within three seconds is one entry of the history
    window.live()
    empty_server.shell(MEDIA.format(trial=trial, steps=[50]))
    window.wait(lambda: window.one("#media-step").get_attribute("max") == "4", "a place for the newest step")
    assert window.attributes("#media img", "alt") == [shown % 20]
    window.click("#media-latest")
    window.wait(lambda: window.attributes("#media img", "alt") == [shown % 50], "the newest step")
    window.driver.back()
    window.wait(lambda: window.attributes("#media img", "alt") == [shown % 20], "the step of the address")

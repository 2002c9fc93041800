"""The Profiler page of a trial in a real browser: charts, units, gaps, the slow rank, live, by keys, folded."""

from typing import Any

import pytest

from tests.browser.test_pages import look_at
from tests.rig import long_run, profiled_run
from tests.rig.browser import WIDE, Browser
from tests.rig.server import Server

pytestmark = pytest.mark.browser

SECONDS = 480
#: of a chart: its lines as [name, times, highest of all that is drawn], the heading of y, and whether a line is broken
DRAWN = """
const place = document.querySelector(`#${CSS.escape("chart-" + arguments[0])} .chart`);
if (!place?.data) return null;
const lines = place.data.filter(({ hoverinfo }) => hoverinfo !== "skip");
const all = place.data.flatMap(({ y }) => y).filter((value) => value !== null);
return {
  names: lines.map(({ name }) => name), last: lines[0].x.at(-1), first: lines[0].x[0], most: Math.max(...all),
  titles: [place.layout.xaxis.title.text, place.layout.yaxis.title.text], range: place.layout.xaxis.range,
  gaps: lines.map(({ y }) => y.filter((value) => value === null).length), said: place.getAttribute("aria-label"),
};
"""
SEEN = "document.getElementById(`chart-${arguments[0]}`).scrollIntoView({ block: 'center' })"


@pytest.fixture(scope="module")
def trial(empty_server: Server) -> int:
    return profiled_run.write(empty_server, 2, 2, SECONDS, bare=1, slow=3)


def opened(window: Browser, path: str) -> None:
    window.look(dark=False, width=WIDE)
    window.open(path)
    window.live()
    window.wait(lambda: window.all("#steps .main-svg"), "a chart")


def drawn(window: Browser, chart: str) -> dict[str, Any]:
    """What is drawn of a chart, once it is."""
    window.wait(lambda: window.all(f'[id="chart-{chart}"]'), chart)
    window.run(SEEN, chart)
    window.wait(lambda: window.run(DRAWN, chart) is not None, chart)
    found: dict[str, Any] = window.run(DRAWN, chart)
    return found


def hovering(window: Browser, chart: str) -> int:
    """How many charts show a hover while the pointer moves within this one; what is drawn anew loses it until then."""
    place = window.one(f'[id="chart-{chart}"] .chart')
    place.hover(right=60, down=4)
    place.hover(right=64, down=6)
    return int(window.run("return document.querySelectorAll('#samples .chart:has(.hoverlayer *)').length"))


def test_what_hosts_measured_is_drawn_with_units_gaps_and_extremes(window: Browser, trial: int) -> None:
    assert look_at(window, f"/trials/{trial}/profiler", {}) == []
    opened(window, f"/trials/{trial}/profiler?x=relative")
    since = ["time since the start (min)", "W"]
    window.wait(lambda: drawn(window, "gpu_power@gpu1")["titles"] == since, "the chart of the power")
    power = drawn(window, "gpu_power@gpu1")
    assert power["names"] == ["GPU 0", "GPU 1"]
    assert power["most"] == profiled_run.SPIKE_WATTS
    assert power["gaps"] == [1, 1]
    assert "GPU power, gpu1 over time since the start (min), in W: GPU 0 " in power["said"]
    assert drawn(window, "gpu_power@gpu2")["gaps"] == [0, 0]
    units = {
        "gpu_util@gpu1": "%", "gpu_memory_used@gpu1": "GiB", "gpu_temperature@gpu1": "°C", "memory_free": "GiB",
        "disk_iops": "operations/s", "disk_throughput_read": "MB/s", "net_throughput_sent": "GB/s",
        "rank_memory@cpu1": "GiB", "rank_cpu@gpu1": "cores",
    }  # fmt: skip
    for chart, unit in units.items():
        assert drawn(window, chart)["titles"][1] == unit, chart
    assert drawn(window, "cpu_util_simple")["names"] == ["cpu1", "gpu1", "gpu2"]
    assert not window.all('[id="chart-gpu_util@cpu1"]'), "a host without GPUs has no charts of them"
    window.keep("trial-profiler")


def test_hosts_and_gpus_are_chosen_and_one_window_is_for_all_charts_of_time(
    window: Browser, trial: int
) -> None:
    opened(window, f"/trials/{trial}/profiler")
    window.click('[data-host="gpu1"]')
    window.wait(lambda: not window.all('[id="chart-gpu_util@gpu2"]'), "one host alone")
    window.one('[data-gpu][aria-label="GPU 1 of gpu1"]').send_keys(" ")
    window.wait(lambda: (window.run(DRAWN, "gpu_util@gpu1") or {}).get("names") == ["GPU 1"], "one GPU alone")
    assert f"host=gpu1&gpu={profiled_run.uuid_of(0, 1)}" in window.run("return location.search")
    there = "return location.search.includes(arguments[0])"
    window.press_until(
        "#samples .chart", "+", lambda: window.run(there, "from="), "the window in the address"
    )
    range_of = (
        "return document.getElementById(`chart-${arguments[0]}`).querySelector('.chart').layout.xaxis.range"
    )
    window.wait(
        lambda: window.run(range_of, "gpu_memory_used@gpu1") == window.run(range_of, "gpu_util@gpu1"),
        "the other chart to follow",
    )
    window.wait(lambda: window.text('[id="chart-gpu_util@gpu1"] .points') == "", "every point of the window")
    window.wait(lambda: hovering(window, "gpu_util@gpu1") > 1, "the hover in the other charts")
    window.click("#profiler-reset")
    window.wait(lambda: "from=" not in window.run("return location.search"), "the whole range")
    window.click('[id="chart-gpu_util@gpu1"] [aria-label^="Values"]')
    window.wait(lambda: "max" in window.text('[id="chart-gpu_util@gpu1"] .values'), "the values")
    heads = '[id="chart-gpu_util@gpu1"] .values thead'
    window.wait(lambda: "GPU 1 (%)" in window.text(heads), "what they measure")


def test_steps_are_divided_the_slow_rank_is_named_and_new_ones_come_live(
    window: Browser, trial: int, empty_server: Server
) -> None:
    opened(window, f"/trials/{trial}/profiler")
    window.wait(lambda: window.text("#slow-told").startswith("Rank 3 on gpu2 is the slowest: "), "the rank")
    assert "The slowest rank of each interval cost the gang " in window.text("#slow-told")
    stack = drawn(window, "steps")
    assert stack["titles"] == ["steps completed", "ms per step"]
    assert "train_batch.backward 105 ms (42 %)" in stack["said"]
    ranks = drawn(window, "ranks")
    assert ranks["said"].startswith("Rank 3 on gpu2")
    assert drawn(window, "rate-samples")["titles"] == ["steps completed", "samples/s"]
    assert drawn(window, "timing-train_batch")["names"] == ["longest", "p95", "p50"]
    drawn(window, "steps")
    there = "return location.search.includes(arguments[0])"
    window.press_until("#steps .chart", "+", lambda: window.run(there, "first="), "the window of steps")
    window.wait(lambda: window.run(DRAWN, "steps")["first"] > SECONDS * 0.8, "the detail of the window")
    window.click("#profiler-steps-reset")
    window.wait(lambda: window.run(DRAWN, "steps")["first"] < SECONDS * 0.8, "the whole range")
    window.run("scrollTo(0, 0)")
    before = drawn(window, "cpu_util_simple")["last"]
    profiled_run.more(empty_server, trial, SECONDS, 20)
    window.wait(lambda: window.run(DRAWN, "cpu_util_simple")["last"] > before, "the new samples")
    window.wait(lambda: drawn(window, "steps")["last"] > SECONDS * 4, "the new steps")
    assert window.complaints() == []


def test_on_a_phone_the_hardware_is_folded_until_its_group_is_chosen(window: Browser, trial: int) -> None:
    window.look(dark=False, width=390)
    window.open(f"/trials/{trial}/profiler")
    window.live()
    drawn(window, "steps")
    window.run("scrollTo(0, document.body.scrollHeight)")
    is_open = "return document.getElementById('system-fold').open"
    assert not window.run(is_open)
    assert not window.all("#samples .main-svg")
    window.click('[data-jump="gpu"]')
    window.wait(lambda: window.all("#samples .main-svg"), "the charts of the GPUs")
    window.wait(lambda: "system=open" in window.run("return location.search"), "the fold in the address")
    window.run("history.go(-2)")  # over the place in the page
    window.wait(lambda: not window.run(is_open), "the fold to close again")
    window.wait(lambda: not window.all("#samples .main-svg"), "what is folded to be dropped")


def test_a_trial_without_samples_and_timings_says_how_they_come(
    window: Browser, empty_server: Server
) -> None:
    bare = long_run.write(empty_server, 1, 10, name="unprofiled", state="ACTIVE")
    window.open(f"/trials/{bare}/profiler")
    window.wait(lambda: "profiler.timing" in window.text("main"), "how to time")
    assert "No host has sent a sample yet." in window.text("main")
    assert window.violations() == []

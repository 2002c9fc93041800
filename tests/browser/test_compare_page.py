"""Trials are ticked, compared and looked at in a real browser, by keys alone, in both themes and widths."""

import zipfile
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser.test_pages import look_at
from tests.rig.browser import NARROW, WIDE, Browser, programs, running_browser
from tests.rig.server import Server

pytestmark = pytest.mark.browser

#: one experiment of eight trials with curves, of which three differ in two hyperparameters of four
SWEEP = """
import math
from accounts.models import User
from experiments.models import Experiment, Trial
from jobs.models import Job, Task
from metrics import ingest
from submissions.contexts import empty

admin = User.objects.get(username="admin")
from hosts.pools import default_pool
from experiments.models import Project
job = Job.objects.create(kind="EXPERIMENT", name="sweep", owner=admin, pool=default_pool(), position=1, state="PAUSED")
config = {"entrypoint": "python3 train.py", "searcher": {"name": "random", "metric": "loss", "smaller_is_better": True},
          "resources": {"slots_per_trial": 1}, "hyperparameters": {}}
experiment = Experiment.objects.create(job=job, name="sweep of learning rates", owner=admin, config=config, seed=1,
    project=Project.objects.get(pk=1), original_config="", context=empty(), state="PAUSED")
Job.objects.filter(pk=job.pk).update(entity_id=str(experiment.pk))
for number in range(8):
    task = Task.objects.create(id=f"sweep-{number}", job=job, kind="TRIAL", name="t", slots=1, state="PAUSED")
    trial = Trial.objects.create(experiment=experiment, task=task, seed=1, steps_completed=400, state="PAUSED",
        hparams={"lr": 0.1 / (number + 1), "optimizer": {"name": ["sgd", "adamw"][number % 2]}, "depth": 12},
        best_validation={"steps_completed": 400, "searcher_metric": 0.2 + number / 50, "metrics": {}})
    rows = [ingest.Report(1, "training", step, 1.79e9 + step, {"loss": math.exp(-step / 90) + number / 20,
            "accuracy": 1 - math.exp(-step / 70) - number / 30}) for step in range(1, 401)]
    rows += [ingest.Report(1, "validation", step, 1.79e9 + step, {"loss": math.exp(-step / 80) + number / 18})
             for step in range(50, 401, 50)]
    if number == 0:
        rows += [ingest.Report(1, "training", step, 1.79e9 + step, {MARKUP: step}) for step in (401, 402)]
    ingest.store(trial.pk, rows)
print(experiment.pk, trial.pk - 7)
"""
#: what a name must not become in a chart
MARKUP = "<a href='https://example.org/'>loss</a> & <b>more</b>"


def test_trials_are_ticked_and_compared_by_keys_alone(empty_server: Server) -> None:
    if programs() is None:
        pytest.skip("needs chromium and chromedriver")
    experiment, first = map(int, empty_server.shell(f"MARKUP = {MARKUP!r}\n{SWEEP}").split())
    trials = [str(first + number) for number in range(8)]

    def compared(*places: int) -> str:
        return "/compare?trials=" + ",".join(trials[place] for place in places)

    with running_browser(empty_server.url) as window:
        window.look(dark=False, width=WIDE)
        window.login("admin", empty_server.password)
        wrong = look_at(window, "/experiments", {})
        wrong += look_at(window, f"/experiments/{experiment}", {})
        window.keep("compare-ticks", height=1500)
        boxes = window.all("input[name=trial]")
        assert len(boxes) == 8
        for box in boxes[:3]:
            box.focus()
            window.press(Keys.SPACE)
        window.run("htmx.trigger(document.querySelector('#trials'), 'wake')")
        window.wait(lambda: window.run("return !document.querySelector('.htmx-request')"), "the fresh part")
        ticked = "return [...document.querySelectorAll('input[name=trial]')].map((box) => box.checked)"
        assert window.run(ticked) == [True] * 3 + [False] * 5
        window.one("form#compare button").focus()
        window.press(Keys.ENTER)
        window.wait(lambda: window.driver.current_url.endswith(compared(0, 1, 2)), "the page")
        window.wait(lambda: len(window.all("#charts .main-svg")) >= 3, "the charts")
        assert window.texts(".compared th")[:4] == ["Trial", "Best loss", "lr", "optimizer.name"]
        colors = "return [...document.querySelector('.chart').data].map((trace) => trace.line.color)"
        marks = window.attributes(".compared line", "stroke")
        window.wait(lambda: window.run(colors) == marks, "each trial in the color of its mark")
        wrong += look_at(window, compared(0, 1, 2), {})
        window.open("/experiments?q=sweep")
        window.run("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
        window.one("[data-copy-link]").send_keys(Keys.ENTER)
        window.wait(lambda: window.text("#told") == "Link copied", "what is said of the copy")
        assert window.run("return window.copied") == window.driver.current_url
        window.click("tbody input[name=experiment]")
        window.click('#compare button[formaction$="/label"]')
        window.wait(lambda: window.path() == "/experiments/chosen/label", "the form for labels")
        window.open("/experiments?q=sweep")
        window.click("tbody input[name=experiment]")
        window.click('#compare button[value="all"]')
        window.wait(
            lambda: window.driver.current_url.endswith(f"/compare?experiments={experiment}"),
            "all of its runs",
        )
        window.open("/experiments?q=sweep")
        window.click(".views > a.button")  # the first of two clicks that compare the runs of two settings
        window.wait(
            lambda: window.path() == "/compare" and len(window.all(".compared tr[data-line]")) == 8,
            "the runs",
        )
        wrong += look_at(window, f"{compared(*range(8))}&metric=training/loss", {})
        window.keep("compare-eight", height=1500)
        window.open(compared(0, 1, 2))
        window.wait(lambda: len(window.all("#charts .main-svg")) >= 3, "the charts")
        window.keep("compare-three", height=1500)
        window.one(f"a[aria-label='Remove trial {trials[1]}']").send_keys(Keys.ENTER)
        window.wait(lambda: window.driver.current_url.endswith(compared(0, 2)), "the others")
        window.one("#more").send_keys(trials[4], Keys.ENTER)
        window.wait(lambda: window.driver.current_url.endswith(compared(0, 2, 4)), "the added one")
        window.one("select[name=group]").send_keys("lr")
        window.wait(lambda: "&group=lr" in window.driver.current_url, "the group in the address")
        window.wait(
            lambda: window.texts(".compared .name") == ["lr 0.02", "lr 0.0333333", "lr 0.1"],
            "its rows",
        )
        labels = "return [...document.querySelectorAll('#charts .annotation-text')].map((each) => each.textContent)"
        window.wait(lambda: "lr 0.1" in window.run(labels), "the name at the end of its line")
        faint = "return [...document.querySelectorAll('#charts .trace')].map((trace) => Number(trace.style.opacity))"
        window.one(".compared .name").focus()
        window.wait(
            lambda: 0.12 in window.run(faint) and 1 in window.run(faint), "the line of the row stands out"
        )
        window.one("#view input[name=log]").send_keys(Keys.SPACE)
        window.one(".compared a[data-baseline]").send_keys(Keys.ENTER)
        window.wait(lambda: window.all(".compared tr.baseline + tr .change"), "differences from the baseline")
        wrong += window.violations()
        window.one("#views summary").send_keys(Keys.ENTER)
        window.one("#views input[name=name]").send_keys("by rate", Keys.ENTER)
        window.wait(lambda: window.text("#views summary") == "View: by rate", "the saved view")
        assert window.all(".compared tr.baseline") and window.run(
            "return document.querySelector('#view input[name=log]').checked"
        )
        window.one(".chosen-metrics summary").send_keys(Keys.ENTER)
        window.wait(lambda: window.one(".chosen-metrics button").is_displayed(), "the metrics")
        window.open(f"/trials/{first}")
        legends = (
            "return [...document.querySelectorAll('#charts .legendtext')].map((text) => text.textContent)"
        )
        window.wait(lambda: f"training {MARKUP}" in window.run(legends), "the name as it was given")
        assert not window.all("#charts svg a")
        assert wrong == []


def submitted(window: Browser) -> bool:
    """Press Submit, again where the request was lost, and say whether the page of the experiment has come."""
    if window.run("return document.querySelector('#submit')?.disabled === false"):
        window.one("#submit").focus()
        window.press(Keys.ENTER)
    return window.path() not in {"/experiments/new", "/login"}


#: what a person writes, with comments; the same after each field was used
WRITTEN = """name: zipped  # by hand
entrypoint: >
  python3 train.py
searcher: {name: single, metric: loss, max_length: 1}
resources:
  slots_per_trial: 0  # none
hyperparameters:
  lr: 0.1  # rate
  optimizer: {name: 'adam', decay: 0.01}
  depth: {type: const, val: 2}
  width: {type: int, minval: 1, maxval: 8}
"""
HOSTS = """from hosts.models import Host, ResourcePool
from hosts.pools import default_pool
pools = {"gpu1": default_pool(), "gpu2": default_pool(), "gpu9": ResourcePool.objects.create(name="big")}
for name, pool in pools.items(): Host.objects.create(name=name, pool=pool, admission="failed", enabled=False)
"""
CHANGED = (
    WRITTEN.replace("0  # none", "0  # none\n  resource_pool: default")
    .replace("0.1  #", "0.5  #")
    .replace("'adam'", "'sgd'")
    .replace("val: 2", "val: 3")
)


def hosts_by_boxes(window: Browser) -> None:
    """Ticked hosts are a list in the text, however it is written, and only hosts of its pool are offered."""

    def line() -> str:
        lines = window.run("return document.querySelector('#config').value").split("\n")
        return next((each.strip() for each in lines if "hosts:" in each), "")

    window.one("#config-only").click()
    assert window.texts("#config-fields details .panel label:not([hidden])") == ["gpu1", "gpu2"]
    for name, expected in (
        ("gpu2", "hosts: [gpu2]"),
        ("gpu1", "hosts: [gpu1, gpu2]"),
        ("gpu2", "hosts: [gpu1]"),
    ):
        window.one(f"#config-fields input[value={name}]").click()
        assert line() == expected
    window.look(dark=False, width=NARROW)
    assert window.run("return document.documentElement.scrollWidth <= innerWidth")
    window.look(dark=False, width=WIDE)
    window.keep("config-hosts", height=1300)
    window.one("#config-fields input[value=gpu1]").click()
    assert line() == "" and window.text("#config-only") == "any"
    window.press(Keys.ESCAPE)
    texts = {
        "gpu1": "gpu1",
        "[gpu2, 'gpu1']": "gpu2, gpu1",
        "\n  - gpu1  # x\n  - gpu9": "gpu1, gpu9",
        "{a: 1}": "see the text",
    }
    script = "const box = document.querySelector('#config'); box.value = arguments[0];"
    script += "box.dispatchEvent(new Event('input', {bubbles: true}));"
    script += "return document.querySelector('#config-only').textContent"
    kept = window.run("return document.querySelector('#config').value")
    for text, shown in texts.items():
        assert window.run(script, f"resources:\n  hosts: {text}\n") == shown
    assert window.run(script, kept) == "any"


def changed_by_fields(window: Browser) -> None:
    """Each field changes its own line, the text changes the fields, and a fault stands at its field."""
    kept = window.run("return document.querySelector('#config').value")
    typed = "const box = document.querySelector('#config'); box.value = arguments[0];"
    typed += "box.dispatchEvent(new Event('input', {bubbles: true}))"
    window.run(typed, WRITTEN)
    window.one("#config-pool").send_keys("default")
    values = {"lr": "0.5", "optimizer.name": "sgd", "depth": "3"}
    for name, value in values.items():
        window.run("document.getElementById(arguments[0]).select()", f"config-{name}")
        window.press(value)
    assert window.run("return document.querySelector('#config').value") == CHANGED
    assert "line 12" in window.texts("#config-parameters .hint")[0]
    window.one("#config").focus()
    for key, expected in (("z", CHANGED.replace("val: 3", "val: 2")), ("y", CHANGED)):
        window.press(key, held=Keys.CONTROL)
        assert window.run("return document.querySelector('#config').value") == expected
    hosts_by_boxes(window)
    window.run("document.querySelector('#config-slots').select()")
    window.press("many")
    window.wait(lambda: window.all("#config-slots[aria-invalid=true]"), "the fault at its field")
    assert "slots_per_trial" in window.text("#config-slots-error")
    window.keep("config-fields", height=1300)
    window.run("document.activeElement.blur()")
    window.run(typed, kept)
    window.wait(lambda: window.all('#checked [data-faults="0"]'), "the text of before")
    assert window.run("return document.querySelector('#config-slots').value") == ""
    assert not window.all("#config-parameters:not([hidden])")


def test_an_experiment_is_created_from_a_zip_by_keys_alone(empty_server: Server, tmp_path: Path) -> None:
    if programs() is None:
        pytest.skip("needs chromium and chromedriver")
    code = tmp_path / "code.zip"
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("repo/train.py", "print('trained')\n")
    with running_browser(empty_server.url) as window:
        window.look(dark=False, width=WIDE)
        window.login("admin", empty_server.password)
        empty_server.shell(HOSTS)
        wrong = look_at(window, "/tasks/+new?type=notebook", {})
        window.keep("task-form", height=1000)
        wrong += look_at(window, "/experiments/new", {})
        window.one("#config").focus()
        window.press(Keys.END, held=Keys.CONTROL)
        window.press("resources:", Keys.ENTER, "slots: 1", Keys.HOME, Keys.TAB)
        window.wait(lambda: window.all("#checked li[data-line]"), "the faults beside the text")
        window.wait(lambda: window.all(".line-numbers .wrong"), "the lines that are wrong")
        assert window.run("return document.activeElement.id") == "config"
        window.press(Keys.ESCAPE, Keys.TAB)
        assert window.run("return document.activeElement.id") == "show-defaults"
        good = "name: zipped\nentrypoint: python3 train.py\nsearcher: {name: single, metric: loss, max_length: 1}\n"
        window.one("#config").focus()
        window.run("document.activeElement.select()")
        window.press(good)
        window.wait(lambda: window.all('#checked [data-faults="0"]'), "the good word")
        changed_by_fields(window)
        wrong += window.violations()
        empty_server.shell("from hosts.models import Host\nHost.objects.all().delete()")
        window.one("#zip").send_keys(str(code))
        window.wait(lambda: "code.zip" in window.text("#code-chosen"), "the zip to be chosen")
        window.wait(lambda: submitted(window), "the experiment")
        window.open(f"{window.path()}/code")
        window.wait(lambda: "trained" in window.text("pre.numbered"), "its code")
        wrong += look_at(window, window.path().replace("/code", "/config"), {})
        address = window.path().removesuffix("/config")
        number = address.rpartition("/")[2]
        empty_server.shell(f"from experiments.transitions import kill\nkill({number}, actor='admin')")
        wrong += look_at(window, f"{address}/continue", {})
        window.keep("continue", height=1000)
        for value in ("many", "0"):
            window.run("document.querySelector('#config-slots').select()")
            window.press(value, Keys.ENTER)
            if value == "many":
                window.wait(
                    lambda: "resources.slots_per_trial" in window.text(".banner[role=alert]"), "why not"
                )
        window.wait(lambda: window.path() == address, "the experiment that goes on")
        assert wrong == []

"""The Metrics page of a trial: its table, curves in a window, tails for live charts, and all points as a file."""

import math
import re
from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client

from accounts.models import User
from experiments import metric_reports
from experiments.models import Checkpoint, Trial
from metrics import csv_files, metric_table
from metrics.curves import Wanted
from metrics.ingest import Report
from tests.rig.world import make_user, submit_experiment, trial_of
from webui.pages.metrics import page as metric_page

pytestmark = pytest.mark.django_db
NOON = 1_795_262_400.0


def report(trial: Trial, group: str, step: int, **values: Any) -> None:
    metric_reports.store(trial.experiment, trial, [Report(trial.run_id, group, step, NOON + step, values)])


@pytest.fixture
def trial() -> Trial:
    found = trial_of(submit_experiment())
    for step in range(1, 6):
        report(
            found,
            "training",
            step,
            **{"train_loss": 10.0 - step, "opt/lr": 0.1, "opt/beta": 0.9, "note": "a"},
        )
    report(found, "validation", 4, val_loss=1.5, loss=1.5)
    return found


def client() -> Client:
    window = Client()
    window.force_login(make_user("ada", User.Role.VIEWER))
    return window


def get(path: str, status: int = 200) -> Any:
    answer = client().get(path)
    assert answer.status_code == status, answer.content
    return answer


def listed(trial: Trial, query: str = "") -> metric_table.MetricTable:
    return metric_table.table(trial.summary_metrics, metric_page.chosen(QueryDict(query)), "val_loss")


def test_training_and_validation_of_one_name_share_a_chart_and_the_searchers_comes_first(
    trial: Trial,
) -> None:
    table = listed(trial)
    assert [chart.name for chart in table.charts] == ["loss", "note", "opt/beta", "opt/lr"]
    first = table.charts[0]
    assert [(row.group, row.name) for row in first.rows] == [
        ("training", "train_loss"), ("validation", "loss"), ("validation", "val_loss"),
    ]  # fmt: skip
    assert (first.rows[0].last, first.rows[0].least, first.rows[0].most, first.rows[0].step) == (
        5.0,
        5.0,
        9.0,
        5,
    )
    assert [chart.name for chart in table.drawn] == ["loss", "opt/beta", "opt/lr"], "text has no chart"
    assert [(prefix.name, prefix.charts) for prefix in table.prefixes] == [("opt/", 2)]


def test_search_prefix_pins_and_ticks_choose(trial: Trial) -> None:
    assert [chart.name for chart in listed(trial, "q=LR").charts] == ["opt/lr"]
    assert [chart.name for chart in listed(trial, "prefix=opt/").charts] == ["opt/beta", "opt/lr"]
    assert listed(trial, "pin=opt/lr").charts[0].name == "opt/lr"
    assert [chart.name for chart in listed(trial, "m=loss&pin=opt/lr&q=nothing").drawn] == ["opt/lr", "loss"]
    assert listed(trial, "q=nothing").found == 0


def test_a_pin_is_the_users_on_all_trials_of_the_project(trial: Trial) -> None:
    window, another = client(), trial_of(submit_experiment())
    report(another, "training", 1, **{"train_loss": 1.0, "opt/lr": 0.1})

    def first_chart(who: Client, of: Trial) -> str:
        found = re.search(
            r'"name": "([^"]+)"', who.get(f"/trials/{of.pk}/metrics?part=table").content.decode()
        )
        assert found
        return found[1]

    at = f"/trials/{trial.pk}/metrics/pins?part=table&q=lr"
    part = window.post(at, {"name": "opt/lr", "pinned": "true"})
    assert part.status_code == 200 and b"train_loss" not in part.content, "the table as the address shows it"
    assert window.post(at, {"name": "opt/lr", "pinned": "true"}).status_code == 200
    assert first_chart(window, trial) == first_chart(window, another) == "opt/lr"
    stranger = Client()
    stranger.force_login(make_user("eve"))
    assert first_chart(stranger, trial) == "loss"
    window.post(at, {"name": "opt/lr", "pinned": "false"})
    assert first_chart(window, another) == "loss"
    for wrong in ("", "x" * 501):
        assert window.post(at, {"name": wrong}).status_code == 400
    assert window.get(at).status_code == 405


def test_a_thousand_metrics_are_pages_of_a_hundred_with_forty_charts() -> None:
    summary = {"avg_metrics": {f"m{n:04}": {"type": "number", "last": n} for n in range(1000)}}
    table = metric_table.table(summary, metric_page.chosen(QueryDict("page=3")), "loss")
    assert (len(table.charts), len(table.drawn), table.page.number, table.page.paginator.num_pages) == (
        100,
        40,
        3,
        10,
    )
    assert table.charts[0].name == "m0200"
    assert metric_table.table(summary, metric_page.chosen(QueryDict("page=99")), "").page.number == 10


def test_the_page_shows_the_table_and_says_which_charts_there_are(trial: Trial) -> None:
    page = get(f"/trials/{trial.pk}/metrics?x=wall").content.decode()
    assert '<option value="wall" data-title="wall time (UTC)" selected>' in page
    assert 'data-title="steps completed"' in page and "epoch" not in re.findall(r'option value="(\w+)"', page)
    part = get(f"/trials/{trial.pk}/metrics?part=table&q=lr").content.decode()
    assert "<html" not in part and "opt/lr" in part and "train_loss" not in part
    assert '"series": [["training", "opt/lr"]]' in part
    assert "Metrics" in get(f"/trials/{trial.pk}/metrics?part").content.decode()


def test_a_trial_without_metrics_says_what_will_stand_there() -> None:
    empty = trial_of(submit_experiment())
    assert "report_training_metrics" in get(f"/trials/{empty.pk}/metrics").content.decode()


def test_curves_are_cut_to_the_window_and_followed_by_what_comes_behind(trial: Trial) -> None:
    at = f"/trials/{trial.pk}/metrics/curves?group=training&name=train_loss"
    whole = get(at).json()
    assert whole["curves"] == [
        {"group": "training", "name": "train_loss", "x": [1, 2, 3, 4, 5], "y": [9, 8, 7, 6, 5], "smooth": None,
         "total": 5, "last": 5}
    ]  # fmt: skip
    assert get(f"{at}&from=2&to=3").json()["curves"][0]["x"] == [2, 3]
    assert get(f"{at}&x=wall&from={NOON + 4}").json()["curves"][0]["x"] == [NOON + 4, NOON + 5]
    assert len(get(f"{at}&smooth=0.5").json()["curves"][0]["smooth"]["y"]) == 5
    tail = get(f"{at}&after=5&run={whole['run']}").json()
    assert (tail["whole"], tail["curves"]) == (False, [])
    report(trial, "training", 6, train_loss=math.nan)
    (curve,) = get(f"{at}&after=5&run={whole['run']}").json()["curves"]
    assert (curve["x"], curve["y"], curve["total"]) == ([6], [None], 1)
    again = get(f"{at}&after=5&run={whole['run'] + 1}").json()
    assert again["whole"] and again["curves"][0]["total"] == 6, "another attempt may have replaced steps"


def test_the_best_checkpoint_is_marked_on_every_axis(trial: Trial) -> None:
    at = f"/trials/{trial.pk}/metrics/curves?group=training&name=train_loss"
    assert get(at).json()["best"] is None
    report(trial, "training", 7, epoch=3.5)
    trial.refresh_from_db()
    trial.best_validation = {"steps_completed": 7, "metrics": {}, "searcher_metric": 1.0}
    trial.save()
    reported = trial.started_at
    kept = Checkpoint.objects.create(
        trial=trial, allocation_id="a", state="COMPLETED", steps_completed=7, reported_at=reported
    )
    assert get(at).json()["best"] == {"x": 7, "step": 7, "uuid": str(kept.pk)}
    assert get(f"{at}&x=wall").json()["best"]["x"] == reported.timestamp()
    assert get(f"{at}&x=epoch").json()["best"]["x"] == 3.5


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "`group` and `name` are required"),
        ("group=training&name=a&x=hours", "x is 'hours'; allowed: step, relative, wall, epoch."),
        ("group=training&name=a&from=9&to=1", "The range ends before it begins"),
        ("group=training&name=a&from=soon", "from is 'soon'; it must be a number"),
        ("group=training&name=a&smooth=1", "smooth is '1'; it must be a number from 0 to 0.999."),
        ("group=training&name=a&after=-1", "after is '-1'; it must be a step"),
        ("group=training&name=a&x=epoch", "has not reported a metric 'epoch'"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(trial: Trial, query: str, said: str) -> None:
    assert said in get(f"/trials/{trial.pk}/metrics/curves?{query}", 400).json()["message"]


@pytest.mark.django_db(transaction=True)
def test_the_file_has_every_point(trial: Trial) -> None:
    report(trial, "training", 6, train_loss=math.inf)
    answer = get(
        f"/trials/{trial.pk}/metrics/points.csv?group=training&name=train_loss&group=validation&name=val_loss"
    )
    assert answer["Content-Disposition"] == f'attachment; filename="trial-{trial.pk}-train_loss.csv"'

    lines = b"".join(csv_files.of_metrics(trial.pk, _asked())).decode().splitlines()
    assert lines[0] == "group,metric,step,time,value"
    assert lines[1] == "training,train_loss,1,2026-11-21T12:00:01+00:00,9.0"
    assert (
        lines[6].endswith(",Infinity") and lines[7].startswith("validation,val_loss,4,") and len(lines) == 8
    )


def _asked() -> list[Wanted]:
    return [
        Wanted("training", "train_loss", None),
        Wanted("validation", "val_loss", None),
    ]

"""The page that compares trials: what its address names, what it puts first, and the curves that it draws."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from accounts.models import User
from experiments.models import Experiment, Trial
from metrics import ingest
from shown import comparison
from tests.rig.html import Html
from tests.rig.world import make_host, make_user, submit_experiment, trial_of

pytestmark = pytest.mark.django_db
AT = 1_790_000_000.0


def trial(name: str = "digits", best: float | None = None, **hparams: Any) -> Trial:
    """A trial with these hyperparameters, and a validation of the searcher's metric."""
    found = trial_of(submit_experiment(name=name))
    validation = {"steps_completed": 5, "metrics": {"loss": best}, "searcher_metric": best}
    Trial.objects.filter(pk=found.pk).update(
        hparams=hparams, best_validation=None if best is None else validation
    )
    return Trial.objects.get(pk=found.pk)


def report(trial: Trial, group: str, **values: list[float]) -> None:
    rows = [
        ingest.Report(1, group, step, AT + step, dict(zip(values, numbers, strict=True)))
        for step, numbers in enumerate(zip(*values.values(), strict=True), start=1)
    ]
    ingest.store(trial.pk, rows)


@pytest.fixture
def client() -> Client:
    make_host("gpu1", slots=2)
    client = Client()
    client.force_login(make_user("vic", User.Role.VIEWER))
    return client


def table(page: str) -> list[list[str]]:
    """The head and the rows of the table, as text."""
    rows = re.findall(r"<tr\b[^>]*>(.*?)</tr>", page, re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    return [[" ".join(re.sub(r"<[^>]*>", " ", cell).split()) for cell in row] for row in cells]


def page_of(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return Html(answer.content)


def figures(client: Client, address: str) -> dict[str, Any]:
    answer = client.get(address)
    assert answer.status_code == 200
    return {figure["name"]: figure["data"] for figure in answer.json()["figures"]}


def test_hyperparameters_that_differ_stand_first_and_the_others_are_folded(client: Client) -> None:
    one = trial(lr=0.1, model={"depth": 2, "name": "resnet"}, amp=True)
    two = trial(lr=0.01, model={"depth": 2, "name": "vit"}, amp=1)
    page = page_of(client, f"/compare?trials={one.pk},{two.pk}")
    head, first, second = table(page)
    assert head[:5] == ["Trial", "Best loss", "amp", "lr", "model.name"]
    assert first[:5] == [f"Trial {one.pk}", "none yet", "true", "0.1", "resnet"]
    assert second[:5] == [f"Trial {two.pk}", "none yet", "1", "0.01", "vit"]
    assert "1 hyperparameter with the same value" in page and "model.depth" in page
    in_order = r"amp\b.*\blr\b.*model\.depth.*model\.name"
    for address in (f"/trials/{one.pk}", f"/experiments/{one.experiment_id}", f"/compare?trials={one.pk}"):
        assert re.search(in_order, page_of(client, address), re.DOTALL), address


def test_a_hyperparameter_that_one_trial_lacks_sets_it_apart(client: Client) -> None:
    one, two = trial(lr=0.1, warmup=None), trial(lr=0.1)
    head, first, second = table(page_of(client, f"/compare?trials={one.pk},{two.pk}"))
    assert head[2] == "warmup"
    assert (first[2], second[2]) == ("null", "not set")


def test_the_best_is_marked_among_trials_that_are_judged_alike(client: Client) -> None:
    trials = [trial(best=value) for value in (0.5, 0.25, None)]
    other = trial(name="accuracy", best=0.01)
    config = {**other.experiment.config, "searcher": {"metric": "accuracy", "smaller_is_better": False}}
    Experiment.objects.filter(pk=other.experiment_id).update(config=config)
    ids = ",".join(str(each.pk) for each in [*trials, other])
    rows = table(page_of(client, f"/compare?trials={ids}"))[1:]
    assert [row[1] for row in rows] == ["0.5 loss", "0.25 loss best", "none yet", "0.01 accuracy"]


def test_curves_of_a_metric_lie_over_each_other_with_their_extremes(client: Client) -> None:
    one, two = trial(), trial()
    spike = [1.0] * 40_000
    spike[12_345] = 99.0
    report(one, "training", loss=spike)
    report(two, "training", loss=[0.5, 0.25])
    found = figures(client, f"/compare/chart?trials={one.pk},{two.pk}")
    first, second = found["training loss"]
    assert first["name"] == f"trial {one.pk} ({len(first['x']):,} of 40,000 points)"
    assert len(first["x"]) <= 3000 and (12_346, 99) in zip(first["x"], first["y"], strict=True)
    assert second["name"] == f"trial {two.pk}" and second["y"] == [0.5, 0.25]
    assert first["line"] != second["line"]


def test_a_trial_keeps_its_look_in_every_chart(client: Client) -> None:
    one, two = trial(), trial()
    report(one, "training", loss=[1.0])
    report(two, "training", loss=[1.0], rate=[0.5])
    found = figures(client, f"/compare/chart?trials={one.pk},{two.pk}")
    assert found["training rate"][0]["line"] == found["training loss"][1]["line"]


def test_the_searchers_metric_is_drawn_first_and_the_address_chooses_others(client: Client) -> None:
    one = trial()
    report(one, "training", **{f"t{number}": [1.0] for number in range(9)}, loss=[1.0])
    report(one, "validation", accuracy=[0.5], loss=[1.0])
    report(one, "a/b", own=[1.0])
    drawn = list(figures(client, f"/compare/chart?trials={one.pk}"))
    assert drawn[:3] == ["validation loss", "validation accuracy", "training loss"] and len(drawn) == 6
    chosen = f"trials={one.pk}&metric=training/t8&metric=a%252Fb/own"
    assert list(figures(client, f"/compare/chart?{chosen}")) == ["training t8", "a/b own"]
    page = page_of(client, f"/compare?{chosen}")
    assert "Showing 2 of 13 metrics" in page
    assert re.findall(r'value="([^"]*)" checked', page) == ["training/t8", "a%2Fb/own"]


def test_what_is_ticked_becomes_an_address_that_holds_all(client: Client) -> None:
    one, two, three = trial(), trial(), trial()
    answer = client.get(f"/compare?trial={two.pk}&trial={one.pk}&trial={two.pk}")
    assert answer.headers["Location"] == f"/compare?trials={two.pk},{one.pk}"
    answer = client.get(f"/compare?trials={one.pk}&trial={three.pk}&metric=training/loss")
    assert answer.headers["Location"] == f"/compare?trials={one.pk},{three.pk}&metric=training/loss"


def test_an_experiment_stands_for_its_best_trial_else_for_its_newest(client: Client) -> None:
    one, two = trial(), trial()
    better = Trial.objects.create(
        experiment=one.experiment,
        task=two.task.job.tasks.create(id="t", kind="TRIAL", name="t", slots=1),
        seed=1,
    )
    address = f"/compare?experiment={one.experiment_id}&experiment={two.experiment_id}&experiment=999999"
    assert client.get(address).headers["Location"] == f"/compare?trials={better.pk},{two.pk}"
    Experiment.objects.filter(pk=one.experiment_id).update(best_trial_id=one.pk)
    assert client.get(address).headers["Location"] == f"/compare?trials={one.pk},{two.pk}"


def test_more_runs_than_fit_and_unknown_trials_are_said_in_sentences(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "MOST_RUNS", 3)
    ids = [trial(lr=number).pk for number in range(4)]
    page = page_of(client, f"/compare?trials={','.join(map(str, ids))},123456,x,{10**30}")
    assert "4 trials were requested, and at most 3 are compared" in page
    assert "There is no trial 123456." in page
    assert "&#x27;x&#x27; is not the ID of a trial." in page
    assert len(table(page)) == 4
    newest = page_of(client, "/compare?q=digits")
    assert "These are the newest 3 runs; there are more." in newest
    assert [row[0] for row in table(newest)[1:]] == [f"Trial {pk}" for pk in reversed(ids[1:])]


def test_runs_are_grouped_by_a_hyperparameter_and_held_against_the_baseline(client: Client) -> None:
    runs = [
        trial(best=best, lr=lr, seed=seed)
        for lr, seed, best in [(0.1, 1, 1.0), (0.1, 2, 3.0), (0.01, 1, 5.0)]
    ]
    for number, run in enumerate(runs):
        report(run, "validation", loss=[4.0 + number, 2.0 + number])
    other = trial(name="elsewhere", lr=0.3)
    page = page_of(client, f"/compare?q=digits&group=lr&baseline={runs[2].pk}")
    head, low, high = table(page)
    assert head[:5] == ["Group", "Best loss", "seed", "Last loss", "State"]
    assert low[:3] == ["lr 0.01", "5", "1"] and low[4] == "Queued"
    assert high[:3] == ["lr 0.1", "2 ± 1 -3 best", "varies"] and high[4] == "2 runs"
    assert "elsewhere" not in page and f"/compare?trials={runs[1].pk},{runs[0].pk}" in page
    (drawn,) = figures(client, "/compare/chart?q=digits&group=lr&metric=validation/loss").values()
    band, one, mean = drawn
    assert (one["name"], one["y"]) == ("lr 0.01", [6, 4])
    assert (mean["name"], mean["y"]) == ("lr 0.1, mean of 2 runs", [4.5, 2.5])
    assert band["y"] == [4, 2, 3, 5] and band["meta"] == mean["meta"] == "g1"
    chosen = f"/compare?experiments={runs[0].experiment_id},{other.experiment_id}&baseline={runs[2].pk}"
    assert [row[0] for row in table(page_of(client, chosen))[1:]] == [
        f"Trial {each.pk}" for each in (other, runs[0], runs[2])
    ], "a pinned run stays when others are chosen"


def test_curves_go_over_time_smoothed_and_with_their_names_at_their_ends(client: Client) -> None:
    one, two = trial(), trial()
    Trial.objects.update(started_at=datetime.fromtimestamp(AT, UTC))
    for run in (one, two):
        report(run, "training", loss=[1.0, 100.0, 1000.0])

    def figure(view: str) -> dict[str, Any]:
        address = f"/compare/chart?trials={one.pk},{two.pk}&metric=training/loss&{view}"
        (found,) = client.get(address).json()["figures"]
        return dict(found)

    relative = figure(f"x=relative&smooth=0.5&baseline={two.pk}")
    first, baseline = relative["data"]
    assert first["x"] == [1, 2, 3] and first["y"][1] == pytest.approx(67)
    assert baseline["line"]["color"] == "black" and baseline["line"]["width"] > first["line"]["width"]
    assert figure("x=wall")["data"][0]["x"][0] == (AT + 1) * 1000
    log = figure("log=1")["layout"]
    assert log["yaxis"] == {**log["yaxis"], "type": "log", "dtick": 1, "exponentformat": "power"}
    ends = [(each["text"], each["y"]) for each in log["annotations"]]
    assert ends == [(f"trial {one.pk}", pytest.approx(3)), (f"trial {two.pk}", pytest.approx(3))]
    shifts = [each["yshift"] for each in log["annotations"]]
    assert abs(shifts[0] - shifts[1]) >= 12, "equal ends do not cover each other"
    assert figure("x=nonsense&smooth=9&band=x")["data"], (
        "an address that has grown old still shows the curves"
    )


@pytest.mark.parametrize("query", ["", "?trials=", "?trial=", "?trials=%00", "?trials=1&metric=%00/x"])
def test_an_address_without_trials_explains_the_page(client: Client, query: str) -> None:
    answer = client.get(f"/compare{query}", follow=True)
    assert answer.status_code == 200
    assert "side by side" in Html(answer.content)
    assert client.get(f"/compare/chart{query}").json() == {"figures": []}


def test_an_address_that_names_no_runs_never_means_the_runs_of_everyone(client: Client) -> None:
    other = trial(name="of another user")
    alone = Experiment.objects.get(pk=trial(name="alone").experiment_id)
    alone.trials.all().delete()
    for query, sentence in {
        "trials=": "side by side",
        "trials=abc": "&#x27;abc&#x27; is not the ID of a trial.",
        f"trials=&baseline={other.pk}": "side by side",
        "experiments=": "side by side",
        "experiments=x": "&#x27;x&#x27; is not the ID of an experiment.",
        f"experiments={alone.pk}": "None of these experiments has a trial.",
    }.items():
        page = page_of(client, f"/compare?{query}")
        assert sentence in page and "Select some in" in page and "<table" not in page, query
    last = page_of(client, f"/compare?trials={other.pk}")
    assert re.search(r'<a href="/compare\?trials="\s+aria-label="Remove', last)


@pytest.mark.parametrize("band", ["range", "std"])
def test_huge_values_of_one_run_leave_the_page_to_the_others(client: Client, band: str) -> None:
    huge = [trial(best=1.7e308 * sign, lr=0.1, seed=seed) for seed, sign in enumerate((1, 1, -1))]
    other = trial(best=1.0, lr=0.2)
    report(huge[0], "validation", loss=[1.7e308, 1.7e308, 1e200], edge=[1.7e308] * 3)
    report(huge[1], "validation", loss=[1.7e308, -1.7e308, -1e200], edge=[1.7e308] * 3)
    report(huge[2], "validation", loss=[1.7e308, -1e300, 1e300])
    report(other, "validation", loss=[3.0, 2.0, 1.0], edge=[1.0, 2.0, 3.0])
    ids = ",".join(str(each.pk) for each in [*huge, other])
    for view in ("", "&log=1", "&smooth=0.9", "&group=lr", "&group=lr&log=1"):
        address = f"trials={ids}&baseline={other.pk}&band={band}{view}"
        assert len(table(page_of(client, f"/compare?{address}"))) == (3 if "group" in view else 5)
        answer = client.get(f"/compare/chart?{address}")
        assert not re.search(r"NaN|Infinity", answer.text), view
        edge, loss = sorted(answer.json()["figures"], key=lambda each: str(each["name"]))
        assert len(loss["data"]) > 1 and loss["layout"]["annotations"]
        assert [each["name"] for each in edge["data"]] == [edge["data"][-1]["name"]], "the others are absent"


def test_the_curves_that_one_request_reads_are_bounded(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "MOST_CURVES", 5)
    one, two = trial(), trial()
    for run in (one, two):
        report(run, "training", a=[1.0], b=[1.0], c=[1.0])
    chosen = f"trials={one.pk},{two.pk}&metric=training/c&metric=training/b&metric=training/a"
    assert "3 metrics were requested, and at most 2 are shown for this many runs." in page_of(
        client, f"/compare?{chosen}"
    )
    assert list(figures(client, f"/compare/chart?{chosen}")) == ["training c", "training b"]
    assert len(figures(client, f"/compare/chart?{chosen.replace(f',{two.pk}', '')}")) == 3


def test_viewers_compare_and_chart_what_they_select(client: Client) -> None:
    one = trial()
    page = page_of(client, "/experiments")
    assert re.search(r'<form id="compare" class="chosen" method="get" action="/compare"', page)
    assert re.findall(r'<button name="runs" value="(\w+)"', page) == ["best", "all"]
    assert "/experiments/chosen/" not in page, "a viewer changes nothing"
    address = f"/compare?back=/experiments&experiment={one.experiment_id}&runs="
    assert client.get(f"{address}best").headers["Location"] == f"/compare?trials={one.pk}"
    assert client.get(f"{address}all").headers["Location"] == f"/compare?experiments={one.experiment_id}"
    assert client.get("/compare?runs=best").headers["Location"] == "/compare?trials="


def test_the_lists_let_experiments_and_trials_be_ticked(client: Client) -> None:
    one = trial()
    assert f'form="compare" name="experiment" value="{one.experiment_id}"' in page_of(client, "/experiments")
    alone = page_of(client, f"/experiments/{one.experiment_id}")
    assert 'form="compare"' not in alone
    Trial.objects.filter(pk=trial().pk).update(experiment=one.experiment)
    both = page_of(client, f"/experiments/{one.experiment_id}")
    assert f'form="compare" name="trial" value="{one.pk}"' in both and 'id="compare"' in both

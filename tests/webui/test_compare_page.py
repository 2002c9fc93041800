"""The page that compares trials: what its address names, what it puts first, and the curves that it draws."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from accounts.models import User
from experiments.models import Experiment, Trial
from metrics import ingest
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
    rows = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
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
    assert head[:4] == ["Trial", "amp", "lr", "model.name"]
    assert first[:4] == [f"Trial {one.pk}", "true", "0.1", "resnet"]
    assert second[:4] == [f"Trial {two.pk}", "1", "0.01", "vit"]
    assert "1 hyperparameter with the same value" in page and "model.depth" in page
    in_order = r"amp\b.*\blr\b.*model\.depth.*model\.name"
    for address in (f"/trials/{one.pk}", f"/experiments/{one.experiment_id}", f"/compare?trials={one.pk}"):
        assert re.search(in_order, page_of(client, address), re.DOTALL), address


def test_a_hyperparameter_that_one_trial_lacks_sets_it_apart(client: Client) -> None:
    one, two = trial(lr=0.1, warmup=None), trial(lr=0.1)
    head, first, second = table(page_of(client, f"/compare?trials={one.pk},{two.pk}"))
    assert head[1] == "warmup"
    assert (first[1], second[1]) == ("null", "not set")


def test_the_best_is_marked_among_trials_that_are_judged_alike(client: Client) -> None:
    trials = [trial(best=value) for value in (0.5, 0.25, None)]
    other = trial(name="accuracy", best=0.01)
    config = {**other.experiment.config, "searcher": {"metric": "accuracy", "smaller_is_better": False}}
    Experiment.objects.filter(pk=other.experiment_id).update(config=config)
    ids = ",".join(str(each.pk) for each in [*trials, other])
    rows = table(page_of(client, f"/compare?trials={ids}"))[1:]
    assert [row[2] for row in rows] == ["0.5 loss", "0.25 loss best", "none yet", "0.01 accuracy"]


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


def test_more_than_twenty_and_unknown_trials_are_said_in_sentences(client: Client) -> None:
    ids = [trial().pk for _ in range(21)]
    page = page_of(client, f"/compare?trials={','.join(map(str, ids))},123456,x,{10**30}")
    assert "21 trials were requested, and at most 20 are compared" in page
    assert "There is no trial 123456." in page
    assert "&#x27;x&#x27; is not the ID of a trial." in page
    assert len(table(page)) == 21


@pytest.mark.parametrize("query", ["", "?trials=", "?trial=", "?trials=%00", "?trials=1&metric=%00/x"])
def test_an_address_without_trials_explains_the_page(client: Client, query: str) -> None:
    answer = client.get(f"/compare{query}", follow=True)
    assert answer.status_code == 200
    assert "side by side" in Html(answer.content)
    assert client.get(f"/compare/chart{query}").json() == {"figures": []}


def test_the_lists_let_experiments_and_trials_be_ticked(client: Client) -> None:
    one = trial()
    assert f'form="compare" name="experiment" value="{one.experiment_id}"' in page_of(client, "/experiments")
    alone = page_of(client, f"/experiments/{one.experiment_id}")
    assert 'form="compare"' not in alone
    Trial.objects.filter(pk=trial().pk).update(experiment=one.experiment)
    both = page_of(client, f"/experiments/{one.experiment_id}")
    assert f'form="compare" name="trial" value="{one.pk}"' in both and 'id="compare"' in both

"""The pages of a search: its tree of rungs, its trials by columns and filters, its charts, and what they can do."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from accounts.models import User
from experiments.models import Experiment, Trial
from tests.rig import swept
from tests.rig.html import Html
from tests.rig.world import make_user
from trainmaster.cli.preview_search import IF_KEPT, SIMULATED, WHY_OTHERWISE

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin() -> User:
    return make_user("admin", User.Role.ADMIN)


@pytest.fixture
def client(admin: User) -> Client:
    client = Client()
    client.force_login(admin)
    return client


@pytest.fixture
def search(admin: User) -> Experiment:
    """16 trials in two brackets, of which some have been stopped and some are parked."""
    return Experiment.objects.get(pk=swept.add("sixteen", 16, validations=14))


def page(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, address
    return Html(answer.content)


def shown(client: Client, address: str) -> list[int]:
    return [int(found) for found in re.findall(r'id="trial-(\d+)"', page(client, address))]


def test_the_tree_has_each_trial_where_it_stands_and_any_rung_in_full(
    client: Client, search: Experiment
) -> None:
    at = f"/experiments/{search.pk}/search"
    tree = page(client, at)
    assert "<b>16 / 16</b>" in tree and "Bracket 2" in tree and "stopped" in tree and "in progress" in tree
    assert f"units {IF_KEPT}. {WHY_OTHERWISE} The preview of a config counts them {SIMULATED}." in tree
    decided = re.findall(r'id="decided-1-1-(\d+)"', tree)
    assert decided and all(Trial.objects.filter(pk=pk, experiment=search).exists() for pk in decided)
    full = page(client, f"{at}?rung=1.1&part=tree")
    places = [int(place) for place in re.findall(r'data-label="Place">(\d+)<', full)]
    assert places == list(range(1, len(places) + 1)) and len(places) > 8
    assert "Bracket 1, rung 1" not in page(client, f"{at}?rung=9.9&fold=x..1&page=z")
    assert 'class="rungs"' not in page(client, f"{at}?fold=1.2")


def test_a_trial_that_its_search_stopped_says_at_which_rung(client: Client, search: Experiment) -> None:
    table = page(client, f"/experiments/{search.pk}/trials")
    stopped = re.search(r'id="trial-(\d+)"(?:(?!</tr>).)*Stopped early</span>, rung (\d)', table, re.DOTALL)
    assert stopped, table
    strip = page(client, f"/trials/{stopped[1]}").partition('class="strip"')[2].partition("</ul>")[0]
    head = page(client, f"/trials/{stopped[1]}/logs").partition("</nav>")[2].partition('class="tabs"')[0]
    for place in (strip, head):
        assert f"Stopped early</span>, rung {stopped[2]}" in place and " %" not in place


def test_a_search_without_rungs_says_so(client: Client, admin: User) -> None:
    random = Experiment.objects.get(pk=swept.add("random", 3, searcher="random"))
    assert "there are no rungs" in page(client, f"/experiments/{random.pk}/search")


def test_trials_are_shown_by_columns_filters_and_order_of_the_address(
    client: Client, search: Experiment
) -> None:
    at, trials = f"/experiments/{search.pk}/trials", list(search.trials.all())
    by_rate = sorted(trials, key=lambda trial: trial.hparams["lr"])
    assert shown(client, f"{at}?sort=hp.lr&c=hp.lr&part=trials") == [trial.pk for trial in by_rate]
    low, high = by_rate[3].hparams["lr"], by_rate[10].hparams["lr"]
    kept = {t.pk for t in by_rate[3:11] if t.hparams["optimizer"]["name"] == "adamw"}
    found = shown(client, f"{at}?min.lr={low!r}&max.lr={high!r}&is.optimizer.name=adamw")
    assert set(found) == kept and kept
    ended = shown(client, f"{at}?state=COMPLETED&sort=-m.validation/accuracy&c=m.validation/accuracy")
    assert ended and set(ended) == {trial.pk for trial in trials if trial.state == "COMPLETED"}
    assert "No trials match" in page(client, f"{at}?min=1e9")
    assert shown(client, f"{at}?c=nonsense&min.lr=x&sort=-hp.nothing&page=0&state=NO") == []
    best = Trial.objects.get(pk=search.best_trial_id)
    text = page(client, at)
    assert f"lr: {best.hparams['lr']}" in text and f"fork?hparams={best.pk}" in text
    fork = page(client, f"/experiments/{search.pk}/fork?hparams={best.pk}")
    assert "name: single" in fork and str(best.hparams["lr"]) in fork


def test_those_ticked_are_killed_by_who_may_and_the_others_stay(client: Client, search: Experiment) -> None:
    at = f"/experiments/{search.pk}/trials"
    ended = search.trials.filter(state="COMPLETED").values_list("pk", flat=True)[0]
    living = list(search.trials.filter(state="ACTIVE").values_list("pk", flat=True)[:2])
    other = Client()
    other.force_login(make_user("vic", User.Role.EDITOR))
    other.post(f"{at}/kill", {"trial": living})
    assert search.trials.filter(pk__in=living, state="ACTIVE").count() == 2
    back = f"{at}?sort=best"
    answer = client.post(f"{at}/kill", {"trial": [*living, ended, "x", 10**30], "back": back}, follow=True)
    assert answer.redirect_chain[0][0] == back
    assert "2 trials are being killed. 1 was not killed" in Html(answer.content)
    assert set(search.trials.filter(pk__in=living).values_list("state", flat=True)) == {"CANCELED"}
    tree = page(client, f"/experiments/{search.pk}/search")
    assert re.search(r"\d killed<", tree) and not re.search(r"\d failed<", tree)


def test_a_trial_that_is_killed_on_its_page_is_what_one_looks_at_then(
    client: Client, search: Experiment
) -> None:
    trial = search.trials.filter(state="ACTIVE").values_list("pk", flat=True)[0]
    asked = page(client, f"/trials/{trial}/timeline")
    form = re.search(r'<form method="post" action="([^"]+/trials/kill)">(.*?)</form>', asked, re.S)
    assert form is not None and "data-confirm=" in form[2]
    fields = dict(re.findall(r'name="(trial|back)" value="([^"]*)"', form[2]))
    answer = client.post(form[1], fields, follow=True)
    assert answer.redirect_chain[0][0] == f"/trials/{trial}/timeline"
    shown = Html(answer.content)
    assert "1 trial is being killed." in shown and "Kill this trial" not in shown
    astray = client.post(form[1], {"trial": trial, "back": "//evil.example/trials/1"})
    assert astray.headers["Location"] == f"/experiments/{search.pk}/trials"


def test_each_way_to_look_at_a_search_has_its_figures_with_tables(client: Client, search: Experiment) -> None:
    at = f"/experiments/{search.pk}/visualization"
    for way, charts in {"": 1, "/parallel": 1, "/scatter": 5, "/heat-maps": 6, "/importance": 1}.items():
        assert "Parallel coordinates" in page(client, at + way)
        figures = client.get(f"{at}{way}?part=figures").json()["figures"]
        assert len(figures) == charts and all(each["table"]["rows"] for each in figures), way
    at_step = client.get(f"{at}/scatter?part=figures&take=step&step=16&margin=1&hp=lr").json()["figures"]
    assert [each["name"] for each in at_step] == ["loss by lr"]
    kept = client.get(f"/experiments/{search.pk}/visualisation/parallel?top=20")
    assert kept.headers["Location"] == f"{at}/parallel?top=20"
    query = "part=figures&metric=validation/accuracy&better=larger&scale=log&top=20"
    (curves,) = client.get(f"{at}?{query}").json()["figures"]
    first = curves["table"]["rows"][0]
    assert first[0] == search.best_trial_id and curves["layout"]["yaxis"]["type"] == "log"
    nothing = "part=figures&metric=%00&take=no&step=-1&margin=x&min.lr=nan&hp=nothing&top=7"
    assert client.get(f"{at}/parallel?{nothing}").status_code == 200
    assert client.get(f"{at}/nothing").status_code == 404

"""Promised starts against real ones, on the page of a pool and over REST."""

import re
from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import LoginToken
from hosts.models import ResourcePool
from hosts.pools import default_pool
from jobs.models import ForecastOutcome
from shown import forecasts
from tests.rig.api import Api
from tests.rig.world import make_user, submit_experiment, trial_of

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def promised(
    at: datetime, started: timedelta | None, *, missed: timedelta | None = None, **fields: object
) -> ForecastOutcome:
    """A promise of a start within one to two hours."""
    task = trial_of(submit_experiment(owner=make_user("ada"))).task
    return ForecastOutcome.objects.create(
        pool=default_pool(),
        task=task,
        promised_at=at,
        earliest=at + HOUR,
        latest=at + 2 * HOUR,
        started_at=None if started is None else at + started,
        missed_at=None if missed is None else at + missed,
        **fields,
    )


@pytest.fixture
def week(db: None) -> ResourcePool:
    now = timezone.now()
    day = now - timedelta(days=1)
    promised(day, 1.5 * HOUR)
    promised(day, 1.5 * HOUR)
    promised(day, 0.5 * HOUR, edited=True)
    promised(day, 5 * HOUR, missed=2.01 * HOUR, why="no slot is free; exp 5 should finish first")
    promised(now - timedelta(days=8), 9 * HOUR)
    return default_pool()


def test_a_week_of_forecasts_is_summed_up(week: ResourcePool) -> None:
    found = forecasts.record(forecasts.outcomes(week, timezone.now()))
    assert (found.promises, found.inside, found.sooner, found.later) == (4, 50.0, 25.0, 25.0)
    assert (found.withdrawn, found.edited) == (25.0, 1)
    assert (found.median_width, found.median_error) == (3600.0, (1800 + 3 * 3600) / 2)
    assert [(each.error, each.edited) for each in found.worst] == [(3 * 3600, False), (-1800, True)]


def test_what_was_missed_and_has_not_started_is_late_by_what_has_passed(db: None) -> None:
    now = timezone.now()
    promised(now - 4 * HOUR, None, missed=2.1 * HOUR)
    [late] = forecasts.outcomes(default_pool(), now)
    assert late.error == pytest.approx(2 * 3600)


def test_the_page_and_its_chart_show_promised_against_real_starts(week: ResourcePool) -> None:
    client = Client()
    client.force_login(make_user("vic", "viewer"))
    page = re.sub(r"\s+", " ", client.get("/pools/default/forecasts").content.decode())
    assert "<b>50 %</b><span>started in their range" in page
    assert "no slot is free; exp 5 should finish first" in page
    assert "3 h later" in page and "30 min sooner" in page
    assert page.count('<span class="badge">queue edited</span>') == 1
    [figure] = client.get("/pools/default/chart?of=forecasts").json()["figures"]
    assert figure["described"] == "Promised against real starts: 2 of 4 started within their range"
    drawn = figure["data"][0]
    assert sorted(at for at in drawn["x"] if at is not None) == [0.5, 0.5, 1.5, 1.5, 1.5, 1.5, 5, 5]
    assert drawn["y"] == [1, 2, None] * 4
    assert figure["data"][1]["x"] == [0, 5]


def test_a_pool_without_forecasts_says_so(db: None) -> None:
    default_pool()
    client = Client()
    client.force_login(make_user("vic", "viewer"))
    page = client.get("/pools/default/forecasts").content.decode()
    assert "0 so far" in page and "data-figures" not in page


def test_rest_has_the_same_numbers(week: ResourcePool) -> None:
    api = Api(LoginToken.issue(make_user("vic", "viewer")))
    answer = api.get("resource-pools/default/forecasts")
    worst = answer.pop("worst")
    assert answer == {
        "resourcePool": "default",
        "days": 7,
        "promises": 4,
        "inside": 50.0,
        "sooner": 25.0,
        "later": 25.0,
        "withdrawn": 25.0,
        "edited": 1,
        "medianWidthSeconds": 3600.0,
        "medianErrorSeconds": 6300.0,
    }
    assert [(each["errorSeconds"], each["edited"]) for each in worst] == [
        (10800.0, False),
        (-1800.0, True),
    ]

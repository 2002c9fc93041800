"""The Media pages of a trial and of an experiment, and what REST answers about media."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from experiments.models import Media, Trial
from jobs.models import Member
from tests.experiments.test_media import image, report
from tests.rig.rows import make_gang
from tests.rig.world import make_user
from tests.trainmaster.core.test_media import GIF
from tests.webui.runner_api.test_checkpoints import make_trial

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def client(settings: Any, tmp_path: Path) -> Client:
    settings.DATA_DIR = tmp_path
    client = Client()
    client.force_login(make_user())
    return client


@pytest.fixture
def member(client: Client) -> Member:
    return make_gang()[0]


@pytest.fixture
def trial(member: Member) -> Trial:
    trial = make_trial(member)
    report(trial, member, image(1), image(5, caption=HOSTILE))
    for step, kind in (
        (5, {"kind": "text", "text": HOSTILE}),
        (7, {"kind": "table", "columns": [HOSTILE], "rows": [[HOSTILE]]}),
    ):
        report(trial, member, {"type": "media", "name": HOSTILE, "step": step, **kind})
    return trial


def text(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, answer
    return re.sub(r"\s+", " ", answer.content.decode())


def test_the_page_shows_the_latest_step_or_that_of_its_address(client: Client, trial: Trial) -> None:
    first, second = Media.objects.filter(trial=trial, kind="image")
    page = text(client, f"/trials/{trial.pk}/media")
    assert 'data-steps="1,5,7"' in page and f"/media/{second.pk}" in page and f"/media/{first.pk}" not in page
    assert 'width="112" height="80"' in page and 'loading="lazy"' in page
    assert f'alt="digits of trial {trial.pk} at step 5, image 1: &lt;script&gt;' in page
    assert page.count("&lt;script&gt;") >= 5 and HOSTILE not in page
    early = text(client, f"/trials/{trial.pk}/media?step=4&part=items")
    assert f"/media/{first.pk}" in early and "nothing yet at step 4" in early and "<html" not in early
    assert "digits" not in text(client, f"/trials/{trial.pk}/media?kind=table&part=items")
    refreshed = text(client, f"/trials/{trial.pk}/media?part=items&known=3-7")
    assert "data-steps" not in refreshed and "known" not in refreshed and "?kind=text" in refreshed
    assert 'data-steps="1,5,7"' in text(client, f"/trials/{trial.pk}/media?part=items&known=2-5")
    for odd in ("step=x", "step=99999999999999999999", "kind=x", "page=x", "page=99"):
        text(client, f"/trials/{trial.pk}/media?{odd}")


def test_trials_stand_side_by_side(client: Client, trial: Trial, member: Member) -> None:
    other = make_trial(make_gang()[0])
    Trial.objects.filter(pk=other.pk).update(experiment=trial.experiment, request_id="1" * 32)
    third = make_trial(make_gang()[0])  # of another experiment
    report(other, member, image(3))
    address = f"/experiments/{trial.experiment_id}/media"
    page = text(client, address)
    assert f'href="?trials={trial.pk}"' in page and f'href="?trials={other.pk}"' in page
    assert "--beside: 2" in page and 'data-steps="1,3,5,7"' in page
    alone = text(client, f"{address}?trials={other.pk},{third.pk},x&part=items")
    assert 'data-steps="3"' in alone and "--beside: 1" in alone
    assert f'href="?trials={other.pk},{trial.pk}"' in alone.replace("%2C", ",")


@pytest.mark.django_db(transaction=True)  # a thread of its own reads
def test_a_file_is_served_as_what_it_is_and_cannot_act(client: Client, trial: Trial) -> None:
    rows = client.get(f"/api/v1/trials/{trial.pk}/media?kind=image&step=5").json()
    (row,) = rows["media"]
    assert (row["name"], row["step"], row["width"], row["type"]) == ("digits", 5, 7, "gif")
    assert rows["pagination"]["total"] == 1
    answer = client.get(f"/api/v1/trials/{trial.pk}/media/{row['id']}")
    assert (answer.content, answer["Content-Type"]) == (GIF, "image/gif")
    assert answer["X-Content-Type-Options"] == "nosniff" and "sandbox" in answer["Content-Security-Policy"]
    said = Media.objects.get(trial=trial, kind="text")
    answer = client.get(f"/api/v1/trials/{trial.pk}/media/{said.pk}")
    assert answer.json() == {"text": HOSTILE} and answer["Content-Type"] == "application/json"
    assert client.get(f"/api/v1/trials/{trial.pk + 1}/media/{said.pk}").status_code == 404
    assert client.get(f"/api/v1/trials/{trial.pk}/media/{said.pk + 1000}").status_code == 404

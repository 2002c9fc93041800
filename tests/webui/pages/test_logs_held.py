"""The page of usage says what logs hold, and a log how long it is kept."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import User
from jobs.models import Task
from jobs.states import TaskState
from logs import retention, store
from logs.lines import NewLine, blocks_of
from tests.rig.rows import make_gang
from tests.rig.world import make_user, submit_experiment, trial_of
from webui.templatetags.log_kept import log_kept

pytestmark = pytest.mark.django_db


def meter() -> str:
    client = Client()
    client.force_login(make_user("ada", User.Role.VIEWER))
    text = re.sub("<[^>]*>", "", client.get("/usage/logs").content.decode())
    return re.sub(r"\s+", " ", text)


def test_the_meter_counts_what_logs_hold_and_what_goes_next(settings: Any) -> None:
    assert "No job has written a log yet." in meter()
    member = make_gang()[0]
    task = member.allocation.task_id
    lines = [NewLine(1.0, 0, "stdout", None, f"line {n}") for n in range(1500)]
    store.append(task, member, member.host.name, blocks_of(lines))
    assert "1,500 lines of 1 log hold" in meter()
    assert "They are kept forever unless" in meter() and "the next cleanup removes nothing." in meter()
    Task.objects.filter(pk=task).update(state=TaskState.ENDED, ended_at=timezone.now() - timedelta(days=9))
    settings.LOG_RETENTION_DAYS = 7
    assert "kept for 7 days after the end" in meter() and "the next cleanup removes 1 log," in meter()


def test_a_log_says_how_long_it_is_kept(settings: Any) -> None:
    task = make_gang()[0].allocation.task_id
    assert log_kept(task) == "kept forever"
    settings.LOG_RETENTION_DAYS = 30
    assert log_kept(task) == "kept for 30 days after the end"
    retention.keep(task, 0, actor="user:ada")
    assert log_kept(task) == "removed when the job has ended"
    Task.objects.filter(pk=task).update(state=TaskState.ENDED, ended_at=timezone.now() - timedelta(days=9))
    assert log_kept(task) == "removed at the next cleanup"
    retention.keep(task, 10, actor="user:ada")
    assert log_kept(task) == "removed in 1 day"


def test_its_owner_says_beside_a_log_how_long_it_is_kept() -> None:
    trial = trial_of(submit_experiment(owner=make_user("ada")))
    page, keep = f"/trials/{trial.pk}/logs", f"/tasks/{trial.task_id}/log/keep"
    stranger, owner = Client(), Client()
    stranger.force_login(make_user("eve"))
    owner.force_login(trial.experiment.owner)
    refused = stranger.post(keep, {"days": "7"}, follow=True).content.decode()
    assert f"experiment {trial.experiment_id} belongs to ada; only its owner or an admin" in refused
    for days, shown in (("30", "30 days after the end"), ("-1", "forever"), ("", "as configured")):
        text = owner.post(keep, {"days": days}, follow=True).content.decode()
        assert f'<option value="{days}" selected>{shown}</option>' in text
    retention.keep(trial.task_id, 45, actor="user:ada")
    assert '<option value="45" selected>45 days after the end</option>' in owner.get(page).content.decode()
    for wrong in ("-2", "32768", "soon"):
        assert (
            f"Found: &#x27;{wrong}&#x27;." in owner.post(keep, {"days": wrong}, follow=True).content.decode()
        )
    assert owner.post("/tasks/none/log/keep", {"days": "7"}).status_code == 404

"""Event rows go after their time, and none that living work or a notification still needs."""

from datetime import timedelta

import pytest
from django.conf import LazySettings
from django.utils import timezone

from dispatch import tasks
from dispatch.keeping import event_retention
from events.models import Event
from experiments import transitions as experiments
from experiments.models import Experiment
from notifications import outbox
from notifications.models import Cursor
from tests.rig.world import make_host, submit_experiment

pytestmark = [pytest.mark.django_db, pytest.mark.survive(33)]


@pytest.fixture
def ended() -> Experiment:
    """One that has ended, a year and a day ago, as all that has happened so far; notifications have passed it."""
    make_host("gpu1", 1)
    experiment = submit_experiment()
    experiments.kill(experiment.pk, actor="user:ada")
    outbox.look(timezone.now())
    grow_old()
    return experiment


def grow_old() -> None:
    Event.objects.update(at=timezone.now() - timedelta(days=366))
    Cursor.objects.update(done=Event.objects.latest("pk").pk)


def test_old_rows_of_ended_work_go_with_the_garbage(ended: Experiment) -> None:
    submit_experiment()
    new = set(Event.objects.filter(at__gt=timezone.now() - timedelta(days=1)).values_list("pk", flat=True))
    Cursor.objects.update(done=max(new))
    assert new and Event.objects.filter(experiment_id=ended.pk).exists()
    tasks.collect_garbage()
    assert set(Event.objects.values_list("pk", flat=True)) == new
    assert event_retention.remove_old(timezone.now()) == 0


def test_rows_of_living_work_stay_however_old_they_are(ended: Experiment) -> None:
    living = submit_experiment()
    experiments.pause(living.pk, actor="user:ada")
    grow_old()
    event_retention.remove_old(timezone.now())
    assert not Event.objects.filter(experiment_id=ended.pk).exists()
    for one in (
        Event.objects.filter(experiment_id=living.pk),
        Event.objects.filter(job_id=living.job_id, kind=Event.Kind.JOB),
        Event.objects.filter(job_id=living.job_id, kind=Event.Kind.TASK),
    ):
        assert one.exists()


def test_what_notifications_have_not_passed_stays(ended: Experiment) -> None:
    first = Event.objects.earliest("pk")
    Cursor.objects.update(done=first.pk)
    assert event_retention.remove_old(timezone.now()) == 1
    assert not Event.objects.filter(pk=first.pk).exists()


def test_a_round_is_bounded_and_the_next_goes_on(ended: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_retention, "ROWS_PER_ROUND", 2)
    assert event_retention.remove_old(timezone.now()) == 2
    assert event_retention.remove_old(timezone.now()) == 2


def test_they_may_be_kept_for_ever(ended: Experiment, settings: LazySettings) -> None:
    settings.EVENT_RETENTION_DAYS = -1
    assert event_retention.remove_old(timezone.now()) == 0

"""What training code wants people to hear stands in the log and the timeline of its trial."""

from pathlib import Path

import pytest

from events.models import Event
from experiments import reports
from logs import alerts
from logs.levels import Level
from logs.sentences import sentence
from shown import timeline
from tests.rig.rows import make_gang
from tests.trainmaster.made_run import make_run, records
from tests.webui.runner_api.test_checkpoints import make_trial
from trainmaster import core

pytestmark = pytest.mark.django_db


def test_an_alert_is_a_line_of_the_log_and_of_the_timeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path / "run")
    monkeypatch.setenv("TRAINMASTER_RUN_DIR", str(folder))
    with core.init() as context:
        context.alert("The loss is NaN", "since\nstep 7", "warn")
        with pytest.raises(ValueError, match="debug, info, warn, error"):
            context.alert("x", level="loud")
    (said,) = [each for each in records(folder) if each["type"] == "alert"]
    member = make_gang()[0]
    trial = make_trial(member)
    reports.apply(trial.experiment, trial, member, said)
    event = Event.objects.get(reason=alerts.REASON)
    words = "Alert: The loss is NaN: since step 7"
    assert sentence(event) == (Level.WARNING, words)
    (entry,) = timeline.of_experiment(trial.experiment_id, {})
    assert entry.sentence == f"Trial {trial.pk}: {words}"


def test_a_loop_of_alerts_does_not_fill_the_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "PER_TRIAL", 3)
    for number in range(9):
        alerts.raised(1, "task", 1, {"title": f"{number}" * 9999, "level": "unheard of"})
    assert Event.objects.filter(reason=alerts.REASON).count() == 3
    found = alerts.alert_of(Event.objects.filter(reason=alerts.REASON)[0])
    assert found == alerts.Alert(Level.INFO, "0" * alerts.TITLE_CHARACTERS, "")

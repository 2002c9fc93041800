"""The overview of an experiment: its trials sorted, cut into pages, and how its best validation has become better."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from dispatch.passes import pool_pass
from dispatch.runs import settle
from experiments import transitions as experiment_ends
from experiments.models import Experiment, Trial
from hosts.models import Host
from jobs import transitions
from jobs.models import Allocation, Task
from jobs.states import AllocationState
from metrics import best_so_far, ingest
from tests.rig.html import Html
from tests.rig.world import make_host, make_user, members_of, submit_experiment, trial_of

pytestmark = pytest.mark.django_db
AT = 1_790_000_000.0


@pytest.fixture
def client() -> Client:
    make_host("gpu1", slots=2)
    client = Client()
    client.force_login(make_user())
    return client


def test_what_waits_leads_to_its_reasons_and_to_its_priority(client: Client) -> None:
    submit_experiment(slots=2)
    waits = submit_experiment(slots=2)
    pool_pass.run(waits.job.pool_id)
    page = client.get(f"/experiments/{waits.pk}").content.decode()
    why = f'<a href="/jobs/job/{waits.job_id}">why</a>'
    assert why in page and why in client.get(f"/trials/{trial_of(waits).pk}").content.decode()
    change = f'href="/jobs/manage/{waits.job_id}?back=/experiments/{waits.pk}"'
    assert change in page
    experiment_ends.kill(waits.pk, actor="user:ada")
    page = client.get(f"/experiments/{waits.pk}").content.decode()
    assert why not in page and change not in page and "priority 42" in page


def test_the_trials_of_a_search_lead_to_their_charts(client: Client) -> None:
    experiment, trials = sweep([3.0, 2.0], [4.0])
    charts = f"/compare?experiments={experiment.pk}"
    assert f'href="{charts}"' in client.get(f"/experiments/{experiment.pk}").content.decode()
    assert all(f"/trials/{pk}" in client.get(charts).content.decode() for pk in trials)


def sweep(*curves: list[float]) -> tuple[Experiment, list[int]]:
    """An experiment and its trials; each value is a validation, 10 steps and a minute after the one before."""
    experiment = submit_experiment(name="sweep")
    first, trials = trial_of(experiment), []
    for number, values in enumerate(curves):
        trial = first if number == 0 else Trial.objects.create(
            experiment=experiment, seed=1,
            task=Task.objects.create(
                id=f"sweep-{number}", job=experiment.job, kind="TRIAL", name="t", slots=1, state="PAUSED"
            ),
        )  # fmt: skip
        rows = [
            ingest.Report(1, "validation", 10 * n, AT + 60 * n + number, {"loss": value})
            for n, value in enumerate(values, start=1)
        ]
        ingest.store(trial.pk, rows)
        finite = [value for value in values if value == value]
        Trial.objects.filter(pk=trial.pk).update(
            steps_completed=10 * len(values),
            best_validation={"searcher_metric": min(finite)} if finite else None,
            latest_validation={"searcher_metric": values[-1] if finite else None},
        )
        trials.append(trial.pk)
    return experiment, trials


def order(client: Client, address: str) -> list[int]:
    answer = client.get(address)
    assert answer.status_code == 200
    return [int(found) for found in re.findall(r'id="trial-(\d+)"', Html(answer.content))]


def test_the_table_of_trials_is_sorted_by_its_address(client: Client) -> None:
    experiment, (a, b, c) = sweep([0.5, 0.4], [0.6, 0.1, 10.0], [float("nan")])
    Trial.objects.filter(pk=c).update(progress=0.5)
    at = f"/experiments/{experiment.pk}"
    assert order(client, at) == [a, b, c]
    assert order(client, f"{at}?sort=best") == [b, a, c], "without a value last"
    assert order(client, f"{at}?sort=-best") == [a, b, c]
    assert order(client, f"{at}?sort=latest&part=trials") == [a, b, c], "by number, not by letters"
    assert order(client, f"{at}?sort=-progress")[0] == c and order(client, f"{at}?sort=-steps")[0] == b
    assert order(client, f"{at}?sort=nonsense&page=99") == [a, b, c]
    page = Html(client.get(f"{at}?sort=best").content)
    assert 'number" aria-sort="ascending"><a id="head-best" href="?sort=-best">Best ↑</a>' in page
    assert 'hx-get="?sort=best&amp;part=trials"' in page or 'hx-get="?part=trials&amp;sort=best"' in page


def test_an_experiment_of_one_trial_shows_its_curves(client: Client) -> None:
    experiment, (only,) = sweep([0.5])
    page = Html(client.get(f"/experiments/{experiment.pk}").content)
    assert f'data-figures="/trials/{only}/chart"' in page and 'id="compare"' not in page


def figures(client: Client, experiment: Experiment) -> list[dict[str, Any]]:
    answer = client.get(f"/experiments/{experiment.pk}/chart")
    assert answer.status_code == 200
    found: list[dict[str, Any]] = answer.json()["figures"]
    return found


def test_the_best_so_far_is_that_of_all_trials_in_the_order_of_time(client: Client) -> None:
    nan = float("nan")
    experiment, (a, b) = sweep([0.5, 0.4, 0.3], [0.6, nan, 0.35, 0.1])
    over_time, by_step = figures(client, experiment)
    best = over_time["data"][0]
    assert over_time["name"] == "best loss so far"
    assert best["y"] == [0.5, 0.4, 0.3, 0.1, 0.1] and best["line"]["shape"] == "hv"
    assert best["text"] == [
        f"trial {a} at step 10", f"trial {a} at step 20", f"trial {a} at step 30", f"trial {b} at step 40",
        f"still trial {b}",
    ]  # fmt: skip
    assert over_time["layout"]["xaxis"]["title"]["text"].startswith("time since submission (")
    names = [trace["name"] for trace in by_step["data"]]
    assert names == [f"trial {a}", f"trial {b} (best)", "best"]
    assert (by_step["data"][2]["x"], by_step["data"][2]["y"]) == ([40], [0.1])
    assert by_step["data"][1]["y"] == [0.6, None, 0.35, 0.1], "a gap stays a gap"

    searcher = {**experiment.config["searcher"], "smaller_is_better": False}
    Experiment.objects.filter(pk=experiment.pk).update(config={**experiment.config, "searcher": searcher})
    over_time, by_step = figures(client, experiment)
    assert over_time["data"][0]["y"] == [0.5, 0.6, 0.6]
    assert by_step["data"][1]["name"] == f"trial {b} (best)"


def test_without_validations_there_is_no_figure_and_of_many_trials_the_best_are_drawn(client: Client) -> None:
    experiment, _ = sweep([float("nan")])
    assert figures(client, experiment) == []
    many, trials = sweep(*([1.0 + number] for number in range(25)))
    by_step = figures(client, many)[1]
    assert by_step["name"] == f"loss of the best {best_so_far.MOST_TRIALS} trials"
    drawn = {trace["name"].removesuffix(" (best)") for trace in by_step["data"]}
    assert drawn == {"best", *(f"trial {pk}" for pk in trials[: best_so_far.MOST_TRIALS])}


def test_files_for_tensorboard_are_offered_once_any_metric_was_reported(client: Client) -> None:
    experiment = submit_experiment(name="training alone")
    trial, at = trial_of(experiment), f"/experiments/{experiment.pk}"
    assert "Download event files" not in Html(client.get(at).content)
    summary = {"training": {"accuracy": {"count": 1, "last": 0.5, "type": "number"}}}
    Trial.objects.filter(pk=trial.pk).update(summary_metrics=summary)
    assert "Download event files" in Html(client.get(at).content)


def test_the_duration_says_how_long_several_attempts_ran(client: Client) -> None:
    experiment = submit_experiment(name="continued")
    task, now = Trial.objects.get(pk=trial_of(experiment).pk).task, timezone.now()
    for number, (begin, end) in enumerate([(600, 480), (180, 120)], start=1):
        Allocation.objects.create(
            id=f"{task.pk}.{number}", task=task, number=number, pool=experiment.job.pool, slots=1,
            state=AllocationState.TERMINATED,
            started_at=now - timedelta(minutes=begin), ended_at=now - timedelta(minutes=end),
        )  # fmt: skip
    said = Html(client.get(f"/experiments/{experiment.pk}").content)
    assert '3 h <span class="hint">in 2 attempts</span>' in said


def test_a_failed_experiment_shows_how_its_first_failed_trial_ended(client: Client) -> None:
    experiment = submit_experiment(name="broken", max_restarts=0)
    at, trial = f"/experiments/{experiment.pk}", trial_of(experiment)
    pool_pass.run(experiment.job.pool_id)
    [member] = members_of(experiment)
    transitions.member_launched(member.pk, boot_id="boot")
    transitions.member_running(member.pk)
    assert "Why it stopped" not in Html(client.get(at).content)
    settle.member_exited(member.pk, code=2, signal=None, ended_at=None, first_failure=None, oom_kills=None)
    said = Html(client.get(at).content)
    assert "Why it stopped" in said and "It failed on gpu1: exit code 2" in said
    assert "No metric has been reported." in said and "trials failed" not in said
    assert "Why it stopped" not in Html(client.get(f"{at}/timeline").content)

    task = Task.objects.create(id="other", job=experiment.job, kind="TRIAL", name="t", slots=1, state="ENDED")
    Trial.objects.create(experiment=experiment, seed=1, task=task, state="COMPLETED")
    said = Html(client.get(at).content)
    assert f'1 of 2 trials failed. The first was <a href="/trials/{trial.pk}">' in said


def test_what_to_type_stands_as_code_wherever_it_is_said_why_a_job_waits(client: Client) -> None:
    Host.objects.all().delete()
    experiment = submit_experiment()
    pool_pass.run(experiment.job.pool_id)
    at = experiment.pk
    for address in (f"/experiments/{at}", "/experiments", f"/trials/{trial_of(experiment).pk}", "/jobs"):
        page = Html(client.get(address).content)
        assert "has no hosts yet: add one with <code>trainmaster host add</code>" in page, address

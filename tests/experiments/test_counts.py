"""The counts that are kept are those of the rows, after every kind of change, folded or not."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from dispatch.keeping import deletion
from experiments import counts, detached, edits, places, templates, transitions
from experiments.filters import ExperimentFilters
from experiments.models import Experiment, ExperimentCount, LabelCount, Trial, Workspace
from shown.experiments import with_numbers
from tests.rig.world import make_project, make_user, submit_experiment
from webui.api import experiment_filters

pytestmark = pytest.mark.django_db


def kept() -> tuple[Counter[tuple[object, ...]], Counter[int], Counter[tuple[str, int]]]:
    """Experiments by all columns, trials by project, labels: the sums of the rows, without those that are 0."""
    experiments: Counter[tuple[object, ...]] = Counter()
    trials: Counter[int] = Counter()
    labels: Counter[tuple[str, int]] = Counter()
    for row in ExperimentCount.objects.all():
        experiments[row.project_id, row.owner_id, row.state, row.archived, row.template_name] += (
            row.experiments
        )
        trials[row.project_id] += row.trials
    for one in LabelCount.objects.all():
        labels[one.label, one.project_id] += one.experiments
    assert min([*experiments.values(), *trials.values(), *labels.values()], default=0) >= 0
    return +experiments, +trials, +labels


def counted() -> tuple[Counter[tuple[object, ...]], Counter[int], Counter[tuple[str, int]]]:
    """The same, out of the experiments and trials themselves."""
    rows = list(Experiment.objects.all())
    return (
        Counter((row.project_id, row.owner_id, row.state, row.archived, row.template_name) for row in rows),
        Counter(Trial.objects.values_list("experiment__project_id", flat=True)),
        Counter((label, row.project_id) for row in rows for label in row.labels),
    )


def check() -> None:
    """As they stand, and after they were folded, which leaves one row for each sum."""
    assert kept() == counted()
    counts.fold()
    assert kept() == counted()
    columns = ("project_id", "owner_id", "state", "archived", "template_name")
    assert ExperimentCount.objects.count() == ExperimentCount.objects.values(*columns).distinct().count()
    assert LabelCount.objects.count() == len(kept()[2])


def test_submissions_and_changes_of_state_are_counted() -> None:
    mine, other = submit_experiment(name="mine"), submit_experiment(owner=make_user("bob"), activate=False)
    check()
    transitions.pause(mine.pk, actor="user:ada")
    transitions.activate(other.pk, actor="user:ada")
    check()
    transitions.kill(mine.pk, actor="user:ada")
    check()
    assert counts.by_state(make_project()) == {"CANCELED": 1, "ACTIVE": 1}
    assert {each.username for each in counts.owners()} == {"ada", "bob"}


def test_archived_moved_and_labeled_experiments_are_counted() -> None:
    experiment = submit_experiment()
    project = places.make_project(make_user(), Workspace.objects.get(pk=1), "vision", "", "")
    edits.edit(experiment.pk, labels=["base", "large"], actor="user:ada")
    check()
    edits.move(experiment.pk, project, actor="user:ada")
    check()
    [place] = places.projects_with_numbers().filter(pk=project.pk)
    assert (place.num_experiments, place.num_active, place.num_runs) == (1, 1, 1)
    assert place.last_started == experiment.started_at
    transitions.kill(experiment.pk, actor="user:ada")
    transitions.archive(experiment.pk, actor="user:ada")
    edits.edit(experiment.pk, labels=["large"], actor="user:ada")
    check()
    assert counts.total(ExperimentCount.objects.filter(archived=False)) == 0
    assert counts.labels(LabelCount.objects.filter(project=project)) == ["large"]
    transitions.unarchive(experiment.pk, actor="user:ada")
    check()


def test_a_project_that_moves_takes_its_numbers_along() -> None:
    user, home = make_user(), Workspace.objects.get(pk=1)
    project = places.make_project(user, home, "vision", "", "")
    edits.move(submit_experiment().pk, project, actor="user:ada")
    submit_experiment()
    team = places.make_workspace(user, "team")
    places.move(user, project, team)
    check()
    rows = places.workspaces_with_numbers().order_by("pk")
    numbers = {row.name: (row.num_projects, row.num_experiments) for row in rows}
    assert numbers == {"Uncategorized": (1, 1), "team": (1, 1)}


def test_a_renamed_template_keeps_its_count() -> None:
    templates.create("base", "max_restarts: 1\n", workspace=Workspace.objects.get(pk=1), user=make_user())
    experiment = submit_experiment()
    Experiment.objects.filter(pk=experiment.pk).update(template_name="base")
    check()
    templates.rename("base", "usual", user=make_user())
    check()
    assert (counts.by_template()["usual"], templates.uses("usual").get()) == (1, experiment)


def test_trials_of_detached_experiments_and_deletions_are_counted() -> None:
    experiment = submit_experiment()
    Experiment.objects.filter(pk=experiment.pk).update(unmanaged=True)
    locked = transitions.lock(experiment.pk)
    detached.create_trial(locked, {}, external_id=None, actor="user:ada")
    check()
    assert kept()[1] == {1: 2}
    Experiment.objects.filter(pk=experiment.pk).update(unmanaged=False)
    edits.edit(experiment.pk, labels=["base"], actor="user:ada")
    transitions.kill(experiment.pk, actor="user:ada")
    transitions.delete(experiment.pk, actor="user:ada")
    deletion.delete(experiment.pk)
    assert not Experiment.objects.exists()
    check()
    assert not ExperimentCount.objects.exists()
    assert not LabelCount.objects.exists()


def test_what_is_rolled_back_is_not_counted() -> None:
    submit_experiment()
    with pytest.raises(IntegrityError), transaction.atomic():
        submit_experiment()
        raise IntegrityError
    check()
    assert counts.total(ExperimentCount.objects.all()) == 1


@pytest.mark.django_db(transaction=True)
def test_two_changes_of_like_experiments_do_not_wait_for_each_other() -> None:
    first, second = submit_experiment(), submit_experiment()
    changed = threading.Event()

    def change() -> None:
        transitions.pause(second.pk, actor="user:ada")
        counts.fold()
        connection.close()
        changed.set()

    with transaction.atomic():
        transitions.lock(first.pk)
        Experiment.objects.filter(pk=first.pk).update(archived=True)
        threading.Thread(target=change).start()
        assert changed.wait(60)
    check()


@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"archived": False},
        {"archived": True, "states": ["STATE_CANCELED"]},
        {"states": ["STATE_ACTIVE", "STATE_CANCELED", "STATE_DELETED"]},
        {"users": ["ada"]},
        {"users": ["nobody"]},
        {"userIds": [0], "projectId": 1},
        {"projectId": 2},
    ],
)
def test_the_total_of_a_page_is_what_a_count_would_say(filters: dict[str, Any]) -> None:
    ended = submit_experiment()
    submit_experiment(owner=make_user("bob"), activate=False)
    transitions.kill(ended.pk, actor="user:ada")
    transitions.archive(ended.pk, actor="user:ada")
    asked = experiment_filters.filters_of(filters)
    assert experiment_filters.total(asked, {}) == asked.of(with_numbers()).count()


def test_the_total_is_counted_where_no_sum_is_kept() -> None:
    for filters in ({"name": "x"}, {"labels": ["x"]}, {"states": ["STATE_QUEUED"]}, {"ids": [1]}):
        assert experiment_filters.total(experiment_filters.filters_of(filters), {}) is None
    assert experiment_filters.total(ExperimentFilters(), {"experimentIdFilter.gt": "5"}) is None

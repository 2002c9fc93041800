"""What leaves first hears of it, then saves, then is gone: one word for all who say it."""

import pytest
from django.test import Client

from dispatch.passes import pool_pass
from experiments import transitions as experiments
from hosts.pools import default_pool
from jobs import phases, transitions
from jobs.models import Allocation
from jobs.states import AllocationState, Reason, StopKind
from tests.rig.world import attempt_of, make_host, members_of, submit_experiment


@pytest.mark.parametrize(
    ("kind", "reason", "acknowledged", "word"),
    [
        (StopKind.PREEMPT, Reason.PREEMPTED, False, "pausing"),
        (StopKind.PREEMPT, Reason.PREEMPTED, True, "saving"),
        (StopKind.PREEMPT, Reason.CANCELED_BY_USER, False, "canceling"),
        (StopKind.PREEMPT, Reason.TIME_LIMIT, False, "stopping"),
        (StopKind.PREEMPT, Reason.TIME_LIMIT, True, "saving"),
        (StopKind.STOP, Reason.PAUSED_BY_USER, True, "stopping"),
        (StopKind.STOP, Reason.KILLED_BY_USER, False, "killing"),
        (StopKind.NONE, "", False, "ending"),
    ],
)
def test_each_way_to_leave_has_its_word(kind: StopKind, reason: str, acknowledged: bool, word: str) -> None:
    assert phases.leaving(kind, reason, acknowledged) == word


def test_several_runs_have_the_word_of_those_that_stay_else_one_for_all() -> None:
    stays, starts = (Allocation(state=state) for state in (AllocationState.RUNNING, AllocationState.ASSIGNED))
    pauses = Allocation(state="TERMINATING", stop_kind="PREEMPT", stop_reason="preempted")
    killed = Allocation(state="TERMINATING", stop_kind="STOP", stop_reason="killed_by_user")
    assert phases.of_runs([pauses, starts]) == "STARTING"
    assert phases.of_runs([pauses, starts, stays]) == "RUNNING"
    assert phases.of_runs([pauses, pauses]) == "PAUSING"
    assert phases.of_runs([pauses, killed]) == "STOPPING"


@pytest.mark.django_db
def test_board_dialog_and_rest_say_the_same(client: Client) -> None:
    make_host("gpu1", 1)
    experiment = submit_experiment()
    client.force_login(experiment.owner)
    pool_pass.run(default_pool().pk)
    for member in members_of(experiment):
        transitions.member_launched(member.pk, boot_id="b")
        transitions.member_running(member.pk)

    def said(word: str) -> bool:
        job = client.get(f"/api/v1/jobs/{experiment.job_id}/explain").json()
        pages = [client.get(path).content.decode() for path in ("/jobs", f"/jobs/manage/{experiment.job_id}")]
        return job["leaving"] == word.lower() and all(f"{word}<" in page for page in pages)

    experiments.pause(experiment.pk, actor="user:ada")
    assert said("Pausing")
    transitions.preempt_acknowledged(attempt_of(experiment).pk)
    assert said("Saving")

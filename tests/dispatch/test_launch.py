"""Launches whose outcome is not known: nothing is taken for dead that may run, nothing waits that cannot."""

import pytest
from django.conf import LazySettings

from dispatch import launch, passes, reconcile
from dispatch.contact_errors import Unreachable, VerbFailed
from experiments import transitions as experiments
from jobs import transitions
from jobs.models import Member, SlotHold
from jobs.states import MemberState
from tests.rig.world import make_host, members_of, submit_experiment

pytestmark = pytest.mark.django_db


def assigned() -> Member:
    make_host("gpu0", 1)
    experiment = submit_experiment()
    passes.run(experiment.job.pool_id)
    (member,) = members_of(experiment)
    return Member.objects.select_related("host", "allocation__task__job").get(pk=member.pk)


def attempted(member: Member, error: Unreachable | VerbFailed) -> Member:
    """One attempt to launch that ended with `error`."""
    Member.objects.filter(pk=member.pk).update(launch_claimed_until=None)
    assert transitions.claim_launch(member.pk, 60)
    member.refresh_from_db()
    doubt = member.launch_in_doubt
    transitions.note_launch_sent(member.pk)
    member.launch_in_doubt = doubt
    launch._failed(member, error)
    member.refresh_from_db()
    return member


@pytest.mark.survive(20)
def test_a_launch_whose_answer_was_lost_ends_by_the_hosts_word_alone(settings: LazySettings) -> None:
    member = attempted(assigned(), Unreachable("The link broke.", delivered=True))
    for _ in range(settings.LAUNCH_ATTEMPTS + 1):
        member = attempted(member, Unreachable("No route to host."))
    assert member.state == MemberState.ASSIGNED and member.launch_in_doubt
    assert SlotHold.objects.filter(released_at=None).exists(), "it may run there: its slots stay its own"
    reconcile._settle(member, {"state": "running"}, "boot", None)
    member.refresh_from_db()
    assert member.state == MemberState.LAUNCHED


def test_a_launch_that_never_arrived_is_given_up_after_its_attempts(settings: LazySettings) -> None:
    member = assigned()
    for _ in range(settings.LAUNCH_ATTEMPTS):
        member = attempted(member, Unreachable("No route to host."))
    assert member.state == MemberState.ENDED


def test_a_host_that_says_no_settles_the_doubt() -> None:
    member = attempted(assigned(), Unreachable("The link broke.", delivered=True))
    member = attempted(member, VerbFailed("disk", "The disk is full."))
    assert member.state == MemberState.ENDED


def test_a_stop_ends_what_was_never_launched_even_if_its_message_was_lost() -> None:
    member = attempted(assigned(), Unreachable("No route to host."))
    experiments.kill(int(member.allocation.task.job.entity_id), actor="user:ada")
    Member.objects.filter(pk=member.pk).update(launch_claimed_until=None)
    member.refresh_from_db()
    assert transitions.ask_for_launches_again(0.0) == 1
    launch.launch(member.pk)
    member.refresh_from_db()
    assert member.state == MemberState.ENDED


def test_a_host_that_cannot_look_at_one_run_settles_nothing_of_it() -> None:
    member = assigned()
    transitions.member_launched(member.pk, boot_id="boot")
    member.refresh_from_db()
    reconcile._settle(member, {"error": "account", "message": "It broke off."}, "boot", None)
    member.refresh_from_db()
    assert member.state == MemberState.LAUNCHED


def test_an_answer_that_is_older_than_the_last_launch_ends_nothing(settings: LazySettings) -> None:
    member = assigned()
    for _ in range(settings.LAUNCH_ATTEMPTS):
        member = attempted(member, Unreachable("The link broke.", delivered=True))
    Member.objects.filter(pk=member.pk).update(launch_claimed_until=None)
    seen = Member.objects.select_related("host", "allocation__task__job").get(pk=member.pk)
    assert transitions.claim_launch(member.pk, 60)  # a worker launches while the host is asked
    transitions.member_launched(member.pk, boot_id="boot")
    reconcile._settle(seen, {"state": "absent"}, "boot", None)
    member.refresh_from_db()
    assert member.state == MemberState.LAUNCHED


def test_a_host_that_knows_nothing_after_the_last_attempt_ends_the_launch(settings: LazySettings) -> None:
    member = assigned()
    for _ in range(settings.LAUNCH_ATTEMPTS):
        member = attempted(member, Unreachable("The link broke.", delivered=True))
    Member.objects.filter(pk=member.pk).update(launch_claimed_until=None)
    seen = Member.objects.select_related("host", "allocation__task__job").get(pk=member.pk)
    reconcile._settle(seen, {"state": "absent"}, "boot", None)
    member.refresh_from_db()
    assert member.state == MemberState.ENDED

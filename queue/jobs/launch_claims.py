"""Who launches a member, until when, and what came of it; part of `jobs.transitions`.

All times are the database's.
"""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from events.announce import wake_all
from jobs.models import Member
from jobs.states import MemberState

#: no worker is launching it
_UNCLAIMED = Q(launch_claimed_until=None) | Q(launch_claimed_until__lt=Now())


@transaction.atomic
def claim_launch(member_id: int, seconds: float) -> bool:
    """Take the launch of a member for some seconds, so that a redelivered message does nothing."""
    return bool(
        Member.objects.filter(_UNCLAIMED, pk=member_id, state=MemberState.ASSIGNED).update(
            launch_claimed_until=Now() + timedelta(seconds=seconds),
            launch_attempts=F("launch_attempts") + 1,
            launch_crashes=F("launch_crashes") + 1,
        )
    )


@transaction.atomic
def ask_for_launches_again(after_seconds: float) -> int:
    """Send a message for each member that nobody launches although one was sent so long ago; the number of them.

    Not in every sweep: where workers are behind, messages that are sent again and again would put them further behind.
    """
    asked = Q(launch_asked_at__gt=Now() - timedelta(seconds=after_seconds), launch_asked_at__lte=Now())
    due = Member.objects.filter(_UNCLAIMED, state=MemberState.ASSIGNED).exclude(asked)
    ids = list(due.select_for_update(no_key=True, skip_locked=True).values_list("pk", flat=True))
    Member.objects.filter(pk__in=ids).update(launch_asked_at=Now())
    wake_all("dispatch.tasks.launch", [(pk,) for pk in ids])
    return len(ids)


def note_launch_sent(member_id: int) -> bool:
    """From now on until an answer comes nobody but the host knows whether the run was started. False: it is over."""
    return bool(Member.objects.filter(pk=member_id, state=MemberState.ASSIGNED).update(launch_in_doubt=True))


def note_launch_error(member_id: int, sentence: str, retry_seconds: float, *, in_doubt: bool) -> None:
    """Keep the sentence for the pages and free the claim in `retry_seconds`."""
    Member.objects.filter(pk=member_id, state=MemberState.ASSIGNED).update(
        last_error=sentence,
        launch_claimed_until=Now() + timedelta(seconds=retry_seconds),
        launch_in_doubt=in_doubt,
        launch_crashes=0,
    )


def note_launch_awaited(member_id: int, sentence: str, look_again_seconds: float) -> None:
    """The claim was only used to ask the host about a launch in doubt: that was no attempt."""
    Member.objects.filter(pk=member_id, state=MemberState.ASSIGNED, launch_attempts__gt=0).update(
        last_error=sentence,
        launch_claimed_until=Now() + timedelta(seconds=look_again_seconds),
        launch_attempts=F("launch_attempts") - 1,
        launch_crashes=0,
    )

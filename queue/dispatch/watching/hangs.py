"""Looks at trainings that make no progress: asks all their ranks what they do, twice, and acts by the rule.

That an attempt stands still is concluded only from what its hosts said within the last seconds, all of them. Nothing is
ended that has ever been seen to move between the looks, or that may be at work in a way that nobody can see: see
`logs.hangs.verdict.may_be_ended`. Everything found is told once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from dispatch.ssh import remote
from dispatch.ssh.threads import ask_all
from events.announce import announce, wake
from experiments.models import Trial
from experiments.transitions import lock
from hosts.models import HangAction, Host
from jobs import transitions
from jobs.models import Allocation, Member, Task
from jobs.states import AllocationState, JobState, MemberState, Reason, StopKind
from logs import pulse
from logs.hangs import collectives, evidence, rows, standing, verdict
from logs.hangs.evidence import Told
from logs.hangs.verdict import Verdict
from logs.models import Hang, MemberPulse
from logs.pulse_marks import Seen, marks

LOOK = "dispatch.tasks.look_at_hang"
#: The verb `stack` ends by itself after about 14 s at most.
_TIMEOUT_SECONDS = 18.0
_HOSTS_AT_ONCE = 8
#: Looks that disagree are repeated after this, doubled each time: each interrupts the ranks for a moment.
_AGAIN_SECONDS = 60.0
_MOST_DOUBLED = 6


@dataclass(frozen=True)
class Rule:
    """`after_seconds` is None where nobody wants to know."""

    after_seconds: float | None
    do: HangAction


@dataclass
class Standing:
    """A running attempt, as its hosts told of it just now. `is_whole`: all of them did."""

    rule: Rule
    ranks: list[Seen] = field(default_factory=list)
    is_whole: bool = True

    @property
    def stood_seconds(self) -> float | None:
        """How long it has made no progress, if that is long enough to look at it."""
        if not self.is_whole or self.rule.after_seconds is None:
            return None
        return standing.stood_for(self.ranks, self.rule.after_seconds)


def watch(now: datetime) -> None:
    """Have those looked at that stand still and are due; close the rows of those that move again or have ended."""
    running = _running(now)
    still = {key: stood for key, each in running.items() if (stood := each.stood_seconds) is not None}
    open_rows = {row.allocation_id: row for row in Hang.objects.filter(over_at=None).defer("evidence")}
    # of whom not all hosts were heard, nothing is known either way
    rows.end([key for key in open_rows if key not in still and (key not in running or running[key].is_whole)])
    for key, stood in still.items():
        if _is_due(open_rows.get(key) or rows.begin(key, stood), now):
            wake(LOOK, key)


def _is_due(row: Hang, now: datetime) -> bool:
    if row.told_at is not None:
        return False
    if row.looked_at is None:
        return True
    pauses = verdict.APART_SECONDS if row.looks == 1 else _AGAIN_SECONDS * 2 ** min(row.looks, _MOST_DOUBLED)
    return now - row.looked_at >= timedelta(seconds=pauses)


def _running(now: datetime, **only: Any) -> dict[str, Standing]:
    """Attempts of trials that run and were told nothing else, by id. Commands and services have no rule."""
    found: dict[str, Standing] = {}
    for row in _members(**only):
        key, state, at = row["allocation_id"], row["state"], row["pulse__at"]
        each = found.setdefault(key, Standing(_rule(row)))
        age = (now - at).total_seconds() if at else None
        seen = None if age is None else pulse.seen_by(row["pulse__ranks"], row["host__name"], age)
        if seen is not None:
            each.ranks += seen
        elif state != MemberState.ENDED:
            each.is_whole = False
    return found


def _members(**only: Any) -> Iterable[Any]:
    return Member.objects.filter(
        allocation__state=AllocationState.RUNNING,
        allocation__stop_kind=StopKind.NONE,
        allocation__task__kind=Task.Kind.TRIAL,
        allocation__task__job__state=JobState.ACTIVE,
        host__in=Host.objects.all(),  # not the machines of detached runs
        **only,
    ).values(
        "allocation_id", "state", "host__name", "pulse__at", "pulse__ranks", "allocation__pool__hang_after_seconds",
        "allocation__pool__hang_do", "allocation__task__trial__experiment__config__hang",
    )  # fmt: skip


def _rule(row: dict[str, Any]) -> Rule:
    """The config's, and where it is silent the pool's."""
    own = row["allocation__task__trial__experiment__config__hang"] or {}
    after = own.get("after") or row["allocation__pool__hang_after_seconds"]
    return Rule(after, HangAction(own.get("do") or row["allocation__pool__hang_do"]))


def look(allocation_id: str) -> None:
    """One look at an attempt that stands still, and what follows from two."""
    row = Hang.objects.filter(allocation_id=allocation_id, over_at=None, told_at=None).first()
    if row is None or not _is_due(row, timezone.now()) or not rows.claim(row):
        return
    before, begun, earlier = evidence.of_kept(row.evidence), row.looked_at, _verdict_of(row)
    gang, seen = _ask(allocation_id)
    found = verdict.judge(gang, marks(seen))
    looked_at = rows.keep_look(row, gang, found)
    if found is not None and begun is not None and verdict.confirmed(earlier, found):
        apart = (looked_at - begun).total_seconds()
        now = evidence.of_kept(row.evidence)  # cut like what it is compared with
        _conclude(row, found, is_proved=verdict.may_be_ended(found, before, now, apart), gang=gang)


def _verdict_of(row: Hang) -> Verdict | None:
    return Verdict(row.kind, tuple(row.ranks), row.sentence, row.collective) if row.kind else None


def _ask(allocation_id: str) -> tuple[list[Told], list[Seen]]:
    """What all ranks do now, and their pulse."""
    members = list(
        Member.objects.filter(allocation=allocation_id)
        .exclude(state=MemberState.ENDED)
        .select_related("host", "allocation")
    )
    pulses = MemberPulse.objects.filter(member__allocation=allocation_id)
    known = pulses.values_list("member__host__name", "ranks")
    seen = [each for host, ranks in known for each in pulse.seen_by(ranks, host, 0.0) or ()]
    told: dict[int, Told] = {each.rank: Told(each.rank, each.host, state=each.state) for each in seen}
    for answers in ask_all(_ask_one, members, _HOSTS_AT_ONCE):
        told.update(answers)
    return [told[rank] for rank in sorted(told)][: pulse.RANKS_MAX], seen


def _ask_one(member: Member) -> dict[int, Told]:
    question = {"runs": {member.run_key: {"ranks": None, "collectives": True}}}
    try:
        said = remote.verb(member.host, "stack", question, timeout_seconds=_TIMEOUT_SECONDS)
    except remote.RemoteError:
        return {}
    ranks = said.get("runs", {}).get(member.run_key, {}).get("ranks")
    if not isinstance(ranks, dict):
        return {}
    return {
        int(rank): evidence.told(int(rank), member.host.name, facts)
        for rank, facts in ranks.items()
        if rank.isdecimal() and len(rank) < 10
    }


def _conclude(row: Hang, found: Verdict, *, is_proved: bool, gang: Sequence[Told]) -> None:
    """Tell it, and end the attempt if the rule says so and that is safe."""
    hosts = {told.rank: told.host for told in gang}
    with transaction.atomic():
        trial = Trial.objects.filter(task__allocations=row.allocation_id).first()
        if trial is None:
            return
        lock(trial.experiment_id)
        allocation = transitions.lock_allocation(row.allocation_id)
        now = _running(timezone.now(), allocation=allocation.pk).get(allocation.pk)
        if now is None or now.stood_seconds is None:  # it has moved, was told something else, or is not heard
            return
        do, outcome = _decided(now, found, is_proved=is_proved)
        reason = Reason.HANG_OF_HOST if found.is_of_the_host else Reason.HANG
        culprits = [hosts[rank] for rank in found.ranks if hosts.get(rank)]
        if do == HangAction.RESTART_ELSEWHERE:  # undone with the rest if it is over
            outcome = _avoid(allocation, found, culprits)
        if not rows.conclude(row, outcome):
            transaction.set_rollback(True)
            return
        detail = {
            "hang": row.pk, "seconds": now.stood_seconds, "sentence": found.sentence, "outcome": outcome,
            "ranks": list(found.ranks), "collective": found.collective, "host": next(iter(culprits), ""),
        }  # fmt: skip
        transitions.tell(allocation, reason, detail)
        if do != HangAction.TELL:
            transitions.request_stop(allocation.pk, StopKind.STOP, reason=reason, actor="server")
        announce(f"allocation:{allocation.pk}", f"experiment:{trial.experiment_id}")


def _decided(now: Standing, found: Verdict, *, is_proved: bool) -> tuple[HangAction, str]:
    """What is done, and the sentence that tells it."""
    if now.rule.do == HangAction.TELL:
        return HangAction.TELL, "Nothing was ended: the rule is to tell only."
    if not is_proved:
        return HangAction.TELL, "Nothing was ended: the rank may still be at work, so a person has to decide."
    if found.is_of_the_host and standing.held_for(now.ranks, found.ranks) < (now.rule.after_seconds or 0.0):
        return HangAction.TELL, "Nothing was ended: the kernel has not held the rank for the whole time."
    if standing.has_announced(now.ranks):
        return HangAction.TELL, "Nothing was ended: a rank has announced long work of its own."
    if not standing.had_progressed(now.ranks):
        return HangAction.TELL, "Nothing was ended: no rank has reported a step in this attempt yet."
    costs = "This costs no restart." if found.is_of_the_host else "This counts as a restart."
    return now.rule.do, f"The attempt was ended, to be retried from its last checkpoint. {costs}"


def _avoid(allocation: Allocation, found: Verdict, culprits: Sequence[str]) -> str:
    """Keep the task from the hosts that held it, as long as the pool has another; the sentence that tells it."""
    ended = "The attempt was ended, to be retried from its last checkpoint"
    costs = "This costs no restart." if found.is_of_the_host else "This counts as a restart."
    if found.kind in (collectives.Kind.ORDER, collectives.Kind.SIZES, collectives.Kind.CYCLE):
        return f"{ended}. It may run on the same hosts: its own calls do not fit together. {costs}"
    avoided = set(allocation.task.avoid_hosts) | set(culprits)
    others = Host.objects.filter(pool_id=allocation.pool_id, enabled=True, draining=False)
    if (
        others.filter(contact=Host.Contact.REACHABLE).exclude(name__in=avoided).count()
        < allocation.members.count()
    ):
        return f"{ended}, on the same hosts, since its pool has too few others. {costs}"
    for name in culprits:
        transitions.avoid_host(allocation.task_id, name)
    return f"{ended}, on other hosts than {', '.join(sorted(set(culprits)))}. {costs}"

"""Looks at trainings that make no progress: asks all their ranks what they do, twice, and acts by the rule.

That an attempt stands still is concluded only from what its hosts said within the last seconds, all of them, by the
database's clock. Nothing is ended that has ever been seen to move between the looks, or that may be at work in a way
that nobody can see: see `logs.hangs.verdict.may_be_ended`. Everything found is told once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from dispatch.ssh import remote
from dispatch.ssh.threads import ask_all
from events import presence
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
#: What hosts have told is evidence for so long, until it is acted on: from the last answer, and from the first.
_FRESH_SECONDS = 30.0
_ASKING_SECONDS = 60.0
#: The least time for a verdict against a host, however short the rule's is: a slow disk may answer after minutes.
_KERNEL_SECONDS = 900.0


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
    told = rows.told_before([key for key in still if key not in open_rows])
    for key, stood in still.items():
        row = open_rows.get(key)
        # who was told of one that ended by itself is told of the next ones later
        patience = (running[key].rule.after_seconds or 0.0) * 2 ** min(told.get(key, 0), _MOST_DOUBLED)
        if row is None and stood < patience:
            continue
        if _is_due(row or rows.begin(key, now - timedelta(seconds=stood)), now):
            wake(LOOK, key)


def _is_due(row: Hang, now: datetime) -> bool:
    if row.told_at is not None or (row.looking_until is not None and row.looking_until > now):
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
        ended = state == MemberState.ENDED
        seen = (
            None if age is None else pulse.seen_by(row["pulse__ranks"], row["host__name"], age, ended=ended)
        )
        if seen is not None:
            each.ranks += seen
        elif not ended:
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
    asked_at = presence.database_now()
    if row is None or not _is_due(row, asked_at) or not rows.claim(row, asked_at):
        return
    before, earlier, begun, era_then = (
        evidence.of_kept(row.evidence),
        _verdict_of(row),
        row.looked_at,
        row.era,
    )
    era = presence.era()
    gang, seen = _ask(allocation_id, asked_at)
    found = verdict.judge(gang, marks(seen))
    if not rows.keep_look(row, gang, found, presence.database_now(), era):
        return
    if found is None or begun is None or era_then != era or not verdict.confirmed(earlier, found):
        return
    apart = (asked_at - begun).total_seconds()
    now = evidence.of_kept(row.evidence)  # cut like what it is compared with
    if verdict.is_worth_telling(found, before, now, apart):
        is_proved = verdict.may_be_ended(found, before, now, apart)
        _conclude(row, found, is_proved=is_proved, gang=gang, asked_at=asked_at)


def _verdict_of(row: Hang) -> Verdict | None:
    return Verdict(row.kind, tuple(row.ranks), row.sentence, row.collective) if row.kind else None


def _ask(allocation_id: str, now: datetime) -> tuple[list[Told], list[Seen]]:
    """What all ranks do now, and their pulse: of whom a host says nothing now, only what it has just said counts."""
    members = list(
        Member.objects.filter(allocation=allocation_id)
        .exclude(state=MemberState.ENDED)
        .select_related("host", "allocation")
    )
    pulses = MemberPulse.objects.filter(member__allocation=allocation_id)
    known = pulses.values_list("member__host__name", "member__state", "at", "ranks")
    seen = [
        each
        for host, state, at, ranks in known
        for each in pulse.seen_by(ranks, host, (now - at).total_seconds(), ended=state == MemberState.ENDED)
        or ()
    ]
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


def _conclude(
    row: Hang, found: Verdict, *, is_proved: bool, gang: Sequence[Told], asked_at: datetime
) -> None:
    """Tell it, and end the attempt if the rule says so and that is safe."""
    hosts = {told.rank: told.host for told in gang}
    with transaction.atomic():
        trial = Trial.objects.filter(task__allocations=row.allocation_id).first()
        if trial is None:
            return
        lock(trial.experiment_id)
        allocation = transitions.lock_allocation(row.allocation_id)
        at = presence.database_now()
        now = _running(at, allocation=allocation.pk).get(allocation.pk)
        if now is None or now.stood_seconds is None:  # it has moved, was told something else, or is not heard
            return
        if not _is_fresh(row, at):
            return
        in_time = 0 <= (at - asked_at).total_seconds() <= _ASKING_SECONDS
        do = HangAction.TELL
        why_not = _why_not(now, found, is_proved=is_proved and in_time)
        if not why_not:
            do = now.rule.do
        reason = Reason.HANG_OF_HOST if found.is_of_the_host else Reason.HANG
        culprits = [hosts[rank] for rank in found.ranks if hosts.get(rank)]
        avoided = _avoid(allocation, found, culprits) if do == HangAction.RESTART_ELSEWHERE else ""
        outcome = f"Nothing was ended: {why_not}" if why_not else _ended(found, avoided)
        if not rows.conclude(row, outcome):  # avoiding is undone with the rest
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


def _is_fresh(row: Hang, now: datetime) -> bool:
    """Whether what was kept is of this moment: a worker may freeze between the answers and what follows from them."""
    assert row.looked_at is not None
    return 0 <= (now - row.looked_at).total_seconds() <= _FRESH_SECONDS and presence.era() == row.era


def _why_not(now: Standing, found: Verdict, *, is_proved: bool) -> str:
    """Why nothing is ended; empty if the rule is followed."""
    if now.rule.do == HangAction.TELL:
        return "the rule is to tell only."
    if not is_proved:
        return "it is not proved that no rank is at work, so a person has to decide."
    patience = max(now.rule.after_seconds or 0.0, _KERNEL_SECONDS)
    if found.needs_the_kernels_word and standing.held_for(now.ranks, found.ranks) < patience:
        return "the kernel has not held the rank for long enough."
    if standing.has_announced(now.ranks):
        return "a rank has announced long work of its own."
    if not standing.had_progressed(now.ranks):
        return "no rank has reported a step in this attempt yet."
    return ""


def _ended(found: Verdict, where: str) -> str:
    costs = "does not count" if found.is_of_the_host else "counts"
    return f"The attempt was ended, to be retried from its last checkpoint{where}. This {costs} as a restart."


def _avoid(allocation: Allocation, found: Verdict, culprits: Sequence[str]) -> str:
    """Keep the task off the hosts that held it if the pool has others; return where it is retried, in words."""
    if found.kind in (collectives.Kind.ORDER, collectives.Kind.SIZES, collectives.Kind.CYCLE):
        return ", also on the same hosts, since its own calls do not fit together"
    avoided = set(allocation.task.avoid_hosts) | set(culprits)
    others = Host.objects.filter(pool_id=allocation.pool_id, enabled=True, draining=False)
    if (
        others.filter(contact=Host.Contact.REACHABLE).exclude(name__in=avoided).count()
        < allocation.members.count()
    ):
        return ", on the same hosts, since its pool has too few others"
    for name in culprits:
        transitions.avoid_host(allocation.task_id, name)
    return f", on other hosts than {', '.join(sorted(set(culprits)))}"

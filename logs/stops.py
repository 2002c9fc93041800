"""Who or what told an attempt to end, in sentences."""

from __future__ import annotations

from events.models import Event
from hosts.models import Host
from jobs.models import Allocation, Member, Task
from jobs.states import Reason, StopKind
from trainmaster.quantities import duration

_SIGKILL = 9
_WISHES = {
    Reason.KILLED_BY_USER: "Killed",
    Reason.CANCELED_BY_USER: "Canceled",
    Reason.PAUSED_BY_USER: "Paused",
    Reason.POOL_CHANGED: "Moved to another resource pool",
    Reason.SEARCHER_STOPPED: "Stopped by the searcher",
    Reason.SEARCHER_PARKED: "Parked at a rung of its search, which may promote it later",
}

_BY_SEARCHER = frozenset({Reason.SEARCHER_STOPPED, Reason.SEARCHER_PARKED})


def told(allocation: Allocation, reason: Reason) -> dict[str, str] | None:
    """{"user"?, "reason"} if the attempt ended because it was told to; None if it ended by itself."""
    if (
        not allocation.stop_kind
        or allocation.stop_reason == Reason.PEER_ENDED
        or reason != allocation.stop_reason
    ):
        return None
    user = user_of(allocation.stop_actor)
    return {"user": user, "reason": str(reason)} if user else {"reason": str(reason)}


def sentences(allocation: Allocation, members: list[Member], reason: Reason) -> list[str]:
    """Why it was told to, and how it went."""
    return [_why(allocation, members, reason), *_how(allocation, members)]


def _why(allocation: Allocation, members: list[Member], reason: Reason) -> str:
    if reason == Reason.PREEMPTED:
        return f"Preempted by {_other_job(allocation.stop_for_task)}."
    if reason == Reason.TIME_LIMIT:
        limit = allocation.task.max_time_seconds
        return f"Its time limit{f' of {duration(limit)}' if limit else ''} was reached; its checkpoints are kept."
    if reason == Reason.HOST_DISABLED:
        off = [member.host.name for member in members if not member.host.enabled]
        return f"Stopped because {', '.join(off) or 'its host'} was disabled."
    wish = _WISHES.get(reason)
    if wish is None:
        return f"Stopped: {reason.label}{by(allocation.stop_actor)}."
    return f"{wish}{'' if reason in _BY_SEARCHER else by(allocation.stop_actor)}."


def _other_job(task_id: str) -> str:
    task = Task.objects.select_related("job__owner").filter(pk=task_id).first() if task_id else None
    if task is None:
        return "a job ahead of it in the queue"
    job = task.job
    number = f"{job.get_kind_display().lower()} {job.entity_id[:8]}"
    return f"{number} “{job.name}” of {job.owner.username}, which is ahead of it in the queue"


def _how(allocation: Allocation, members: list[Member]) -> list[str]:
    """Whether it left by itself, and how long that took."""
    if allocation.stop_requested_at is None or allocation.ended_at is None:
        return []
    took = duration(max(0.0, (allocation.ended_at - allocation.stop_requested_at).total_seconds()))
    if any(member.exit_signal == _SIGKILL or member.exit_code == 128 + _SIGKILL for member in members):
        grace = allocation.stop_grace_seconds
        within = f" within {duration(grace)}" if grace is not None else ""
        return [f"It did not exit{within} and was killed (SIGKILL) {took} after it was told to stop."]
    if allocation.stop_kind == StopKind.PREEMPT and allocation.preempt_acked_at:
        return [f"It saved and exited {took} after it was asked to."]
    return [f"It exited {took} after it was told to stop."]


def lost_host(name: str) -> str:
    """Who declared the host lost."""
    host = Host.objects.filter(name=name).first()
    event = (
        Event.objects.filter(kind=Event.Kind.HOST, subject=str(host.pk), reason="declared_lost").last()
        if host
        else None
    )
    if event is None:
        return f"{name or 'Its host'} was declared lost."
    who = by(event.actor) or " by the pool's rule, because it was silent for too long"
    return f"{name} was declared lost{who}."


def label(reason: str) -> str:
    return str(Reason(reason).label) if reason in Reason.values else reason.replace("_", " ")


def by(actor: str) -> str:
    """` by ada` for `user:ada`; empty for the server and its like."""
    user = user_of(actor)
    return f" by {user}" if user else ""


def user_of(actor: str) -> str:
    """The name in `user:ada`; empty for the server and its like."""
    kind, _, name = actor.partition(":")
    return name if kind == "user" else ""

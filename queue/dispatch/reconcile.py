"""Compares what rows claim with what hosts say, and settles the difference.

The runner's own records usually arrive first; this is what makes progress when they do not: a killed worker,
a lost message, a host that was restarted, a runner that died. Silence settles nothing (law 3).
"""

from __future__ import annotations

import logging
import time
import uuid
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from dispatch import host_samples, launch, outsiders, remote, settle, stop, uploads
from dispatch.going_on import going_on
from dispatch.open_work import JUST_ENDED
from hosts import observe, registry
from hosts.models import Host
from jobs import transitions
from jobs.models import Allocation, Member
from jobs.states import AllocationState, MemberState, Reason, StopKind
from logs import store as log_store
from logs import streams

log = logging.getLogger(__name__)

#: An entrypoint that has ended is settled by its runner's exit record; without one, from the host's answer after this.
DRAIN_SECONDS = 60.0
#: Member -> when its end was first seen here (monotonic seconds) before all of its run was stored.
_seen_ended: dict[int, float] = {}
_SEEN_MAX = 10_000
#: Run folders are removed this long after their end, so that a person can still look.
KEEP_FOLDER_SECONDS = 3600.0
FOLDERS_AT_ONCE = 200
STATUS_TIMEOUT_SECONDS = 30.0


def open_members(host: Host) -> list[Member]:
    return list(
        Member.objects.filter(host=host)
        .exclude(state=MemberState.ENDED)
        .select_related("host", "allocation__task__job", "allocation__pool")
    )


def hosts_to_ask() -> list[uuid.UUID]:
    """Hosts with something open on them, or with a checkpoint to upload: those are asked in every sweep.

    Not the silent ones: the probe finds them when they return, and asking would only fill the worker with waits.
    """
    return list(
        Host.objects.filter(
            Q(members__in=Member.objects.exclude(state=MemberState.ENDED)) | Q(members__in=uploads.awaited())
        )
        .exclude(admission__in=uploads.GONE)
        .exclude(contact=Host.Contact.SILENT)
        .values_list("pk", flat=True)
        .distinct()
    )


#: hosts that a thread of this process is asking right now
_asking: set[uuid.UUID] = set()


def host(host_id: uuid.UUID) -> None:
    """Ask one host about its runs and settle what differs. A slow answer is waited for once, not once a sweep."""
    if host_id in _asking:
        return
    _asking.add(host_id)
    try:
        _ask(host_id)
    finally:
        _asking.discard(host_id)


def _ask(host_id: uuid.UUID) -> None:
    row = Host.objects.get(pk=host_id)
    members, uploading = open_members(row), list(uploads.awaited().filter(host=row))
    if not members and not uploading:
        return
    asked = timezone.now()
    keys = [member.run_key for member in [*members, *uploading]]
    try:
        sample = host_samples.questions([row]).get(row.pk, {}) if host_samples.claim(row, asked) else {}
        request = {"runs": keys, **outsiders.question(row), **sample}
        answer = remote.verb(row, "status", request, timeout_seconds=STATUS_TIMEOUT_SECONDS)
    except remote.RemoteError as error:
        log.info("status of %s: %s", row.name, error)
        return
    outsiders.take_in(row.pk, answer)
    boot_id = str(answer.get("boot_id", ""))
    for member in members:
        _settle(member, answer["runs"].get(member.run_key) or {"state": "absent"}, boot_id, asked)
    for member in uploading:
        uploads.settle(member, answer["runs"].get(member.run_key) or {"state": "absent"})
    host_samples.store([(row.pk, row.name, answer)])  # last: no run waits for a chart


def _settle(member: Member, run: dict[str, Any], boot_id: str, asked: Any) -> None:
    """One member against the host's word for it."""
    state = run.get("state")
    if state is None:  # the host could not look, for one run perhaps, and says why
        log.warning("%s on %s: %s", member.run_key, member.host.name, run.get("message"))
        return
    if member.state == MemberState.ASSIGNED:
        _settle_assigned(member, state, str(run.get("boot_id") or boot_id))
    elif state == "running":
        if transitions.member_running(member.pk):
            log.info("%s runs; its record had not come", member.run_key)
        if member.allocation.stop_kind:
            stop.stop(member.allocation_id)
    elif state == "ended":
        _settle_ended(member, run, boot_id)
    elif state in {"absent", "incomplete"} and member.launched_at and member.launched_at < asked:
        restarted = member.boot_id and boot_id and member.boot_id != boot_id
        settle.member_over(
            member.pk,
            reason=Reason.HOST_RESTARTED if restarted else _asked_or(member, Reason.RUN_VANISHED),
            detail={"rank": None, "host": member.host.name, "member": member.index},
        )


def _asked_or(member: Member, reason: Reason) -> Reason:
    """A run that was told to stop and is gone has done what it was told."""
    return Reason(member.allocation.stop_reason) if member.allocation.stop_kind else reason


def _settle_assigned(member: Member, state: str, boot_id: str) -> None:
    """A launch whose answer was lost, or that nobody is at any more."""
    if state in {"running", "ended"}:
        transitions.member_launched(member.pk, boot_id=boot_id)
    elif member.launch_attempts >= settings.LAUNCH_ATTEMPTS:
        # the row was read before the host was asked: a launch that began since makes its answer an old one
        if not transitions.claim_launch(
            member.pk, launch.CLAIM_SECONDS, after_attempts=member.launch_attempts
        ):
            return
        settle.member_over(
            member.pk,
            reason=_asked_or(member, Reason.LAUNCH_FAILED),
            detail={
                "rank": None,
                "host": member.host.name,
                "member": member.index,
                "sentence": member.last_error,
            },
        )


def _settle_ended(member: Member, run: dict[str, Any], boot_id: str) -> None:
    """The entrypoint has ended. Its runner drains the spool first; without one, the end says what is missing."""
    exit_file = run.get("exit") or {}
    transitions.member_running(member.pk)
    ended_at = exit_file.get("ended_at")
    missing = int(run.get("unshipped_bytes") or 0)
    known_for = _seen_seconds(member) if missing else DRAIN_SECONDS
    if _ended_seconds(member, ended_at) < DRAIN_SECONDS and not run.get("finished"):
        return
    if _was_forgotten(member, run):
        return
    if missing:
        if member.heartbeat_at and timezone.now() - member.heartbeat_at < timedelta(seconds=DRAIN_SECONDS):
            return  # still shipping
        if not run.get("finished") and known_for < DRAIN_SECONDS:
            return  # it ended while the server was away: its runner, which is there, has yet to try again
        _seen_ended.pop(member.pk, None)
        streams.count_missing(member.pk, missing)
    settle.member_exited(
        member.pk,
        code=exit_file.get("code"),
        signal=exit_file.get("signal"),
        ended_at=ended_at,
        first_failure=None,
        boot_id=boot_id,
        oom_kills=exit_file.get("oom_kills"),
        port_in_use=exit_file.get("port_in_use"),
        storage_fault=exit_file.get("storage_fault") or "",
        image_fault=exit_file.get("image_fault") or "",
    )


def _seen_seconds(member: Member) -> float:
    """For how long this process has known of the end, and that something of the run is missing."""
    if len(_seen_ended) >= _SEEN_MAX:  # most have brought the rest since, and are forgotten by nobody else
        _seen_ended.clear()
    now = time.monotonic()
    return now - _seen_ended.setdefault(member.pk, now)


def _was_forgotten(member: Member, run: dict[str, Any]) -> bool:
    """True while the host brings once more what it had brought to a server that was then restored from a backup."""
    stored = streams.stored(member.pk)
    if not run.get("finished") or run.get("refused") or stored >= int(run.get("outbox_bytes") or 0):
        return False
    log.info("%s has brought more than the %d bytes that are stored: once more", member.run_key, stored)
    try:
        remote.verb(member.host, "status", {"runs": [member.run_key], "stored": {member.run_key: stored}})
    except remote.RemoteError as error:
        log.info("status of %s: %s", member.host.name, error)
    return True


def _ended_seconds(member: Member, ended_at: float | None) -> float:
    """How long ago it ended; of a killed launcher, how long ago its runner was heard, which still brings the rest."""
    if ended_at:
        return timezone.now().timestamp() - float(ended_at) + (member.host.clock_skew_seconds or 0.0)
    heard = member.heartbeat_at or member.launched_at
    return (timezone.now() - heard).total_seconds() if heard else DRAIN_SECONDS


def leave_disabled_hosts() -> None:
    """What runs on a disabled host is stopped and starts elsewhere, without counting a restart (features.md 6)."""
    disabled = Member.objects.filter(host__enabled=False).exclude(state=MemberState.ENDED)
    for allocation_id in set(disabled.values_list("allocation_id", flat=True)):
        with going_on(f"the stop of {allocation_id} on a disabled host"):
            transitions.request_stop(
                allocation_id, StopKind.STOP, reason=Reason.HOST_DISABLED, actor="server"
            )


# --- the rest of a sweep --------------------------------------------------------------------------


def forgotten() -> None:
    """Whatever a killed worker left between two steps: launches, stops, conclusions, log lines of events."""
    transitions.ask_for_launches_again(settings.LAUNCH_AGAIN_SECONDS)
    living = Member.objects.filter(allocation=OuterRef("pk")).exclude(state=MemberState.ENDED)
    ended = Allocation.objects.exclude(state=AllocationState.TERMINATED).exclude(Exists(living))
    for allocation_id in list(ended.values_list("pk", flat=True)):
        with going_on(f"the conclusion of {allocation_id}"):
            settle.conclude(allocation_id)
    stop.escalate()


def declare_lost_hosts() -> None:
    """The pool's rule: silent over SSH and by heartbeat for longer than it allows."""
    now = timezone.now()
    for row in (
        Host.objects.filter(contact=Host.Contact.SILENT, pool__host_lost_after_seconds__isnull=False)
        .exclude(admission=Host.Admission.LOST)
        .select_related("pool")
    ):
        limit = timedelta(seconds=row.pool.host_lost_after_seconds or 0)
        heard = max(filter(None, [row.last_seen_at, row.last_heartbeat_at]), default=row.registered_at)
        if now - heard > limit:
            registry.declare_lost(row.pk, actor="server")


def host_lost(host_id: uuid.UUID) -> None:
    """End everything that a lost host held: its runs' tokens die, their trials start elsewhere."""
    row = Host.objects.get(pk=host_id)
    if row.admission not in uploads.GONE:
        return
    for member in open_members(row):
        settle.member_over(
            member.pk,
            reason=Reason.HOST_LOST,
            detail={"rank": None, "host": row.name, "member": member.index},
        )
    uploads.give_up()


def finish_lost_hosts() -> None:
    """What the task of a declaration did not come to: its message may be lost, its worker killed."""
    left = Member.objects.exclude(state=MemberState.ENDED).filter(host__admission__in=uploads.GONE)
    for host_id in set(left.values_list("host_id", flat=True)):
        with going_on(f"the loss of host {host_id}"):
            host_lost(host_id)
    uploads.give_up()


def remove_folders(host_id: uuid.UUID) -> None:
    """Remove run folders of this host that ended a while ago and whose checkpoints are uploaded.

    By force: of an attempt that is over the server takes no more output, so waiting for a runner is in vain.
    """
    before = timezone.now() - timedelta(seconds=KEEP_FOLDER_SECONDS)
    members = {
        member.run_key: member
        for member in Member.objects.filter(
            host_id=host_id,
            allocation__state=AllocationState.TERMINATED,
            ended_at__lt=before,
            removed_at=None,
        )
        .exclude(pk__in=uploads.awaited())
        .select_related("host")
        .order_by("?")[:FOLDERS_AT_ONCE]  # so that some which cannot be removed keep nobody waiting
    }
    if not members:
        return
    row = next(iter(members.values())).host
    try:
        answer = remote.verb(row, "remove", {"runs": sorted(members), "force": True})
    except remote.RemoteError as error:
        log.info("run folders of %s stay for now: %s", row.name, error)
        return
    removed = [member.pk for key, member in members.items() if answer["runs"].get(key, {}).get("removed")]
    Member.objects.filter(pk__in=removed).update(removed_at=timezone.now())


def merge_event_lines() -> None:
    """Put the newest events of live and just ended tasks into their logs."""
    recent = timezone.now() - JUST_ENDED
    ids = set(Allocation.objects.exclude(state=AllocationState.TERMINATED).values_list("task_id", flat=True))
    ids |= set(Allocation.objects.filter(ended_at__gt=recent).values_list("task_id", flat=True))
    for task_id in log_store.unmerged(ids):
        with going_on(f"the log of {task_id}"):
            log_store.merge_events(task_id)


def note_silence() -> None:
    observe.note_silence(timezone.now())

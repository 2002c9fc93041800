"""Compares what rows claim with what hosts say, and settles the difference.

The runner's own records usually arrive first; this is what makes progress when they do not: a killed worker,
a lost message, a host that was restarted, a runner that died. Silence settles nothing (law 3).
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from dispatch.engines import chosen, slurm
from dispatch.going_on import going_on
from dispatch.runs import cleaning, settle, stop, uploads
from dispatch.runs.open_work import JUST_ENDED
from dispatch.ssh import remote
from dispatch.ssh.threads import ask_all
from dispatch.watching import host_samples, host_signs, outsiders
from events import presence
from events.presence import Part
from hosts import evidence, observe, registry
from hosts.models import Host
from jobs import cleaning as cleanings
from jobs import transitions
from jobs.models import Allocation, Member
from jobs.states import AllocationState, MemberState, Reason, StopKind
from logs import store as log_store
from logs import streams

log = logging.getLogger(__name__)

#: Member -> when its end was first seen here (monotonic seconds) before all of its run was stored.
_seen_ended: dict[int, float] = {}
_SEEN_MAX = 10_000
#: Run folders are removed this long after their end, so that a person can still look.
KEEP_FOLDER_SECONDS = 3600.0
FOLDERS_AT_ONCE = 200
#: Logs that one transaction brings up to date, and holds until it is over.
LOGS_AT_ONCE = 50


#: what tells the account of a run
_OF_ACCOUNTS = ("allocation__task__job__owner", "allocation__pool")


def open_members(host: Host) -> list[Member]:
    return list(
        Member.objects.filter(host=host)
        .exclude(state=MemberState.ENDED)
        .select_related("host", *_OF_ACCOUNTS)
    )


def hosts_to_ask() -> list[uuid.UUID]:
    """Hosts with something open or left on them, or with a checkpoint to upload: those are asked in every sweep.

    Not the silent ones: the probe finds them when they return, and asking would only fill the worker with waits.
    """
    return list(
        Host.objects.filter(
            Q(members__in=Member.objects.exclude(state=MemberState.ENDED))
            | Q(members__in=uploads.awaited())
            | Q(members__in=cleanings.under_way())
            | Q(drain_cause=Host.Drain.CLEANUP)
        )
        .exclude(admission__in=uploads.GONE)
        .exclude(contact=Host.Contact.SILENT)
        .exclude(transport=Host.Transport.SLURM)  # dispatch.runs.clusters asks for all nodes at once
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
    awaited = uploads.awaited().filter(host=row)
    members, uploading = open_members(row), list(awaited.select_related(*_OF_ACCOUNTS))
    if members or uploading:
        _ask_runs(row, members, uploading)
    cleaning.clean(row)


def _ask_runs(row: Host, members: list[Member], uploading: list[Member]) -> None:
    asked = presence.database_now()
    accounts = {member.run_key: member.allocation.account for member in [*members, *uploading]}
    try:
        request = {"runs": list(accounts), "accounts": accounts, **outsiders.question(row)}
        if host_samples.claim(row, asked):
            request |= host_samples.questions([row]).get(row.pk, {}) | host_signs.question(row, members)
        answer = chosen.of_host(row).poll(row, request)
    except remote.RemoteError as error:
        log.info("status of %s: %s", row.name, error)
        return
    # before the runs: one that failed of a fault costs no restart
    host_signs.take_in(row.pk, answer, request)
    outsiders.take_in(row.pk, answer)
    boot_id = str(answer.get("boot_id", ""))
    for member in members:
        with going_on(f"the run {member.run_key} on {row.name}"):
            _settle(member, answer["runs"].get(member.run_key) or {"state": "absent"}, boot_id, asked)
    for member in uploading:
        with going_on(f"the uploads of {member.run_key} on {row.name}"):  # its account may answer anything
            uploads.settle(member, answer["runs"].get(member.run_key) or {"state": "absent"})
    host_samples.store([(row.pk, row.name, answer)])  # last: no run waits for a chart


def _settle(member: Member, run: dict[str, Any], boot_id: str, asked: Any) -> None:
    """One member against the host's word for it; `asked` is when, by the clock that `launched_at` has too."""
    state = run.get("state")
    if state is None:  # the host could not look, for one run perhaps, and says why
        log.warning("%s on %s: %s", member.run_key, member.host.name, run.get("message"))
        return
    if member.state == MemberState.ASSIGNED:
        _settle_assigned(member, state, str(run.get("boot_id") or boot_id))
    elif state == "running" and cleaning.overdue(run):
        _settle_unkillable(member, run, boot_id)
    elif state == "running":
        if transitions.member_running(member.pk):
            log.info("%s is running; its start record was missing", member.run_key)
        if member.allocation.stop_kind:
            stop.stop(member.allocation_id)
    elif state == "ended":
        settle_ended(member, run, boot_id)
    elif (
        state in {"absent", "incomplete", "remains", "starting"}
        and member.launched_at
        and member.launched_at < asked
    ):
        reason = Reason.RUN_VANISHED
        if member.boot_id and boot_id and member.boot_id != boot_id:
            reason = Reason.HOST_RESTARTED
        elif member.allocation.stop_kind:  # a run that was told to stop and is gone has done what it was told
            reason = Reason(member.allocation.stop_reason)
        settle.member_over(
            member.pk,
            reason=reason,
            detail={"rank": None, "host": member.host.name, "member": member.index},
            left=cleaning.remains_of(run) or settle.not_swept(member),
        )


def _settle_assigned(member: Member, state: str, boot_id: str) -> None:
    """A launch whose answer was lost. That there is nothing yet settles nothing: `launch` asks, and gives it up."""
    if state in {"running", "ended", "remains"}:
        transitions.member_launched(member.pk, boot_id=boot_id)


def settle_ended(member: Member, run: dict[str, Any], boot_id: str) -> None:
    """The entrypoint has ended. Its runner drains the spool first, for as long as bytes keep arriving.

    Without progress the end is told with the number of bytes that are missing; they are still taken in when they come.
    """
    exit_file = run.get("exit") or {}
    ended_at = exit_file.get("ended_at")
    transitions.member_running(member.pk, at=_begin_of(member, ended_at))
    if not drained(member, run):
        return
    settle.member_exited(
        member.pk,
        code=exit_file.get("code"),
        signal=exit_file.get("signal"),
        ended_at=ended_at,
        boot_id=boot_id,
        oom_kills=exit_file.get("oom_kills"),
        port_in_use=exit_file.get("port_in_use"),
        storage_fault=exit_file.get("storage_fault") or "",
        image_fault=exit_file.get("image_fault") or "",
        hook_fault=exit_file.get("hook_fault") or "",
    )


def drained(member: Member, run: dict[str, Any]) -> bool:
    """Whether the end of a run may be told; what is missing of it by then is noted, and still taken in."""
    ended_at = (run.get("exit") or {}).get("ended_at")
    if not run.get("finished") and _may_still_drain(member, run, ended_at):
        return False
    if _was_forgotten(member, run):
        return False
    _seen_ended.pop(member.pk, None)
    _note_missing(member, run)
    return True


def _note_missing(member: Member, run: dict[str, Any]) -> None:
    if run.get("unshipped_bytes"):
        Member.objects.filter(pk=member.pk).update(outbox_bytes=int(run.get("outbox_bytes") or 0))


def _begin_of(member: Member, ended_at: float | None) -> datetime | None:
    """When a run began that nobody has heard of before its end: after its launch, and not after its end."""
    if ended_at is None or member.launched_at is None:
        return member.launched_at
    return min(member.launched_at, member.server_time(ended_at))


def _may_still_drain(member: Member, run: dict[str, Any], ended_at: float | None) -> bool:
    """Whether it ended, was heard or brought something within DRAIN_SECONDS.

    One that ended while the server was away gets as long from when that was first seen here: its runner, which is
    there, has yet to try again.
    """
    member.refresh_from_db(fields=["heartbeat_at"])  # batches may have come while the host was asked
    known_for = seen_seconds(member) if run.get("unshipped_bytes") else settings.DRAIN_SECONDS
    heard_ago = (
        (presence.database_now() - member.heartbeat_at).total_seconds()
        if member.heartbeat_at
        else settings.DRAIN_SECONDS
    )
    return min(_ended_seconds(member, ended_at), known_for, heard_ago) < settings.DRAIN_SECONDS


def _settle_unkillable(member: Member, run: dict[str, Any], boot_id: str) -> None:
    """Processes of it survive SIGKILL: it ends without them, and its slots stay held until they are gone."""
    exit_file = run.get("exit") or {}
    transitions.member_running(member.pk)
    if _may_still_drain(member, run, exit_file.get("ended_at")):
        return
    _note_missing(member, run)
    settle.member_exited(
        member.pk,
        code=exit_file.get("code"),
        signal=exit_file.get("signal"),
        ended_at=exit_file.get("ended_at"),
        boot_id=boot_id,
        left=cleaning.remains_of(run),
    )


def seen_seconds(member: Member) -> float:
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
    log.info("%s has sent more than the %d stored bytes; checking again", member.run_key, stored)
    try:
        accounts = {member.run_key: member.allocation.account}
        question = {"runs": [member.run_key], "accounts": accounts, "stored": {member.run_key: stored}}
        chosen.of_host(member.host).poll(member.host, question)
    except remote.RemoteError as error:
        log.info("status of %s: %s", member.host.name, error)
    return True


def _ended_seconds(member: Member, ended_at: float | None) -> float:
    """How long ago it ended; of a killed launcher, how long ago its runner was heard, which still brings the rest."""
    if ended_at:
        return presence.database_now().timestamp() - float(ended_at) + (member.host.clock_skew_seconds or 0.0)
    heard = member.heartbeat_at or member.launched_at
    return (presence.database_now() - heard).total_seconds() if heard else settings.DRAIN_SECONDS


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
    """The pool's rule: declare lost what enough evidence speaks against, after asking each host once more."""
    suspects = list(evidence.suspects())
    silent = ask_all(_is_silent, suspects, settings.HOST_PROBES_AT_ONCE)
    for row, is_silent in zip(suspects, silent, strict=True):
        if is_silent and registry.declare_lost_by_rule(row.pk):
            log.warning("%s was declared lost by its pool's rule", row.name)


def _is_silent(row: Host) -> bool:
    """Whether the host was asked now and did not answer."""
    try:
        chosen.of_host(row).poll(row, {"runs": []})
    except remote.NotAsked:
        return False
    except remote.Unreachable:
        return True
    except remote.RemoteError as error:
        log.info("%s is not declared lost because it answered: %s", row.name, error)
    return False


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
            left=[],
        )
    uploads.give_up()


def finish_lost_hosts() -> None:
    """What the task of a declaration did not come to: its message may be lost, its worker killed."""
    left = Member.objects.exclude(state=MemberState.ENDED).filter(host__admission__in=uploads.GONE)
    for host_id in set(left.values_list("host_id", flat=True)):
        with going_on(f"the loss of host {host_id}"):
            host_lost(host_id)
    uploads.give_up()


def _removable() -> QuerySet[Member]:
    """Those whose folders nobody needs any more, on whichever host."""
    before = presence.database_now() - timedelta(seconds=KEEP_FOLDER_SECONDS)
    ended = Member.objects.filter(
        allocation__state=AllocationState.TERMINATED, allocation__settled_at__lt=before, removed_at=None
    )
    return ended.exclude(pk__in=uploads.awaited())


def hosts_with_folders() -> list[uuid.UUID]:
    """The hosts that can be asked now and have run folders to remove."""
    reachable = Q(host__contact=Host.Contact.REACHABLE, host__admission=Host.Admission.READY)
    return list(_removable().filter(reachable).values_list("host_id", flat=True).distinct())


def remove_folders(host_id: uuid.UUID) -> None:
    """Remove run folders of this host that ended a while ago and whose checkpoints are uploaded.

    By force: whoever still has something to bring is among those that are awaited.
    """
    waiting = _removable().filter(host_id=host_id).select_related("host")
    # in no order, so that some which cannot be removed keep nobody waiting
    members = {member.run_key: member for member in waiting.order_by("?")[:FOLDERS_AT_ONCE]}
    if not members:
        return
    row = next(iter(members.values())).host
    if row.transport == Host.Transport.SLURM and not slurm.is_shared(row):
        gone = _removable().filter(host_id=host_id)  # what looked after them there has removed them
        gone.update(removed_at=timezone.now())
        return
    request = {"runs": sorted(members), "force": True, "bundles": True, **slurm.of_removal(row)}
    try:
        answer = remote.verb(chosen.contact(row), "remove", request)
    except remote.RemoteError as error:
        log.info("run folders of %s could not be removed yet: %s", row.name, error)
        return
    removed = [member.pk for key, member in members.items() if answer["runs"].get(key, {}).get("removed")]
    Member.objects.filter(pk__in=removed).update(removed_at=timezone.now())


def merge_event_lines() -> None:
    """Put the newest events of live and just ended tasks into their logs."""
    recent = presence.database_now() - JUST_ENDED
    ids = set(Allocation.objects.exclude(state=AllocationState.TERMINATED).values_list("task_id", flat=True))
    ids |= set(Allocation.objects.filter(settled_at__gt=recent).values_list("task_id", flat=True))
    merge_logs(ids)


def merge_logs(task_ids: Collection[str]) -> None:
    """Put the newest events of tasks into their logs: many at once; one by one what others hold or what is wrong."""
    due = sorted(log_store.unmerged(task_ids))
    for first in range(0, len(due), LOGS_AT_ONCE):
        some = due[first : first + LOGS_AT_ONCE]
        try:
            left = log_store.merge_free(some) if len(some) > 1 else some
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:
            log.info("%s logs are brought up to date one by one: %s", len(some), error)
            left = some
        for task_id in left:
            with going_on(f"the log of {task_id}"):
                log_store.merge_events(task_id)


def note_silence() -> None:
    whole = presence.whole(Part.WORKERS)
    if whole is not None:
        observe.note_silence(whole)

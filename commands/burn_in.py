"""Burn-ins: commands of the lowest priority that measure a host, give way to other work, and start again after that.

What they report is kept here, and judged when they have ended: people are told what is much slower than on other hosts
of the pool, and a pool may have that taken out of use (`burn_in_do`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Count, F, Q, QuerySet
from django.utils import timezone

from accounts.models import User
from accounts.refusals import Code, Refusal
from commands import submit
from commands import transitions as commands
from commands.config import check
from commands.models import BurnIn, Command, GroupBurnIn
from commands.states import END_STATES, CommandState
from events.announce import announce
from hosts import registry, server_drains
from hosts.health import burn_in as rules
from hosts.health import links
from hosts.health.burn_in import Compared, Figure
from hosts.health.links import Rate
from hosts.models import BEFORE_BURN_IN, BurnInAction, Host
from hosts.transitions import note
from jobs import quarantine
from jobs import transitions as jobs
from jobs.assigning import Assignment, Stale, assign_all
from jobs.models import Allocation, Member
from jobs.states import Reason
from submissions import contexts

JUDGE = "dispatch.host_tasks.judge_burn_ins"
#: reasons of the events of hosts
PASSED, FOUND = "burn_in_passed", "burn_in_found"
_PROGRAM = ["python3", "-m", "trainmaster.burn_in"]
_LOWEST = 99
_RECORDS = ("burn_in", "burn_in_rates", "burn_in_failed", "burn_in_done")
_SENTENCE_CHARACTERS = 300
#: of a batch the last ones are read; the program writes some hundreds in all
MOST_RECORDS = 1000
#: A stop for one of these is not its end: it starts again.
_GAVE_WAY = {
    Reason.PREEMPTED, Reason.WINDOW, Reason.MAX_SLOTS_SET, Reason.POOL_CHANGED, Reason.HOST_DISABLED
}  # fmt: skip
#: One that ends so often with a restart of its host may well be the cause.
_MOST_HOST_RESTARTS = 3
#: From the order to leave until it is ended. It leaves within seconds, unless its ranks are still meeting.
LEAVE_SECONDS = 30.0
USABLE = {"missing": False, "enabled": True, "draining": False}


def ask(host_id: uuid.UUID, *, owner: User, actor: str) -> Command:
    """Submit a burn-in of the host, or return the one that has not ended yet. Raises Refusal.

    `actor`: one that the server asks for is nobody's submission, so who may use the pool and how much a user may
    submit does not count.
    """
    withdraw_all(outdated().filter(host=host_id))
    return _ask(host_id, owner, actor)


@transaction.atomic
def _ask(host_id: uuid.UUID, owner: User, actor: str) -> Command:
    host = registry.locked(host_id)
    if (under_way := open_of(host)) is not None:
        return under_way.command
    slots = len(slots_of(host))
    command = submit_for([host], slots, _PROGRAM, f"Burn-in of {host.name}", owner=owner, actor=actor)
    row = BurnIn.objects.create(command=command, host=host)
    if host.drain_cause in BEFORE_BURN_IN:
        start(row)
    return command


def submit_for(
    hosts: Sequence[Host], slots: int, program: Sequence[str], name: str, *, owner: User, actor: str
) -> Command:
    """Submit a job of the lowest priority on these locked hosts, which has so many slots of them. Raises Refusal."""
    pool = hosts[0].pool
    config = {
        "entrypoint": list(program),
        "description": name,
        "resources": {
            "slots": slots,
            "priority": _LOWEST,
            "hosts": [host.name for host in hosts],
            "resource_pool": pool.name,
            "max_time": min(
                settings.BURN_IN_SECONDS, pool.longest_max_time_seconds or settings.BURN_IN_SECONDS
            ),
        },
    }
    command = submit.create(
        owner=owner,
        config=check(config),
        context=contexts.empty(),
        workspace_number=1,
        idempotency_key=None,
        actor=actor,
        preemptible=True,
        by_server=actor == "server",
        gang=len(hosts) > 1,
    )
    for host in hosts:
        note(host, "burn_in_asked", actor, {"name": host.name})
    return command


REACHED = (Host.Transport.SSH, Host.Transport.LOCAL)


def slots_of(host: Host) -> list[int]:
    """The ids of the slots that it measures: all that are in use. Raises Refusal if nothing can start there."""
    if host.transport not in REACHED:
        raise Refusal(
            f"{host.name} belongs to a Slurm cluster. Burn-ins are for hosts that are reached by SSH.",
            Code.CONFLICT,
        )
    is_drained = host.draining and host.drain_cause not in BEFORE_BURN_IN
    if host.admission != Host.Admission.READY or not host.enabled or is_drained:
        raise Refusal(
            f"{host.name} is {host.state}, and a burn-in is a job, which cannot start there. Enable the host first.",
            Code.CONFLICT,
        )
    if not (found := _usable(host)):
        raise Refusal(
            f"{host.name} has no slot in use, so nothing could be measured. Enable a slot first.",
            Code.CONFLICT,
        )
    return found


def _usable(host: Host) -> list[int]:
    """The ids of its slots that are in use."""
    return list(host.slots.filter(**USABLE).values_list("pk", flat=True))


def start(row: BurnIn) -> None:
    """Give the burn-in its slots on a host to which no pass gives anything. If one is held, it waits."""
    jobs.lock_tasks([row.command.task_id])
    with suppress(Stale):
        placement = [(row.host_id, _usable(row.host))]
        assign_all([Assignment(row.command.task_id, placement)], actor="server")


def open_of(host: Host) -> BurnIn | None:
    """The burn-in of the host that waits or runs."""
    rows = BurnIn.objects.filter(host=host).exclude(command__state__in=END_STATES)
    return rows.select_related("command").first()


def newest_of(host: Host) -> BurnIn | None:
    """The host's last burn-in that measured everything; its figures are those that are shown."""
    rows = BurnIn.objects.filter(host=host, is_done=True).select_related("command")
    return rows.order_by("-command__submitted_at").first()


def outdated() -> QuerySet[BurnIn]:
    """Those that have not ended whose host has left their pool since, or was taken out."""
    opened = BurnIn.objects.exclude(command__state__in=END_STATES)
    return opened.filter(
        ~Q(command__job__pool=F("host__pool"))
        | Q(command__submitted_at__lt=F("host__joined_at"))
        | Q(host__admission=Host.Admission.REMOVED)
    )


def withdraw_all(rows: QuerySet[BurnIn] | QuerySet[GroupBurnIn]) -> None:
    for pk in list(rows.values_list("pk", flat=True)):
        withdraw(pk, rows.model, "its host has left the pool")


@transaction.atomic
def withdraw(pk: uuid.UUID, of: type[BurnIn] | type[GroupBurnIn], ending: str) -> None:
    """End a burn-in that has not ended, with no effect on its hosts."""
    command, reason = commands.lock(pk), Reason.POOL_CHANGED
    if command.has_ended:
        return
    of._default_manager.filter(pk=pk).update(judged_at=timezone.now())
    if not commands.set_state(command, CommandState.STOPPING_KILLED, reason=reason, actor="server"):
        return
    if not commands.stop_attempt(command, reason=reason, actor="server"):
        commands.end(command, CommandState.CANCELED, ending, reason=reason, actor="server")


# --- what its program reports -------------------------------------------------------------------------------


def is_about(record: dict[str, Any]) -> bool:
    """Whether a record of a task is one of a burn-in's program."""
    data = record.get("d")
    return record.get("k") == "core" and isinstance(data, dict) and data.get("type") in _RECORDS


def reported(member: Member, records: Sequence[dict[str, Any]]) -> None:
    """Keep what the program says in a batch. What another command says, or what cannot be read, is left."""
    rows = BurnIn.objects.filter(command__task_id=member.allocation.task_id, judged_at=None)
    row = rows.select_for_update().first()
    if row is None:
        return
    before = [*row.figures], [*row.failures], row.rates, row.is_done
    slots = dict(member.holds.values_list("slot__index", "slot__brand"))
    is_alone, of_rates = not has_company(member), list[dict[str, Any]]()
    for record in records[-MOST_RECORDS:]:
        if record["type"] == "burn_in_done":
            row.is_done = True
        elif record["type"] == "burn_in" and (figure := rules.read(record, slots)):
            if is_alone or not figure.is_host_rate:
                device = "" if figure.slot is None else slots[figure.slot]
                _replace(row.figures, {**rules.as_record(figure), "device": device}, "slot", "measure")
        elif record["type"] == "burn_in_rates":
            of_rates.append(record)
        elif record["type"] == "burn_in_failed" and rules.is_of(record.get("slot"), slots):
            sentence = rules.printable(str(record.get("sentence")))[:_SENTENCE_CHARACTERS]
            _replace(row.failures, {"slot": record.get("slot"), "sentence": sentence}, "slot")
    numbers = {slot: str(slot) for slot in slots}
    found = (rate for each in of_rates for rate in links.read(each, numbers, numbers.values()))
    new = (replace(rate, device=slots[int(rate.parts[0])]) for rate in found)
    row.rates = with_rates(row.rates, new, len(slots))
    if before != (row.figures, row.failures, row.rates, row.is_done):
        row.save(update_fields=["figures", "failures", "rates", "is_done"])


def with_rates(known: list[dict[str, Any]], new: Iterable[Rate], parts: int) -> list[dict[str, Any]]:
    """As they are stored."""
    kept = links.merged(links.stored(known), new, links.most_rates(parts))
    return [links.as_record(rate) for rate in kept]


def has_company(member: Member) -> bool:
    """Whether something else runs on the host, or did since this began: it takes its part of what is measured.

    When the host reports, that may have ended already.
    """
    others = Member.objects.filter(host=member.host_id).exclude(pk=member.pk)
    beside = Q(ended_at=None)
    if began := member.started_at or member.launched_at:
        beside |= Q(ended_at__gt=began)
    return others.filter(beside).exists()


def _replace(records: list[dict[str, Any]], new: dict[str, Any], *names: str) -> None:
    """So there is at most one for each slot and measure, however much is reported."""
    records[:] = [each for each in records if any(each[name] != new[name] for name in names)]
    records.append(new)


def starts_again(command: Command, allocation: Allocation) -> bool:
    """Whether the attempt only gave way to other work, or to what was done to its host; what it had told is forgotten.

    False for every other command.
    """
    if not has_given_way(command, allocation):
        return False
    rows = BurnIn.objects.filter(command=command, is_done=False, judged_at=None)
    return rows.update(figures=[], failures=[], rates=[]) > 0


def seconds_to_leave(task_id: str) -> float | None:
    """How long it may take for that; None for all other work."""
    yields = Command.objects.filter(task=task_id, job__preemptible=True).exists()
    return LEAVE_SECONDS if yields else None


def has_given_way(command: Command, allocation: Allocation) -> bool:
    """Whether the attempt ended for other work, or for what was done to a host."""
    gave_way = bool(allocation.stop_reason) and Reason(allocation.stop_reason) in _GAVE_WAY
    return command.state == CommandState.ACTIVE and (gave_way or _is_host_restart(allocation))


def _is_host_restart(allocation: Allocation) -> bool:
    if allocation.exit_reason != Reason.HOST_RESTARTED:
        return False
    alike = Allocation.objects.filter(task=allocation.task_id, exit_reason=Reason.HOST_RESTARTED)
    return alike.count() < _MOST_HOST_RESTARTS


# --- what follows -------------------------------------------------------------------------------------------


def of_others(host: Host) -> list[list[Figure]]:
    """The figures of the other hosts of its pool, a list for each, of their last burn-ins."""
    there = registry.present().filter(pool=host.pool_id).exclude(pk=host.pk)
    rows = BurnIn.objects.filter(host__in=there, is_done=True)
    rows = rows.order_by("host_id", "-command__submitted_at").distinct("host_id")
    return [figures_of(row) for row in rows]


def figures_of(row: BurnIn) -> list[Figure]:
    """As they were kept, with those of the links between its GPUs."""
    rates = links.stored(row.rates)
    return [*(Figure(**each) for each in row.figures), *links.figures(rates, _slots_in(rates))]


def _slots_in(rates: Sequence[Rate]) -> dict[str, int]:
    return {part: int(part) for part in sorted({part for rate in rates for part in rate.parts}, key=int)}


def judge_due() -> None:
    """Judge the burn-ins that have ended, each once."""
    ended = BurnIn.objects.filter(judged_at=None, command__state__in=END_STATES)
    for pk in list(ended.values_list("pk", flat=True)):
        _judge(pk)


@transaction.atomic
def _judge(pk: uuid.UUID) -> None:
    rows: QuerySet[BurnIn] = BurnIn.objects.select_for_update(of=("self",), skip_locked=True)
    row = rows.select_related("command__job", "host__pool").filter(pk=pk, judged_at=None).first()
    if row is None:
        return
    host, row.judged_at = row.host, timezone.now()
    is_outdated = row.command.job.pool_id != host.pool_id or (
        host.joined_at is not None and row.command.submitted_at < host.joined_at
    )
    if host.admission == Host.Admission.REMOVED or is_outdated:
        row.save(update_fields=["judged_at"])
        return
    row.findings = [] if row.command.state == CommandState.CANCELED else _findings(row)
    row.save(update_fields=["findings", "judged_at"])
    announce("hosts")
    if row.command.state == CommandState.CANCELED:
        server_drains.burn_in_over(host.pk, f"Its burn-in was {row.command.ending}.")
        return
    if not row.findings:
        note(host, PASSED, "server", {"name": host.name})
        server_drains.burn_in_over(host.pk, "")
        return
    sentence = f"Burn-in: {'; '.join(each['sentence'] for each in row.findings)}."
    note(host, FOUND, "server", {"name": host.name, "sentence": sentence})
    holds_back = any(not each["is_only_told"] for each in row.findings)
    server_drains.burn_in_over(host.pk, sentence if holds_back else "")
    if host.pool.burn_in_do == BurnInAction.QUARANTINE:
        _take_out(host, row.findings)


def _findings(row: BurnIn) -> list[dict[str, Any]]:
    """What is wrong, the bad first: errors, what is slow, what could not be measured."""
    if not row.is_done:
        return [_told(None, f"it did not finish: {row.command.ending}")]
    compared = rules.compare(figures_of(row), of_others(row.host))
    slow = [_finding(each) for each in compared if each.is_slow]
    failed = [_told(each["slot"], _failed(each)) for each in row.failures]
    return sorted(slow + _of_links(row) + failed, key=lambda each: not each["is_bad"])


def _of_links(row: BurnIn) -> list[dict[str, Any]]:
    rates = links.stored(row.rates)
    found = links.judge(rates, list(_slots_in(rates)), lambda part: f"slot {part}")
    return [
        {
            **_told(None if each.part is None else int(each.part), each.sentence),
            "is_bad": each.is_bad,
            "is_only_told": each.is_only_told,
        }
        for each in found
    ]


def _finding(each: Compared) -> dict[str, Any]:
    told = _told(each.figure.slot, each.sentence)
    return {**told, "is_bad": each.is_bad, "is_only_told": each.figure.is_host_rate}


def _told(slot: int | None, sentence: str) -> dict[str, Any]:
    return {"slot": slot, "sentence": sentence, "is_bad": False, "is_only_told": False}


def _failed(failure: dict[str, Any]) -> str:
    where = "the host" if failure["slot"] is None else f"slot {failure['slot']}"
    return f"{where} could not be measured: {failure['sentence'].rstrip('.')}"


def _take_out(host: Host, findings: Sequence[dict[str, Any]]) -> None:
    bad = [each for each in findings if each["is_bad"]]
    for slot in sorted({each["slot"] for each in bad}, key=lambda slot: (slot is not None, slot)):
        evidence = "; ".join(each["sentence"] for each in bad if each["slot"] == slot)
        quarantine.by_burn_in(host.pk, slot, f"Burn-in: {evidence}.")


def with_findings() -> dict[str, int]:
    """Pool name -> how many of its hosts had something wrong in their last burn-in."""
    newest = BurnIn.objects.exclude(judged_at=None).exclude(command__state=CommandState.CANCELED)
    newest = newest.exclude(host__admission=Host.Admission.REMOVED)
    newest = newest.order_by("host_id", "-command__submitted_at").distinct("host_id")
    wrong = BurnIn.objects.filter(pk__in=newest.values("pk")).exclude(findings=[])
    return dict(wrong.values_list("host__pool__name").annotate(Count("pk")).order_by())

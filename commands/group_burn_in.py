"""Burn-ins of several hosts together: gangs of the lowest priority that measure the links between hosts of a pool.

Each host reports the rates of what it took part in. When the command has ended they are judged: a host that is slow
with all others is named, and a pool may have it taken out of use (`burn_in_do`).
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.db import transaction
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone

from accounts.models import User
from accounts.refusals import Code, Refusal
from commands import burn_in
from commands.models import Command, GroupBurnIn, GroupBurnInHost
from commands.states import END_STATES, CommandState
from events.announce import announce
from hosts import registry
from hosts.health import links
from hosts.health.links import Rate
from hosts.models import BEFORE_BURN_IN, BurnInAction, Host, PairCheck, Slot
from hosts.transitions import note
from jobs import quarantine
from jobs.models import Allocation, Member
from jobs.states import TaskState

#: each pair of hosts is measured, so a larger group would hold its hosts for long
MOST_HOSTS = 32
_LAUNCH = ["python3", "-m", "trainmaster.launch.torch_distributed"]
_PROGRAM = ["-m", "trainmaster.burn_in.between"]


def ask(host_ids: Sequence[uuid.UUID], *, owner: User, actor: str) -> Command:
    """Submit a burn-in of these hosts together, or return the one of them that has not ended yet. Raises Refusal."""
    burn_in.withdraw_all(outdated())
    return _ask(sorted(set(host_ids)), owner, actor)


@transaction.atomic
def _ask(host_ids: Sequence[uuid.UUID], owner: User, actor: str) -> Command:
    hosts = sorted((registry.locked(host_id) for host_id in host_ids), key=lambda host: host.name)
    if not 2 <= len(hosts) <= MOST_HOSTS:
        raise Refusal(
            f"Found {len(hosts)} host{'s' * (len(hosts) != 1)}, allowed: 2 to {MOST_HOSTS} together. "
            "Name the hosts, or measure parts of a larger pool one after the other.",
            field="hosts",
        )
    if (under_way := open_of(hosts)) is not None:
        return under_way.command
    slots, kind = _slots(hosts)
    # without GPUs one rank of a host has all of its link
    ranks = ["--nproc_per_node=1", "--"] if kind == Slot.Kind.CPU else []
    command = burn_in.submit_for(
        hosts,
        slots,
        [*_LAUNCH, *ranks, *_PROGRAM],
        f"Burn-in of {len(hosts)} hosts together",
        owner=owner,
        actor=actor,
    )
    row = GroupBurnIn.objects.create(command=command)
    GroupBurnInHost.objects.bulk_create(GroupBurnInHost(burn_in=row, host=host) for host in hosts)
    return command


def _slots(hosts: Sequence[Host]) -> tuple[int, str]:
    """How many they have in use, and of which kind. Raises Refusal if they cannot be one gang."""
    pool = hosts[0].pool
    if others := [host.name for host in hosts if host.pool_id != pool.pk]:
        raise Refusal(
            f"{hosts[0].name} is in pool {pool.name}, and {', '.join(others)} not. Name hosts of one pool.",
            Code.CONFLICT,
            field="hosts",
        )
    if waiting := [host.name for host in hosts if host.drain_cause in BEFORE_BURN_IN]:
        raise Refusal(
            f"{', '.join(waiting)} gets no work before its own burn-in has passed. Wait for that, or enable it.",
            Code.CONFLICT,
            field="hosts",
        )
    counts = {host.name: len(burn_in.slots_of(host)) for host in hosts}
    if len(set(counts.values())) > 1 and not pool.allow_heterogeneous_fits:
        shown = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise Refusal(
            f"Slots in use: {shown}; a gang needs as many on each host. Name hosts with as many slots.",
            Code.CONFLICT,
            field="hosts",
        )
    usable = Slot.objects.filter(host__in=hosts, **burn_in.USABLE)
    if divided := usable.filter(uuid__startswith="MIG-").select_related("host").first():
        raise Refusal(
            f"{divided.host.name} has parts of divided GPUs (MIG), between which NCCL measures nothing. "
            "Name hosts with whole GPUs.",
            Code.CONFLICT,
            field="hosts",
        )
    kinds = set(usable.values_list("kind", flat=True))
    if len(kinds) > 1:
        raise Refusal(
            "Some of these hosts have GPUs and some have none. Name hosts of one kind.", field="hosts"
        )
    pairs = PairCheck.objects.filter(first__in=hosts, second__in=hosts, ok=False)
    if (apart := pairs.select_related("first", "second").first()) is not None:
        raise Refusal(
            f"{' and '.join(apart.names)} cannot be in one gang: {apart.sentence} Fix that and test the pair again.",
            Code.CONFLICT,
            field="hosts",
        )
    return sum(counts.values()), kinds.pop()


def open_of(hosts: Sequence[Host]) -> GroupBurnIn | None:
    """The burn-in of just these hosts that waits or runs."""
    rows = GroupBurnIn.objects.filter(parts__host=hosts[0]).exclude(command__state__in=END_STATES)
    wanted = {host.pk for host in hosts}
    for row in rows.select_related("command"):
        if set(row.parts.values_list("host", flat=True)) == wanted:
            return row
    return None


def outdated() -> QuerySet[GroupBurnIn]:
    """Those that have not ended of which a host has left the pool since, or was taken out."""
    gone = GroupBurnInHost.objects.filter(burn_in=OuterRef("pk")).filter(
        ~Q(host__pool=F("burn_in__command__job__pool"))
        | Q(host__joined_at__gt=F("burn_in__command__submitted_at"))
        | Q(host__admission=Host.Admission.REMOVED)
    )
    return GroupBurnIn.objects.filter(Exists(gone)).exclude(command__state__in=END_STATES)


def withdraw_unfit() -> None:
    """End those that wait, but whose hosts can be no gang any more because of the slots that they have in use."""
    waiting = Q(burn_in__command__state=CommandState.ACTIVE, burn_in__command__task__state=TaskState.WAITING)
    is_usable = Q(**{f"host__slots__{name}": value for name, value in burn_in.USABLE.items()})
    parts = GroupBurnInHost.objects.filter(waiting).order_by("host__name")
    parts = parts.annotate(usable=Count("host__slots", filter=is_usable))
    in_use: defaultdict[uuid.UUID, dict[str, int]] = defaultdict(dict)
    for pk, name, usable in parts.values_list("burn_in", "host__name", "usable"):
        in_use[pk][name] = usable
    uneven = set(
        GroupBurnIn.objects.filter(
            pk__in=list(in_use), command__job__pool__allow_heterogeneous_fits=True
        ).values_list("pk", flat=True)
    )
    for pk, counts in in_use.items():
        if 0 in counts.values() or (len(set(counts.values())) > 1 and pk not in uneven):
            shown = ", ".join(f"{name} {count}" for name, count in counts.items())
            ending = f"its hosts can be no gang any more: slots in use: {shown}"
            burn_in.withdraw(pk, GroupBurnIn, ending)


# --- what its ranks report ----------------------------------------------------------------------------------


def reported(member: Member, records: Sequence[dict[str, Any]]) -> None:
    """Keep what a host says in a batch of the links that it has measured. What another command says is left."""
    rows = GroupBurnIn.objects.filter(command__task_id=member.allocation.task_id, judged_at=None)
    row = rows.select_for_update().first()
    if row is None:
        return
    before = row.rates, row.is_done
    peers = Member.objects.filter(allocation=member.allocation_id)
    numbers = {index: str(host) for index, host in peers.values_list("index", "host")}
    told = records[-burn_in.MOST_RECORDS :]
    row.is_done |= any(record["type"] == "burn_in_done" for record in told)
    of_rates = [record for record in told if record["type"] == "burn_in_rates"]
    if of_rates:
        has_company = burn_in.has_company(member)
        found = (rate for each in of_rates for rate in links.read(each, numbers, [str(member.host_id)]))
        new = (replace(rate, beside=has_company) for rate in found)
        row.rates = burn_in.with_rates(row.rates, new, len(numbers))
    if before != (row.rates, row.is_done):
        row.save(update_fields=["rates", "is_done"])


def starts_again(command: Command, allocation: Allocation) -> bool:
    """As of a burn-in of one host."""
    if not burn_in.has_given_way(command, allocation):
        return False
    rows = GroupBurnIn.objects.filter(command=command, is_done=False, judged_at=None)
    return rows.update(rates=[]) > 0


# --- what follows -------------------------------------------------------------------------------------------


def _elsewhere(row: GroupBurnIn) -> list[Rate]:
    """The rates of the pool's other pairs, each from the newest group that has measured it."""
    pool_id = row.command.job.pool_id
    present = {str(pk) for pk in registry.present().filter(pool=pool_id).values_list("pk", flat=True)}
    own = {str(pk) for pk in row.parts.values_list("host", flat=True)}
    others = GroupBurnIn.objects.filter(is_done=True, command__job__pool=pool_id)
    found: dict[frozenset[str], Rate] = {}
    for other in others.exclude(pk=row.pk).order_by("-command__submitted_at")[:_MOST_GROUPS]:
        for pair, rate in links.of_pairs(links.stored(other.rates), "all_reduce").items():
            if not pair <= own and pair <= present:
                found.setdefault(pair, rate)
    return list(found.values())


#: of a pool, whose rates are what is usual there
_MOST_GROUPS = 20


def judge_due() -> None:
    """Judge those that have ended, each once."""
    ended = GroupBurnIn.objects.filter(judged_at=None, command__state__in=END_STATES)
    for pk in list(ended.values_list("pk", flat=True)):
        _judge(pk)


@transaction.atomic
def _judge(pk: uuid.UUID) -> None:
    rows: QuerySet[GroupBurnIn] = GroupBurnIn.objects.select_for_update(of=("self",), skip_locked=True)
    row = rows.select_related("command__job__pool").filter(pk=pk, judged_at=None).first()
    if row is None:
        return
    row.judged_at = timezone.now()
    hosts = {str(host.pk): host for host in _in_order(row)}
    row.medians = links.medians(_elsewhere(row))
    findings = [] if row.command.state == CommandState.CANCELED else _findings(row, hosts)
    row.findings = findings
    row.save(update_fields=["findings", "medians", "judged_at"])
    announce("hosts")
    there = {host_id: host for host_id, host in hosts.items() if _is_still_there(host, row.command)}
    for host_id, host in there.items():
        about = [each["sentence"] for each in findings if host_id == each["host"] or _of_pair(each, host_id)]
        if about:
            sentence = f"Burn-in: {'; '.join(about)}."
            note(host, burn_in.FOUND, "server", {"name": host.name, "sentence": sentence})
    if row.command.job.pool.burn_in_do == BurnInAction.QUARANTINE:
        bad = [each for each in findings if each["is_bad"] and each["host"] in there]
        # all of them before the first locks their pool
        list(
            registry.present()
            .select_for_update()
            .filter(pk__in=[each["host"] for each in bad])
            .order_by("pk")
        )
        for each in bad:
            quarantine.by_burn_in(uuid.UUID(each["host"]), None, f"Burn-in: {each['sentence']}.")


def _is_still_there(host: Host, command: Command) -> bool:
    """Whether it is in the pool whose rule this is, since before it was asked for."""
    has_joined_since = host.joined_at is not None and command.submitted_at < host.joined_at
    is_removed = host.admission == Host.Admission.REMOVED
    return host.pool_id == command.job.pool_id and not has_joined_since and not is_removed


def _in_order(row: GroupBurnIn) -> list[Host]:
    """Its hosts by their numbers in the last attempt: in this order its ranks have searched."""
    members = Member.objects.filter(allocation__task=row.command.task_id).order_by("allocation__assigned_at")
    numbers = dict(members.values_list("host", "index"))
    return sorted(row.hosts.all(), key=lambda host: (numbers.get(host.pk, 0), host.name))


def _of_pair(finding: dict[str, Any], host_id: str) -> bool:
    """Whether it is about a pair of which the host is one, and no host is named."""
    return finding["host"] is None and len(finding["hosts"]) == 2 and host_id in finding["hosts"]


def _findings(row: GroupBurnIn, hosts: dict[str, Host]) -> list[dict[str, Any]]:
    if not row.is_done:
        sentence = f"it did not finish: {row.command.ending}"
        return [{"host": None, "hosts": list(hosts), "sentence": sentence, "is_bad": False}]
    found = links.judge(links.stored(row.rates), list(hosts), lambda part: hosts[part].name, row.medians)
    return [
        {"host": each.part, "hosts": list(each.parts), "sentence": each.sentence, "is_bad": each.is_bad}
        for each in found
    ]

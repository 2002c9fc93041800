"""When the server asks for burn-ins by itself, and what becomes of those that wait: looked at every minute."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Count, Exists, F, Max, OuterRef, Q
from django.utils import timezone

from accounts.models import User
from accounts.refusals import Refusal
from commands import burn_in, group_burn_in
from commands import transitions as commands
from commands.models import BurnIn, GroupBurnIn
from commands.states import END_STATES, CommandState
from hosts import registry, server_drains
from hosts.models import BEFORE_BURN_IN, BurnInRule, Host, Slot
from hosts.pools import mark_dirty
from jobs import transitions as jobs
from jobs.models import Task
from jobs.states import TaskState

log = logging.getLogger(__name__)
_WEEK, _DAY = timedelta(days=7), timedelta(days=1)
#: The server asks for so many by itself in one look, and has so large a share of a pool's hosts measured at once.
_PER_LOOK, _SHARE = 10, 0.1


def ask_due(now: datetime) -> None:
    """Ask for a burn-in of each host that waits for one, or whose pool wants one a week and that had none so long.

    Those that were measured longest ago come first. In a pool that wants one a week few are open at a time; such as
    found no room within a day do not count.
    """
    burn_in.withdraw_all(burn_in.outdated())
    burn_in.withdraw_all(group_burn_in.outdated())
    group_burn_in.withdraw_unfit()
    _ask_for_usable()
    _start_waiting()
    lately = BurnIn.objects.filter(host=OuterRef("pk"), command__submitted_at__gt=now - _WEEK)
    lately = lately.filter(Q(host__joined_at=None) | Q(command__submitted_at__gte=F("host__joined_at")))
    going_on = BurnIn.objects.filter(host=OuterRef("pk"), judged_at=None)
    usable = Slot.objects.filter(**burn_in.USABLE, host=OuterRef("pk"))
    weekly = Q(pool__burn_in=BurnInRule.WEEKLY, draining=False) & Exists(usable) & ~Exists(lately)
    ready = registry.present().filter(
        admission=Host.Admission.READY,
        contact=Host.Contact.REACHABLE,
        enabled=True,
        transport__in=burn_in.REACHED,
    )
    due = ready.filter(weekly | Q(drain_cause=Host.Drain.BURN_IN)).exclude(Exists(going_on))
    due = due.annotate(last=Max("burn_ins__command__submitted_at"))
    asked, room = 0, _room(now)
    for host in due.select_related("pool").order_by(F("last").asc(nulls_first=True), "pk"):
        if asked == _PER_LOOK:
            break
        is_held_back = host.drain_cause == Host.Drain.BURN_IN
        if not is_held_back and room[host.pool_id] <= 0:
            continue
        if is_held_back and not host.slots.filter(missing=False).exists():
            server_drains.burn_in_over(host.pk, "")  # there is nothing to be measured
        elif sentence := _ask_unasked(host):
            log.info("No burn-in of host %s: %s", host.name, sentence)
            server_drains.burn_in_refused(host.pk, sentence)
            if not is_held_back:
                room[host.pool_id] = 0  # what is refused for one host of the pool is refused for all
        else:
            server_drains.burn_in_refused(host.pk, "")
            asked += 1
            room[host.pool_id] -= 1


def _room(now: datetime) -> Counter[int]:
    """Pool -> how many more burn-ins of its hosts may be open."""
    sizes = registry.present().order_by().values_list("pool").annotate(Count("pk"))
    room = Counter({pool: max(1, int(count * _SHARE)) for pool, count in sizes})
    opened = BurnIn.objects.exclude(command__state__in=END_STATES)
    opened = opened.filter(
        Q(command__submitted_at__gt=now - _DAY) | Q(command__task__state=TaskState.RUNNING)
    )
    room.subtract(dict(opened.order_by().values_list("host__pool").annotate(Count("pk"))))
    return room


def _ask_unasked(host: Host) -> str:
    """The server asks for a burn-in; why it is refused, empty if it is not."""
    if (owner := _owner(host)) is None:
        return "No burn-in can be asked for: it is a job of an admin, and no admin is active."
    try:
        burn_in.ask(host.pk, owner=owner, actor="server")
    except Refusal as error:
        return f"No burn-in can be asked for: {error}"
    return ""


def _start_waiting() -> None:
    """Those on hosts that get no other work, and that could not start when they were asked for."""
    rows = BurnIn.objects.filter(host__drain_cause__in=BEFORE_BURN_IN, command__task__state=TaskState.WAITING)
    rows = rows.exclude(command__task__not_before__gt=timezone.now())
    for row in rows.select_related("command", "host"):
        with transaction.atomic():
            burn_in.start(row)


def _owner(host: Host) -> User | None:
    """Whose job it is if nobody has asked: the admin who added the host, else the first admin."""
    admins = User.objects.filter(is_active=True, role=User.Role.ADMIN).order_by("pk")
    return admins.filter(username=host.added_by).first() or admins.first()


def _ask_for_usable() -> None:
    """Let waiting burn-ins ask for the slots that their hosts have in use now; that of one host without any waits."""
    waiting = {"command__state": CommandState.ACTIVE, "command__task__state": TaskState.WAITING}
    for slots_of, rows in (
        ("host__slots", BurnIn.objects.filter(**waiting)),
        ("hosts__slots", GroupBurnIn.objects.filter(**waiting)),
    ):
        is_usable = Q(**{f"{slots_of}__{name}": value for name, value in burn_in.USABLE.items()})
        changed = rows.annotate(usable=Count(slots_of, filter=is_usable))
        changed = changed.exclude(usable=0).exclude(usable=F("command__task__slots"))
        for pk, slots in list(changed.values_list("pk", "usable")):
            _ask_for(pk, slots)


@transaction.atomic
def _ask_for(command_id: uuid.UUID, slots: int) -> None:
    command = commands.lock(command_id)
    jobs.lock_tasks([command.task_id])
    if Task.objects.filter(pk=command.task_id, state=TaskState.WAITING).update(slots=slots):
        command.config["resources"]["slots"] = slots
        command.save(update_fields=["config"])
        mark_dirty(command.job.pool_id)

"""Who changed what and when: what people did on the whole server, or in one pool, newest first.

The rows are those of `events.models.BY_PEOPLE`, which three small indexes are about: each page is a range of one of
them, however long the table is. Admins see everything; others what they did themselves, and what happened in a pool.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple
from urllib.parse import quote

from django.db.models import Q, QuerySet

from accounts.models import Group, User
from accounts.refusals import Refusal
from commands.models import Command
from events.models import BY_PEOPLE, Event
from experiments.models import Checkpoint, Experiment, Project, Template, Trial, Workspace
from hosts.models import Host, ResourcePool
from jobs.models import Job
from jobs.states import Reason
from shown import timeline
from shown.tasks import elements_at
from shown.timeline import Change
from submissions.models import Schedule
from trainmaster import csv_text

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
PER_PAGE = 50
PER_BLOCK = 1000
Kind = Event.Kind
#: kinds of objects that people act on
KINDS = (
    Kind.EXPERIMENT, Kind.TRIAL, Kind.CHECKPOINT, Kind.COMMAND, Kind.JOB, Kind.TASK, Kind.POOL, Kind.HOST, Kind.USER,
    Kind.GROUP, Kind.WORKSPACE, Kind.PROJECT, Kind.TEMPLATE, Kind.SCHEDULE, Kind.SERVER,
)  # fmt: skip


class KindOfChange(NamedTuple):
    title: str
    reasons: frozenset[str]


def _change(title: str, *reasons: str) -> KindOfChange:
    return KindOfChange(title, frozenset(map(str, reasons)))


CHANGES = {
    "priority": _change("priority", Reason.PRIORITY_SET),
    "weight": _change("weight", Reason.WEIGHT_SET),
    "max-slots": _change("slot limit", Reason.MAX_SLOTS_SET),
    "moved": _change("moved in the queue", Reason.MOVED),
    "deadline": _change("deadline", Reason.DEADLINE_SET, Reason.DEADLINE_AHEAD),
    "pool": _change("moved to another pool", Reason.POOL_CHANGED),
    "submitted": _change("submitted", Reason.SUBMITTED),
    "paused": _change("paused or activated", Reason.PAUSED_BY_USER, Reason.ACTIVATED_BY_USER),
    "stopped": _change("canceled, killed or deleted", Reason.CANCELED_BY_USER, Reason.KILLED_BY_USER),
    "edited": _change("edited", "changed", "renamed", "metadata_changed", "log_retention_changed"),
    "created": _change("created or added", "created", "made", "added", "created by single sign-on"),
    "removed": _change("removed", "removed", "deleted", "files removed", "archived", "unarchived"),
    "hosts": _change(
        "host enabled, drained or lost", "enabled", "disabled", "draining", "declared_lost", "key_accepted",
        "admission_retried",
    ),
    "logins": _change(
        "logins", "logged_in", "logged_out", "login_failed", "login_refused", "logins_refused_from_here",
        "login_token_issued",
    ),
    "tokens": _change(
        "access tokens", "access token created", "access token revoked", "access token description changed",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class AuditFilters:
    """`user`: a name, or `account:<Unix account>` of who ran a command of manage.py. `subject`: an id, or a name.

    What is empty or None is left out of account.
    """

    user: str = ""
    kind: str = ""
    subject: str = ""
    change: str = ""
    pool_id: int | None = None
    since: datetime | None = None
    before: datetime | None = None


@dataclass(frozen=True)
class AuditRow:
    """One act. `origin`: the address, for those who may know it; `name` and `href`: of the object, if it is there."""

    id: int
    at: datetime
    actor: str
    user: str
    origin: str
    what: str
    change: str
    kind: str
    subject: str
    name: str
    href: str
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class AuditPage:
    """`older` and `newer`: the id beside which the neighboring page begins."""

    rows: list[AuditRow]
    older: int | None
    newer: int | None


def found(filters: AuditFilters, viewer: User) -> QuerySet[Event]:
    """The events that the viewer may see of those, in no order."""
    if filters.subject and not filters.kind:
        raise Refusal("id names an object only together with kind.", field="id")
    if not viewer.is_admin and filters.pool_id is None:
        filters = replace(filters, user=viewer.username)
    rows = Event.objects.filter(BY_PEOPLE)
    if user := filters.user:
        rows = rows.filter(actor=user if ":" in user or user == "nobody" else f"user:{user}")
    if filters.pool_id is not None:
        rows = rows.filter(pools__contains=[filters.pool_id])
    if filters.kind == Kind.EXPERIMENT and re.fullmatch("[0-9]{1,18}", filters.subject):
        rows = rows.filter(experiment_id=int(filters.subject))  # with its trials and its job
    elif filters.kind:
        rows = rows.filter(kind=filters.kind)
        if filters.subject:
            rows = rows.filter(_about(filters.kind, filters.subject))
    if filters.change:
        rows = rows.filter(reason__in=CHANGES[filters.change].reasons)
    if filters.since:
        rows = rows.filter(at__gte=filters.since)
    if filters.before:
        rows = rows.filter(at__lt=filters.before)
    return rows


#: models whose rows people know by names -> the field
_NAMED: dict[str, tuple[type[Host | ResourcePool | User | Group | Template | Schedule], str]] = {
    Kind.HOST: (Host, "name"),
    Kind.POOL: (ResourcePool, "name"),
    Kind.USER: (User, "username"),
    Kind.GROUP: (Group, "name"),
    Kind.TEMPLATE: (Template, "name"),
    Kind.SCHEDULE: (Schedule, "name"),
}


def _about(kind: str, subject: str) -> Q:
    """By the id, or the name that the row has now, or had when it was changed if it has gone."""
    if kind in _NAMED:
        model, field = _NAMED[kind]
        ids = list(model._default_manager.filter(**{field: subject}).values_list("pk", flat=True))
        if ids:
            return Q(subject__in=[str(pk) for pk in ids])
    return Q(subject=subject) | Q(detail__name=subject)


def page(
    events: QuerySet[Event], viewer: User, *, after: int | None = None, before: int | None = None
) -> AuditPage:
    """The newest of the events; or those next to the event `before` or `after` which they came."""
    place = _place(after or before)
    is_back = after is not None and place is not None
    rows = _next_to(events, place, is_newer=is_back)[: PER_PAGE + 1]
    many = list(rows)
    shown, more = many[:PER_PAGE], len(many) > PER_PAGE
    if is_back and not more:
        return page(events, viewer)
    if is_back:
        shown.reverse()
    has_older, has_newer = is_back or more, place is not None
    return AuditPage(
        list(_rows(shown, viewer)),
        shown[-1].pk if shown and has_older else None,
        shown[0].pk if shown and has_newer else None,
    )


def _place(event_id: int | None) -> tuple[datetime, int] | None:
    """Where the event stands; None if it was removed since, or for none."""
    at = Event.objects.filter(pk=event_id).values_list("at", flat=True).first() if event_id else None
    return (at, event_id) if at and event_id else None


def _next_to(
    events: QuerySet[Event], place: tuple[datetime, int] | None, *, is_newer: bool = False
) -> QuerySet[Event]:
    """The events beyond a place, its neighbors first."""
    if place is None:
        return events.order_by("-at", "-id")
    at, event_id = place
    if is_newer:  # the first condition is what an index can be searched by
        beyond = Q(at__gte=at) & (Q(at__gt=at) | Q(id__gt=event_id))
        return events.filter(beyond).order_by("at", "id")
    beyond = Q(at__lte=at) & (Q(at__lt=at) | Q(id__lt=event_id))
    return events.filter(beyond).order_by("-at", "-id")


_HEADS = ("time", "user", "address", "kind", "id", "object", "change", "what", "before", "after")


def csv_blocks(events: QuerySet[Event], viewer: User) -> Generator[bytes]:
    """All of the events as CSV, a block at a time; times are in UTC."""
    yield csv_text.lines([_HEADS]).encode()
    place: tuple[datetime, int] | None = None
    while many := list(_next_to(events, place)[:PER_BLOCK]):
        yield csv_text.lines(map(_cells, _rows(many, viewer))).encode()
        place = (many[-1].at, many[-1].pk)


def _cells(row: AuditRow) -> Sequence[object]:
    before, after = (
        "; ".join(f"{each.field}: {value}" for each in row.changes if (value := getattr(each, side)))
        for side in ("was", "now")
    )
    at = row.at.isoformat(timespec="milliseconds")
    return (at, row.user, row.origin, row.kind, row.subject, row.name, row.change, row.what, before, after)


def _rows(events: Sequence[Event], viewer: User) -> Iterator[AuditRow]:
    asked: defaultdict[str, set[str]] = defaultdict(set)
    for event in events:
        asked[event.kind].add(event.subject)
    known = {
        (kind, str(pk)): (name, href)
        for kind, subjects in asked.items()
        for pk, name, href in _objects(kind, subjects)
    }
    for event in events:
        former = str(event.detail.get("name") or event.subject[:36])
        name, href = known.get((event.kind, event.subject), (former, ""))
        yield AuditRow(
            id=event.pk,
            at=event.at,
            actor=event.actor,
            user=timeline.actor_of(event.actor),
            origin=event.origin if viewer.is_admin or event.actor == f"user:{viewer.username}" else "",
            what=timeline.act(event),
            change=event.reason,
            kind=event.kind,
            subject=event.subject,
            name=name,
            href=href if event.kind != Kind.USER or viewer.is_admin else "",
            changes=tuple(timeline.changes_of(event)),
        )


def _objects(kind: str, subjects: Iterable[str]) -> Iterable[tuple[object, str, str]]:
    """(id, name, address) of those that are there."""
    numbers = [each for each in subjects if each.isdecimal()]
    ids = [each for each in subjects if _UUID.fullmatch(each)]
    match kind:
        case Kind.EXPERIMENT:
            rows = Experiment.objects.filter(pk__in=numbers).values_list("pk", "name")
            return [(pk, f"{pk} {name}", f"/experiments/{pk}") for pk, name in rows]
        case Kind.TRIAL:
            trials = Trial.objects.filter(pk__in=numbers).values_list("pk", flat=True)
            return [(pk, str(pk), f"/trials/{pk}") for pk in trials]
        case Kind.CHECKPOINT:
            found = Checkpoint.objects.filter(pk__in=ids).values_list("pk", "trial_id")
            return [(pk, str(pk)[:8], f"/trials/{trial}/checkpoints/{pk}") for pk, trial in found]
        case Kind.TASK:
            tasks = Trial.objects.filter(task_id__in=subjects).values_list("task_id", "pk")
            return [(task, f"of trial {pk}", f"/trials/{pk}/logs") for task, pk in tasks]
        case Kind.COMMAND:
            texts = Command.objects.filter(pk__in=ids).values_list("pk", "description")
            arrays = Job.objects.filter(pk__in=ids, kind=Job.Kind.ARRAY).values_list("pk", "name")
            whole = [(pk, name, elements_at(pk)) for pk, name in arrays]
            return [*whole, *((pk, text, f"/commands/{pk}") for pk, text in texts)]
        case Kind.JOB:
            jobs = Job.objects.filter(pk__in=ids).values_list("pk", "name")
            return [(pk, name, f"/jobs/job/{pk}") for pk, name in jobs]
        case Kind.HOST:
            hosts = Host.objects.filter(pk__in=ids).exclude(admission=Host.Admission.REMOVED)
            return [(pk, name, f"/hosts/{name}") for pk, name in hosts.values_list("pk", "name")]
        case Kind.POOL:
            pools = ResourcePool.objects.filter(pk__in=numbers).values_list("pk", "name")
            return [(pk, name, f"/pools/{name}") for pk, name in pools]
        case Kind.USER:
            users = User.objects.filter(pk__in=numbers).values_list("pk", "username")
            return [(pk, name, f"/users/{pk}") for pk, name in users]
        case Kind.GROUP:
            groups = Group.objects.filter(pk__in=numbers).values_list("pk", "name")
            return [(pk, name, f"/groups/{name}") for pk, name in groups]
        case Kind.WORKSPACE:
            spaces = Workspace.objects.filter(pk__in=numbers).values_list("pk", "name")
            return [(pk, name, f"/workspaces/{pk}") for pk, name in spaces]
        case Kind.PROJECT:
            projects = Project.objects.filter(pk__in=numbers).values_list("pk", "name")
            return [(pk, name, f"/projects/{pk}") for pk, name in projects]
        case Kind.SCHEDULE:
            schedules = Schedule.objects.filter(pk__in=numbers).values_list("pk", "name")
            return [(pk, name, f"/schedules/{name}") for pk, name in schedules]
        case Kind.TEMPLATE:
            templates = Template.objects.filter(pk__in=numbers).values_list("pk", "name")
            return [(pk, name, f"/templates/{quote(name, safe='')}") for pk, name in templates]
    return []

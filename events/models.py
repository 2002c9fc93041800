"""Event rows, one for each change of state, written in the same transaction as the change (law 2); and leases."""

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import BrinIndex, GinIndex
from django.db import models
from django.db.models import Case, F, Q, Value, When

from events.origin import address

#: in the detail of a trial's step: it was asked of this trial alone, and does not follow from a wish about all
ASKED = "asked"
_BY_PEOPLE = (
    (Q(actor__startswith="user:") | Q(actor__startswith="account:") | Q(actor="nobody"))
    & ~Q(kind__in=["allocation", "member"])
    & ~Q(from_state__startswith="STOPPING")
    & (~Q(kind__in=["job", "task", "trial"]) | Q(from_state=F("to_state")) | Q(detail__has_key=ASKED))
)
#: What people did, failed attempts too: neither what the server did nor the further rows of the same wish, such as the
#: steps of the trials and attempts of an experiment that someone killed. A CASE keeps PostgreSQL from taking its parts
#: for independent of each other: it would expect a few rows, and sort all of them instead of reading an index in order.
BY_PEOPLE = Q(
    Case(When(_BY_PEOPLE, then=Value(True)), default=Value(False), output_field=models.BooleanField())
)


class Presence(models.Model):
    """One part of the control plane, when it was last there, and since when without a gap (events.presence)."""

    part = models.CharField(max_length=16, primary_key=True)
    #: how often it has come back; evidence is kept with the era in which it was gathered
    era = models.BigIntegerField()
    since = models.DateTimeField()
    stamped_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.part}, era {self.era}"


class Event(models.Model):
    """What changed, from what to what, why, by whom, from where, when.

    Timelines, server-side log lines and notifications read this table; nothing else records history.
    """

    class Kind(models.TextChoices):
        EXPERIMENT = "experiment"
        TRIAL = "trial"
        COMMAND = "command"
        CHECKPOINT = "checkpoint"
        JOB = "job"
        TASK = "task"
        ALLOCATION = "allocation"
        MEMBER = "member"
        HOST = "host"
        SLOT = "slot"
        POOL = "pool"
        USER = "user"
        GROUP = "group"
        WORKSPACE = "workspace"
        PROJECT = "project"
        TEMPLATE = "template"
        SCHEDULE = "schedule"
        SERVER = "server"

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(auto_now_add=True)
    kind = models.CharField(max_length=16, choices=Kind.choices)
    #: primary key of the row that changed, as text
    subject = models.CharField(max_length=128)
    from_state = models.CharField(max_length=32, blank=True)
    to_state = models.CharField(max_length=32, blank=True)
    #: a code of the room's own Reason enum; never prose
    reason = models.CharField(max_length=64, blank=True)
    #: "user:<name>", "scheduler", "host:<name>", "server", "account:<Unix account>" of a command of manage.py
    actor = models.CharField(max_length=160, default="server")
    #: the address from which `actor` asked, or events.origin.HERE; empty for what the server did itself
    origin = models.CharField(max_length=100, blank=True, default=address)
    detail = models.JSONField(default=dict)
    # what the row belongs to, for timelines
    job_id = models.UUIDField(null=True)
    task_id = models.CharField(max_length=96, blank=True)
    experiment_id = models.BigIntegerField(null=True)
    #: the pools whose queue, hosts or rules it is about
    pools = ArrayField(models.BigIntegerField(), default=list, db_default=[])

    class Meta:
        ordering = ["id"]
        indexes = [
            models.Index(fields=["kind", "subject", "id"]),
            # small, since rows come in the order of time; dispatch.keeping.event_retention looks for the oldest
            BrinIndex(fields=["at"], name="events_by_time"),
            # few among those of attempts: which edits of queues came after a forecast
            models.Index(fields=["at"], condition=models.Q(kind="job"), name="events_of_jobs_by_time"),
            models.Index(fields=["task_id", "id"], condition=~models.Q(task_id=""), name="events_by_task"),
            models.Index(
                fields=["experiment_id", "id"],
                condition=models.Q(experiment_id__isnull=False),
                name="events_by_experiment",
            ),
            # few among those of attempts: what people did, by all, by one, and in one pool
            models.Index(fields=["at", "id"], condition=BY_PEOPLE, name="events_by_people"),
            models.Index(fields=["actor", "at", "id"], condition=BY_PEOPLE, name="events_by_person"),
            GinIndex(fields=["pools"], condition=BY_PEOPLE, name="events_by_people_in_pools"),
        ]

    def __str__(self) -> str:
        step = f"{self.from_state} -> {self.to_state} " if self.from_state or self.to_state else ""
        return f"{self.kind} {self.subject}: {step}({self.reason})"


class Lease(models.Model):
    """Who may do some work now, and until when. `events.leases` alone writes it; times are the database's."""

    name = models.CharField(max_length=128, primary_key=True)
    #: host name and process, for people
    holder = models.CharField(max_length=160)
    fence = models.BigIntegerField()
    taken_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.name}: {self.holder} until {self.expires_at}"

"""Jobs, tasks, allocations and gang members. `jobs.transitions` alone writes their states.

A job is what stands in the queue; its tasks ask for slots; an allocation is one attempt of a task on a
gang of hosts; a member is the gang's part on one host.
"""

from __future__ import annotations

import secrets
import uuid
from datetime import UTC, datetime

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from hosts.login_accounts import unix_user
from hosts.models import Host, ResourcePool, Slot
from jobs.counts import GroupCount as GroupCount
from jobs.counts import PoolCount as PoolCount
from jobs.fed_jobs import FedJob as FedJob
from jobs.states import AllocationState, JobState, MemberState, Reason, StopKind, TaskState


class Job(models.Model):
    class Kind(models.TextChoices):
        EXPERIMENT = "EXPERIMENT"
        COMMAND = "COMMAND"
        # commands whose program people use through the server
        SHELL = "SHELL"
        NOTEBOOK = "NOTEBOOK"
        TENSORBOARD = "TENSORBOARD", "TensorBoard"
        # a command run many times; each time is a task of the job, which is called an element
        ARRAY = "ARRAY"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    kind = models.CharField(max_length=16, choices=Kind.choices)
    name = models.CharField(max_length=255)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="jobs")
    pool = models.ForeignKey(ResourcePool, on_delete=models.PROTECT, related_name="jobs")
    state = models.CharField(max_length=8, choices=JobState.choices, default=JobState.ACTIVE)
    #: 1 is highest
    priority = models.PositiveSmallIntegerField(default=42)
    weight = models.FloatField(default=1.0)
    max_slots = models.PositiveIntegerField(null=True, blank=True)
    #: Orders jobs of one priority; the submission's epoch seconds until a move sets a value between two others.
    position = models.FloatField()
    moved_at = models.DateTimeField(null=True)
    preemptible = models.BooleanField(default=True)
    #: when its owner wants it to have ended (`jobs.deadlines`)
    deadline_at = models.DateTimeField(null=True)
    #: its position before its deadline moved it ahead; null if that has not happened, or a user has moved it since
    usual_position = models.FloatField(null=True)
    #: when it was first told that the deadline cannot be met
    late_told_at = models.DateTimeField(null=True)
    submitted_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)
    #: whether it did what it was submitted for; null until it has ended, and of what runs outside the queue
    succeeded = models.BooleanField(null=True)
    #: what the job is about: the experiment's id
    entity_id = models.CharField(max_length=64, blank=True)
    progress = models.FloatField(null=True)
    #: of an array: how many elements it was submitted with, and how many of them may run at once (null: all)
    elements = models.PositiveIntegerField(null=True)
    at_once = models.PositiveIntegerField(null=True)

    class Meta:
        ordering = ["priority", "position"]
        indexes = [
            models.Index(
                fields=["pool", "priority", "position"], condition=~Q(state="ENDED"), name="queue_order"
            ),
            models.Index(fields=["owner", "submitted_at"], name="jobs_of_owner"),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(priority__gte=1, priority__lte=99), name="priority_1_to_99"),
            models.CheckConstraint(condition=Q(weight__gt=0), name="weight_above_0"),
        ]


class Dependency(models.Model):
    """`job` may not start before `on` has ended as `condition` says. `jobs.dependencies` alone writes these rows."""

    class Condition(models.TextChoices):
        SUCCESS = "success"
        END = "end"
        FAILURE = "failure"

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="depends_on")
    #: null once it was deleted; of an array, its job, with the element if one alone is waited for
    on = models.ForeignKey(Job, on_delete=models.SET_NULL, null=True, related_name="dependents")
    element = models.ForeignKey("Task", on_delete=models.SET_NULL, null=True, related_name="dependents")
    #: the element of `job`, an array, that alone waits for this; null: all of it does
    task = models.ForeignKey("Task", on_delete=models.CASCADE, null=True, related_name="depends_on")
    #: how sentences call it
    label = models.CharField(max_length=64)
    condition = models.CharField(max_length=8, choices=Condition.choices)
    #: when it was met; it stays so
    met_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["job"], condition=Q(met_at=None), name="open_dependencies")]


class Task(models.Model):
    class Kind(models.TextChoices):
        TRIAL = "TRIAL"
        COMMAND = "COMMAND"

    id = models.CharField(max_length=96, primary_key=True)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="tasks")
    kind = models.CharField(max_length=8, choices=Kind.choices)
    name = models.CharField(max_length=255)
    slots = models.PositiveIntegerField()
    single_host = models.BooleanField(default=False)
    state = models.CharField(max_length=8, choices=TaskState.choices, default=TaskState.WAITING)
    #: allocations so far; the next one's number is this plus 1
    run_count = models.PositiveIntegerField(default=0)
    #: not placed before this time (back-off after a failed launch)
    not_before = models.DateTimeField(null=True)
    #: a Reason code while the task may not be placed although it waits (its checkpoint is being uploaded)
    blocked_by = models.CharField(max_length=32, blank=True)
    #: warned, preempted and stopped when it has run so long, all attempts together; null: as long as it likes
    max_time_seconds = models.PositiveIntegerField(null=True)
    #: names of hosts where it is not placed again
    avoid_hosts = models.JSONField(default=list)
    #: names of the hosts that its config allows; empty: all of its pool
    only_hosts = models.JSONField(default=list)
    #: [{"host", "era", "attempt", "avoid", "final"}]: its failed starts since it last started. Where it may, it avoids
    #: the hosts with "avoid"; "era" is the host's `failed_starts_era` at that time
    failed_starts = models.JSONField(default=list)
    #: its last attempt has lost its host, as we ourselves know (`experiments.outcomes`), and none has run since
    recovers = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)
    #: of an element of an array: whether it did what it was submitted for; null until it has ended
    succeeded = models.BooleanField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["state"], condition=Q(state__in=["WAITING", "RUNNING"]), name="live_tasks")
        ]


class Allocation(models.Model):
    """One attempt of a task: the slots it holds, its token, and how it ended."""

    id = models.CharField(max_length=112, primary_key=True)
    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="allocations")
    number = models.PositiveIntegerField()
    pool = models.ForeignKey(ResourcePool, on_delete=models.PROTECT, related_name="+")
    state = models.CharField(max_length=12, choices=AllocationState.choices, default=AllocationState.ASSIGNED)
    slots = models.PositiveIntegerField()
    on_sufferance = models.BooleanField(default=False)
    #: SHA-256 of the run token; empty once the allocation is over, so a late runner is refused
    token_hash = models.CharField(max_length=64, blank=True, db_index=True)
    #: the Unix account that all of it runs under since its first launch, empty for the login's; null before that
    unix_user = models.CharField(max_length=64, null=True)
    #: shared secret of the gang's peers (collectives)
    gang_secret = models.CharField(max_length=64, default=secrets.token_hex)
    #: {"c10d": …, "comm": …}
    ports = models.JSONField(default=dict)
    stop_kind = models.CharField(max_length=8, choices=StopKind.choices, blank=True)
    stop_reason = models.CharField(max_length=32, choices=Reason.choices, blank=True)
    stop_actor = models.CharField(max_length=160, blank=True)
    stop_requested_at = models.DateTimeField(null=True)
    stop_grace_seconds = models.FloatField(null=True)
    #: the task that the slots are being freed for
    stop_for_task = models.CharField(max_length=96, blank=True)
    #: how long a PREEMPT leaves to save in, from when its hosts were told
    stop_save_seconds = models.FloatField(null=True)
    #: a PREEMPT becomes a STOP at this time; null until everything of it that runs has been told
    stop_deadline_at = models.DateTimeField(null=True)
    #: its training code has asked whether it should stop: it can save when it is told to
    asked_preempt_at = models.DateTimeField(null=True)
    #: it was told that its time limit is near
    time_warned_at = models.DateTimeField(null=True)
    preempt_acked_at = models.DateTimeField(null=True)
    exit_reason = models.CharField(max_length=32, choices=Reason.choices, blank=True)
    exit_code = models.IntegerField(null=True)
    #: {"rank", "code", "signal", "host", "lines": […last lines…], "missing_bytes"} of the first failure
    exit_detail = models.JSONField(default=dict)
    assigned_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    #: when the last of its members ended, as their hosts said
    ended_at = models.DateTimeField(null=True)
    #: when the server learned of that
    settled_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            # a task has one live attempt at most: the second assign of a racing tick fails here
            models.UniqueConstraint(
                fields=["task"], condition=~Q(state="TERMINATED"), name="one_open_allocation_per_task"
            ),
            models.UniqueConstraint(fields=["task", "number"], name="run_number_once_per_task"),
        ]
        indexes = [
            models.Index(fields=["state"], condition=~Q(state="TERMINATED"), name="open_allocations"),
            # how long work like this ran: the newest ends
            models.Index(
                fields=["-ended_at"], condition=Q(exit_reason="completed"), name="completed_attempts"
            ),
        ]

    @property
    def account_now(self) -> str | None:
        """The Unix account that work of its owner has in its pool at present; None: that of the login."""
        return unix_user(self.pool, self.task.job.owner.unix_user)

    @property
    def account(self) -> str | None:
        """The Unix account that it runs under since its first launch; before that, the present one."""
        return self.account_now if self.unix_user is None else self.unix_user or None


class Member(models.Model):
    """The gang's part on one host: one run folder, one launcher, one stream."""

    allocation = models.ForeignKey(Allocation, on_delete=models.CASCADE, related_name="members")
    index = models.PositiveIntegerField()
    host = models.ForeignKey(Host, on_delete=models.PROTECT, related_name="members", db_index=False)
    slots = models.PositiveIntegerField()
    state = models.CharField(max_length=8, choices=MemberState.choices, default=MemberState.ASSIGNED)
    launch_attempts = models.PositiveIntegerField(default=0)
    #: claims in a row of which nothing was noted, the present one included: their workers ended in the middle
    launch_crashes = models.PositiveIntegerField(default=0)
    #: a worker that launches claims the row until this time, so that a redelivered message does nothing
    launch_claimed_until = models.DateTimeField(null=True)
    #: when a message last asked for its launch
    launch_asked_at = models.DateTimeField(default=timezone.now)
    #: a launch was sent whose outcome nobody knows: only the host itself can say that nothing runs
    launch_in_doubt = models.BooleanField(default=False)
    last_error = models.TextField(blank=True)
    boot_id = models.CharField(max_length=64, blank=True)
    launched_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    #: as its host said, else when the server concluded it; its slots are free once the server knows
    ended_at = models.DateTimeField(null=True)
    heartbeat_at = models.DateTimeField(null=True)
    #: the runner's own account of its spool: {"spool_bytes", "unshipped_bytes", "dropped_bytes"}
    spool = models.JSONField(default=dict)
    exit_code = models.IntegerField(null=True)
    exit_signal = models.IntegerField(null=True)
    exit_reason = models.CharField(max_length=32, choices=Reason.choices, blank=True)
    #: [{"rank", "code", "signal", "at", "failed"}]: its ranks that ended with another code than 0, in order of arrival;
    #: `at` in the server's clock, `failed`: by itself, not because it was told to
    rank_ends = models.JSONField(default=list)
    #: its host has said that its entrypoint is over; false for an end that was concluded without that (a lost host)
    exited = models.BooleanField(default=False)
    #: how long its outbox was when its end was told before all of it had arrived
    outbox_bytes = models.BigIntegerField(null=True)
    #: when a stop was last sent over SSH, so that it is sent again only after a while
    stop_sent_at = models.DateTimeField(null=True)
    #: when its host first confirmed that the run is told to save and leave
    preempt_told_at = models.DateTimeField(null=True)
    #: its runner has nothing left to do: all is shipped and uploaded, or was given up
    finished_at = models.DateTimeField(null=True)
    #: how many times as long as its gang's other hosts this one took for a step; null: not known
    pace = models.FloatField(null=True)
    #: the run folder is gone from the host
    removed_at = models.DateTimeField(null=True)
    #: it has ended and processes of it may live: its slots stay held until the host says that nothing is left
    cleaning_since = models.DateTimeField(null=True)
    #: what is left of it has survived SIGKILL for UNKILLABLE_SECONDS, so that its host was drained
    cleaning_failed_at = models.DateTimeField(null=True)
    #: [{"pid", "user", "command", "state"}]: what the host last found of it while it is being cleaned up
    remains = models.JSONField(default=list)
    #: [[slot, from, to]] in epoch seconds: when slots that it held stood idle, once that was over
    idle = models.JSONField(default=list, db_default=[])

    class Meta:
        ordering = ["index"]
        constraints = [models.UniqueConstraint(fields=["allocation", "index"], name="member_index_once")]
        indexes = [
            # a host's page shows those that ended lately
            models.Index(fields=["host", "ended_at"], name="members_by_end"),
            models.Index(
                fields=["host"], condition=Q(cleaning_since__isnull=False), name="members_cleaned_up"
            ),
            # those that run are few among all that have ended: pages of hosts and pools ask for them
            models.Index(fields=["host"], condition=~Q(state="ENDED"), name="live_members"),
            # a few among all that have ended: every sweep asks for them
            models.Index(
                fields=["host"],
                condition=Q(outbox_bytes__isnull=False, finished_at__isnull=True),
                name="members_with_more_to_come",
            ),
        ]

    @property
    def run_key(self) -> str:
        return f"{self.allocation_id}.{self.index}"

    @property
    def surely_ended_at(self) -> datetime | None:
        """By when it had ended, None while its attempt goes on: its host's word may be from a file of its job."""
        settled_at = self.allocation.settled_at
        return max(settled_at, self.ended_at or settled_at) if settled_at else None

    def server_seconds(self, stamp: float) -> float:
        """Epoch seconds of the clock of its host as those of the server, by the measured skew.

        A time before the attempt or in the future shows a clock that was set since: then the arrival counts, which is
        now. So it does for a machine of a detached run, whose clock nobody has measured.
        """
        by_skew, now = stamp - (self.host.clock_skew_seconds or 0.0), timezone.now().timestamp()
        is_measured = self.host.transport != Host.Transport.NONE
        return by_skew if is_measured and self.allocation.assigned_at.timestamp() <= by_skew <= now else now

    def server_time(self, stamp: float) -> datetime:
        """The server's time for a timestamp of the clock of its host."""
        return datetime.fromtimestamp(self.server_seconds(stamp), UTC)


class FirstStart(models.Model):
    """When a job first got slots, and where: how long it had waited. `jobs.assigning` writes it once for each job."""

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="+")
    pool = models.ForeignKey(ResourcePool, on_delete=models.PROTECT, related_name="+", db_index=False)
    submitted_at = models.DateTimeField()
    at = models.DateTimeField()

    class Meta:
        # the waits of the last days are summed up from the index alone
        indexes = [models.Index(fields=["pool", "submitted_at"], include=["at"], name="first_starts_by_pool")]


class ForecastOutcome(models.Model):
    """What became of a promised start (`scheduling.promises`): a row once it was missed, or the task has started.

    `dispatch.passes.forecast_outcomes` writes it; `dispatch.keeping.pool_history` forgets it after some weeks.
    """

    pool = models.ForeignKey(ResourcePool, on_delete=models.PROTECT, related_name="+", db_index=False)
    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="+", db_index=False)
    promised_at = models.DateTimeField()
    earliest = models.DateTimeField()
    latest = models.DateTimeField()
    #: when it was withdrawn because it was over, and why the task still waited
    missed_at = models.DateTimeField(null=True)
    why = models.TextField(blank=True)
    started_at = models.DateTimeField(null=True)
    #: when it was seen that the task waits no more and has not started: its job was paused, moved or ended
    left_at = models.DateTimeField(null=True)
    #: a user edited the queue of the pool in between: the promise did not know of that
    edited = models.BooleanField(default=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["task", "promised_at"], name="promise_kept_once")]
        indexes = [
            models.Index(fields=["pool", "promised_at"], name="forecasts_by_pool"),
            # those that still wait: each forecast asks for them
            models.Index(
                fields=["pool"],
                condition=Q(started_at__isnull=True, left_at__isnull=True),
                name="forecasts_that_wait",
            ),
        ]


class SlotHold(models.Model):
    """A member holds a slot until `released_at`. The database keeps a GPU from being given twice.

    An ended member holds its slots only while it is being cleaned up (`Member.cleaning_since`).
    """

    slot = models.ForeignKey(Slot, on_delete=models.PROTECT, related_name="holds")
    member = models.ForeignKey(Member, on_delete=models.CASCADE, related_name="holds")
    released_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["slot"], condition=Q(released_at__isnull=True), name="slot_held_once"
            )
        ]


class UsageRecord(models.Model):
    """What an ended attempt held on one host. It stays when its job is deleted; `dispatch.keeping.usage` writes it."""

    #: as of the member: "<allocation>.<index>"
    run_key = models.CharField(max_length=128, primary_key=True)
    kind = models.CharField(max_length=8, choices=Task.Kind.choices)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    pool = models.ForeignKey(ResourcePool, on_delete=models.PROTECT, related_name="+")
    slots = models.PositiveIntegerField()
    #: from the assignment of its slots to the end of what ran on them
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    #: of the experiment, as they were when the attempt ended
    labels = models.JSONField(default=list)
    experiment_number = models.BigIntegerField(null=True)
    workspace = models.CharField(max_length=80, blank=True)
    #: {day: {part: slot-microseconds}}, parts of `jobs.time_parts`; null until `dispatch.keeping.goodput` has told it
    went_to = models.JSONField(null=True)
    #: whether what it went to is in the sums of each day; what a server of an older version tells is not, at first
    in_sums = models.BooleanField(default=False, db_default=False)

    class Meta:
        indexes = [
            models.Index(fields=["ended_at"], name="usage_by_end"),
            models.Index(fields=["-ended_at"], condition=Q(went_to__isnull=True), name="usage_not_told_yet"),
            models.Index(
                fields=["-ended_at"],
                condition=Q(went_to__isnull=False, in_sums=False),
                name="usage_not_in_sums",
            ),
        ]


class SlotTimeTotal(models.Model):
    """What `UsageRecord.went_to` said of a pool and a part soon after ends; `dispatch.keeping.goodput` writes it."""

    pool = models.ForeignKey(ResourcePool, on_delete=models.CASCADE, related_name="+", db_index=False)
    part = models.CharField(max_length=64)
    slot_microseconds = models.DecimalField(max_digits=30, decimal_places=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["pool", "part"], name="slot_time_once_per_part")]


class SlotTimeOfDay(models.Model):
    """The sums of what `UsageRecord.went_to` says of a day in UTC; `dispatch.keeping.slot_days` writes them.

    As those records, they stay when the experiment is deleted.
    """

    day = models.DateField()
    pool = models.ForeignKey(ResourcePool, on_delete=models.PROTECT, related_name="+", db_index=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    #: 0: a task of none
    experiment_number = models.BigIntegerField(default=0)
    part = models.CharField(max_length=64)
    slot_microseconds = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["day", "pool", "owner", "experiment_number", "part"], name="slot_time_once_a_day"
            )
        ]


class PortLease(models.Model):
    """A port of a host, leased to an allocation (rendezvous, collectives)."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="port_leases")
    port = models.PositiveIntegerField()
    allocation = models.ForeignKey(Allocation, on_delete=models.CASCADE, related_name="port_leases")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["host", "port"], name="port_leased_once")]


class QueueEdit(models.Model):
    """One edit of the queue as its author made it, so that it can be undone while nothing else has changed it.

    `before` and `after`: [{"job": id, "pool": id, "priority", "weight", "position", "moved_at"}].
    """

    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="queue_edits")
    sentences = models.JSONField(default=list)
    before = models.JSONField(default=list)
    after = models.JSONField(default=list)
    made_at = models.DateTimeField(auto_now_add=True)
    undone_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-made_at"]

"""Resource pools, hosts and slots, and what was last seen of them.

Desired state (enabled, draining, pool) is written by people through hosts.registry; observed state
(boot id, slots, doctor) by dispatch through hosts.observe. Admission and contact are states, which
hosts.transitions writes for both. Nothing else writes these rows.
"""

from __future__ import annotations

import uuid
from datetime import datetime

from django.db import models
from django.db.models import Q

from hosts import states
from scheduling import policies
from scheduling.policy import Policy


class PresentPools(models.Manager["ResourcePool"]):
    """All pools but the removed ones."""

    def get_queryset(self) -> models.QuerySet[ResourcePool]:
        return super().get_queryset().filter(removed=False)


class HangAction(models.TextChoices):
    """What is done about a training that hangs; the two that end it need proof (`logs.hangs.verdict`)."""

    TELL = "tell"
    RESTART = "restart"
    RESTART_ELSEWHERE = "restart_elsewhere"


class BurnInRule(models.TextChoices):
    """When the server asks for burn-ins by itself (`commands.burn_in`)."""

    NEVER = "never"
    BEFORE_JOINING = "before_joining"
    WEEKLY = "weekly"


class BurnInAction(models.TextChoices):
    """What follows if a burn-in finds less than half of what is usual in the pool."""

    TELL = "tell"
    QUARANTINE = "quarantine"


class ResourcePool(models.Model):
    """A set of hosts with one queue and one scheduler. `hosts.pool_edits` alone changes its rules."""

    class Fitting(models.TextChoices):
        BEST = "best"
        WORST = "worst"

    name = models.CharField(max_length=64, unique=True)
    description = models.TextField(blank=True)
    scheduler = models.CharField(max_length=16, choices=policies.CHOICES, default=policies.DEFAULT)
    fitting = models.CharField(max_length=8, choices=Fitting.choices, default=Fitting.BEST)
    preemption = models.BooleanField(default=True)
    allow_heterogeneous_fits = models.BooleanField(default=False)
    default_priority = models.PositiveSmallIntegerField(default=42)
    #: role -> the highest priority (lowest number) that it may give here; roles without an entry may give 1
    priority_floor = models.JSONField(default=dict, blank=True)
    strict = models.BooleanField(default=False, help_text="only its owner and admins may change a job here")
    #: A trial's or command's time limit where its config gives none, and the longest that a config may ask; null: none.
    default_max_time_seconds = models.PositiveIntegerField(null=True, blank=True)
    longest_max_time_seconds = models.PositiveIntegerField(null=True, blank=True)
    #: Slots that work with `preemptible: false` in its config may hold together; null: all of them.
    unpreemptible_slots = models.PositiveIntegerField(null=True, blank=True)
    #: Priority -> seconds that work of it, and of lower ones down to the next entry, runs before others may stop it.
    min_runtime_seconds = models.JSONField(default=dict, blank=True)
    #: so long before its start hosts may be reserved for a gang (`scheduling.patience`); null: from its turn on
    patience_seconds = models.PositiveIntegerField(null=True, blank=True)
    #: so many hosts are kept for attempts whose own host has failed (`scheduling.spares`)
    spare_hosts = models.PositiveIntegerField(default=0)
    #: Group -> {"guarantee", "limit", "weight"}; whoever is not named has no guarantee, no limit and the weight 1.
    group_shares = models.JSONField(default=dict, blank=True)
    #: {"groups": names, "workspaces": numbers} of those who may use it; empty: everyone
    open_to = models.JSONField(default=dict, blank=True)
    #: after so long, what a group has held counts half in its turn for what is left over; 0: it does not count
    usage_half_life_seconds = models.PositiveIntegerField(default=7 * 86400)
    #: hosts that are taken for a time: maintenance and reservations (`hosts.pool_windows`, their one writer)
    windows = models.JSONField(default=list, blank=True)
    launch_error = models.BooleanField(
        default=True,
        help_text="work on one host that is larger than every host is refused; off: it waits for one",
    )
    aux_per_host = models.PositiveIntegerField(default=100, help_text="zero-slot tasks at once on one host")
    #: A silent host is declared lost after this time; null: only by a person.
    host_lost_after_seconds = models.PositiveIntegerField(null=True, blank=True)
    #: how the cluster is reached and what its jobs ask for (`hosts.slurm.settings`); {}: hosts reached by SSH
    slurm = models.JSONField(default=dict, blank=True)
    #: Look what keeps a training once it has made no progress for so long; null: never.
    hang_after_seconds = models.PositiveIntegerField(null=True, blank=True, default=900)
    hang_do = models.CharField(max_length=20, choices=HangAction.choices, default=HangAction.TELL)
    burn_in = models.CharField(max_length=16, choices=BurnInRule.choices, default=BurnInRule.NEVER)
    burn_in_do = models.CharField(max_length=16, choices=BurnInAction.choices, default=BurnInAction.TELL)
    shared_account = models.BooleanField(
        default=False, help_text="jobs share the login account; no isolation"
    )
    allow_login_account = models.BooleanField(
        default=False,
        help_text="jobs may run as a login account that is root or may become root (by sudo, or by a Docker daemon "
        "of root): those of users without a linked account, and all jobs if the account is shared",
    )
    network_interface = models.CharField(max_length=32, blank=True)
    default_compute = models.BooleanField(default=False)
    default_aux = models.BooleanField(default=False)
    #: of the last pass, whose document is a row of its own
    planned_at = models.DateTimeField(null=True)
    #: taken out by a person; the row stays, hidden, for the history that points at it
    removed = models.BooleanField(default=False)

    @property
    def policy(self) -> Policy:
        """What its scheduler states."""
        return policies.of(self.scheduler)

    @property
    def kind(self) -> str:
        """What runs its work: "ssh", hosts reached one by one, or "slurm", a cluster."""
        return "slurm" if self.slurm else "ssh"

    objects = PresentPools()
    with_removed = models.Manager["ResourcePool"]()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class PoolPlan(models.Model):
    """What the last pass decided; for a long queue megabytes, which nobody should read along with the pool."""

    pool = models.OneToOneField(ResourcePool, on_delete=models.CASCADE, primary_key=True, related_name="kept")
    #: {"order": [job ids], "waits", "running", "shares", "spares", "ends"} as of `written_at`;
    #: `dispatch.passes.kept_plan`
    document = models.JSONField(default=dict)
    written_at = models.DateTimeField(null=True)
    #: what the last pass decided otherwise than the document says
    changes = models.JSONField(default=dict)
    took_ms = models.FloatField(null=True)
    #: {"forecast", "forecast_of", "unknown", "behind", "by", "said_at", "rest", "deadlines", "reservations",
    #: "promises", "places"} of the pass at `forecast_at`
    forecast = models.JSONField(default=dict)
    forecast_at = models.DateTimeField(null=True)
    forecast_ms = models.FloatField(null=True)


class SlurmFacts(models.Model):
    """What a pool's cluster last told of itself; with 1,000 nodes long, so it is not read along with the pool."""

    pool = models.OneToOneField(
        ResourcePool, on_delete=models.CASCADE, primary_key=True, related_name="facts"
    )
    #: as `hosts.slurm.facts` has them
    document = models.JSONField(default=dict)
    read_at = models.DateTimeField(null=True)
    #: not read again before this time; whoever reads claims it by moving the time
    read_after = models.DateTimeField(null=True)
    #: why the last reading failed, as a sentence; empty: it did not
    error = models.TextField(blank=True)


class PoolChange(models.Model):
    """The pool is dirty: something that a pass should see has changed.

    Rows are only inserted, and deleted by the pass that began after it saw them. A counter on the pool's row
    would be a lock that every transaction of the pool takes, in whatever order; rows collide with nobody.
    """

    pool = models.ForeignKey(ResourcePool, on_delete=models.CASCADE, related_name="changes")


class KnownHosts(models.Manager["Host"]):
    """The hosts of pools: all but the machines of detached runs, which nobody probes, shows or gives work to."""

    def get_queryset(self) -> models.QuerySet[Host]:
        return super().get_queryset().exclude(transport=Host.Transport.NONE)


class Host(models.Model):
    """One machine that runs jobs, reached by SSH or, named `local`, directly.

    A Slurm pool has one that runs none, the login node, which is reached as every host is (LOGIN); the nodes behind it
    are rows as well, as Slurm lists them, with their slots (SLURM): `address` is the node's name in Slurm, and nobody
    dials it (`hosts.slurm_nodes`).

    The machines of detached runs are rows too, so that a gang member always has a host with a name; their transport
    is NONE, and `objects` leaves them out (`member.host` does not).
    """

    class Transport(models.TextChoices):
        SSH = "ssh"
        LOCAL = "local"
        LOGIN = "login"  # reached by SSH, and never given work: the login node of a Slurm cluster
        SLURM = "slurm"  # a node of a Slurm cluster, reached through its login node
        NONE = "none"  # the machine of a detached run: its user's own, never spoken to

    class Drain(models.TextChoices):
        """Why the server itself drains the host; a person's drain has no cause."""

        CLEANUP = "cleanup"  # processes survive SIGKILL there; lifted once they are gone
        FAILED_STARTS = "failed_starts"  # it can start nothing; lifted by whoever enables the host
        ADDING = "adding"  # its interpreter and slots are not chosen yet; lifted by whoever enables the host
        SLURM = "slurm"  # Slurm starts nothing there; lifted once Slurm does
        FAULT = "fault"  # its kernel reported one; lifted by whoever enables the host, or after its probation
        BURN_IN = (
            "burn_in"  # its pool wants one first; lifted by one that passes, or by whoever enables the host
        )
        BURN_IN_FOUND = "burn_in_found"  # that one did not pass; lifted in the same way

    Admission = states.Admission
    Contact = states.Contact

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    name = models.CharField(max_length=128)
    pool = models.ForeignKey(ResourcePool, on_delete=models.PROTECT, related_name="hosts")
    transport = models.CharField(max_length=8, choices=Transport.choices, default=Transport.SSH)
    address = models.CharField(max_length=255, blank=True)
    #: 0: not known until the server has asked its ssh config for the name
    port = models.PositiveIntegerField(default=22)
    login_user = models.CharField(max_length=64, blank=True)
    #: [{"address", "port", "user", "host_key"}], nearest to the server first
    jumps = models.JSONField(default=list)
    #: the address that other hosts of a gang dial; empty: `address`
    gang_address = models.CharField(max_length=255, blank=True)
    #: pinned public key, "ssh-ed25519 AAAA…"; empty until accepted
    host_key = models.TextField(blank=True)
    #: what the host offered when it was not the pinned one
    offered_host_key = models.TextField(blank=True)
    python = models.CharField(max_length=255, blank=True)
    activate = models.TextField(blank=True)
    workdir = models.CharField(max_length=255, blank=True, help_text="empty: chosen by the doctor")
    #: slots asked for by the person who added a CPU host; null: what the doctor found
    wanted_slots = models.PositiveIntegerField(null=True, blank=True)

    enabled = models.BooleanField(default=True)
    draining = models.BooleanField(default=False)
    #: why the server drains it, empty if a person does; who disabled or drained it and why, as a sentence
    drain_cause = models.CharField(max_length=16, choices=Drain.choices, blank=True)
    drain_reason = models.TextField(blank=True)
    #: its pool wants a burn-in before it gets work, and none has passed; whatever else drains it meanwhile
    awaits_burn_in = models.BooleanField(default=False)
    #: when it was added, or moved to its pool; null: before this was noted
    joined_at = models.DateTimeField(null=True)
    admission = models.CharField(max_length=12, choices=Admission.choices, default=Admission.ADMITTING)
    #: a sentence that says why it is not ready
    state_reason = models.TextField(blank=True)
    #: [{"task", "sentence"}]: the tasks that it could not start, one after the other, since it last started one
    failed_starts = models.JSONField(default=list)
    #: raised when the server drains it for them, and when it is enabled: failed starts noted before do not count
    failed_starts_era = models.PositiveIntegerField(default=0)
    contact = models.CharField(max_length=12, choices=Contact.choices, default=Contact.UNKNOWN)
    #: last answer over SSH, and last word of any runner there
    last_seen_at = models.DateTimeField(null=True)
    last_heartbeat_at = models.DateTimeField(null=True)
    contact_error = models.TextField(blank=True)
    #: the unbroken series of contacts that failed, and in which era of the control plane (hosts.evidence)
    failed_contacts = models.PositiveIntegerField(default=0)
    failing_since = models.DateTimeField(null=True)
    failed_at = models.DateTimeField(null=True)
    failing_era = models.BigIntegerField(default=0)
    #: when it was last asked who computes on its GPUs
    gpu_users_at = models.DateTimeField(null=True)
    #: when it was last asked for a sample of what no run measures
    sampled_at = models.DateTimeField(null=True)
    #: how far its kernel's log has been read: {"boot", "until" in µs since boot, "source", "denied": why it cannot be}
    kernel_log = models.JSONField(default=dict)
    #: what of its looks at itself is needed for the next one (`hosts.health.faults.step`)
    condition = models.JSONField(default=dict)
    #: why it is out of use as a whole because of a fault; {}: it is not. As of a slot.
    quarantine = models.JSONField(default=dict)
    #: as of a slot
    overruled = models.JSONField(default=dict)
    #: not probed again before this time; whoever probes it claims it by moving the time
    probe_after = models.DateTimeField(null=True)
    boot_id = models.CharField(max_length=64, blank=True)
    bundle_sha256 = models.CharField(max_length=64, blank=True)
    facts = models.JSONField(default=dict)  # the probe's answer
    doctor = models.JSONField(default=dict)  # {"checks": [{"name", "state", "sentence"}], "at"}
    #: "url", "seen" or "tunnel", and the URL that runners there use
    server_route = models.CharField(max_length=8, blank=True)
    server_url = models.CharField(max_length=255, blank=True)
    #: the URL that the runs there have been told; another one while they still have to be
    told_url = models.CharField(max_length=255, blank=True, default="")
    clock_skew_seconds = models.FloatField(null=True)
    registered_at = models.DateTimeField(auto_now_add=True)
    added_by = models.CharField(max_length=150, blank=True)

    objects = KnownHosts()
    with_machines = models.Manager["Host"]()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["name"], condition=~Q(transport="none"), name="host_name_once"),
            # somebody's laptop may well have the name of a host
            models.UniqueConstraint(fields=["name"], condition=Q(transport="none"), name="machine_name_once"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def state(self) -> str:
        """One word for people: what stands in the way of using the host first, "ready" when nothing does."""
        if self.admission != self.Admission.READY:
            return str(self.admission)
        if self.contact == self.Contact.SILENT:
            return "silent"
        if not self.enabled:
            return "disabled"
        if self.draining:
            return "draining"
        return "ready" if self.contact == self.Contact.REACHABLE else "unknown"

    @property
    def heard_at(self) -> datetime | None:
        """The last contact: an answer over SSH, or a word of a runner there."""
        return max(filter(None, [self.last_seen_at, self.last_heartbeat_at]), default=None)

    @property
    def why_not_used(self) -> str:
        """The sentence for people on why it is not ready, or who disabled or drained it; empty without one."""
        return self.state_reason or self.drain_reason

    def peer_address(self, interface: str) -> str:
        """Where other members of a gang reach this host: rendezvous, DistributedContext and the pool's pair tests.

        As a person named it, else the address on the pool's `interface` (empty: it names none) that the last probe
        found, else the one that SSH dials.
        """
        return self.gang_address or self.address_on(interface) or self.address or "127.0.0.1"

    def address_on(self, interface: str) -> str:
        """This host's address on that interface, as the last probe found it; empty without one."""
        found = (row["address"] for row in self.facts.get("interfaces", []) if row["interface"] == interface)
        return next(found, "")


#: Why a host gets no work but a burn-in.
BEFORE_BURN_IN = (Host.Drain.BURN_IN, Host.Drain.BURN_IN_FOUND)


class Slot(models.Model):
    """One GPU (or a CPU share on a host without GPUs)."""

    class Kind(models.TextChoices):
        CUDA = "cuda"
        ROCM = "rocm"
        CPU = "cpu"

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="slots")
    index = models.PositiveIntegerField()
    kind = models.CharField(max_length=8, choices=Kind.choices)
    uuid = models.CharField(max_length=96, blank=True)
    brand = models.CharField(max_length=128, blank=True)
    memory_mb = models.PositiveIntegerField(null=True)
    enabled = models.BooleanField(default=True)
    draining = models.BooleanField(default=False)
    #: who uses it without the queue, as the sampler saw it: {"user", "pid", "command"}; empty: nobody
    outside = models.JSONField(default=dict)
    #: Why it drains because of a fault: {"sign", "sentence", "at", "boot", "released": how often within a week}. {}: it
    #: does not. `jobs.quarantine` alone writes it; whoever enables the slot ends it.
    quarantine = models.JSONField(default=dict)
    #: Until when it stays in use whatever is reported of it: {"until", "reason", "by"}. {}: nobody has decided that.
    overruled = models.JSONField(default=dict)
    #: whoever held it at the last look had left it idle since then (metrics.idle_gpus); null: worked, or not measured
    idle_since = models.DateTimeField(null=True)
    #: the doctor did not find it any more, and history points at it; comes back with the same UUID
    missing = models.BooleanField(default=False)

    class Meta:
        ordering = ["host", "index"]
        constraints = [models.UniqueConstraint(fields=["host", "index"], name="slot_index_once_per_host")]

    def __str__(self) -> str:
        return f"{self.host_id}/{self.index}"


class HostSign(models.Model):
    """A fault that a host's kernel reports or that is measured there, with its verdict.

    `hosts.health.signs` alone writes them.
    """

    class Source(models.TextChoices):
        KERNEL = "kernel"
        MEASURED = "measured"

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="signs")
    #: the slot whose GPU the line names; null: it names none, or one that is no slot
    slot = models.ForeignKey(Slot, on_delete=models.SET_NULL, null=True, related_name="+")
    source = models.CharField(max_length=8, choices=Source.choices, default=Source.KERNEL)
    #: when the server learned of it; the host's own time is in microseconds since the boot
    at = models.DateTimeField(auto_now_add=True)
    boot_id = models.CharField(max_length=64)
    kernel_us = models.BigIntegerField()
    #: what the kernel wrote, or what was measured
    line = models.CharField(max_length=500)
    kind = models.CharField(max_length=32)
    code = models.PositiveIntegerField(default=0)
    device = models.CharField(max_length=64, blank=True)
    #: of `hosts.health.verdicts`: its Action, its Scope, and its sentence
    action = models.CharField(max_length=16)
    scope = models.CharField(max_length=8, blank=True)
    sentence = models.TextField()
    #: what was done about it, or why nothing, as a sentence; `settled`: it is not judged again
    done = models.TextField(blank=True)
    settled = models.BooleanField(default=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["host", "boot_id", "kernel_us", "line"], name="host_sign_once"),
        ]


class TunnelLease(models.Model):
    """Which worker keeps the reverse tunnel of a host open. Any worker may take an expired lease over."""

    host = models.OneToOneField(Host, on_delete=models.CASCADE, related_name="tunnel", primary_key=True)
    holder = models.CharField(max_length=128)
    expires_at = models.DateTimeField()
    remote_port = models.PositiveIntegerField(null=True)


class PairCheck(models.Model):
    """What the doctor found between two hosts of a pool: may their ranks meet, over what, and how fast."""

    first = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="+")
    second = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="+")
    ok = models.BooleanField()
    #: a sentence: why they cannot meet, or what was measured
    sentence = models.TextField(blank=True)
    interface = models.CharField(max_length=32, blank=True)
    round_trip_ms = models.FloatField(null=True)
    mb_per_second = models.FloatField(null=True)
    #: where both reach each other, fastest first: [{"network", "interfaces": {host name: interface},
    #: "mb_per_second", "round_trip_ms", "speed_mbit"}]
    networks = models.JSONField(default=list)
    all_reduce_mb_per_second = models.FloatField(null=True)
    checked_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["first", "second"], name="pair_checked_once")]

    @property
    def names(self) -> list[str]:
        """The hosts' names, in their order."""
        return sorted((self.first.name, self.second.name))


class PairSearch(models.Model):
    """The newest test of all pairs of a pool: how far it has come. Written by `hosts.pair_checks` alone."""

    pool = models.OneToOneField(ResourcePool, on_delete=models.CASCADE, primary_key=True, related_name="+")
    asked_by = models.CharField(max_length=150, blank=True)
    #: the ids as text, in the order in which the pairs are drawn
    hosts = models.JSONField(default=list)
    #: batches that are over, and the pairs in them, of all pairs
    batch = models.PositiveIntegerField(default=0)
    done = models.PositiveIntegerField(default=0)
    pairs = models.PositiveIntegerField(default=0)
    #: [{"hosts": [name, name], "sentence"}]: pairs that could not be tested
    untested = models.JSONField(default=list)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    #: whoever tests the next batch claims it until then
    claimed_until = models.DateTimeField(null=True)

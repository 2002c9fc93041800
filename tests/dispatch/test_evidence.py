"""Loss, silence and idleness are concluded from what this control plane saw since it was last whole, never from the
age of a row alone: an outage, a restored backup, a clock that jumps or that differs between workers end nothing."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.conf import LazySettings
from django.db.models import F
from django.utils import timezone

import experiments.detached
from dispatch import tasks
from dispatch.runs import detached, reconcile
from dispatch.ssh import dialling, remote
from dispatch.ssh.dialling import endpoint_of
from dispatch.watching import idle_services, probing
from events import presence
from events.models import Event, Presence
from events.presence import Part
from experiments import submit
from experiments.config import parse
from experiments.models import Trial
from hosts import admitting, evidence, observe, registry
from hosts.models import Host, ResourcePool
from hosts.pools import default_pool
from jobs.models import Allocation, Job, Member
from jobs.states import AllocationState, Reason
from submissions import contexts
from tests.commands.test_services import made, unused_for
from tests.commands.test_services import running as run_of
from tests.dispatch.sshd import Sshd
from tests.dispatch.test_time_limits import running
from tests.rig.clocks import clock_ahead
from tests.rig.ports import free_port
from tests.rig.world import attempt_of, be_whole, make_host, make_project, make_user

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_server")]

LIMIT_SECONDS = 60
TIMES = ["last_seen_at", "last_heartbeat_at", "failing_since", "failed_at", "registered_at", "probe_after"]


@pytest.fixture(autouse=True)
def rule() -> None:
    """Hosts are declared lost after a minute."""
    default_pool()
    ResourcePool.objects.update(host_lost_after_seconds=LIMIT_SECONDS)


def make_hosts(count: int, **fields: object) -> list[Host]:
    """Hosts with SSH that answered just now; nobody listens at their addresses."""
    port = free_port()
    for number in range(count):
        host = make_host(f"gpu{number}", 1)
        Host.objects.filter(pk=host.pk).update(
            transport="ssh", address="127.0.0.1", port=port, host_key="ssh-ed25519 AAAA", **fields
        )
    return list(Host.objects.all())


def pass_by(seconds: float) -> None:
    """The database's clock now says so much more than when the rows were written; less, if negative."""
    delta = timedelta(seconds=seconds)
    Host.objects.update(**{name: F(name) - delta for name in TIMES})
    Presence.objects.update(since=F("since") - delta, stamped_at=F("stamped_at") - delta)
    Member.objects.update(heartbeat_at=F("heartbeat_at") - delta)


def watch(seconds: float, *hosts: Host, times: int = 4) -> None:
    """So much time passes in which the control plane is there, and these hosts, unlike all others, do not answer."""
    for _ in range(times):
        pass_by(seconds / times)
        be_stamped()
        for host in Host.objects.all():
            if host in hosts:
                observe.no_answer(host.pk, "no answer")
            else:
                observe.seen(host.pk)


def be_stamped() -> None:
    """The gap of the steps above is the test's, not an absence."""
    Presence.objects.update(stamped_at=presence.database_now())


def silent(*hosts: Host) -> None:
    Host.objects.filter(pk__in=[host.pk for host in hosts]).update(contact=Host.Contact.SILENT)


def contacts() -> set[tuple[str, str]]:
    return set(Host.objects.values_list("admission", "contact"))


def is_suspect(host: Host) -> bool:
    return evidence.suspects().filter(pk=host.pk).exists()


@pytest.mark.survive(6, 23, 40)
def test_an_outage_longer_than_the_limit_makes_no_host_silent_or_lost() -> None:
    make_hosts(4)
    be_whole()
    pass_by(80)
    tasks.sweep()
    reconcile.declare_lost_hosts()
    assert contacts() == {("ready", "reachable")}


@pytest.mark.survive(6, 40)
def test_evidence_from_before_an_outage_does_not_count_after_it() -> None:
    host, other = make_hosts(2)
    be_whole()
    watch(50, host)
    silent(host)
    pass_by(80)
    observe.no_answer(host.pk, "no answer")  # a probe may come before the first sweep
    observe.seen(other.pk)
    tasks.sweep()
    assert not is_suspect(host)
    watch(50, host)
    assert not is_suspect(host)
    watch(30, host)
    assert is_suspect(host)


@pytest.mark.survive(36)
def test_a_restored_backup_brings_rows_but_no_evidence() -> None:
    host, other = make_hosts(2)
    be_whole()
    watch(90, host)
    silent(host)
    assert is_suspect(host)  # as the backup has it, an hour old when it is restored
    pass_by(3600)
    tasks.sweep()
    observe.seen(other.pk)
    reconcile.declare_lost_hosts()
    assert not is_suspect(host) and Host.objects.get(pk=host.pk).admission == "ready"


@pytest.mark.survive(10)
@pytest.mark.parametrize("seconds", [7200.0, -7200.0])
def test_a_jump_of_the_clock_is_no_silence(seconds: float, settings: LazySettings) -> None:
    host, other = make_hosts(2)
    be_whole()
    watch(50, host)
    silent(host)
    pass_by(seconds)
    tasks.sweep()
    observe.seen(other.pk)
    assert not is_suspect(host)
    assert Host.objects.get(pk=other.pk).contact == "reachable"
    hosts, _ = probing._claim()
    assert hosts == [host], "it is asked again at once, whatever its row says of times"
    watch(90, host)
    assert is_suspect(host)


@pytest.mark.survive(10)
@pytest.mark.parametrize("seconds", [600.0, -600.0])
def test_workers_whose_clocks_differ_agree(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = running(None)
    member = attempt_of(experiment).members.get()
    Host.objects.update(transport="ssh", last_seen_at=timezone.now() - timedelta(hours=1))
    with clock_ahead(monkeypatch, seconds):
        observe.seen(member.host_id)
        observe.heartbeat(member.host_id)
        observe.heartbeat_of(Host.objects.get())
    whole = be_whole()
    assert observe.note_silence(whole) == 0
    host = Host.objects.get()
    for at in (host.last_seen_at, host.last_heartbeat_at):
        assert at is not None and abs(at - whole.now) < timedelta(seconds=30)
    with clock_ahead(monkeypatch, seconds):
        tasks.sweep()
    assert contacts() == {("ready", "reachable")}


@pytest.mark.survive(10)
def test_a_launch_by_a_worker_whose_clock_is_ahead_can_still_be_found_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with clock_ahead(monkeypatch, 600):
        experiment = running(None)
    member = reconcile.open_members(Host.objects.get())[0]
    Member.objects.filter(pk=member.pk).update(boot_id="b")
    reconcile._settle(member, {"state": "absent"}, "b", presence.database_now())
    assert attempt_of(experiment).state == AllocationState.TERMINATED


@pytest.mark.survive(10)
@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_a_clock_that_is_wrong_ends_nothing_at_its_time_limit(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clock_ahead(monkeypatch, seconds):
        experiment = running("30m")
    tasks._watch_time()
    with clock_ahead(monkeypatch, -seconds):
        tasks._watch_time()
    attempt = attempt_of(experiment)
    assert attempt.stop_kind == "" and attempt.time_warned_at is None
    ago = timezone.now() - timedelta(minutes=31)
    Allocation.objects.update(started_at=ago)
    tasks._watch_time()
    assert attempt_of(experiment).stop_reason == Reason.TIME_LIMIT


@pytest.mark.survive(1, 40)
def test_loss_needs_enough_failed_contacts_over_all_of_the_limit(settings: LazySettings) -> None:
    host, other = make_hosts(2)
    be_whole()
    for _ in range(10):
        observe.no_answer(host.pk, "no answer")  # all at once, as around a launch: one contact
    silent(host)
    pass_by(LIMIT_SECONDS)
    be_stamped()
    observe.seen(other.pk)
    assert not is_suspect(host), "time has passed, and nobody asked"
    observe.no_answer(host.pk, "no answer")
    assert not is_suspect(host), "two contacts"
    watch(2, host, times=1)
    assert is_suspect(host)


def heartbeat(host: Host) -> None:
    observe.heartbeat(host.pk)


def answer(host: Host) -> None:
    observe.seen(host.pk)


def refusal_of_the_login(host: Host) -> None:
    observe.spoke(host.pk, "no login")


def admission_begun(host: Host) -> None:
    registry.admit_again(host.pk, actor="user:ada")


@pytest.mark.survive(1, 40)
@pytest.mark.parametrize("sign", [heartbeat, answer, refusal_of_the_login, admission_begun])
def test_a_sign_of_life_ends_the_series(sign: Callable[[Host], None]) -> None:
    host, _ = make_hosts(2)
    be_whole()
    watch(50, host)
    sign(host)
    assert Host.objects.get(pk=host.pk).failed_contacts == 0
    watch(50, host)
    silent(host)
    assert not is_suspect(host)


@pytest.mark.survive(40)
def test_when_no_host_answers_the_fault_is_here() -> None:
    hosts = make_hosts(3)
    be_whole()
    watch(300, *hosts)
    silent(*hosts)
    assert not evidence.suspects().exists()
    observe.seen(hosts[2].pk)
    assert set(evidence.suspects()) == set(hosts[:2])


@pytest.mark.survive(40)
def test_an_only_host_is_judged_by_itself_and_nobody_while_the_web_is_away() -> None:
    (host,) = make_hosts(1)
    be_whole()
    watch(300, host)
    silent(host)
    assert is_suspect(host)
    Presence.objects.filter(part=Part.WEB).update(stamped_at=timezone.now() - timedelta(seconds=60))
    assert not is_suspect(host), "its runners had nobody to speak to"
    presence.stamp(Part.WEB)
    assert not is_suspect(host)


@pytest.mark.survive(6)
def test_hosts_declared_lost_come_back() -> None:
    hosts = make_hosts(4, last_seen_at=timezone.now() - timedelta(hours=1), contact=Host.Contact.SILENT)
    be_whole()
    for host in hosts:
        registry.declare_lost(host.pk, actor="user:ada")
        registry.admit_again(host.pk, actor="user:ada")
    tasks.sweep()
    reconcile.declare_lost_hosts()
    assert {admission for admission, _ in contacts()} == {"admitting"}
    for host in hosts:
        assert admitting.claim(host.pk)
        assert admitting.ready(host.pk, [])
        tasks.sweep()
        reconcile.declare_lost_hosts()
    assert contacts() == {("ready", "reachable")}


@pytest.mark.django_db(transaction=True)
@pytest.mark.survive(1, 40)
def test_a_host_is_asked_once_more_before_it_is_declared_lost(sshd: Sshd, settings: LazySettings) -> None:
    dead, back = make_hosts(2)
    Host.objects.filter(pk=back.pk).update(port=sshd.port, login_user=sshd.user, host_key=sshd.host_key)
    make_witness()
    be_whole()
    watch(90, dead, back)
    silent(dead, back)
    reconcile.declare_lost_hosts()
    states = dict(Host.objects.values_list("name", "admission"))
    assert states == {dead.name: "lost", back.name: "ready", "witness": "ready"}
    lost = Host.objects.get(pk=dead.pk)
    assert "contacts in a row failed over 6" in lost.state_reason
    event = Event.objects.get(subject=str(dead.pk), reason="declared_lost")
    assert event.actor == "server" and event.detail["failed_contacts"] >= 4
    assert Host.objects.get(pk=back.pk).failed_contacts == 0


def make_witness() -> None:
    host = make_host("witness", 1)
    Host.objects.filter(pk=host.pk).update(transport="ssh", address="127.0.0.1", port=free_port())


@pytest.mark.django_db(transaction=True)
@pytest.mark.survive(40)
def test_a_jump_host_or_a_network_of_ones_own_that_is_away_speaks_against_no_host() -> None:
    (behind,) = make_hosts(1)
    jump = {"address": "127.0.0.1", "port": free_port(), "user": "ada", "host_key": "ssh-ed25519 AAAA"}
    Host.objects.filter(pk=behind.pk).update(jumps=[jump])
    with pytest.raises(remote.NotAsked):
        remote.verb(Host.objects.get(pk=behind.pk), "status", {"runs": []})
    host = Host.objects.get(pk=behind.pk)
    assert host.failed_contacts == 0 and "refuses connections" in host.contact_error
    endpoint = endpoint_of(host)
    for error in (
        OSError(errno.EMFILE, "Too many open files"),
        socket.gaierror(socket.EAI_AGAIN, "try again"),
    ):
        assert isinstance(dialling._explain(endpoint, dialling._Client(""), error), remote.NotAsked)


@pytest.mark.survive(6, 40)
def test_a_host_whose_new_admission_failed_is_still_asked_while_it_has_runs() -> None:
    running(None)
    Host.objects.update(admission=Host.Admission.FAILED, last_seen_at=None)
    idle = make_host("idle", 1)
    Host.objects.filter(pk=idle.pk).update(admission=Host.Admission.FAILED, last_seen_at=None)
    hosts, _ = probing._claim()
    assert [host.name for host in hosts] == ["gpu1"]


@pytest.mark.survive(6, 40)
def test_an_outage_is_no_silence_of_a_detached_run(settings: LazySettings) -> None:
    member = detached_member()
    be_whole()
    pass_by(settings.DETACHED_LOST_SECONDS + 60)
    for part in Part:
        presence.stamp(part)
    detached.give_up_silent()
    assert Allocation.objects.get().state != AllocationState.TERMINATED
    pass_by(settings.DETACHED_LOST_SECONDS + 60)
    be_stamped()
    detached.give_up_silent()
    assert Allocation.objects.get().state == AllocationState.TERMINATED
    assert member.host.name == "laptop"


def detached_member() -> Member:
    """Of a run that somebody has just started on a laptop."""
    experiment = submit.create(
        owner=make_user(), config=parse("name: laptop\nsearcher: {name: single, metric: loss}", managed=False),
        original="", context=contexts.empty(), project=make_project(), parent=None, activate=True,
        idempotency_key=None, actor="user:ada", unmanaged=True,
    )  # fmt: skip
    trial = experiments.detached.create_trial(experiment, {}, external_id=None, actor="user:ada")
    allocation = detached.start(trial.pk, ["laptop"], resume=False, actor="user:ada")
    Trial.objects.update(started_at=timezone.now())
    return allocation.members.select_related("host").get()


@pytest.mark.survive(6, 40)
def test_nobody_can_use_a_service_while_the_server_is_away() -> None:
    command = made(Job.Kind.SHELL, idle_timeout="30m")
    member = run_of(command)
    unused_for(command, minutes=45)
    Presence.objects.update(stamped_at=timezone.now() - timedelta(minutes=40))
    idle_services.stop_unused()
    for part in Part:
        presence.stamp(part)
    idle_services.stop_unused()
    member.allocation.refresh_from_db()
    assert member.allocation.stop_kind == ""
    be_whole()
    idle_services.stop_unused()
    member.allocation.refresh_from_db()
    assert member.allocation.stop_reason == Reason.IDLE_TIMEOUT

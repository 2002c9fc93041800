"""What is concluded of a run whose Slurm job is over. The answers of squeue and of the login node are made up."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F

from dispatch.engines import slurm
from dispatch.passes import pool_pass
from dispatch.runs import clusters, reconcile, slurm_ended, slurm_listed
from dispatch.ssh import remote, slurm_login
from events import presence
from events.models import Presence
from experiments.models import Trial
from hosts.models import Host, SlurmFacts
from hosts.pools import default_pool
from hosts.slurm.facts import ClusterFacts
from hosts.slurm.squeue import Job
from jobs import feeding, transitions
from jobs.fed_jobs import FedJob
from jobs.models import Allocation, Member, Task
from jobs.states import AllocationState, MemberState, Reason, TaskState
from tests.rig.world import attempt_of, be_whole, make_host, members_of, submit_experiment

pytestmark = pytest.mark.django_db


class World:
    """One run on a node of a Slurm pool, and what squeue and the login node say when they are asked."""

    def __init__(self, patch: pytest.MonkeyPatch, *, begun: bool = True) -> None:
        pool = default_pool()
        node = make_host("n1@stars", 2)
        experiment = submit_experiment(slots=2)
        pool_pass.run(pool.pk)
        [self.member] = members_of(experiment)
        transitions.member_launched(self.member.pk, boot_id="")
        if begun:
            transitions.member_running(self.member.pk)
        allocation = attempt_of(experiment)
        pool.slurm = {"login": "stars", "folder": "/shared"}
        pool.save()
        Host.objects.filter(pk=node.pk).update(transport=Host.Transport.SLURM)
        login = Host.objects.create(name="stars", pool=pool, transport=Host.Transport.LOGIN)
        self.row = FedJob.objects.create(
            pool=pool, task=allocation.task, attempt=allocation.pk, allocation=allocation, nodes=1, job_id="7",
            state="RUNNING",
        )  # fmt: skip
        self.asked: list[dict[str, Any]] = []
        self.run: dict[str, Any] | None = None
        self.is_mounted = True
        self.jobs: dict[str, Job] | None = {}
        patch.setattr(slurm_listed, "ask", self._listed)
        patch.setattr(remote, "verb", self._verb)
        self.cluster = clusters.Cluster(pool, login)
        be_whole()

    def _listed(self, *_: object) -> slurm_listed.Listed | None:
        return None if self.jobs is None else slurm_listed.Listed({**self.jobs}, set())

    def job(self, state: str) -> dict[str, Job]:
        """What squeue says of its job, by the id."""
        return {"7": Job("7", "7", "", state, "ada", 1, 2, "", "gpu", "N/A", "n1", "None", self.row.attempt)}

    def _verb(self, _: Host, verb: str, request: dict[str, Any], **__: object) -> dict[str, Any]:
        assert verb == "status"
        self.asked.append(request)
        if not self.is_mounted:
            raise remote.VerbFailed("not_mounted", "The folder is not mounted.")
        return {"boot_id": "login", "runs": {self.member.run_key: self.run} if self.run else {}}

    def look(self, later: float = 0.0) -> Member:
        """One look, `later` seconds after what was seen before; how the member is then."""
        by = timedelta(seconds=later)
        FedJob.objects.update(over_at=F("over_at") - by)
        Member.objects.update(launched_at=F("launched_at") - by, heartbeat_at=F("heartbeat_at") - by)
        self.cluster.look()
        self.member.refresh_from_db()
        return self.member

    def said_over(self) -> bool:
        """Whether the login node was told last that the job is over, so that it may start a runner."""
        return bool(self.asked[-1]["over"])


def spool(**more: Any) -> dict[str, Any]:
    return {
        "state": "ended",
        "exit": None,
        "outbox_bytes": 10,
        "unshipped_bytes": 0,
        "finished": True,
        **more,
    }


@pytest.mark.survive(45)
def test_one_answer_of_squeue_without_the_job_concludes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.run = spool(state="running", finished=False)
    world.look()
    assert not world.said_over() and world.asked[-1]["elsewhere"] == [world.member.run_key]
    world.jobs = None  # squeue does not answer any more
    assert world.look(later=100).state == MemberState.RUNNING and not world.said_over()
    world.jobs = world.job("RUNNING")
    assert world.look().state == MemberState.RUNNING and FedJob.objects.get().over_at is None
    world.jobs = {}
    world.look()
    assert not world.said_over()
    world.look(later=1)
    assert not world.said_over(), "the second answer came too soon"
    assert world.look(later=5).state == MemberState.RUNNING and world.said_over()
    world.run = spool(outbox_bytes=0)
    assert world.look(later=60).exit_reason == Reason.RUN_VANISHED


@pytest.mark.survive(50)
def test_a_folder_that_is_not_mounted_ends_nothing_and_what_has_begun_did_not_fail_to_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.is_mounted = False
    for _ in range(3):
        assert world.look(later=100).state == MemberState.RUNNING
    world.is_mounted = True  # somebody has removed the run's folder
    assert world.look().exit_reason == Reason.RUN_VANISHED
    assert not Task.objects.get().failed_starts


@pytest.mark.survive(47, 40)
def test_time_in_which_nobody_could_hear_a_runner_is_no_silence_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.jobs = world.job("NODE_FAIL")
    world.run = spool(finished=False)
    world.look()
    Presence.objects.update(stamped_at=F("stamped_at") - timedelta(minutes=10))  # nobody was here
    assert world.look(later=600).state == MemberState.RUNNING and not world.said_over()
    be_whole(seconds=1)
    assert world.look().state == MemberState.RUNNING and not world.said_over(), (
        "its runner has yet to try again"
    )
    be_whole(seconds=16)
    world.run |= {"runner_restarted": True}
    assert world.look().state == MemberState.RUNNING and world.said_over(), "it brings what is missing"
    world.run |= {"runner_restarted": False}
    assert world.look().state == MemberState.RUNNING, "as long as elsewhere"
    be_whole(seconds=61)
    assert world.look().exit_reason == Reason.HOST_LOST


def test_a_runner_that_ends_each_time_does_not_keep_its_run_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.jobs = world.job("NODE_FAIL")
    world.run = spool(finished=False, runner_restarted=True)
    world.look()
    assert world.look(later=100).state == MemberState.RUNNING
    monkeypatch.setattr(reconcile, "seen_seconds", lambda _: 61.0)
    assert world.look().exit_reason == Reason.HOST_LOST


def test_an_answer_confirms_another_that_came_seconds_before_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    asked = presence.database_now()
    assert not feeding.over(world.row, "", asked - timedelta(seconds=10)), "it was slow"
    world.row.refresh_from_db()
    assert world.row.over_at > asked and not feeding.over(world.row, "", asked + timedelta(seconds=3))
    assert feeding.over(world.row, "", world.row.over_at + timedelta(seconds=feeding.CONFIRM_SECONDS))
    stale = FedJob(pk=world.row.pk, job_id="6", over_at=asked - timedelta(hours=1))
    assert not feeding.over(stale, "", asked), "it was submitted again since"


def test_a_row_is_kept_until_a_second_answer_says_that_its_job_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    Member.objects.update(state=MemberState.ENDED)
    Allocation.objects.update(state=AllocationState.TERMINATED, settled_at=presence.database_now())
    world.look()
    assert FedJob.objects.get().ended_at is None
    world.look(later=5)
    assert FedJob.objects.get().ended_at is not None


def test_what_never_began_has_failed_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, begun=False)
    world.look()
    world.look(later=100)
    assert world.look(later=100).exit_reason == Reason.LAUNCH_FAILED


def test_what_slurm_ended_has_ended_when_its_output_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.jobs = world.job("CANCELLED")
    ended = {"code": 143, "signal": None, "ended_at": time.time() - 1000, "stopped": True}
    world.run = spool(exit=ended, finished=False)
    world.look()
    assert world.look(later=5).state == MemberState.RUNNING, "a runner on the login node brings the rest"
    world.run |= {"finished": True}
    forgotten = []
    monkeypatch.setattr(reconcile, "_was_forgotten", lambda *_: not forgotten and not forgotten.append(1))
    assert world.look().state == MemberState.RUNNING, "as at every end"
    member = world.look()
    assert (member.exit_reason, member.exit_code) == (Reason.KILLED_BY_USER, 143)


def test_output_that_nobody_brings_delays_an_end_no_longer_than_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.jobs = world.job("NODE_FAIL")
    world.run = spool(finished=False, unshipped_bytes=4)
    world.look()
    assert world.look(later=30).state == MemberState.RUNNING
    monkeypatch.setattr(reconcile, "seen_seconds", lambda _: 61.0)
    member = world.look(later=31)
    assert (member.exit_reason, member.outbox_bytes) == (Reason.HOST_LOST, 10)


FACTS = ClusterFacts("22.05.8", "stars", True, "gpu", "UP", None, 30, [], [])


def test_how_a_job_ended_that_squeue_no_longer_lists_is_asked_of_sacct(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    user = slurm_listed.account_of(world.cluster.login)
    told = [
        f"7|other|{user}|FAILED|1:0\n7|{world.row.attempt}|{user}|RUNNING|0:0\n",
        f"7|{world.row.attempt}|anybody|FAILED|1:0\n",
        f"7|{world.row.attempt}|{user}|FAILED|3:0\n",
    ]
    asked: list[Sequence[str]] = []

    def ask(_: Host, words: Sequence[str], **__: object) -> tuple[str, str]:
        asked.append(words)
        return told[len(asked) - 1], ""

    monkeypatch.setattr(slurm_login, "ask", ask)
    world.look()
    world.look(later=5)
    assert not asked, "this cluster has no accounting"
    SlurmFacts.objects.create(pool=world.cluster.pool, document=FACTS.document)
    world.jobs = world.job("RUNNING")
    world.look()
    world.jobs = {}
    world.look()
    for later in (4, 1, 1):  # of another job of this id, or not up to date; nothing; at last
        assert (
            not FedJob.objects.filter(state="FAILED") and world.look(later=later).state == MemberState.RUNNING
        )
    world.look()
    assert len(asked) == 3 and {"-j", "7", f"--name={world.row.attempt}"} < set(asked[0])
    member = world.look(later=60)
    assert (member.exit_reason, member.exit_code) == (Reason.RANK_FAILED, 3)


def test_sacct_is_asked_of_no_more_jobs_than_a_command_may_name(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    SlurmFacts.objects.create(pool=world.cluster.pool, document=FACTS.document)
    asked: list[int] = []

    def ask(_: Host, words: Sequence[str], **__: object) -> tuple[str, str]:
        asked.append(len(words[words.index("-j") + 1].split(",")))
        return "", ""

    monkeypatch.setattr(slurm_login, "ask", ask)
    rows = [FedJob(job_id=str(number), attempt=f"{number}.x.1") for number in range(1001)]
    slurm_ended.ask(world.cluster.pool, world.cluster.login, rows)
    assert asked == [500, 500, 1]


@pytest.mark.survive(46)
@pytest.mark.parametrize("state", ["PENDING", "SPECIAL_EXIT"])
def test_a_run_whose_job_was_requeued_waits_again_without_a_restart(
    monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    world = World(monkeypatch)
    canceled: list[Sequence[str]] = []

    def ask(_: Host, words: Sequence[str], **__: object) -> tuple[str, str]:
        canceled.append(words)
        return "", ""

    monkeypatch.setattr(slurm_login, "ask", ask)
    world.jobs = world.job(state)
    exit_file = {"code": 143, "signal": None, "ended_at": time.time() - 1000, "stopped": True}
    world.run = spool(exit=exit_file, outbox_bytes=0, finished=False)
    world.look()
    assert not canceled
    assert world.look(later=5).state == MemberState.RUNNING, "its runner brings the rest"
    assert canceled == [["scancel", "7"]], "it must not begin again on other nodes"
    world.jobs = world.job("CANCELLED")
    world.run |= {"finished": True}
    assert world.look().exit_reason == Reason.PREEMPTED
    assert Task.objects.get().state == TaskState.WAITING and not Trial.objects.get().restarts


def test_a_run_that_was_requeued_and_looked_for_later_was_preempted_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.jobs = world.job("COMPLETED")  # the second time it has found its run begun before
    exit_file = {"code": 143, "signal": None, "ended_at": time.time() - 1000, "stopped": True}
    world.run = spool(exit=exit_file, outbox_bytes=0)
    world.look()
    assert world.look(later=5).exit_reason == Reason.PREEMPTED


def test_removals_on_a_node_say_since_when_jobs_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    since = {"elsewhere": True, "jobs_since": world.row.made_at.timestamp()}
    host = Host.objects.get(name="n1@stars")
    assert slurm.of_removal(host) == since
    FedJob.objects.update(ended_at=F("made_at"))
    assert slurm.of_removal(host) == {"elsewhere": True, "jobs_since": None}
    assert slurm.of_removal(make_host("gpu1", 1)) == {}

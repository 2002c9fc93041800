"""What a pool makes of the answers of squeue and sbatch, which are stand-ins. A real cluster: test_slurm_runs.py."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.db.models import F
from django.utils import timezone

from accounts.refusals import Refusal
from dispatch.passes import last_plan, pool_pass, preview
from dispatch.runs import clusters, heartbeats, launch
from dispatch.runs.submitting import Submissions
from dispatch.ssh import remote, slurm_login
from dispatch.ssh.slurm_login import SlurmRefused
from hosts import slurm_nodes
from hosts.models import Host, ResourcePool, Slot
from hosts.pools import mark_dirty
from jobs import capacity, feeding, transitions
from jobs.fed_jobs import FedJob
from jobs.models import Allocation, Member, SlotHold, Task
from jobs.queue_edits import Update
from jobs.states import MemberState
from shown.queue import rows, times
from tests.rig.world import be_whole, make_host, submit_experiment, trial_of
from webui.api.job_queue_rows import encode_row

pytestmark = pytest.mark.django_db(transaction=True)


class World:
    """A Slurm pool with one node of four slots, whose squeue lists what a test says."""

    def __init__(self) -> None:
        node, login = make_host("n1@p", 4), make_host("p-login", 0)
        self.pool = node.pool
        self.node = node
        Host.objects.filter(pk=node.pk).update(transport="slurm", address="n1")
        sha = remote.current_bundle().sha256
        Host.objects.filter(pk=login.pk).update(transport="login", workdir="/shared", bundle_sha256=sha)
        rules = {"login": "x", "slot_type": "cpu", "max_fed": 2}
        ResourcePool.objects.filter(pk=self.pool.pk).update(
            slurm=rules, allow_login_account=True, shared_account=True
        )
        self.pool.refresh_from_db()
        self.login = slurm_nodes.login_of(self.pool)
        self.jobs: list[tuple[str, str, str, str]] = []
        self.starts: dict[str, str] = {}
        self.runs: dict[str, Any] = {}
        self.asked: list[str] = []
        self.sent: list[Sequence[str]] = []
        self.canceled: list[str] = []
        self.refusal = self.folder_fault = ""
        be_whole()

    def ask(self, login: Host, words: Sequence[str], stdin: bytes = b"", **_: object) -> tuple[str, str]:
        self.asked.append(words[0])
        if words[0] == "squeue":
            mark = words[-1].partition("%")[0]
            return "".join(
                f"{mark}{id_}|{id_}|N/A|{state}|u|1|1|N/A|p|{self.starts.get(id_, 'N/A')}|{node}|None|{comment}\n"
                for id_, state, node, comment in self.jobs
            ), ""
        if words[0] == "sh" and self.folder_fault:
            raise SlurmRefused(self.folder_fault, said=self.folder_fault, code=1)
        if words[0] == "scancel":
            self.canceled += words[1:]
        elif words[0] == "sbatch":
            if self.refusal:
                raise SlurmRefused(self.refusal, said=self.refusal, code=1)
            self.sent.append(words)
            return f"{len(self.sent)}\n", ""
        return "", ""

    def passes(self) -> None:
        mark_dirty(self.pool.pk)
        pool_pass.run(self.pool.pk)
        Submissions(self.pool, self.login).send_due()

    def look(self) -> None:
        clusters.Cluster(self.pool, self.login).look()

    def look_later(self) -> None:
        """Again, after as long as it takes until Slurm is believed that a job is over."""
        by = timedelta(seconds=feeding.CONFIRM_SECONDS)
        FedJob.objects.update(over_at=F("over_at") - by)
        self.look()

    def fed(self, slots: int = 1) -> FedJob:
        """An experiment that was handed over."""
        task = trial_of(submit_experiment(slots=slots)).task_id
        self.passes()
        return FedJob.objects.get(task_id=task)

    def plan(self) -> last_plan.Plan:
        self.pool.refresh_from_db()
        return last_plan.of(self.pool)

    def why(self, row: FedJob) -> str:
        mark_dirty(self.pool.pk)
        pool_pass.run(self.pool.pk)
        return str(self.plan().waits[row.task_id]["sentence"])


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(slurm_login, "ask", made.ask)
    monkeypatch.setattr(
        remote,
        "verb",
        lambda host, verb, request, **_: {
            "runs": {**{key: {"state": "absent"} for key in request.get("runs", ())}, **made.runs}
        },
    )
    return made


def test_one_answer_without_a_job_ends_nothing_and_a_second_one_later_does(world: World) -> None:
    row = world.fed()
    world.look()
    row.refresh_from_db()
    assert row.job_id == "1" and not row.refused
    world.jobs = [("1", "PENDING", "", row.attempt)]
    world.look()
    row.refresh_from_db()
    assert row.over_at is None
    world.jobs = []
    world.look()
    assert "waits in Slurm as job 1" in world.why(row)
    world.look_later()
    assert "Slurm does not know job 1 any more" in world.why(row)


def test_an_id_is_nothing_without_the_comment(world: World) -> None:
    row = world.fed()
    world.jobs = [("1", "RUNNING", "n1", "their own")]
    feeding.take_back(row, "others are ahead of it now")
    world.look()
    assert not world.canceled and not Allocation.objects.exists()


def test_nodes_that_are_not_settled_here_are_waited_for(world: World) -> None:
    first, second = world.fed(slots=4), world.fed(slots=4)
    world.jobs = [("1", "RUNNING", "n1", first.attempt), ("2", "PENDING", "", second.attempt)]
    world.look()
    world.jobs = [("1", "COMPLETING", "n1", first.attempt), ("2", "RUNNING", "n1", second.attempt)]
    world.look()
    assert not world.canceled and "has nodes in Slurm as job 2" in world.why(second)
    SlotHold.objects.update(released_at=timezone.now())
    world.look()
    assert Allocation.objects.filter(pk=second.attempt).exists()


def test_a_launch_waits_for_the_folder_and_never_counts_as_a_failed_start(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = world.fed(slots=4)
    world.jobs = [("1", "RUNNING", "n1", row.attempt)]
    world.look()
    member = Member.objects.get()
    faults = [
        ("away", "Read-only file system"),
        ("not_mounted", ""),
        ("disk", "The disk is full"),
        ("away", ""),
    ]

    def launched(_: Host, verb: str, *__: object, **___: object) -> dict[str, Any]:
        if verb == "status":
            return {"runs": {}}
        if faults:
            raise remote.VerbFailed(*faults.pop(0))
        return {"state": "launched"}

    monkeypatch.setattr(remote, "verb", launched)
    for left in (3, 2, 1, 0):
        launch.launch(member.pk)
        member.refresh_from_db()
        assert (member.state, member.launch_attempts, len(faults)) == (MemberState.ASSIGNED, 0, left)
        assert member.launch_in_doubt, "the first one may lie there, where its job would begin it"
        Member.objects.update(launch_claimed_until=None)
    launch.launch(member.pk)
    assert Member.objects.get().state == MemberState.LAUNCHED and not Task.objects.get().failed_starts


@pytest.mark.parametrize("code", ["os", "quota", "unpack"])
def test_a_launch_that_the_folder_will_never_take_ends_with_its_sentence_and_counts(
    world: World, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    row = world.fed(slots=4)
    world.jobs = [("1", "RUNNING", "n1", row.attempt)]
    world.look()

    def refused(*_: object, **__: object) -> dict[str, Any]:
        raise remote.VerbFailed(code, "File name too long.")

    monkeypatch.setattr(remote, "verb", refused)
    launch.launch(Member.objects.get().pk)
    ended = Allocation.objects.get(pk=row.attempt)
    assert (ended.exit_reason, ended.exit_detail["sentence"]) == ("launch_failed", "File name too long.")
    [failed] = Task.objects.get().failed_starts
    assert failed["host"] == "n1@p" and not Host.objects.get(name="n1@p").draining


def test_a_launch_that_waited_for_the_folder_until_its_job_was_over_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = world.fed(slots=4)
    world.jobs = [("1", "RUNNING", "n1", row.attempt)]
    world.look()
    member = Member.objects.get()
    Member.objects.update(last_error="The disk is full at n1:/shared.")
    world.jobs = [("1", "COMPLETED", "n1", row.attempt)]
    world.look()
    FedJob.objects.update(over_at=timezone.now() - timedelta(seconds=60))
    world.look()
    member.refresh_from_db()
    sentence = "The Slurm job 1 ended before the run began: The disk is full at n1:/shared."
    assert Allocation.objects.get(pk=row.attempt).exit_detail["sentence"] == sentence


def test_the_folder_is_written_to_before_a_job_takes_nodes(world: World, tmp_path: Path) -> None:
    shared = tmp_path / "its folder"
    Host.objects.filter(pk=world.login.pk).update(workdir=str(shared))
    said: list[str] = []

    def ask(_: Host, words: Sequence[str], **__: object) -> tuple[str, str]:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        said.append(done.stderr)
        if done.returncode:
            raise SlurmRefused(done.stderr, said=done.stderr, code=done.returncode)
        return "", ""

    submissions = Submissions(world.pool, Host.objects.get(pk=world.login.pk))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slurm_login, "ask", ask)
        assert not submissions._has_folder([]) and "is not the folder that the cluster shares" in said[-1]
        shared.mkdir()
        (shared / ".shared").touch()
        assert submissions._has_folder([]) and not list((shared / "slurm").iterdir())
        (shared / "slurm").rmdir()
        (shared / "slurm").touch()
        assert not submissions._has_folder([]) and "slurm cannot be written to" in said[-1]


def test_nodes_that_do_not_become_free_here_are_given_back(world: World) -> None:
    row = world.fed(slots=4)
    Slot.objects.filter(index=0).update(missing=True)
    world.jobs = [("1", "RUNNING", "n1", row.attempt)]
    world.look()
    assert not world.canceled
    FedJob.objects.update(nodes_at=timezone.now() - timedelta(hours=1))
    world.look()
    assert world.canceled == ["1"] and "did not become free here" in world.why(row)


def test_a_node_with_a_slot_that_a_person_disabled_is_given_back_and_excluded(world: World) -> None:
    row = world.fed(slots=4)
    Slot.objects.filter(index=0).update(enabled=False)
    world.jobs = [("1", "RUNNING", "n1", row.attempt)]
    world.look()
    assert world.canceled == ["1"] and "where its work may not run" in world.why(row)
    world.jobs = [("1", "CANCELLED", "n1", row.attempt)]
    world.look()
    world.look_later()
    world.passes()
    assert "--exclude=n1" in world.sent[-1]


def test_what_ends_on_its_nodes_at_once_says_so_and_waits_longer_each_time(world: World) -> None:
    row, pauses = world.fed(), []
    for job in ("1", "2", "3"):
        world.jobs = [(job, "FAILED", "n1", row.attempt)]
        world.look()
        world.look_later()
        row.refresh_from_db()
        pauses.append((row.send_after - timezone.now()).total_seconds())
        assert f"Slurm job {job} ended as FAILED before its run began" in world.why(row)
        assert f"/shared/slurm/{row.attempt}.txt" in row.error
        FedJob.objects.update(send_after=None)
        world.passes()
    assert pauses[2] > 1.5 * pauses[0] > 40


def test_slurm_is_asked_once_in_a_while_and_at_once_when_a_job_says_that_it_has_begun(
    world: World, settings: LazySettings
) -> None:
    row = world.fed()
    world.jobs = [("1", "PENDING", "", row.attempt)]
    world.asked.clear()
    for _ in range(5):  # as sweeps, passes and other jobs have it tended
        clusters.tend(world.pool.pk)
    assert world.asked == ["squeue"]
    settings.SLURM_TOLD_LOOK_SECONDS = 0.0
    world.jobs = [("1", "RUNNING", "n1", row.attempt)]
    assert not feeding.told_begun(row.attempt)
    clusters.tend(world.pool.pk, told=True)
    assert world.asked == ["squeue"] * 2 and Allocation.objects.filter(pk=row.attempt).exists()
    assert feeding.told_begun(row.attempt), "there is nothing more to look for"


def test_what_a_job_says_is_no_evidence(world: World) -> None:
    row = world.fed()
    world.jobs = [("1", "PENDING", "", row.attempt)]
    feeding.told_begun(row.attempt)
    clusters.tend(world.pool.pk, told=True)
    assert not Allocation.objects.exists()


def test_refused_submissions_let_others_pass(world: World) -> None:
    world.refusal = "sbatch: error: Invalid feature specification"
    refused = [world.fed(), world.fed()]
    world.refusal = ""
    assert world.fed().job_id == "1"
    assert "waits to be handed to Slurm again: sbatch: error: Invalid" in world.why(refused[0])
    world.passes()
    assert len(world.sent) == 1, "they are not due"
    assert feeding.claim_submission(FedJob.objects.get(pk=refused[0].pk), "")
    feeding.try_again(world.pool.pk)
    assert FedJob.objects.get(pk=refused[0].pk).send_after is not None, "it is being handed over"
    FedJob.objects.filter(pk=refused[0].pk).update(sent_at=None)
    feeding.try_again(world.pool.pk)  # as at an admission, after the pool was corrected
    world.passes()
    assert [FedJob.objects.get(pk=row.pk).job_id for row in refused] == ["2", "3"]


def test_nothing_is_handed_over_while_the_folder_cannot_be_written_to(world: World) -> None:
    world.folder_fault = "/shared/slurm cannot be written to"
    row = world.fed()
    assert not world.sent and "again: /shared/slurm cannot be written to" in world.why(row)
    world.folder_fault = ""
    FedJob.objects.update(send_after=None)
    world.passes()
    assert FedJob.objects.get().job_id == "1"


def test_a_pool_that_is_being_tried_again_feeds_nothing_new_and_keeps_what_is_there(world: World) -> None:
    row = world.fed()
    Host.objects.filter(pk=world.login.pk).update(admission="admitting")
    later = trial_of(submit_experiment()).task_id
    world.passes()
    row.refresh_from_db()
    assert row.back_at is None and not FedJob.objects.filter(task_id=later).exists()


def test_why_it_is_taken_back_is_said(world: World) -> None:
    row = world.fed()
    world.jobs = [("1", "PENDING", "", row.attempt)]
    feeding.take_back(row, "its nodes n1 did not become free here")
    assert world.why(row) == "is being taken back from Slurm: its nodes n1 did not become free here"
    world.look()
    assert world.canceled == ["1"]


def test_a_job_with_a_run_that_the_server_does_not_know_is_left_alone(world: World) -> None:
    """As after a backup from before its run began was restored: the next attempt has a higher number."""
    row = world.fed()
    task = row.task
    task.run_count = 3
    task.save()
    world.jobs = [("1", "RUNNING", "n1", row.attempt)]
    world.runs = {f"{row.attempt}.0": {"state": "running"}}
    world.look()
    assert not world.canceled and "has a run that this server does not know" in world.why(row)
    world.runs = {}
    world.look()
    assert world.canceled == ["1"]


def test_a_preview_does_not_promise_what_slurm_decides(world: World) -> None:
    row = world.fed()
    job = row.task.job

    def start(job_id: object, priority: int) -> preview.Outlook:
        edit = [Update(str(job_id), priority=priority)]
        (found,) = preview.of(edit, actor="user:ada", role="admin", now=timezone.now()).starts
        return found

    found = start(job.pk, 10)
    assert not found.now and found.forecast is None
    assert found.unknown == "Slurm names no time for it"
    (why,) = preview.blockers(job, timezone.now())[row.task_id]
    assert why.sentence.startswith("waits in Slurm as job 1: Slurm has not looked at it yet")

    world.jobs, world.starts = [("1", "PENDING", "", row.attempt)], {"1": in_an_hour()}
    world.look()
    found = start(job.pk, 10)
    assert found.by == "Slurm" and found.forecast and found.forecast[0] == found.forecast[1]
    world.fed()
    last = trial_of(submit_experiment()).task.job
    assert start(last.pk, 60).unknown.startswith(
        "it is handed to Slurm once another job that waits there has"
    )
    found = start(last.pk, 10)
    assert found.reason == "is handed to Slurm next"
    assert found.unknown == "Slurm decides when it has nodes for it"
    assert start(job.pk, 90).reason == "is taken back from Slurm: others are ahead of it now"


def in_an_hour() -> str:
    return (timezone.now() + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S")


def test_what_slurm_expects_is_the_forecast_as_long_as_it_says_so(
    world: World, settings: LazySettings
) -> None:
    settings.FORECAST_SECONDS = 0.0  # each pass makes one, however long the last one took
    first, second = world.fed(), world.fed()
    last = trial_of(submit_experiment()).task
    world.jobs = [("1", "PENDING", "", first.attempt), ("2", "PENDING", "", second.attempt)]
    world.starts = {"1": in_an_hour()}
    world.look()
    world.passes()
    told, clock = rows.one(first.task.job), world.starts["1"][11:16]
    assert told is not None and told.forecast and told.said_at is not None
    assert encode_row(told)["forecastBy"] == "Slurm"
    short, title = times.said(told.forecast_by, told.forecast, told.said_at)
    assert short.startswith("Slurm expects") and short.endswith(clock) and "reported by Slurm at" in title
    assert times.headed(short).startswith("Slurm: ")
    plan = world.plan()
    assert plan.unknown[second.task_id] == "Slurm names no time for it"
    assert plan.unknown[last.pk].startswith(
        "it is handed to Slurm once another job that waits there has begun"
    )
    assert f"{clock} UTC" in plan.unknown[last.pk]
    later = timezone.now() + timedelta(minutes=2)
    assert "has reported nothing since" in plan.without_old_words(later).unknown[first.task_id]

    FedJob.objects.update(seen_at=timezone.now() - timedelta(minutes=2))  # it does not answer any more
    world.passes()
    assert not world.plan().forecast
    assert world.plan().unknown[first.task_id].startswith("Slurm has reported nothing since ")
    assert world.plan().unknown[second.task_id].startswith("Slurm has reported nothing since ")
    world.look()
    world.passes()
    assert world.plan().forecast
    world.starts = {}  # it answers, and says no time
    world.look()
    world.passes()
    assert not world.plan().forecast
    assert (
        world.plan().unknown[last.pk] == "it is handed to Slurm once another job that waits there has begun"
    )


def test_parts_that_do_not_divide_the_slots_are_refused(world: World) -> None:
    capacity.refuse_uneven(world.pool, 8, {"slots_per_node": 4})
    with pytest.raises(
        Refusal, match="found 3, which does not divide the 8 slots of this job; allowed: 1, 2, 4, 8"
    ):
        capacity.refuse_uneven(world.pool, 8, {"slots_per_node": 3})
    world.pool.slurm = {}
    capacity.refuse_uneven(world.pool, 8, {"slots_per_node": 3})


def test_a_runner_tells_that_slurm_has_asked_it_to_save(world: World) -> None:
    """Where nobody looks into the folders of runs, and its code does not acknowledge."""
    row = world.fed()
    world.jobs = [("1", "RUNNING", "n1", row.attempt)]
    world.look()
    member = Allocation.objects.get(pk=row.attempt).members.get()
    assert heartbeats.heartbeat(member.pk, {"state": "running"}).preempt is None
    heartbeats.heartbeat(member.pk, {"state": "running", "preempt": True})
    attempt = Allocation.objects.get(pk=row.attempt)
    assert (attempt.stop_kind, attempt.stop_actor) == ("PREEMPT", "slurm")


def test_runs_with_folders_of_their_own_are_not_looked_for_on_the_login_node(world: World) -> None:
    rules = {**world.pool.slurm, "folder_is_shared": False, "folder": "/scratch"}
    ResourcePool.objects.filter(pk=world.pool.pk).update(slurm=rules)
    world.pool.refresh_from_db()
    row = world.fed()
    assert "--output=/dev/null" in world.sent[0]
    world.jobs = [("1", "RUNNING", "n1", row.attempt)]
    world.look()
    [member] = Allocation.objects.get(pk=row.attempt).members.all()
    transitions.member_launched(member.pk, boot_id="")
    world.look()
    member.refresh_from_db()
    assert member.state == "LAUNCHED", "it is not taken for gone while its job lives"
    world.jobs = [("1", "NODE_FAIL", "n1", row.attempt)]
    world.look()
    FedJob.objects.update(over_at=timezone.now() - timedelta(seconds=60))
    world.look()
    member.refresh_from_db()
    assert (member.state, member.exit_reason) == ("ENDED", "host_lost")

"""Trainings that make no progress are looked at twice, told once, and ended only by a rule and a proof."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from dispatch.passes import pool_pass
from dispatch.runs import settle
from dispatch.ssh import remote
from dispatch.watching import hangs
from events import presence
from events.models import Event
from experiments import transitions as experiments
from experiments.models import Experiment, Trial
from experiments.states import TrialState
from hosts.models import Host, ResourcePool
from jobs import transitions
from jobs.models import Allocation, Member
from jobs.states import MemberState, Reason, StopKind, TaskState
from logs import pulse, why_stopped
from logs.hangs import rows
from logs.models import Hang, MemberPulse
from logs.sentences import sentence
from tests.rig.world import make_host, members_of, submit_experiment, trial_of

pytestmark = pytest.mark.django_db

STILL = {"cpu_seconds": 5.0, "moved_bytes": 10, "moved_bytes_after": 10}
STOPPED = {**STILL, "pid": 7, "state": "T", "message": "It is stopped."}
ENTERED = {
    **STILL, "pid": 8, "state": "S", "text": 'Thread 0x1:\n  File "train.py", line 3 in step',
    "collectives": {"groups": {"0": {"members": [0, 1], "calls": [{"number": 9, "name": "all_reduce"}]}}},
}  # fmt: skip
LOCKED = {
    **ENTERED, "pid": 7, "call": "futex",
    "collectives": {"groups": {"0": {"members": [0, 1], "calls": [{"number": 8, "name": "all_reduce", "done": True}]}}},
}  # fmt: skip
MOUNT = {**LOCKED, "state": "D", "waits_in": "nfs_wait_bit_killable", "call": "read", "file": "/data/set"}


class Gang:
    """A training with one rank on each of two hosts, and what these hosts say of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **config: Any) -> None:
        self.hosts = [make_host(f"gpu{number}", 1) for number in range(4)]
        self.experiment: Experiment = submit_experiment(slots=2, max_restarts=1)
        if config:
            Experiment.objects.update(config={**self.experiment.config, "hang": config})
        self.told: list[dict[str, Any]] = [ENTERED, STOPPED]
        self.asked: list[str] = []
        monkeypatch.setattr(remote, "verb", self._verb)
        monkeypatch.setattr(hangs, "wake", lambda name, key: self.asked.append(key))
        self.start()

    def start(self) -> None:
        pool_pass.run(self.experiment.job.pool_id)
        for member in members_of(self.experiment):
            transitions.member_launched(member.pk, boot_id="b1")
            transitions.member_running(member.pk)
        self.say()

    @property
    def attempt(self) -> Allocation:
        return Allocation.objects.order_by("-number")[0]

    @property
    def members(self) -> list[Member]:
        return list(self.attempt.members.order_by("index"))

    def _verb(self, host: Host, verb: str, request: dict[str, Any], **_: Any) -> dict[str, Any]:
        assert verb == "stack"
        [(key, wanted)] = request["runs"].items()
        assert wanted == {"ranks": None, "collectives": True}
        rank = int(key.rpartition(".")[2])
        return {"runs": {key: {"ranks": {str(rank): self.told[rank]}}}}

    def say(self, quiet: float = 1000.0, age: float = 0.0, **more: Any) -> None:
        """The pulse of both ranks: their last sign, and how old what their runners said is."""
        for member in self.members:
            fact = {
                "rank": member.index, "state": "S", "beat_seconds": quiet, "beats": 50, "step": 12,
                "state_seconds": quiet, "idle_seconds": quiet, "gap_seconds": 2.0,
            }  # fmt: skip
            pulse.keep(member.pk, [{**fact, **more}])
        MemberPulse.objects.update(at=timezone.now() - timedelta(seconds=age))

    def looks(self, times: int = 2) -> None:
        """The server watches and looks; between two looks a minute passes for it."""
        for _ in range(times):
            hangs.watch(timezone.now())
            for key in dict.fromkeys(self.asked):
                hangs.look(key)
            self.asked.clear()
            Hang.objects.exclude(looked_at=None).filter(told_at=None).update(
                looked_at=timezone.now() - timedelta(seconds=150)
            )

    @property
    def told_of(self) -> list[Hang]:
        return list(rows.told_of(self.attempt.task_id))


@pytest.fixture
def gang(monkeypatch: pytest.MonkeyPatch) -> Gang:
    return Gang(monkeypatch)


def restarting(monkeypatch: pytest.MonkeyPatch, do: str = "restart") -> Gang:
    return Gang(monkeypatch, after=600, do=do)


def test_a_hang_is_told_once_with_its_evidence_and_by_default_nothing_is_ended(gang: Gang) -> None:
    gang.looks(1)
    assert not gang.told_of, "one look proves nothing"
    gang.looks(4)
    [row] = gang.told_of
    assert (row.ranks, row.collective, row.looks) == ([1], "all_reduce number 9", 2)
    [event] = Event.objects.filter(reason=Reason.HANG)
    said = sentence(event)
    assert said is not None
    assert said.text.startswith("Run 1: No progress for ") and "Rank 1 on gpu" in said.text
    assert said.text.endswith(
        "It is stopped (process 7, state T). Nothing was ended: the rule is to tell only."
    )
    found = rows.open_of(gang.attempt.task_id)
    assert found is not None and len(found.lines) == 2 and "line 3 in step" in rows.stacks(row)
    assert rows.sentences([gang.attempt.task_id]) == {gang.attempt.task_id: found.sentence}
    assert gang.attempt.stop_kind == StopKind.NONE


def test_it_is_over_when_the_gang_moves_again(gang: Gang) -> None:
    gang.looks()
    gang.say(quiet=1.0)
    gang.looks(1)
    [row] = gang.told_of
    assert row.over_at is not None and rows.open_of(gang.attempt.task_id) is None
    gang.say()
    gang.looks()
    assert len(gang.told_of) == 1, "the next one is told later"
    gang.say(quiet=2000.0)
    gang.looks()
    assert len(gang.told_of) == 2


def test_a_proved_hang_is_ended_by_the_rule_and_counts_as_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    gang = restarting(monkeypatch)
    gang.looks()
    attempt = gang.attempt
    assert (attempt.stop_kind, attempt.stop_reason) == (StopKind.STOP, Reason.HANG)
    end(gang)
    attempt.refresh_from_db()
    assert attempt.exit_reason == Reason.HANG
    why = why_stopped.of_attempt(attempt).sentences
    assert why[0] == "Stopped by the rule for hangs: its ranks had stopped making progress."
    trial = trial_of(gang.experiment)
    assert (trial.restarts, trial.task.state, trial.task.avoid_hosts) == (1, TaskState.WAITING, [])
    gang.start()
    gang.looks()
    end(gang)
    assert trial_of(gang.experiment).state == TrialState.ERROR, "max_restarts bounds it"


def end(gang: Gang) -> None:
    for member in gang.members:
        settle.member_exited(member.pk, code=137, signal=9, ended_at=timezone.now().timestamp())
    gang.experiment.job.tasks.update(not_before=None)


def test_elsewhere_avoids_the_host_of_the_rank_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    gang = restarting(monkeypatch, "restart_elsewhere")
    host = gang.members[1].host.name
    gang.looks()
    assert trial_of(gang.experiment).task.avoid_hosts == [host]
    assert f"on other hosts than {host}" in gang.told_of[0].outcome


def test_elsewhere_is_the_same_hosts_if_the_pool_has_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    gang = restarting(monkeypatch, "restart_elsewhere")
    Host.objects.exclude(members__in=gang.members).update(enabled=False)
    gang.looks()
    assert gang.attempt.stop_reason == Reason.HANG and trial_of(gang.experiment).task.avoid_hosts == []
    assert "too few others" in gang.told_of[0].outcome


def test_a_mount_that_hangs_costs_no_restart_so_often_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gang = restarting(monkeypatch)
    gang.told = [ENTERED, MOUNT]
    for number in range(1, 8):
        gang.looks()
        assert gang.attempt.stop_reason == Reason.HANG_OF_HOST
        end(gang)
        trial = trial_of(gang.experiment)
        assert trial.restarts == max(0, number - 5) or trial.state == TrialState.ERROR
        if trial.state == TrialState.ERROR:
            break
        gang.start()
    assert (number, trial_of(gang.experiment).state) == (7, TrialState.ERROR)


@pytest.mark.parametrize(
    ("told", "said", "outcome"),
    [
        (LOCKED, {}, "it is not proved that no rank is at work"),
        (STOPPED, {"doing": "validates", "step": 12}, "has announced long work"),
        (STOPPED, {"step": 0}, "no rank has reported a step in this attempt yet"),
        (MOUNT, {"state_seconds": 700.0}, "the kernel has not held the rank for long enough"),
    ],
)
def test_what_is_not_proved_is_told_and_not_ended(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, Any], said: dict[str, Any], outcome: str
) -> None:
    gang = restarting(monkeypatch)
    gang.told = [ENTERED, told]
    gang.say(**said)
    gang.looks()
    assert gang.attempt.stop_kind == StopKind.NONE
    assert outcome in gang.told_of[0].outcome


def test_evidence_that_is_not_fresh_or_not_whole_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    gang = restarting(monkeypatch)
    gang.say(age=60.0)
    gang.looks()
    assert not Hang.objects.exists(), "as after an outage of the server, until the runners have spoken"
    gang.say()
    MemberPulse.objects.filter(member=gang.members[0]).delete()
    gang.looks()
    assert not Hang.objects.exists()


def test_an_attempt_that_moves_while_it_is_looked_at_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    gang = restarting(monkeypatch)
    gang.looks(1)
    ask = hangs._ask

    def moving(*asked: Any) -> Any:
        answers = ask(*asked)
        gang.say(quiet=0.5)
        return answers

    monkeypatch.setattr(hangs, "_ask", moving)
    gang.looks(1)
    assert not gang.told_of and gang.attempt.stop_kind == StopKind.NONE


def test_looks_that_disagree_prove_nothing_and_come_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    gang = restarting(monkeypatch)
    for number in range(12):
        gang.told = [STOPPED, ENTERED] if number % 2 else [ENTERED, STOPPED]
        gang.looks(1)
    assert not gang.told_of
    assert Hang.objects.get().looks <= 3


def test_paused_stopping_and_unwatched_work_is_not_looked_at(gang: Gang) -> None:
    ResourcePool.objects.update(hang_after_seconds=None)
    gang.looks()
    ResourcePool.objects.update(hang_after_seconds=900)
    experiments.pause(gang.experiment.pk, actor="user:ada")
    gang.looks()
    assert not Hang.objects.exists()


def test_a_host_that_cannot_be_asked_leaves_the_attempt_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    gang = restarting(monkeypatch)
    verb, away = gang._verb, gang.members[1].host_id

    def half(host: Host, *arguments: Any, **more: Any) -> dict[str, Any]:
        if host.pk == away:
            raise remote.RemoteError("gone")
        return verb(host, *arguments, **more)

    monkeypatch.setattr(remote, "verb", half)
    gang.looks()
    assert gang.attempt.stop_kind == StopKind.NONE


def test_a_look_is_made_by_one_worker_and_kept_once(gang: Gang, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a worker waits for the hosts' answers, others are asked to look too."""
    ask, begun = hangs._ask, []

    def slow(*asked: Any) -> Any:
        begun.append(asked)
        hangs.watch(timezone.now())
        hangs.look(gang.attempt.pk)
        return ask(*asked)

    monkeypatch.setattr(hangs, "_ask", slow)
    gang.looks(1)
    assert (len(begun), Hang.objects.get().looks) == (1, 1)


def test_a_worker_that_wakes_up_late_keeps_nothing(gang: Gang) -> None:
    hangs.watch(timezone.now())
    late, now = Hang.objects.get(), timezone.now()
    assert rows.claim(late, now)
    assert not rows.claim(Hang.objects.get(), now + timedelta(seconds=299))
    another = Hang.objects.get()
    assert rows.claim(another, now + timedelta(seconds=301))
    assert not rows.keep_look(late, [], None, now, 1)
    assert rows.keep_look(another, [], None, now, 1)


@pytest.mark.parametrize(
    ("late", "stamped", "outcome"),
    [(3600.0, False, None), (0.0, True, None), (0.0, False, "The attempt was ended, ")],
)
def test_answers_that_have_grown_old_are_neither_told_nor_acted_on(
    monkeypatch: pytest.MonkeyPatch, late: float, stamped: bool, outcome: str | None
) -> None:
    """A worker that freezes after the hosts have answered, or a control plane that was away meanwhile."""
    gang = restarting(monkeypatch)
    gang.looks(1)
    told, real = hangs._conclude, presence.database_now

    def freezing(*found: Any, **more: Any) -> None:
        monkeypatch.setattr(presence, "database_now", lambda: real() + timedelta(seconds=late))
        MemberPulse.objects.update(at=presence.database_now())
        if stamped:
            presence.stamp(presence.Part.WORKERS)
        told(*found, **more)

    monkeypatch.setattr(hangs, "_conclude", freezing)
    gang.looks(1)
    assert [hang.outcome[: len(outcome or "")] for hang in gang.told_of] == ([outcome] if outcome else [])
    assert (gang.attempt.stop_kind == StopKind.STOP) == bool(outcome)


def test_looks_of_two_eras_or_too_close_by_the_databases_clock_are_no_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gang = restarting(monkeypatch)
    gang.looks(1)
    presence.stamp(presence.Part.WORKERS)
    gang.looks(1)
    assert not gang.told_of
    Hang.objects.update(looked_at=timezone.now() - timedelta(seconds=6), looks=1)
    hangs.watch(timezone.now() + timedelta(seconds=15))
    for key in gang.asked:
        hangs.look(key)
    assert not gang.told_of and gang.attempt.stop_kind == StopKind.NONE


@pytest.mark.parametrize("age", [0.0, 60.0])
def test_ranks_that_have_finished_early_end_nobody(monkeypatch: pytest.MonkeyPatch, age: float) -> None:
    gang = restarting(monkeypatch, "restart_elsewhere")
    member, works = gang.members[1], [0]

    def verb(host: Host, name: str, request: dict[str, Any], **_: Any) -> dict[str, Any]:
        [key] = request["runs"]
        works[0] += 1
        text = f'Current thread 0x1:\n  File "train.py", line {works[0]} in evaluate'
        rank = {**LOCKED, "pid": 5, "state": "R", "cpu_seconds": 20.0 * works[0], "text": text}
        return {"runs": {key: {"ranks": {} if key.endswith(".1") else {"0": rank}}}}

    monkeypatch.setattr(remote, "verb", verb)
    pulse.keep(member.pk, [{"rank": 1, "state": "ended", "state_seconds": 1000.0}])
    if age:
        Member.objects.filter(pk=member.pk).update(state=MemberState.ENDED)
        MemberPulse.objects.filter(member=member).update(at=timezone.now() - timedelta(seconds=age))
    gang.looks(3)
    assert gang.attempt.stop_kind == StopKind.NONE and not gang.attempt.task.avoid_hosts


def test_the_end_of_an_attempt_ends_its_hang(gang: Gang) -> None:
    gang.looks()
    task_id = Trial.objects.get().task_id
    transitions.request_stop(gang.attempt.pk, StopKind.STOP, reason=Reason.KILLED_BY_USER, actor="user:ada")
    end(gang)
    gang.looks(1)
    assert rows.open_of(task_id) is None and rows.told_of(task_id).count() == 1

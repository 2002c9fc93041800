"""The story of an end: who failed first and how, who stopped it, what became of the others, and what follows."""

from typing import Any

import pytest
from django.utils import timezone

from dispatch.passes import pool_pass
from dispatch.runs import settle
from events.models import Event
from experiments import outcomes
from experiments import transitions as experiments
from experiments.models import Experiment
from hosts import registry
from jobs import rank_ends, transitions
from jobs.models import Member, Task
from jobs.states import AllocationState, Reason, TaskState
from logs import last_words, sentences, store, why_stopped
from logs.lines import NO_RANK, NewLine, blocks_of
from logs.why_stopped import Story
from tests.rig.world import attempt_of, make_host, members_of, submit_experiment

pytestmark = pytest.mark.django_db

TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "RuntimeError: boom",
]


def running(slots: int = 1, hosts: int = 1, **more: Any) -> Experiment:
    """An experiment whose trial runs on hosts gpu0, gpu1 and so on."""
    for index in range(hosts):
        make_host(f"gpu{index}", slots // hosts)
    experiment = submit_experiment(slots=slots, **more)
    pool_pass.run(experiment.job.pool_id)
    for member in members_of(experiment):
        transitions.member_launched(member.pk, boot_id="boot")
        transitions.member_running(member.pk)
    return experiment


def writes(member: Member, rank: int | None, texts: list[str], stream: str = "e") -> None:
    lines = [NewLine(1.0, rank, stream, None, text) for text in texts]
    store.append(member.allocation.task_id, member, member.host.name, blocks_of(lines))


def rank_end(member: Member, rank: int, code: int, *, failed: bool) -> dict[str, Any]:
    """As the launch modules record it."""
    t = member.allocation.assigned_at.timestamp() + rank / 1e6
    record = {"rank": rank, "code": code, "signal": code - 128 if code > 128 else None, "t": t}
    rank_ends.keep(transitions.lock_member(member.pk), record, failed=failed)
    return record


def ends(member: Member, code: int | None, first: dict[str, Any] | None = None, **kills: int) -> None:
    signal = code - 128 if code and code > 128 else None
    settle.member_exited(
        member.pk, code=code, signal=signal, ended_at=None, first_failure=first, oom_kills=kills or None
    )


def story_of(experiment: Experiment) -> Story:
    return why_stopped.of_attempt(attempt_of(experiment))


def test_the_first_failing_rank_is_told_with_its_traceback_and_the_others_are_folded() -> None:
    experiment = running(4, 2, max_restarts=0)
    first, second = members_of(experiment)
    writes(second, 2, ["step 1"], "o")
    writes(second, 2, TRACEBACK)
    writes(first, 0, ["ConnectionResetError: [Errno 104] Connection reset by peer"])
    failure = rank_end(second, 2, 1, failed=True)
    for member, rank in ((second, 3), (first, 0), (first, 1)):
        rank_end(member, rank, 143, failed=False)
    ends(second, 1, failure)
    ends(first, 143)
    story = story_of(experiment)
    assert story.sentences == [
        "Rank 2 on gpu1 failed first: exit code 1: RuntimeError: boom.",
        "3 other ranks then exited (code 143).",
        "Not retried (max_restarts: 0).",
    ]
    assert (story.rank, story.host, story.exit_code, story.failed) == (2, "gpu1", 1, True)
    assert [line.text for line in story.words.lines] == TRACEBACK and story.words.traceback
    assert story.line == story.words.lines[0].number


@pytest.mark.parametrize(
    ("kills", "said"),
    [
        (
            {"cgroup": 1, "host": 1},
            "Out of memory: the kernel's OOM killer ended 1 process of its cgroup on gpu0",
        ),
        (
            {"cgroup": 0, "host": 2},
            "Possibly out of memory: the kernel's OOM killer ended 2 processes somewhere on gpu0",
        ),
        ({"cgroup": 0, "host": 0}, "Not out of memory:"),
        ({}, "It is unknown whether memory ran out"),
    ],
)
def test_137_is_out_of_memory_only_with_evidence(kills: dict[str, int], said: str) -> None:
    experiment = running(max_restarts=1)
    [member] = members_of(experiment)
    writes(member, 0, ["the last line"], "o")
    ends(member, 137, rank_end(member, 0, 137, failed=True), **kills)
    story = story_of(experiment)
    assert story.sentences[0] == "Rank 0 on gpu0 failed first: exit code 137: killed by SIGKILL."
    assert story.sentences[1].startswith(said)
    assert story.sentences[-1] == "Retried (restart 1 of 1)."
    assert [line.text for line in story.words.lines] == ["the last line"] and not story.words.traceback


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (127, "exit code 127: command not found"),
        (126, "exit code 126: not executable"),
        (139, "exit code 139: a segmentation fault (SIGSEGV)"),
        (134, "exit code 134: aborted (SIGABRT)"),
        (143, "exit code 143: terminated by SIGTERM"),
        (3, "exit code 3"),
        (None, "without an exit code"),
    ],
)
def test_exit_codes_are_told_in_words(code: int | None, meaning: str) -> None:
    experiment = running(max_restarts=0)
    ends(members_of(experiment)[0], code)
    assert story_of(experiment).meaning == meaning


@pytest.mark.parametrize(
    ("said", "program", "advice"),
    [
        ("sh: accelerate: not found", "accelerate", "PATH"),
        ("trainmaster: line 1: exec: torchrun: not found", "torchrun", "PATH"),
        ("sh: 1: accelerate: not found", "accelerate", "is not on the PATH of jobs on gpu0"),
        ("bash: line 1: accelerate: command not found", "accelerate", "environment.activate"),
        ("/bin/sh: 1: exec: accelerate: not found", "accelerate", "check its spelling"),
        (
            "/usr/bin/env: \u2018python2\u2019: No such file or directory",
            "python2",
            "python2 is not on the PATH",
        ),
        (
            "bash: line 1: ./train.sh: No such file or directory",
            "./train.sh",
            "Check on gpu0 that ./train.sh exists",
        ),
        (
            "ERROR: trainmaster: command not found: 'tarin'. It must be on the host's PATH or in the context folder",
            "tarin",
            "install it",
        ),
        (
            "ERROR: trainmaster: command not found: the interpreter that the first line of './go' names is not there",
            "./go",
            "the interpreter that its first line names",
        ),
    ],
)
def test_a_program_that_was_not_found_is_named_with_what_to_check(
    said: str, program: str, advice: str
) -> None:
    experiment = running(max_restarts=0)
    [member] = members_of(experiment)
    writes(member, NO_RANK, ["preparing", said])
    ends(member, 127)
    story = story_of(experiment)
    assert story.meaning == f"exit code 127: command not found: {program}"
    assert story.sentences[0] == f"It failed on gpu0: exit code 127: command not found: {program}."
    assert advice in story.sentences[1]


def test_a_hook_that_fails_is_not_the_entrypoint() -> None:
    experiment = running(max_restarts=0)
    [member] = members_of(experiment)
    writes(member, None, ["startup-hook.sh: line 1: uv: command not found"])
    fault = "startup-hook.sh ended with exit code 127; the entrypoint was not started"
    settle.member_exited(member.pk, code=127, signal=None, ended_at=100.0, hook_fault=fault)
    assert attempt_of(experiment).exit_reason == Reason.RANK_FAILED
    story = story_of(experiment)
    assert story.sentences[0] == f"It failed on gpu0: {fault}."
    assert story.exit_code == 127 and not any("entrypoint's command" in each for each in story.sentences)
    said = [each.text for event in Event.objects.all() if (each := sentences.sentence(event))]
    for whose in ("Run 1", "The part on gpu0"):
        assert any(f"{whose} ended: {fault}." in each for each in said), said


def test_after_a_hook_that_fails_the_next_attempts_wait_longer_and_longer() -> None:
    experiment = running(max_restarts=2)
    for attempt in (1, 2):
        [member] = members_of(experiment)
        settle.member_exited(member.pk, code=1, signal=None, ended_at=100.0, hook_fault="the hook failed")
        delay = (attempt_of(experiment).task.not_before - timezone.now()).total_seconds()
        assert 0.5 < delay / outcomes.HOOK_BACKOFF_SECONDS - attempt + 1 <= 1
        assert attempt_of(experiment).number == attempt
        Task.objects.update(not_before=None)
        pool_pass.run(experiment.job.pool_id)
    [member] = members_of(experiment)
    settle.member_exited(member.pk, code=1, signal=None, ended_at=100.0, hook_fault="the hook failed")
    assert attempt_of(experiment).task.state == TaskState.ENDED


def test_an_exit_code_127_of_its_own_names_no_program() -> None:
    experiment = running(max_restarts=0)
    [member] = members_of(experiment)
    writes(member, NO_RANK, ["ValueError: key: not found"])
    ends(member, 127)
    assert story_of(experiment).sentences[0].startswith("It failed on gpu0: exit code 127: command not found")
    assert not any("PATH" in sentence for sentence in story_of(experiment).sentences)


def test_a_crash_says_its_last_words() -> None:
    experiment = running(max_restarts=0)
    [member] = members_of(experiment)
    writes(
        member,
        0,
        ["Fatal Python error: Segmentation fault", "", "Current thread 0x1 (most recent call first):"],
    )
    ends(member, 139, rank_end(member, 0, 139, failed=True))
    assert (
        "a segmentation fault (SIGSEGV) (Fatal Python error: Segmentation fault)"
        in story_of(experiment).sentences[0]
    )


def test_an_old_traceback_does_not_tell_why_a_process_was_killed() -> None:
    experiment = running(max_restarts=0)
    [member] = members_of(experiment)
    writes(member, 0, [*TRACEBACK, "went on"])
    ends(member, 137, rank_end(member, 0, 137, failed=True))
    assert not story_of(experiment).words.traceback


def test_a_kill_names_who_and_how_long_it_took() -> None:
    experiment = running()
    experiments.kill(experiment.pk, actor="user:ada")
    ends(members_of(experiment)[0], 143)
    story = story_of(experiment)
    assert story.sentences[0] == "Killed by ada."
    assert story.sentences[1].startswith("It exited ") and story.sentences[1].endswith(
        "after it was told to stop."
    )
    assert story.stopped_by == {"user": "ada", "reason": Reason.KILLED_BY_USER} and not story.failed


def test_what_had_to_be_killed_is_told_so() -> None:
    experiment = running()
    experiments.kill(experiment.pk, actor="user:ada")
    ends(members_of(experiment)[0], 137)
    assert "was killed (SIGKILL)" in story_of(experiment).sentences[1]


def test_a_preemption_names_the_job_that_it_was_for() -> None:
    experiment = running(priority=50)
    other = submit_experiment(name="urgent", priority=1)
    pool_pass.run(experiment.job.pool_id)
    attempt = attempt_of(experiment)
    assert attempt.stop_reason == Reason.PREEMPTED
    transitions.preempt_acknowledged(attempt.pk)
    ends(members_of(experiment)[0], 0)
    story = story_of(experiment)
    assert story.sentences[0] == (
        f"Preempted by experiment {other.pk} “urgent” of ada, which is ahead of it in the queue."
    )
    assert story.sentences[1].startswith("It saved and exited ")
    assert story.sentences[2] == "Queued again; this does not count as a restart."


def test_a_lost_host_is_told_with_who_declared_it() -> None:
    experiment = running()
    [member] = members_of(experiment)
    registry.declare_lost(member.host_id, actor="user:root")
    settle.member_over(member.pk, reason=Reason.HOST_LOST, detail={"rank": None, "host": "gpu0"})
    assert story_of(experiment).sentences == [
        "gpu0 was declared lost by root.",
        "Queued again; this does not count as a restart.",
    ]


def test_nothing_is_told_while_it_runs_and_exit_0_is_told_plainly() -> None:
    experiment = running()
    assert story_of(experiment) == Story(1)
    ends(members_of(experiment)[0], 0)
    assert story_of(experiment).sentences == ["It ended with exit code 0."]


def test_what_never_had_slots_is_told_too() -> None:
    experiment = submit_experiment()
    experiments.kill(experiment.pk, actor="user:ada")
    task = experiment.trials.get().task
    story = why_stopped.of_task(task)
    assert story.sentences == ["Killed by ada before it started."]
    assert why_stopped.last_failure(task) is None


@pytest.mark.survive(10)
def test_a_clock_that_was_set_wrong_does_not_make_its_host_the_first() -> None:
    """Its stamps lie before the attempt: its arrival counts."""
    experiment = running(2, 2, max_restarts=0)
    first, second = members_of(experiment)
    rank_end(first, 0, 3, failed=True)
    late = {"rank": 1, "code": 1, "signal": None, "t": 5.0}
    rank_ends.keep(transitions.lock_member(second.pk), late, failed=True)
    ends(second, 1, late)
    ends(
        first, 3, {"rank": 0, "code": 3, "signal": None, "t": first.allocation.assigned_at.timestamp() + 1e-6}
    )
    assert story_of(experiment).sentences[:2] == [
        "Rank 0 on gpu0 failed first: exit code 3.",
        "1 other rank then exited (code 1).",
    ]
    assert Event.objects.filter(reason=Reason.RANK_FAILED).exists()


def test_a_rank_that_fell_with_its_peer_is_not_the_first_even_if_it_was_recorded_earlier() -> None:
    experiment = running(4, 2, max_restarts=0)
    first, second = members_of(experiment)
    writes(first, 0, [*TRACEBACK[:2], "RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.2]:306"])
    writes(second, 2, TRACEBACK)
    early = rank_end(first, 0, 1, failed=True)
    late = rank_end(second, 2, 1, failed=True)
    ends(first, 1, early)
    ends(second, 1, late)
    story = story_of(experiment)
    assert story.sentences[0] == "Rank 2 on gpu1 failed first: exit code 1: RuntimeError: boom."
    attempt = attempt_of(experiment)
    assert attempt.exit_detail["rank"] == 2
    attempt.exit_detail = early
    members = members_of(experiment)
    found = last_words.corrected_exit(attempt, members)
    assert found is not None and found["rank"] == 2
    # where the log does not tell in time, the records' times do
    assert last_words.corrected_exit(attempt, members, seconds=0) is None


@pytest.mark.parametrize(
    "odd",
    [{"rank": 10**11}, {"rank": float("inf")}, {"code": 10**12}, {"code": "x"}, {"signal": [1]}, {"t": None}],
)
def test_what_training_code_reports_of_an_end_never_keeps_it_from_being_settled(odd: dict[str, Any]) -> None:
    experiment = running(4, 2, max_restarts=0)
    first, second = members_of(experiment)
    rank_end(second, 2, 1, failed=True)
    record = {"rank": 0, "code": 1, "signal": None, "t": 1.0, **odd}
    with pytest.raises((TypeError, ValueError)):
        rank_ends.keep(transitions.lock_member(first.pk), record, failed=True)
    ends(first, 1, record)
    ends(second, 1)
    assert attempt_of(experiment).state == AllocationState.TERMINATED
    assert story_of(experiment).failed


def test_what_lines_hold_never_keeps_an_end_from_being_settled() -> None:
    experiment = running(max_restarts=0)
    [member] = members_of(experiment)
    writes(member, None, ["Root Cause (first observed failure):", "[0]:", "  rank      : x (local_rank: 0)"])
    ends(member, 1)
    assert story_of(experiment).sentences[0] == "It failed on gpu0: exit code 1."

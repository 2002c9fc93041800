"""Log policies: a matching line labels the trial, excludes its host, or ends the retries, once and at little cost."""

import json
import math
import time
from types import SimpleNamespace
from typing import Any

import pytest

from dispatch.passes import last_plan, pool_pass
from dispatch.runs import intake, log_policies
from events.models import Event
from experiments import submit
from experiments.config import parse
from experiments.config.log_policies import built_ins
from experiments.log_policies import Policy, of_config
from experiments.models import Experiment
from experiments.states import TrialState
from jobs import transitions
from jobs.models import Member
from jobs.states import Reason, TaskState
from logs import read, store, why_stopped
from logs.lines import Block
from submissions import contexts
from tests.rig.world import attempt_of, make_host, make_project, make_user, members_of, trial_of

pytestmark = pytest.mark.django_db

EXCLUDES = {"name": "Bad GPU", "pattern": "xid \\d+", "action": "exclude_node"}
CANCELS = {"name": "Hopeless", "pattern": "no such dataset", "action": "cancel_retries"}


def submitted(*policies: dict[str, Any]) -> Experiment:
    text = json.dumps(
        {
            "name": "policies",
            "entrypoint": "python3 train.py",
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
            "resources": {"slots_per_trial": 1},
            "max_restarts": 3,
            "log_policies": list(policies),
        }
    )
    return submit.create(
        owner=make_user(), config=parse(text), original=text, context=contexts.empty(), project=make_project(),
        parent=None, activate=True, idempotency_key=None, actor="user:ada",
    )  # fmt: skip


class Run:
    """The runner of an experiment's newest attempt."""

    def __init__(self, experiment: Experiment) -> None:
        pool_pass.run(experiment.job.pool_id)
        self.member: Member = members_of(experiment)[0]
        transitions.member_launched(self.member.pk, boot_id="boot")
        transitions.member_running(self.member.pk)
        self.offset = 0

    def ships(self, *records: dict[str, Any]) -> None:
        body = b"".join(json.dumps(record).encode() + b"\n" for record in records)
        self.offset = intake.store(self.member.pk, self.offset, body).offset

    def says(self, *texts: str, rank: int = 0) -> None:
        record = {"k": "lines", "f": f"rank{rank}.stderr", "e": 1, "t": 1.0, "r": rank, "s": "stderr"}
        self.ships({**record, "m": "\n".join(texts)})

    def fails(self) -> None:
        end = {"k": "exit", "t": 2.0, "code": 1, "signal": None, "stopped": False}
        self.ships({**end, "first_failure": None, "boot_id": "boot"})


def test_a_built_in_policy_labels_and_does_nothing_else() -> None:
    make_host("gpu1", 1)
    experiment = submitted()
    run = Run(experiment)
    run.says("step 1", "step 2")
    run.says("step 3", "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB", rank=3)
    run.says("CUDA out of memory again")
    trial = trial_of(experiment)
    assert trial.log_labels == ["CUDA OOM"] and trial.task.avoid_hosts == []
    event = Event.objects.get(reason=Reason.LOG_POLICY)
    line = next(line for line in read.forward(trial.task_id).lines if line.number == event.detail["line"])
    assert line.text.startswith("RuntimeError: CUDA out of memory") and event.detail["rank"] == 3
    store.merge_events(trial.task_id)
    said = [line.text for line in read.forward(trial.task_id).lines if line.stream == "s"]
    assert f"Log policy “CUDA OOM” matched line {line.number} (rank 3 on gpu1)." in said
    run.fails()
    assert trial_of(experiment).restarts == 1


def test_a_policy_that_excludes_the_host_lets_the_retry_run_elsewhere_and_says_when_none_is_left() -> None:
    make_host("gpu1", 1)
    make_host("gpu2", 1)
    experiment = submitted(EXCLUDES)
    first = Run(experiment)
    first.says("NVRM: Xid", "xid 79", "xid 80")
    first.fails()
    second = Run(experiment)
    assert second.member.host_id != first.member.host_id
    story = why_stopped.of_task(trial_of(experiment).task, 1)
    assert f"{first.member.host.name} will not be used for it again" in " ".join(story.sentences)
    assert story.sentences[-1] == "Retried (restart 1 of 3)."
    second.says("xid 79")
    second.fails()
    pool_pass.run(experiment.job.pool_id)
    trial = trial_of(experiment)
    assert trial.task.state == TaskState.WAITING and set(trial.task.avoid_hosts) == {"gpu1", "gpu2"}
    assert "avoid" in last_plan.of(experiment.job.pool).waits[trial.task_id]["sentence"]


def test_a_policy_that_cancels_retries_ends_the_trial_with_its_first_failure() -> None:
    make_host("gpu1", 1)
    experiment = submitted(CANCELS)
    run = Run(experiment)
    run.says("error: no such dataset")
    run.fails()
    trial = trial_of(experiment)
    assert (trial.state, trial.restarts, trial.log_labels) == (TrialState.ERROR, 0, ["Hopeless"])
    story = why_stopped.of_task(trial.task)
    assert story.sentences[-1] == "Not retried: a log policy canceled its retries."
    assert [match.name for match in story.matches] == ["Hopeless"]


def test_without_a_match_the_next_attempt_follows_as_ever() -> None:
    make_host("gpu1", 1)
    experiment = submitted(CANCELS, EXCLUDES)
    run = Run(experiment)
    run.says("log_policies: [{pattern: no such dataset}]")  # a program that prints its own config
    run.fails()
    trial = trial_of(experiment)
    assert (trial.restarts, trial.log_labels, trial.task.avoid_hosts) == (1, [], [])


def test_a_policy_of_an_earlier_attempt_still_cancels_and_counts_per_attempt() -> None:
    make_host("gpu1", 1)
    experiment = submitted({"name": "Seen", "pattern": "flaky"})
    for _ in range(2):
        run = Run(experiment)
        run.says("flaky")
        run.fails()
    assert Event.objects.filter(reason=Reason.LOG_POLICY).count() == 2
    assert trial_of(experiment).log_labels == ["Seen"]
    assert attempt_of(experiment).number == 2


def test_a_pattern_that_explodes_is_given_up_and_said() -> None:
    make_host("gpu1", 1)
    experiment = submitted({"name": "Slow", "pattern": "(a|aa)+$"})
    run = Run(experiment)
    run.says("a" * 60 + "!")
    texts = [line.text for line in read.forward(trial_of(experiment).task_id).lines]
    assert any("'Slow' is not applied any more" in text for text in texts)
    assert all(policy.name != "Slow" for policy in log_policies._of(run.member.pk))


def test_many_slow_lines_cost_no_more_than_a_block_may() -> None:
    [policy] = of_config({"log_policies": [{"pattern": "(?!x)(a|aa)+$"}]})
    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        policy.first_line("\n".join(["a" * 22 + "!"] * 4000))
    assert time.monotonic() - begin < 30, "without a limit it would take hours"


@pytest.mark.parametrize(
    ("pattern", "text", "line"),
    [
        ("^b$", "a\nb\nc", 1),
        (r"\Ab", "a\nb", 1),
        (r"error(?!\s+ignored)", "error\n ignored", 0),
        (r"a\s+b", "a\nb", None),
        ("B", "b", None),
        ("(?i)B", "a\nb", 1),
        (".*x.*", "\udc80x", 0),
    ],
)
def test_a_pattern_is_found_in_single_lines(pattern: str, text: str, line: int | None) -> None:
    [policy] = of_config({"log_policies": [{"pattern": pattern}]})
    assert policy.first_line(text) == line


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ({"pattern": "a", "action": {"type": "exclude_node"}}, {"name": None, "action": "exclude_node"}),
        ({"name": "A", "pattern": "a"}, {"name": "A", "action": None}),
        (
            {"pattern": "a", "actions": [{"signal": "A"}, "cancel_retries", "exclude_node"]},
            {"name": "A", "action": ["cancel_retries", "exclude_node"]},
        ),
    ],
)
def test_all_forms_of_a_policy_are_read(written: dict[str, Any], stored: dict[str, Any]) -> None:
    base = {"searcher": {"name": "single", "metric": "loss", "max_length": 1}, "entrypoint": "true"}
    found = parse(json.dumps({**base, "log_policies": [written]})).effective()["log_policies"]
    assert found[-1] == {"pattern": "a", **stored}
    assert [each["name"] for each in found[:-1]] == [policy.name for policy in built_ins()]
    again = parse(json.dumps({**base, "log_policies": found})).effective()["log_policies"]
    assert again == found


def test_a_built_in_is_switched_off_by_its_name() -> None:
    base = {"searcher": {"name": "single", "metric": "loss", "max_length": 1}, "entrypoint": "true"}
    template = {
        "log_policies": [{"name": "Mine", "pattern": "x"}, {"pattern": "y", "action": "exclude_node"}]
    }
    config = {
        **base,
        "log_policies": [{"name": "CUDA OOM", "pattern": None}, {"name": "Mine", "pattern": "z"}],
    }
    found = parse(json.dumps(config), template=template).effective()
    assert [(policy.name, policy.pattern) for policy in of_config(found)] == [
        ("ECC Error", ".*uncorrectable ECC error encountered.*"),
        ("", "y"),
        ("Mine", "z"),
    ]


def test_patterns_that_are_slow_together_are_given_up_and_the_quick_ones_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each stays below the limit of one block, for which no single one would ever be given up."""
    monkeypatch.setattr("experiments.log_policies.PATTERN_SECONDS_PER_BATCH", 0.2)

    class Slow(Policy):
        def first_line(self, text: str, until: float = math.inf) -> int | None:
            if time.monotonic() >= until:
                raise TimeoutError
            time.sleep(0.02 if self.name == "slow" else 0)
            return None

    policies = [Slow("slow" if number % 2 else "quick", "x", []) for number in range(60)]
    blocks: list[Block] = [SimpleNamespace(text="text")] * 3  # type: ignore[list-item]
    given_up = [policy for policy, _, is_given_up in log_policies._searched(policies, blocks) if is_given_up]
    assert (
        len(given_up) >= 15 and sum(policy.name == "quick" for policy in given_up) <= 1 + len(given_up) // 3
    )

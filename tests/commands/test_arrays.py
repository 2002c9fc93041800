"""Arrays: one command many times, as one job of the queue."""

from __future__ import annotations

import pytest
from django.conf import LazySettings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from accounts.refusals import Refusal
from commands import arrays, submit, transitions
from commands.config import check
from commands.models import Command
from commands.runs import describe
from commands.states import CommandState
from dispatch.passes import pool_pass
from events.models import Event
from experiments.config import ConfigError
from hosts.pools import default_pool
from jobs import dependencies, queue_edits
from jobs.models import Dependency, Job, Task
from jobs.states import JobState, TaskState
from notifications.occurrences import RELEVANT, of_event
from shown import arrays as shown_arrays
from shown import audit, task_list, tasks
from shown.arrays import ArrayCounts
from shown.queue import board
from shown.queue.listing import QueueView
from submissions import contexts
from submissions.models import Context
from tests.commands.test_outcomes import exited, started
from tests.rig.world import make_host, make_user, plan_of

db = pytest.mark.django_db


def make_array(indices: str, *, depends_on: list[str] | None = None, **resources: object) -> Job:
    config = check(
        {"entrypoint": "true", "array": indices, "resources": resources, "depends_on": depends_on or []}
    )
    first = submit.create(
        owner=make_user(),
        config=config,
        context=contexts.empty(),
        workspace_number=1,
        idempotency_key=None,
        actor="user:ada",
    )
    return first.job


def element(job: Job, index: int) -> Command:
    return Command.objects.select_related("task", "job").get(job=job, array_index=index)


def states(job: Job) -> dict[int, str]:
    rows = Task.objects.filter(job=job).order_by("command__array_index")
    return dict(rows.values_list("command__array_index", "state"))


@pytest.mark.parametrize(
    ("text", "values", "at_once", "written"),
    [
        ("0-4", (0, 1, 2, 3, 4), None, "0-4"),
        ("0-9:3%2", (0, 3, 6, 9), 2, "0-9:3%2"),
        ("7, 1,3", (1, 3, 7), None, "1,3,7"),
        ("5", (5,), None, "5"),
        ("1-2,4-8:2,20%1", (1, 2, 4, 6, 8, 20), 1, "1,2-8:2,20%1"),
    ],
)
def test_indices_are_ranges_steps_and_lists(
    text: str, values: tuple[int, ...], at_once: int | None, written: str
) -> None:
    found = arrays.parse(text, 100)
    assert (found.values, found.at_once, str(found)) == (values, at_once, written)


@given(st.sets(st.integers(0, 400), min_size=1, max_size=60), st.none() | st.integers(1, 50))
def test_what_is_written_is_read_again(values: set[int], at_once: int | None) -> None:
    indices = arrays.Indices(tuple(sorted(values)), at_once)
    assert arrays.parse(str(indices), len(values)) == indices


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0-9%0", "a whole number above 0 after %, such as 0-99%8"),
        ("0-9%", "a whole number above 0 after %, such as 0-99%8"),
        ("1,3,1", "each index once; 1 is there twice"),
        ("0-4,4-6", "each index once; 4 is there twice"),
        ("5-2", "a range from the smaller index to the larger one, such as 2-5"),
        ("0-4:0", "a step of 1 or more after :, such as 0-99:2"),
        ("0-100", "at most 100 elements; split it into several arrays"),
        ("0-999999999", "indices from 0 to 999,999"),
        ("-3", arrays.FORMS),
        ("a", arrays.FORMS),
        ("", arrays.FORMS),
    ],
)
def test_indices_that_are_none_are_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError) as refused:
        arrays.parse(text, 100)
    assert str(refused.value) == sentence


def test_a_config_names_the_field_and_the_limit_is_a_setting(settings: LazySettings) -> None:
    settings.ELEMENTS_PER_ARRAY = 8
    with pytest.raises(
        ConfigError, match=r"array: found .0-8., allowed: at most 8 elements; split it into several"
    ):
        check({"entrypoint": "true", "array": "0-8"})
    with pytest.raises(ConfigError, match='array: found "0-3", allowed: arrays of commands only'):
        check({"array": "0-3"}, kind=Job.Kind.SHELL)


@db
def test_an_array_is_one_job_and_so_many_at_once_run() -> None:
    make_host("gpu1", 4)
    job = make_array("1-5%2")
    assert (job.kind, job.elements, job.at_once, Context.objects.count()) == ("ARRAY", 5, 2, 1)
    pool_pass.run(default_pool().pk)
    assert list(states(job).values()) == ["RUNNING", "RUNNING", "WAITING", "WAITING", "WAITING"]
    waits = plan_of(default_pool())["waits"]
    assert {wait["sentence"] for wait in waits.values()} == {"2 of this array's 5 run at once"}
    spec = describe(element(job, 2).task.allocations.get(), "cuda")
    assert {name: spec.environment[name] for name in (arrays.INDEX, arrays.ID, arrays.COUNT, arrays.MAX)} == {
        arrays.INDEX: "2", arrays.ID: str(job.pk), arrays.COUNT: "5", arrays.MAX: "5",
    }  # fmt: skip


@db
def test_the_limit_holds_for_work_without_slots() -> None:
    make_host("gpu1", 1)
    job = make_array("0-9%3", slots=0)
    pool_pass.run(default_pool().pk)
    assert list(states(job).values()).count(TaskState.RUNNING) == 3
    wait = next(iter(plan_of(default_pool())["waits"].values()))
    assert wait["sentence"] == "3 of this array's 10 run at once"


@db
def test_a_thousand_elements_are_submitted_and_killed_in_few_statements() -> None:
    with CaptureQueriesContext(connection) as few:
        make_array("0-1")
    with CaptureQueriesContext(connection) as many:
        job = make_array("0-999%8")
    assert len(many) <= len(few)
    with CaptureQueriesContext(connection) as following:
        next_step = make_array("0-999", depends_on=[f"{job.pk}:each"])
    assert len(following) <= len(few) + 10
    read = [query["sql"] for query in following if '"array_index" IN (' in query["sql"]]
    assert read and not any('"config"' in sql for sql in read)
    with CaptureQueriesContext(connection) as killing:
        transitions.kill_array(job.pk, actor="user:ada")
    assert len(killing) < 60
    assert Dependency.objects.filter(job=next_step, met_at=None).count() == 1000
    job.refresh_from_db()
    assert (job.state, job.succeeded) == (JobState.ENDED, False)
    assert set(states(job).values()) == {TaskState.ENDED}
    assert shown_arrays.counts_of(job.pk) == ArrayCounts(canceled=1000)


@db
def test_its_end_is_told_once_and_says_what_became_of_its_elements() -> None:
    make_host("gpu1", 2)
    job = make_array("0-1")
    member = started(element(job, 0))
    other = element(job, 1).task.allocations.get().members.get()
    exited(member, 0)
    job.refresh_from_db()
    assert job.state == JobState.ACTIVE
    exited(other, 3)
    job.refresh_from_db()
    assert (job.state, job.succeeded) == (JobState.ENDED, False)
    events = Event.objects.filter(RELEVANT).exclude(from_state="")
    told = [found.facts["sentence"] for event in events if (found := of_event(event))]
    short = str(job.pk)[:8]
    assert told == [
        f"Array {short} (true) of ada failed: 1 of its elements failed and 1 of its elements completed."
    ]
    again = submit.rerun(job, "", owner=make_user(), actor="user:ada")
    assert (again.array_index, again.job.elements, again.context_id) == (1, 1, element(job, 0).context_id)


@db
def test_who_runs_elements_again_names_those_that_exist() -> None:
    job = make_array("2,4")
    with pytest.raises(Refusal, match=f"array {str(job.pk)[:8]} has no element 3"):
        submit.rerun(job, "2-3", owner=make_user(), actor="user:ada")
    with pytest.raises(Refusal, match=r"No element of array .* failed or was canceled"):
        submit.rerun(job, "", owner=make_user(), actor="user:ada")
    assert submit.rerun(job, "4%1", owner=make_user(), actor="user:ada").job.at_once == 1


@db
def test_jobs_wait_for_an_array_or_for_one_element_of_it() -> None:
    make_host("gpu1", 4)
    job = make_array("0-1")
    whole = make_array("0", depends_on=[f"{job.pk}:end"])
    one = make_array("0", depends_on=[str(element(job, 1).pk)])
    pool_pass.run(default_pool().pk)
    label = f"cmd {str(element(job, 1).pk)[:8]}"
    assert (
        plan_of(default_pool())["waits"][element(one, 0).task_id]["sentence"]
        == f"waits for {label} to succeed"
    )
    exited(element(job, 1).task.allocations.get().members.get(), 0)
    assert Dependency.objects.get(job=one).met_at is not None
    assert Dependency.objects.get(job=whole).met_at is None
    transitions.kill_array(job.pk, actor="user:ada")
    assert Dependency.objects.get(job=whole).met_at is None  # its other element still stops
    exited(element(job, 0).task.allocations.get().members.get(), 143)
    assert Dependency.objects.get(job=whole).met_at is not None


@db
def test_an_element_that_failed_is_waited_for_in_vain() -> None:
    make_host("gpu1", 1)
    job = make_array("0-1")
    waiting = make_array("0", depends_on=[str(element(job, 0).pk)])
    exited(started(element(job, 0)), 1)
    pool_pass.run(default_pool().pk)
    wait = plan_of(default_pool())["waits"][element(waiting, 0).task_id]
    label = f"cmd {str(element(job, 0).pk)[:8]}"
    assert wait["sentence"] == f"depends on the success of {label}, which did not succeed"
    with pytest.raises(
        Refusal, match=f"{label} did not succeed, so a job that waits for its success would never"
    ):
        dependencies.found([f"{element(job, 0).pk}:success"])


@db
def test_each_element_waits_for_its_own_of_another_array() -> None:
    make_host("gpu1", 8)
    first = make_array("0-4:2")
    second = make_array("2,4", depends_on=[f"{first.pk}:each"])
    pool_pass.run(default_pool().pk)
    assert list(states(second).values()) == ["WAITING", "WAITING"]
    waits = plan_of(default_pool())["waits"]
    for index in (2, 4):
        label = f"cmd {str(element(first, index).pk)[:8]}"
        assert waits[element(second, index).task_id]["sentence"] == f"waits for {label} to succeed"
    exited(element(first, 4).task.allocations.get().members.get(), 0)
    exited(element(first, 2).task.allocations.get().members.get(), 1)
    pool_pass.run(default_pool().pk)
    assert states(second) == {2: "WAITING", 4: "RUNNING"}
    wait = plan_of(default_pool())["waits"][element(second, 2).task_id]
    assert wait["code"] == "never_met" and "did not succeed" in wait["sentence"]
    both = make_array("0", depends_on=[f"{first.pk}:each", f"{second.pk}:end"])
    pool_pass.run(default_pool().pk)
    wait = plan_of(default_pool())["waits"][element(both, 0).task_id]["sentence"]
    assert (
        wait
        == f"waits for array {str(second.pk)[:8]} to end and cmd {str(element(first, 0).pk)[:8]} to succeed"
    )


@db
def test_who_waits_for_each_element_of_an_array_names_those_that_can_succeed() -> None:
    make_host("gpu1", 2)
    first = make_array("0-3")
    exited(started(element(first, 1)), 1)
    each, short = f"{first.pk}:each", str(first.pk)[:8]
    cases = [
        ("0-6", f"Array {short} has no elements 4-6, so the same of this array would never start. To run the others, "
                "give `array: 0-3`."),
        ("0,1", f"In array {short}, there was no success of element 1, so the same of this array would never start. To "
                "run the others, give `array: 0`."),
        ("1", f"In array {short}, there was no success of element 1, so the same of this array would never start."),
    ]  # fmt: skip
    for indices, sentence in cases:
        with pytest.raises(Refusal) as refused:
            make_array(indices, depends_on=[each])
        assert str(refused.value) == sentence
    with pytest.raises(Refusal, match="There is no array 12 to wait for"):
        make_array("0", depends_on=["12:each"])
    with pytest.raises(Refusal, match=r"There is no array \S+ to wait for"):
        make_array("0", depends_on=[f"{element(first, 0).pk}:each"])
    with pytest.raises(Refusal, match=f"{each}: only an array can wait for each element of another one"):
        dependencies.found([each])
    assert Job.objects.count() == 1


@db
def test_lists_and_the_board_have_one_row_for_it() -> None:
    make_host("gpu1", 2)
    job, user = make_array("0-9"), make_user()
    pool_pass.run(default_pool().pk)
    rows = list(task_list.matching(user, {}))
    assert [row.array_index for row in rows] == [0]
    assert [row.array_index for row in task_list.matching(user, {"state": "queued"})] == [2]
    assert len(task_list.matching(user, {"array": str(job.pk)})) == 10
    _, parts, _ = board.of(default_pool(), QueueView(), user.pk)
    (line,) = [row for part in parts for row in part.rows]
    assert (line.elements, line.needed, line.why) == (10, 10, "0 done, 2 running, 8 waiting, 0 failed; gpu1")
    edit = queue_edits.Update(str(job.pk), priority=7)
    queue_edits.apply([edit], actor="user:ada", role="editor")
    job.refresh_from_db()
    assert job.priority == 7


@db
def test_a_page_of_arrays_counts_their_elements_once() -> None:
    jobs, user = [make_array("0-9"), make_array("0-4")], make_user()
    with CaptureQueriesContext(connection) as one:
        tasks.rows(task_list.matching(user, {})[:1], folds=True)
    with CaptureQueriesContext(connection) as both:
        rows = tasks.rows(task_list.matching(user, {}), folds=True)
    assert len(both) == len(one)
    assert {row.command.job_id: row.array for row in rows} == {
        jobs[0].pk: ArrayCounts(waiting=10),
        jobs[1].pk: ArrayCounts(waiting=5),
    }


@db
def test_the_end_of_a_whole_array_has_its_name_and_address_in_the_audit_log() -> None:
    job = make_array("0-1")
    transitions.kill_array(job.pk, actor="user:ada")
    rows = audit.page(audit.found(audit.AuditFilters(user="ada"), make_user()), make_user()).rows
    whole = {(row.name, row.href) for row in rows if (row.kind, row.subject) == ("command", str(job.pk))}
    assert whole == {("true", f"/tasks?array={job.pk}")}


@db
def test_one_element_is_killed_alone() -> None:
    make_host("gpu1", 1)
    job = make_array("0-2")
    pool_pass.run(default_pool().pk)
    transitions.kill(element(job, 2).pk, actor="user:ada")
    assert element(job, 2).state == CommandState.CANCELED
    job.refresh_from_db()
    assert (job.state, shown_arrays.counts_of(job.pk)) == (JobState.ACTIVE, ArrayCounts(1, 1, 0, 0, 1))

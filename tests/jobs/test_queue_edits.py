"""Edits of the queue: the documented scenario, every move of a five-job queue, and all that is refused."""

from __future__ import annotations

import itertools
import uuid
from datetime import timedelta

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounts.models import User
from accounts.refusals import Refusal
from events.models import Event
from hosts.models import PoolChange, ResourcePool
from hosts.pools import default_pool
from jobs import queue_edits, transitions
from jobs.models import Job, QueueEdit, Task
from jobs.queue_edits import Update
from jobs.states import JobState, Reason


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create(username="ada")


def job(owner: User, pool: ResourcePool | None = None, **fields: object) -> Job:
    made = transitions.create_job(
        kind=Job.Kind.EXPERIMENT,
        name="job",
        owner=owner,
        pool=pool or default_pool(),
        priority=42,
        weight=1.0,
        max_slots=None,
        preemptible=True,
        active=True,
        actor="test",
    )
    transitions.create_task(
        job=made,
        task_id=f"t.{made.pk}",
        kind=Task.Kind.TRIAL,
        name="trial",
        slots=1,
        single_host=False,
        actor="test",
    )
    Job.objects.filter(pk=made.pk).update(**fields)
    return Job.objects.get(pk=made.pk)


def order(pool: ResourcePool | None = None) -> list[object]:
    jobs = Job.objects.filter(pool=pool or default_pool()).exclude(state=JobState.ENDED)
    return list(jobs.order_by("priority", "position", "id").values_list("pk", flat=True))


def apply(*updates: Update, actor: str = "user:ada", role: str = "editor") -> list[str]:
    return [str(change) for change in queue_edits.apply(list(updates), actor=actor, role=role)]


def undone(user: User) -> list[str]:
    return [str(change) for change in queue_edits.undo(user)]


def test_the_documented_scenario_keeps_the_moved_job_first(ada: User) -> None:
    """S4-28: ahead-of, then the same priority for both in one batch: the order stays."""
    job1, job2 = job(ada), job(ada)
    assert order() == [job1.pk, job2.pk]
    apply(Update(str(job2.pk), ahead_of=str(job1.pk)))
    assert order() == [job2.pk, job1.pk]
    moved = Job.objects.get(pk=job2.pk)
    assert moved.moved_at is not None
    sentences = apply(Update(str(job1.pk), priority=1), Update(str(job2.pk), priority=1))
    assert order() == [job2.pk, job1.pk]
    assert sentences == [
        f"Job {str(job1.pk)[:8]}: it gets priority 1.",
        f"Job {str(job2.pk)[:8]}: it gets priority 1.",
    ]


def test_a_new_job_goes_behind_those_of_its_priority_also_after_moves(ada: User) -> None:
    first, second = job(ada), job(ada)
    apply(Update(str(first.pk), behind_of=str(second.pk)))
    newcomer = job(ada)
    assert order() == [second.pk, first.pk, newcomer.pk]


@pytest.mark.parametrize(("start", "end"), list(itertools.permutations(range(5), 2)))
def test_every_move_in_a_queue_of_five_gives_the_expected_order(ada: User, start: int, end: int) -> None:
    jobs = [job(ada).pk for _ in range(5)]
    side = {"ahead_of": str(jobs[end])} if end < start else {"behind_of": str(jobs[end])}
    apply(Update(str(jobs[start]), **side))
    expected = [pk for pk in jobs if pk != jobs[start]]
    expected.insert(end, jobs[start])
    assert order() == expected


def test_a_hundred_moves_between_the_same_two_neighbors_keep_the_order(ada: User) -> None:
    first, second, third = job(ada), job(ada), job(ada)
    for _ in range(100):  # each halves the gap: floats are spent after about 40
        apply(Update(str(third.pk), ahead_of=str(second.pk)))
        assert order() == [first.pk, third.pk, second.pk]
        apply(Update(str(second.pk), ahead_of=str(third.pk)))
        assert order() == [first.pk, second.pk, third.pk]


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    priorities=st.lists(st.sampled_from([1, 5, 42]), min_size=2, max_size=6),
    moves=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), max_size=8),
)
def test_after_any_moves_the_job_stands_right_beside_its_anchor(
    ada: User, priorities: list[int], moves: list[tuple[int, int, bool]]
) -> None:
    Job.objects.all().delete()
    jobs = [job(ada, priority=priority) for priority in priorities]
    for one, other, ahead in moves:
        moved, anchor = jobs[one % len(jobs)], jobs[other % len(jobs)]
        if moved.pk == anchor.pk:
            continue
        before = [pk for pk in order() if pk != moved.pk]
        apply(Update(str(moved.pk), **{"ahead_of" if ahead else "behind_of": str(anchor.pk)}))
        before.insert(before.index(anchor.pk) + (0 if ahead else 1), moved.pk)
        assert order() == before
        assert Job.objects.get(pk=moved.pk).priority == Job.objects.get(pk=anchor.pk).priority


def test_a_move_across_priorities_takes_the_anchors_and_says_so(ada: User) -> None:
    high, low = job(ada, priority=5), job(ada)
    sentences = apply(Update(str(low.pk), behind_of=str(high.pk)))
    assert "takes its priority 5" in sentences[0]
    assert order() == [high.pk, low.pk]


def test_move_to_top_is_ahead_of_the_first_and_repeating_it_is_no_change(ada: User) -> None:
    high, _, low = job(ada, priority=5), job(ada), job(ada)
    apply(Update(str(low.pk), to_top=True))
    assert order()[:2] == [low.pk, high.pk]
    assert apply(Update(str(low.pk), to_top=True)) == []


def test_a_paused_job_keeps_its_place_among_moves(ada: User) -> None:
    first, paused, last = job(ada), job(ada), job(ada)
    transitions.set_job_state(paused.pk, JobState.PAUSED, reason=Reason.PAUSED_BY_USER, actor="test")
    apply(Update(str(last.pk), ahead_of=str(first.pk)))
    assert order() == [last.pk, first.pk, paused.pk]


def test_one_refused_edit_undoes_the_whole_batch(ada: User) -> None:
    one, two = job(ada), job(ada)
    PoolChange.objects.all().delete()
    with pytest.raises(Refusal, match="priority must be between 1 and 99"):
        apply(Update(str(one.pk), priority=1), Update(str(two.pk), priority=0))
    assert Job.objects.get(pk=one.pk).priority == 42
    assert not Event.objects.filter(reason=Reason.PRIORITY_SET).exists()
    assert not PoolChange.objects.exists()


@pytest.mark.parametrize("priority", [0, 100, 1.5, "x", True, -1])
def test_a_wrong_priority_is_refused_with_one_sentence(ada: User, priority: object) -> None:
    only = job(ada)
    with pytest.raises(Refusal, match="priority must be between 1 and 99; 1 is the highest"):
        apply(Update(str(only.pk), priority=priority))  # type: ignore[arg-type]


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), "x"])
def test_a_wrong_weight_is_refused(ada: User, weight: object) -> None:
    pool = ResourcePool.objects.create(name="fair", scheduler="fair_share")
    only = job(ada, pool)
    with pytest.raises(Refusal, match="weight must be greater than 0"):
        apply(Update(str(only.pk), weight=weight))  # type: ignore[arg-type]


def test_a_fair_share_pool_takes_weights_and_no_places(ada: User) -> None:
    pool = ResourcePool.objects.create(name="fair", scheduler="fair_share")
    one, two = job(ada, pool), job(ada, pool)
    assert apply(Update(str(one.pk), weight=2.5)) == [f"Job {str(one.pk)[:8]}: it gets weight 2.5."]
    for update in (
        Update(str(one.pk), ahead_of=str(two.pk)),
        Update(str(one.pk), to_top=True),
        Update(str(one.pk), priority=3),
    ):
        with pytest.raises(Refusal):
            apply(update)
    with pytest.raises(Refusal, match="weight has no effect"):
        apply(Update(str(job(ada).pk), weight=2.0))


def test_a_pool_and_a_place_in_it_are_changed_in_one_step(ada: User) -> None:
    other = ResourcePool.objects.create(name="big")
    there, mine = job(ada, other), job(ada)
    PoolChange.objects.all().delete()
    with pytest.raises(Refusal, match="is among jobs of priority 42, so it cannot have priority 3"):
        apply(Update(str(mine.pk), pool="big", priority=3, ahead_of=str(there.pk)))
    apply(Update(str(mine.pk), pool="big", ahead_of=str(there.pk)))
    assert order(other) == [mine.pk, there.pk]
    assert Job.objects.get(pk=mine.pk).priority == 42
    assert set(PoolChange.objects.values_list("pool_id", flat=True)) == {other.pk, default_pool().pk}


def test_a_wrong_pool_is_refused_with_a_sentence(ada: User) -> None:
    mine = job(ada)
    with pytest.raises(Refusal, match="invalid resource pool name nowhere"):
        apply(Update(str(mine.pk), pool="nowhere"))
    with pytest.raises(Refusal, match="resource pool is unchanged"):
        apply(Update(str(mine.pk), pool="default"))
    Job.objects.filter(pk=mine.pk).update(kind=Job.Kind.COMMAND)
    with pytest.raises(Refusal, match="for job type COMMAND is not supported"):
        apply(Update(str(mine.pk), pool="default"))


def test_jobs_are_found_by_any_unique_prefix(ada: User) -> None:
    one = job(ada)
    assert queue_edits.find(str(one.pk)[:8]).pk == one.pk
    with pytest.raises(Refusal, match="job zz not found"):
        queue_edits.find("zz")
    with pytest.raises(Refusal, match="not found"):
        queue_edits.find("")
    for _ in range(17):  # more jobs than first characters
        job(ada)
    doubled = next(
        c for c, group in itertools.groupby(sorted(str(pk)[0] for pk in order())) if len(list(group)) > 1
    )
    with pytest.raises(Refusal, match="ambiguous"):
        queue_edits.find(doubled)


def test_in_a_strict_pool_only_the_owner_and_admins_edit_a_job(ada: User) -> None:
    mine = job(ada)
    assert apply(Update(str(mine.pk), priority=2), actor="user:bob"), (
        "by default editors change what is others' too"
    )
    ResourcePool.objects.update(strict=True)
    with pytest.raises(Refusal, match="belongs to ada and resource pool default is strict"):
        apply(Update(str(mine.pk), priority=1), actor="user:bob")
    assert apply(Update(str(mine.pk), priority=1), actor="user:root", role="admin")
    with pytest.raises(Refusal, match="vic is a viewer and cannot change anything"):
        apply(Update(str(mine.pk), priority=1), actor="user:vic", role="viewer")


@pytest.mark.parametrize("position", range(1, 6))
@pytest.mark.parametrize("start", range(5))
def test_a_position_of_a_queue_of_five_is_taken_from_every_place(
    ada: User, start: int, position: int
) -> None:
    jobs = [job(ada).pk for _ in range(5)]
    apply(Update(str(jobs[start]), position=position))
    expected = [pk for pk in jobs if pk != jobs[start]]
    expected.insert(position - 1, jobs[start])
    assert order() == expected


@pytest.mark.parametrize("position", [0, 1.5, 3, "x", True, -1])
def test_a_wrong_position_is_refused_with_one_sentence(ada: User, position: object) -> None:
    first, _ = job(ada), job(ada)
    with pytest.raises(
        Refusal, match=r"position must be a whole number between 1 and 2; 1 is the first\. Found: "
    ):
        apply(Update(str(first.pk), position=position))  # type: ignore[arg-type]


def test_an_edit_is_undone_by_its_author(ada: User) -> None:
    one, two = job(ada), job(ada)
    apply(Update(str(two.pk), to_top=True))
    apply(Update(str(two.pk), priority=3))
    assert undone(ada) == [f"Job {str(two.pk)[:8]}: it has priority 42 again."]
    assert order() == [two.pk, one.pk], "the edit before it stands"
    assert undone(ada) == [f"Job {str(two.pk)[:8]}: it has its former position."]
    assert order() == [one.pk, two.pk]
    with pytest.raises(Refusal, match="you have made no edit that can be undone in the last 15 minutes"):
        queue_edits.undo(ada)
    assert Event.objects.filter(kind=Event.Kind.JOB, detail__has_key="undoes").count() == 2
    assert not QueueEdit.objects.filter(undone_at=None).exists()


def test_an_undo_is_refused_once_something_else_has_changed_it(ada: User) -> None:
    one, two = job(ada), job(ada)
    apply(Update(str(one.pk), priority=7), Update(str(two.pk), priority=8))
    apply(Update(str(two.pk), priority=9), actor="user:bob")
    with pytest.raises(
        Refusal, match=f"job {str(two.pk)[:8]} has been changed by bob since then; nothing was undone"
    ):
        queue_edits.undo(ada)
    assert Job.objects.get(pk=one.pk).priority == 7, "all of it or nothing"
    apply(Update(str(two.pk), priority=8), actor="user:bob")
    Job.objects.filter(pk=one.pk).update(state=JobState.ENDED)
    with pytest.raises(Refusal, match=f"job {str(one.pk)[:8]} has ended since then; nothing was undone"):
        queue_edits.undo(ada)


def test_an_undo_is_refused_when_it_is_late_or_the_role_does_not_allow_it(ada: User) -> None:
    one = job(User.objects.create(username="bob"))
    apply(Update(str(one.pk), priority=7))
    ResourcePool.objects.update(strict=True)
    with pytest.raises(Refusal, match="belongs to bob and resource pool default is strict"):
        queue_edits.undo(ada)
    ada.role = User.Role.VIEWER
    with pytest.raises(Refusal, match="ada is a viewer"):
        queue_edits.undo(ada)
    ada.role = User.Role.ADMIN
    QueueEdit.objects.update(made_at=timezone.now() - timedelta(seconds=901))
    assert queue_edits.last_undoable(ada) is None
    with pytest.raises(Refusal, match="no edit that can be undone in the last 15 minutes"):
        queue_edits.undo(ada)


def test_an_undo_gives_back_pool_place_and_priority_in_one_step(ada: User) -> None:
    other = ResourcePool.objects.create(name="big")
    there, here, mine = job(ada, other), job(ada), job(ada)
    apply(Update(str(mine.pk), pool="big", priority=42, ahead_of=str(there.pk)))
    assert order(other) == [mine.pk, there.pk]
    edit = queue_edits.last_undoable(ada)
    assert edit is not None and len(edit.sentences) == 2
    apply(Update(str(mine.pk), priority=5))
    queue_edits.undo(ada)
    PoolChange.objects.all().delete()
    assert undone(ada) == [
        f"Job {str(mine.pk)[:8]}: it is back in resource pool default, with its former position."
    ]
    assert (order(), order(other)) == ([here.pk, mine.pk], [there.pk])
    assert set(PoolChange.objects.values_list("pool_id", flat=True)) == {other.pk, default_pool().pk}


def test_places_stay_right_when_positions_are_spread_and_older_edits_keep_their_undo(ada: User) -> None:
    bob = User.objects.create(username="bob")
    first, second, third = job(ada), job(ada), job(ada)
    apply(Update(str(third.pk), ahead_of=str(second.pk)), actor="user:bob")
    Job.objects.filter(pk=second.pk).update(position=Job.objects.get(pk=third.pk).position)
    fourth = job(ada)
    between = sorted([second.pk, third.pk])
    before = [first.pk, *between, fourth.pk]
    assert order() == before
    apply(Update(str(fourth.pk), behind_of=str(between[0])), Update(str(first.pk), behind_of=str(between[0])))
    assert order() == [between[0], first.pk, fourth.pk, between[1]]
    places = {str(pk): Job.objects.get(pk=pk).position for pk in (second.pk, third.pk)}
    edit = queue_edits.last_undoable(bob)
    assert edit is not None and edit.after[0]["position"] == places[str(third.pk)]
    assert places[str(second.pk)] < edit.before[0]["position"], "he would put it back behind that"
    queue_edits.undo(ada)
    assert order() == before


def test_a_job_with_three_trials_is_an_anchor_like_any_other(ada: User) -> None:
    anchor, moved = job(ada), job(ada)
    for number in range(2):
        transitions.create_task(
            job=anchor, task_id=f"more-{number}", kind=Task.Kind.TRIAL, name="b", slots=1, single_host=False,
            actor="test",
        )  # fmt: skip
    apply(Update(str(moved.pk), ahead_of=str(anchor.pk)))
    assert order() == [moved.pk, anchor.pk]
    apply(Update(str(moved.pk), position=2))
    assert order() == [anchor.pk, moved.pk]


def test_an_id_that_only_a_job_in_the_queue_begins_with_is_found(ada: User) -> None:
    ended, mine = job(ada, state=JobState.ENDED), job(ada)
    pk = uuid.UUID(str(ended.pk)[:8] + str(mine.pk)[8:])
    Job.objects.create(id=pk, kind=mine.kind, name="twin", owner=ada, pool=mine.pool, position=1.0)
    assert queue_edits.find(str(ended.pk)[:8].upper()).pk == pk
    assert queue_edits.find(str(ended.pk)).pk == ended.pk


def test_an_ended_job_is_no_longer_in_the_queue(ada: User) -> None:
    mine = job(ada, state=JobState.ENDED)
    with pytest.raises(Refusal, match="has ended"):
        apply(Update(str(mine.pk), priority=1))
    with pytest.raises(Refusal, match="has ended"):
        apply(Update(str(job(ada).pk), ahead_of=str(mine.pk)))


def test_two_places_or_nothing_at_all_are_refused(ada: User) -> None:
    one, two = job(ada), job(ada)
    with pytest.raises(Refusal, match="give only one of these"):
        apply(Update(str(one.pk), ahead_of=str(two.pk), to_top=True))
    with pytest.raises(Refusal, match="no change was given"):
        apply(Update(str(one.pk)))


def test_each_change_leaves_an_event_with_its_actor(ada: User) -> None:
    mine = job(ada)
    apply(Update(str(mine.pk), priority=7))
    event = Event.objects.get(kind=Event.Kind.JOB, subject=str(mine.pk), reason=Reason.PRIORITY_SET)
    assert event.actor == "user:ada"
    assert event.detail == {"priority": [42, 7]}


def test_a_job_is_found_by_what_sentences_call_it(ada: User) -> None:
    mine, command = job(ada, entity_id="7"), job(ada, kind=Job.Kind.COMMAND, entity_id=str(uuid.uuid4()))
    for text in ("exp 7", "exp7", "exp-7", "Experiment 7"):
        assert queue_edits.find(text).pk == mine.pk
    assert queue_edits.find(command.entity_id[:8]).pk == command.pk
    with pytest.raises(Refusal, match="exp 8 not found"):
        queue_edits.find("exp 8")

"""Timings of ranks: stored once, read as series over steps, and what they say of a slow rank."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.keeping import deletion
from dispatch.passes import pool_pass
from dispatch.runs import intake
from experiments import transitions
from jobs.models import Member
from logs import streams
from metrics import stragglers, timing_frames, timing_store, timings
from metrics.models import TimingChunk
from metrics.timings import TimingSeries
from tests.rig.world import make_host, members_of, submit_experiment

SECOND = 1_800_000_000.0


def row(*seconds: float) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "n": len(seconds),
        "sum": sum(seconds),
        "min": ordered[0],
        "max": ordered[-1],
        "p50": ordered[(len(seconds) - 1) // 2],
        "p95": ordered[-1],
    }


def record(rank: int, second: float, steps: tuple[int, int], **timed: list[float]) -> dict[str, Any]:
    """A record of one second's timings; `step_work` stands for `step.work`."""
    values = {name.replace("_", "."): row(*seconds) for name, seconds in timed.items()}
    at = SECOND + second
    return {"k": "timings", "f": f"core.rank{rank}.jsonl", "e": 1, "r": rank, "t": [at - 1, at], "s": [*steps],
            "v": values, "c": {"samples": 32.0 * (steps[1] - steps[0] + 1)}}  # fmt: skip


def batch(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in records)


@pytest.fixture
def member(db: None) -> Member:
    make_host("gpu1", 1)
    experiment = submit_experiment(slots=1)
    pool_pass.run(experiment.job.pool_id)
    return members_of(experiment)[0]


def test_a_batch_is_stored_once_and_read_as_series_by_rank(member: Member) -> None:
    body = batch(
        record(0, 1, (1, 2), step=[0.25, 0.5], load=[0.125]),
        record(1, 1, (1, 2), step=[0.25, 0.25]),
        record(0, 2, (3, 3), step=[1.0]),
    )
    intake.store(member.pk, 0, body)
    with pytest.raises(streams.OffsetConflict):
        intake.store(member.pk, 0, body)
    intake.store(member.pk, len(body), batch(record(0, 3, (4, 5), step=[0.5, 0.5])))
    task_id = member.allocation.task_id
    found = timings.read(task_id)
    assert found.hosts == {0: "gpu1", 1: "gpu1"}
    load, step, other = found.timings
    assert [(one.rank, one.name) for one in found.timings] == [(0, "load"), (0, "step"), (1, "step")]
    assert (load.steps.tolist(), load.mean.tolist()) == ([2], [0.125])
    assert (step.first_steps.tolist(), step.steps.tolist()) == ([1, 3, 4], [2, 3, 5])
    assert (step.total_seconds.tolist(), step.count.tolist()) == ([0.75, 1, 1], [2, 1, 2])
    assert (step.low.tolist(), step.high.tolist(), step.p95.tolist()) == (
        [0.25, 1, 0.5], [0.5, 1, 0.5], [0.5, 1, 0.5],
    )  # fmt: skip
    assert (step.total, len(step.steps), other.total_seconds.tolist()) == (3, 3, [0.5])
    rate = found.counts[0]
    assert (rate.rank, rate.name, rate.per_second.tolist()) == (0, "samples", [64, 32, 64])
    (joined,) = timings.read(task_id, ["step"], ranks=[0], points=1).timings
    assert (joined.total_seconds.tolist(), joined.count.tolist(), joined.total) == ([2.75], [5], 3)
    assert (joined.low.tolist(), joined.high.tolist(), len(joined.steps)) == ([0.25], [1], 1)
    (window,) = timings.read(task_id, ["step"], ranks=[0], first_step=3, last_step=3).timings
    assert window.steps.tolist() == [3]
    assert TimingChunk.objects.count() <= 4


def test_steps_that_a_restart_takes_again_count_once(member: Member) -> None:
    task_id = member.allocation.task_id
    first = [record(0, n, (n, n), step=[0.25]) for n in range(1, 6)]
    again = [record(0, 100 + n, (n, n), step=[0.5]) for n in range(4, 7)]
    timing_store.store(task_id, "gpu1", first)
    timing_store.store(task_id, "gpu2", again)
    (step,) = timings.read(task_id).timings
    assert step.steps.tolist() == [1, 2, 3, 4, 5, 6]
    assert step.mean.tolist() == [0.25, 0.25, 0.25, 0.5, 0.5, 0.5]
    assert timings.read(task_id).hosts == {0: "gpu2"}
    (window,) = timings.read(task_id, last_step=5).timings
    assert window.mean.tolist() == [0.25, 0.25, 0.25, 0.5, 0.5]


GOOD = record(0, 1, (1, 2), step=[0.5])
NUMBER_TOO_LARGE = {**row(0.5), "sum": 1e300}


@pytest.mark.parametrize(
    "odd",
    [
        {"r": -1}, {"r": True}, {"r": 2**31}, {"r": "0"}, {"t": [1.0]}, {"t": [2.0, 1.0]}, {"t": None},
        {"t": ["NaN", 1.0]}, {"t": [1.0, 1e300]}, {"t": [-9e10, 1.0]},
        {"s": [2, 1]}, {"s": [0, 2**60]}, {"s": [0.5, 1]},
        {"v": [], "c": None}, {"v": {"step": 1}, "c": {}}, {"v": {"step": NUMBER_TOO_LARGE}, "c": {"n": "1"}},
        {"v": {"": row(1.0), "x" * 129: row(1.0), "a\x00b": row(1.0)}, "c": {}},
        {"v": {"step": {**row(1.0), "min": -1.0}}, "c": {}}, {"v": {"step": {**row(1.0), "n": 0}}, "c": {}},
    ],
)  # fmt: skip
def test_what_is_no_record_is_left_out_and_blocks_nothing(member: Member, odd: dict[str, Any]) -> None:
    body = batch({**GOOD, **odd}, GOOD)
    intake.store(member.pk, 0, body)
    (step,) = timings.read(member.allocation.task_id).timings
    assert step.total == 1


NAMES = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=20)
FLOATS = st.floats(0, 1e6, width=32)


@given(st.lists(st.dictionaries(NAMES, FLOATS, min_size=1, max_size=5), min_size=1, max_size=8))
def test_frames_are_read_as_they_were_written(intervals: list[dict[str, float]]) -> None:
    frames = []
    for number, counted in enumerate(intervals):
        said = {"r": 3, "t": [1.0, 2.0], "s": [number, number + 1], "c": counted,
                "v": {name: row(value) for name, value in counted.items()}}  # fmt: skip
        frame = timing_frames.read_record(said)
        assert frame is not None
        frames.append(frame)
    read = [
        (found, index)
        for found in timing_frames.unpack(b"".join(map(timing_frames.pack, frames)), {})
        for index in range(len(found.last_time))
    ]
    for before, (after, index) in zip(frames, read, strict=True):
        assert (before.names, before.counted) == (after.names, after.counted)
        assert (before.first_step, before.last_step) == (after.first_step[index], after.last_step[index])
        assert (before.first_time, before.last_time) == (after.first_time[index], after.last_time[index])
        assert np.array_equal(before.values, after.values[index])
        assert np.array_equal(before.counts, after.counts[index])


def test_timings_are_deleted_with_their_experiment(member: Member) -> None:
    intake.store(member.pk, 0, batch(GOOD))
    end = {"k": "exit", "t": 2.0, "code": 0, "signal": None, "stopped": False, "first_failure": None}
    intake.store(member.pk, len(batch(GOOD)), batch(end))
    experiment = member.allocation.task.trial.experiment
    transitions.delete(experiment.pk, actor="test")
    assert deletion.delete(experiment.pk)
    assert not TimingChunk.objects.exists()


def series(rank: int, steps: list[tuple[int, int]], seconds: list[float]) -> TimingSeries:
    """Intervals of steps that took so many seconds each."""
    first, last = (np.array(column, dtype=np.float64) for column in zip(*steps, strict=True))
    each, count = np.array(seconds), last - first + 1
    return TimingSeries(
        rank, "step.work", last, each, each, each, each * count, each, each, count, first, last, len(steps)
    )


def test_the_matrix_spreads_intervals_of_unequal_ranks_over_common_steps() -> None:
    found = stragglers.matrix(
        [
            series(1, [(1, 2), (3, 4), (5, 6), (7, 8)], [1.0, 1.0, 2.0, 2.0]),
            series(0, [(1, 2), (3, 4), (5, 6)], [0.5, 0.5, 0.5]),
        ],
        columns=2,
    )
    assert found is not None
    assert found.ranks == [0, 1]
    assert (found.first_steps.tolist(), found.last_steps.tolist()) == ([1, 5], [4, 8])
    assert found.seconds.tolist() == [[0.5, 0.5], [1.0, 2.0]]
    assert found.taken.tolist() == [4, 4]


def test_the_loss_is_what_the_slowest_rank_takes_beyond_the_median() -> None:
    steps = [(1, 10), (11, 20)]
    work = stragglers.matrix(
        [series(rank, steps, [0.1, 0.1]) for rank in range(3)] + [series(3, steps, [0.1, 0.3])]
    )
    whole = stragglers.matrix([series(rank, steps, [0.2, 0.3]) for rank in range(4)])
    assert work is not None
    said = stragglers.straggler(work, whole)
    assert said is not None
    assert said.rank == 3 and said.is_slow
    assert said.lost.tolist() == pytest.approx([0, 2.0])
    assert [said.lost_seconds, said.lost_share] == pytest.approx([2.0, 2 / 5])
    assert [said.work, said.median_work] == pytest.approx([0.2, 0.1])


def test_of_two_ranks_the_slower_is_measured_against_the_faster_and_equal_ones_lose_nothing() -> None:
    for slower, lost in ((0.2, 1.0), (0.1, 0.0)):
        work = stragglers.matrix([series(0, [(1, 10)], [slower]), series(1, [(1, 10)], [0.1])])
        assert work is not None
        said = stragglers.straggler(work)
        assert said is not None
        assert said.lost_seconds == pytest.approx(lost)
        assert said.is_slow == (lost > 0)


def test_hosts_are_compared_by_their_fastest_ranks_without_the_chief() -> None:
    seconds, hosts = [9.0, 0.2, 0.3, 0.3, 0.1, 0.9], {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}
    work = stragglers.matrix([series(rank, [(1, 10)], [each]) for rank, each in enumerate(seconds)])
    assert work is not None
    assert stragglers.of_hosts(work, hosts) == pytest.approx({"a": 2.0, "b": 3.0, "c": 0.5})
    assert stragglers.of_hosts(work, {0: "a", 1: "b", 2: "b"}) == {}, (
        "of the chief's host nothing else is known"
    )


def test_one_rank_alone_is_no_straggler() -> None:
    work = stragglers.matrix([series(0, [(1, 10)], [0.5])])
    assert work is not None and stragglers.straggler(work) is None
    assert stragglers.matrix([]) is None


@given(
    st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=20), min_size=1, max_size=6),
    st.integers(1, 40),
)
def test_no_time_of_any_rank_is_lost_in_the_matrix(ranks: list[list[int]], columns: int) -> None:
    of_ranks = []
    for rank, widths in enumerate(ranks):
        ends = np.cumsum(widths)
        steps = [(int(end - width) + 1, int(end)) for end, width in zip(ends, widths, strict=True)]
        of_ranks.append(series(rank, steps, [1.0 + rank] * len(widths)))
    found = stragglers.matrix(of_ranks, columns)
    assert found is not None and len(found.taken) <= columns
    for rank, widths in enumerate(ranks):
        seen = found.seconds[rank]
        assert np.allclose(seen[~np.isnan(seen)], 1.0 + rank)
        reached = sum(widths)
        assert not math.isnan(seen[0])
        assert np.isnan(seen[found.first_steps > reached]).all()


def test_a_summary_of_intervals_has_nearly_the_quantiles_of_all_their_values() -> None:
    rng = np.random.default_rng(1)
    intervals = [rng.gamma(4, 0.03 if at < 6 else 0.001, 50) for at in range(30)]
    low, half, most, high = np.quantile(intervals, [0, 0.5, 0.95, 1], axis=1)
    count, at = np.full(30, 50.0), np.arange(30.0)
    mean = np.mean(intervals, axis=1)
    one = TimingSeries(
        0, "load", at, mean, half, most, mean * count, low, high, count, first_steps=at, times=at, total=30
    )
    summary = timings.summaries([one])[0]
    assert summary.p50 == pytest.approx(float(np.median(intervals)), rel=0.1)
    assert summary.p95 == pytest.approx(float(np.quantile(intervals, 0.95)), rel=0.1)
    (alone,) = timings.summaries([timings.TimingSeries(**{**vars(one), **{
        field: getattr(one, field)[:1] for field in ("p50", "p95", "low", "high", "count", "total_seconds")
    }})])  # fmt: skip
    assert (alone.p50, alone.p95) == pytest.approx((half[0], most[0]))

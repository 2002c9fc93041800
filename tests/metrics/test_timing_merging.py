"""Timings that are cold become few rows, old ones longer intervals; what is exact stays exact."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.passes import pool_pass
from metrics import timing_frames, timing_store, timings
from metrics.models import TimingChunk
from metrics.timing_store import thinned
from tests.rig.world import make_host, members_of, submit_experiment

DAY = 86_400
#: the begin of a block of every size
BEGIN = 10_000 * 2 * DAY


def row(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    p50, p95 = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.95))
    return {
        "n": len(ordered), "sum": math.fsum(ordered), "min": ordered[0], "max": ordered[-1], "p50": p50, "p95": p95,
    }  # fmt: skip


def record(at: float, step: int, seconds: list[float], **more: list[float]) -> dict[str, Any]:
    values = {name: row(each) for name, each in {"step": seconds, **more}.items()}
    return {"r": 0, "t": [at - 1, at], "s": [step, step + 1], "v": values, "c": {"samples": 8.0}}


@pytest.fixture
def task_id(db: None) -> str:
    make_host("gpu1", 1)
    experiment = submit_experiment(slots=1)
    pool_pass.run(experiment.job.pool_id)
    return str(members_of(experiment)[0].allocation.task_id)


def kept(task_id: str) -> list[tuple[int, int]]:
    """(grain, frames) of each row."""
    rows = TimingChunk.objects.filter(task_id=task_id).order_by("grain", "slot")
    return list(rows.values_list("grain", "frames"))


def test_cold_timings_are_merged_then_thinned_by_age_and_removed(task_id: str, settings: Any) -> None:
    records = [record(BEGIN + n, 2 * n, [0.25, 0.5]) for n in range(1, 1600)]
    timing_store.store(task_id, "gpu1", records)
    before = timings.read(task_id, points=2000)
    assert timing_store.merge_due(60, BEGIN + 1000) > 0
    assert kept(task_id)[-1] == (1, 927) and len(kept(task_id)) < 25, "slots that begin within the quarter"
    after = timings.read(task_id, points=2000)
    for old, new in zip(before.timings, after.timings, strict=True):
        assert all(
            np.array_equal(getattr(old, name), getattr(new, name))
            for name in ("steps", "mean", "p95", "high")
        )
    # one that comes late goes to those of its quarter
    timing_store.store(task_id, "gpu1", [record(BEGIN + 500.5, 1001, [4.0])])
    timing_store.merge_due(60, BEGIN + 3600)
    assert sorted(kept(task_id)) == [(1, 672), (1, 928)]
    for days, grain, intervals in ((1.5, 2, 27), (9.5, 3, 3)):
        timing_store.merge_due(60, BEGIN + days * DAY)
        assert kept(task_id) == [(grain, intervals)]
        (step,) = timings.read(task_id, ["step"]).timings
        assert (step.count.sum(), step.total_seconds.sum()) == (2 * 1599 + 1, 0.75 * 1599 + 4)
        assert (step.low.min(), step.high.max(), step.first_steps[0], step.steps[-1]) == (0.25, 4.0, 2, 3199)
        (samples,) = timings.read(task_id).counts
        assert samples.per_second @ samples.seconds == pytest.approx(8 * 1600)
    assert timing_store.remove_due(60, BEGIN + 1e9) == 0, "kept with the job"
    settings.SAMPLE_RETENTION_DAYS = 30
    assert timing_store.remove_due(60, BEGIN + 30 * DAY) == 0
    assert timing_store.remove_due(60, BEGIN + 31 * DAY) == 1


def test_intervals_of_two_attempts_are_never_joined(task_id: str) -> None:
    first = [record(BEGIN + n, 2 * n, [0.25]) for n in range(1, 31)]
    again = [record(BEGIN + n, 2 * (n - 10), [0.5]) for n in range(31, 60)]
    timing_store.store(task_id, "gpu1", [*first, *again])
    timing_store.merge_due(60, BEGIN + 2 * DAY)
    assert kept(task_id) == [(2, 2)]
    (step,) = timings.read(task_id, ["step"]).timings
    assert step.mean[-1] == 0.5 and step.steps[-1] == 99


SECONDS = st.lists(st.floats(0, 1000, width=32), min_size=1, max_size=30)


@given(
    st.lists(st.tuples(SECONDS, st.none() | SECONDS), min_size=1, max_size=40), st.sampled_from([3, 10, 50])
)
def test_joined_intervals_keep_what_is_exact_and_bound_the_quantiles(
    taken: list[tuple[list[float], list[float] | None]], span: int
) -> None:
    frames = []
    for number, (seconds, other) in enumerate(taken):
        frame = timing_frames.read_record(
            record(BEGIN + number, 2 * number, seconds, **({"load": other} if other else {}))
        )
        assert frame is not None
        frames.append(frame)
    parts = list(timing_frames.unpack(b"".join(map(timing_frames.pack, frames)), {}))
    joined = thinned(0, parts, span)
    again = thinned(0, list(timing_frames.unpack(b"".join(map(timing_frames.pack, joined)), {})), 2 * span)
    for found, width in ((joined, span), (again, 2 * span)):
        assert [frame.last_time // width for frame in found] == sorted(
            {(BEGIN + n) // width for n in range(len(taken))}
        )
        for frame in found:
            numbers = [n for n in range(len(taken)) if (BEGIN + n) // width == frame.last_time // width]
            assert frame.counts.tolist() == [8 * len(numbers)]
            assert (frame.first_step, frame.last_step) == (2 * numbers[0], 2 * numbers[-1] + 1)
            for place, name in enumerate(("step", "load")):
                parts_of = [each for n in numbers if (each := taken[n][place])]
                assert (name in frame.names) == bool(parts_of)
                if parts_of:
                    said = dict(
                        zip(timing_frames.FIELDS, frame.values[frame.names.index(name)].tolist(), strict=True)
                    )
                    true = row([second for each in parts_of for second in each])
                    assert [said[key] for key in ("n", "min", "max")] == [
                        true[key] for key in ("n", "min", "max")
                    ]
                    assert said["sum"] == pytest.approx(true["sum"], rel=1e-5)
                    for quantile in ("p50", "p95"):
                        assert (
                            true[quantile] <= said[quantile] <= max(row(each)[quantile] for each in parts_of)
                        )

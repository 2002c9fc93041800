"""What hosts measure: taken in, merged, kept for a time, and read with every extreme."""

import json
import math
import uuid
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.passes import pool_pass
from dispatch.runs import kinds, spec
from experiments.models import Experiment
from metrics import names, sample_store, samples
from metrics.models import SampleChunk
from metrics.sample_chunks import Samples, by_minute, joined, pack, unpack
from metrics.samples import SampleSeries
from tests.rig.rows import make_gang
from tests.rig.world import make_host, members_of, submit_experiment

BEGIN = 1_790_000_100.0  # a quarter of an hour begins here
Record = dict[str, Any]


def record(start: float, seconds: int, **columns: Any) -> Record:
    """One sample a second; a column is a list or one value for all; `__` in its name stands for the slash."""
    values = {
        name.replace("__", "/"): value if isinstance(value, list) else [value] * seconds
        for name, value in columns.items()
    }
    return {"k": "samples", "t": [start + second for second in range(seconds)], "v": values}


def host_with(*records: Record) -> tuple[str, uuid.UUID]:
    """(task id, host id) of a host that has shipped each record in a batch of its own."""
    (member,) = make_gang()
    ship(member.allocation.task_id, member.host.pk, *records)
    return member.allocation.task_id, member.host.pk


def ship(task_id: str, host_id: uuid.UUID, *records: Record) -> None:
    for one in records:
        sample_store.store(task_id, host_id, "gpu1", [json.loads(json.dumps(one))])


def only(found: list[SampleSeries]) -> SampleSeries:
    (series,) = found
    return series


values = st.floats(-1e6, 1e6, width=32) | st.just(math.nan)


@given(st.lists(st.lists(values, min_size=3, max_size=3), min_size=1, max_size=200), st.floats(0, 2e9))
def test_a_chunk_gives_back_what_was_packed(rows: list[list[float]], first: float) -> None:
    matrix = np.array(rows, dtype=np.float32).T
    times = first + np.arange(len(rows), dtype=np.float64) * 1.037
    packed = pack(Samples.taken(times, ["a", "b", "c"], matrix), first)
    found = unpack(packed, first, len(rows), ["a", "b", "c"])
    assert np.array_equal(found.mean, matrix, equal_nan=True)
    assert np.abs(found.times - times).max() < 0.001


@given(
    st.lists(st.tuples(st.floats(0, 86_400), st.floats(-1e6, 1e6, width=32)), min_size=1, max_size=500),
    st.integers(2, 50),
    st.booleans(),
)
def test_a_reduced_series_has_every_extreme(
    taken: list[tuple[float, float]], points: int, is_coarse: bool
) -> None:
    times, column = np.array(sorted(taken), dtype=np.float64).T
    matrix = column[None, :].astype(np.float32)
    given_ = Samples.taken(times, ["cpu_util_simple"], matrix)
    (series,) = samples._series("gpu1", by_minute(given_) if is_coarse else given_, points)
    assert len(series.times) <= points and (np.diff(series.times) >= 0).all()
    assert series.low.min() == matrix.min() and series.high.max() == matrix.max()
    assert (series.low <= series.high).all()
    # a mean of equal times may lie a rounding beside them
    assert times.min() - 1e-6 <= series.times[0] and series.times[-1] <= times.max() + 1e-6


def test_columns_that_a_part_lacks_are_gaps_there() -> None:
    first = Samples.taken(np.array([1.0, 3.0]), ["a"], np.array([[1, 3]], dtype=np.float32))
    second = Samples.taken(np.array([2.0]), ["b", "a"], np.array([[9], [2]], dtype=np.float32))
    both = joined([first, second])
    assert both.times.tolist() == [1, 2, 3] and both.columns == ["a", "b"]
    assert both.mean[0].tolist() == [1, 2, 3] and np.isnan(both.mean[1]).tolist() == [True, False, True]


def test_every_name_has_a_unit_and_a_group() -> None:
    assert names.GROUPS == ["gpu", "cpu", "memory", "disk", "network", "ranks"]
    assert all(metric.unit and metric.title for metric in names.METRICS.values())
    known = ["cpu_util_simple", "gpu_util/GPU-1", "rank_cpu/12"]
    unknown = [
        "cpu_util_simple/1",
        "gpu_util",
        "rank_cpu/x",
        "gpu_fans/GPU-1",
        "gpu_util/\udc80",
        "gpu_util/\x00",
    ]
    assert [names.is_known(column) for column in known + unknown] == [True] * 3 + [False] * 6


@pytest.mark.django_db
def test_what_a_host_ships_is_read_by_name_and_part() -> None:
    task_id, host_id = host_with(
        record(
            BEGIN, 3, cpu_util_simple=[1, None, 3], gpu_util__GPUa=[50, 60, 70], rank_cpu__10=1, rank_cpu__2=2
        ),
        record(BEGIN + 3, 1, cpu_util_simple=4),
    )
    found = samples.of_task(task_id)
    assert [(each.name, each.part) for each in found] == [
        ("gpu_util", "GPUa"), ("cpu_util_simple", ""), ("rank_cpu", "2"), ("rank_cpu", "10"),
    ]  # fmt: skip
    cpu = only(samples.of_task(task_id, ["cpu_util_simple"]))
    assert cpu.times.tolist() == [BEGIN, BEGIN + 2, BEGIN + 3] and cpu.mean.tolist() == [1, 3, 4]
    assert cpu.total == len(cpu.times) == 3 and cpu.metric.unit == "%" and cpu.host == "gpu1"
    within = only(samples.of_task(task_id, ["cpu_util_simple"], first_time=BEGIN + 1, last_time=BEGIN + 2))
    assert within.mean.tolist() == [3]
    assert [each.name for each in samples.of_host(host_id)] == ["gpu_util", "cpu_util_simple"]
    assert samples.columns_of_task(task_id)[0] == ("gpu1", "gpu_util", "GPUa")
    assert samples.of_task(task_id, hosts=["gpu2"]) == [] and samples.of_task("none") == []
    with pytest.raises(ValueError, match="2 or more"):
        samples.of_task(task_id, points=1)


@pytest.mark.django_db
def test_what_is_no_sample_counts_as_not_given() -> None:
    good = record(BEGIN, 2, memory_free=5)
    odd = record(BEGIN, 2, memory_free=[1], cpu_util_simple=["x", "y"], disk_iops=[1e300, 7], nonsense=1)
    task_id, _ = host_with(
        good, odd, {"k": "samples"}, {"k": "samples", "t": ["a"], "v": {}}, {"k": "samples", "t": [1], "v": {"x": 1}},
        *({"k": "samples", "t": [at], "v": {"memory_free": [1]}} for at in (9e14, -9e10)),
        {"k": "samples", "t": [BEGIN, None], "v": {"memory_free": [1, 2]}}, {"k": "samples", "t": [], "v": {}},
    )  # fmt: skip
    found = {each.name: each.mean.tolist() for each in samples.of_task(task_id)}
    assert found == {"memory_free": [5, 5], "disk_iops": [7]}


@pytest.mark.django_db
def test_merged_samples_are_the_same_and_wide_windows_come_from_minutes(settings: Any) -> None:
    spike = [float(second % 60 == 17) * 100 for second in range(10)]
    records = [
        record(BEGIN + 10 * part, 10, cpu_util_simple=spike, gpu_util__GPUa=part) for part in range(90)
    ]
    records[45]["v"]["cpu_util_simple"] = [0.0] * 4 + [99.0] + [0.0] * 5
    task_id, _ = host_with(*records)
    before = samples.of_task(task_id, points=900)
    assert sample_store.merge_due(60, now=BEGIN + 901) == 0, "its quarter of an hour is just over"
    assert sample_store.merge_due(60, now=BEGIN + 1000) == 88
    assert sorted(SampleChunk.objects.values_list("grain", flat=True)) == [1, 2]
    for old, new in zip(before, samples.of_task(task_id, points=900), strict=True):
        assert np.array_equal(old.times, new.times) and np.array_equal(old.mean, new.mean)
    wide = samples.of_task(task_id, ["cpu_util_simple"], first_time=BEGIN - 86_400, points=100)[0]
    assert wide.total == 15 and wide.high.max() == 99 and wide.low.min() == 0
    settings.SAMPLE_POINTS_HOURS = 1
    assert sample_store.remove_due(60, now=BEGIN + 900 + 3601) == 1
    narrow = samples.of_task(task_id, ["cpu_util_simple"], points=900)[0]
    assert np.array_equal(narrow.high, wide.high), "what is left are the minutes"
    settings.SAMPLE_RETENTION_DAYS = 1
    assert sample_store.remove_due(60, now=BEGIN + 900 + 86_401) == 1 and samples.of_task(task_id) == []


@pytest.mark.django_db
def test_what_comes_late_is_merged_beside_what_was_there() -> None:
    task_id, host_id = host_with(record(BEGIN, 10, cpu_util_simple=1))
    sample_store.merge_due(60, now=BEGIN + 1000)
    ship(task_id, host_id, record(BEGIN + 20, 10, cpu_util_simple=3))
    ship(task_id, host_id, record(BEGIN + 10, 10, cpu_util_simple=2))
    assert only(samples.of_task(task_id)).mean.tolist() == [1] * 10 + [2] * 10 + [3] * 10
    sample_store.merge_due(60, now=BEGIN + 1000)
    series = only(samples.of_task(task_id))
    assert series.mean.tolist() == [1] * 10 + [2] * 10 + [3] * 10
    coarse = only(samples.of_task(task_id, first_time=BEGIN - 86_400))
    assert coarse.low.tolist() == [1] and coarse.high.tolist() == [3] and coarse.mean.tolist() == [2]


@pytest.mark.django_db
def test_samples_go_with_their_task() -> None:
    task_id, _ = host_with(record(BEGIN, 2, memory_free=1))
    from jobs.models import Allocation, Task

    Allocation.objects.filter(task_id=task_id).delete()
    Task.objects.filter(pk=task_id).delete()
    assert not SampleChunk.objects.exists()


@pytest.mark.parametrize(("server", "config", "taken"), [(1.0, None, 1.0), (1.0, 0.2, 0.2), (0.0, 0.2, 0.0)])
def test_a_trials_config_says_how_often_its_hosts_are_sampled(
    db: None, settings: Any, server: float, config: float | None, taken: float
) -> None:
    settings.SAMPLE_SECONDS = server
    make_host("gpu1", 1)
    experiment = submit_experiment()
    Experiment.objects.filter(pk=experiment.pk).update(
        config={**experiment.config, "profiling": {"sampling_interval": config}}
    )
    pool_pass.run(experiment.job.pool_id)
    (member,) = members_of(experiment)
    built = spec.build(member, [member], kinds.describe(member.allocation, "cuda"))
    assert built["limits"]["sample_seconds"] == taken

"""What profilers of older clients and of the published SDK send, and what followers read of it."""

from __future__ import annotations

import pytest

from experiments.models import Trial
from hosts.models import Host
from jobs.models import Allocation
from metrics import profiler_batches, samples
from metrics.profiler_batches import SYSTEM, Batch, Labels
from tests.rig.api import Api, Json

Running = tuple[Trial, Allocation, Api]
ANY = Labels("", "", "", "")


def batch(host: str, times: list[float]) -> Batch:
    return Batch(Labels("cpu_util_simple", host, "", SYSTEM), [50.0] * len(times), [0] * len(times), times)


def report(group: str, values: Json) -> Json:
    return {"group": group, "metrics": {"metrics": {"avgMetrics": values}}}


def test_what_one_host_sends_later_than_the_others_reaches_followers(running: Running) -> None:
    task = running[0].task_id
    told: dict[Labels, float] = {}

    def look() -> list[tuple[str, list[float]]]:
        found = profiler_batches.read(task, ANY, told, 100)
        told.update((each.labels, each.times[-1]) for each in found)
        return [(each.labels.host, each.times) for each in found]

    profiler_batches.store(task, batch("gpu1", [1000.0, 1001.0, 1020.0]))
    assert look() == [("gpu1", [1000, 1001, 1020])]
    profiler_batches.store(task, batch("gpu2", [1001.0, 1002.0]))
    assert look() == [("gpu2", [1001, 1002])]
    profiler_batches.store(task, batch("gpu2", [1003.0, 1004.0]))
    profiler_batches.store(task, batch("gpu1", [1021.0]))
    assert look() == [("gpu1", [1021]), ("gpu2", [1003, 1004])]
    assert look() == []


def test_a_run_writes_on_the_pages_of_its_own_hosts_alone(running: Running, host: Host) -> None:
    trial, _, run = running
    other = Host.objects.create(name="gpu9", pool=host.pool, address="10.0.0.9")
    for name in ("gpu1", "gpu9"):
        run.post(f"trials/{trial.pk}/metrics", report("cpu", {name: {"cpu_util_simple": 12.5}}))
    assert [one.mean.tolist() for one in samples.of_host(host.pk)] == [[12.5]]
    assert samples.of_host(other.pk) == []
    assert {one.host for one in samples.of_task(trial.task_id)} == {"gpu1", "gpu9"}


@pytest.mark.parametrize("name", ["", "g" * 129, "gpu\x001", "gpu\n1"])
def test_what_is_no_name_of_a_host_is_refused_with_a_sentence(running: Running, name: str) -> None:
    trial, _, run = running
    body = report("cpu", {"gpu1": {"cpu_util_simple": 1.0}, name: {"cpu_util_simple": 1.0}})
    status, answer = run.refused("POST", f"trials/{trial.pk}/metrics", body)
    assert status == 400 and "not a host name" in str(answer)
    assert samples.of_task(trial.task_id) == []

"""What hosts measured, over REST."""

from __future__ import annotations

import time
from typing import Any

from experiments.models import Trial
from hosts.models import Host
from jobs.models import Allocation
from metrics import sample_store
from tests.rig.api import Api, Cast


def measured(trial: Trial, host: Host, begin: float, seconds: int = 120) -> None:
    columns = {
        "cpu_util_simple": [float(second % 7) for second in range(seconds)],
        "gpu_power/GPU-0": [300.25] * seconds,
    }
    record = {"k": "samples", "t": [begin + second for second in range(seconds)], "v": columns}
    sample_store.store(trial.task_id, host.pk, host.name, [record])


def test_samples_of_a_trial_and_of_a_host_are_columns_with_units(
    cast: Cast, running: tuple[Trial, Allocation, Api], host: Host
) -> None:
    trial, _, run = running
    begin = time.time() - 600
    measured(trial, host, begin)
    power, cpu = cast.vic.get(f"trials/{trial.pk}/samples?points=10")["series"]
    assert (power["host"], power["name"], power["part"]) == ("gpu1", "gpu_power", "GPU-0")
    assert (power["unit"], power["group"], power["total"]) == ("W", "gpu", 120)
    assert len(cpu["times"]) == len(cpu["mean"]) == 10 and "part" not in cpu
    assert (min(cpu["low"]), max(cpu["high"]), power["mean"][0]) == (0, 6, 300.25)
    assert run.get(f"trials/{trial.pk}/samples?groups=cpu")["series"][0]["name"] == "cpu_util_simple"
    whole = cast.vic.get(f"tasks/{trial.task_id}/samples?names=gpu_power&hosts=gpu1")["series"]
    assert [len(one["times"]) for one in whole] == [120]
    assert cast.vic.get(f"tasks/{trial.task_id}/samples?hosts=gpu2")["series"] == []
    of_host = cast.vic.get(f"hosts/gpu1/samples?names=cpu_util_simple&from={begin}&to={begin + 4.5}")[
        "series"
    ]
    assert [one["mean"] for one in of_host] == [[0, 1, 2, 3, 4]]
    assert cast.vic.get(f"hosts/gpu1/samples?to={begin - 1}")["series"] == []


def test_a_wrong_question_gets_a_sentence(cast: Cast, running: Any) -> None:
    trial, _, _ = running
    for query, said in [
        ("names=temper", "names"),
        ("points=1", "points"),
        ("from=20&to=10", "from (20.000) is after to (10.000); swap them"),
        ("from=x", "from"),
    ]:
        status, answer = cast.vic.send("GET", f"trials/{trial.pk}/samples?{query}")
        assert status == 400 and said in str(answer), answer
    assert cast.vic.send("GET", "trials/999999/samples")[0] == 404
    assert cast.vic.send("GET", "hosts/none/samples")[0] == 404
    assert cast.stranger.send("GET", f"trials/{trial.pk}/samples")[0] == 401

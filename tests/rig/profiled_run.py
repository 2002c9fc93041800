"""A trial with samples and timings, through the functions that take them in: for tests of its Profiler page.

`write` runs in another process's Django; `more` adds a second to what it has written.
"""

import math
import random
import time
from typing import Any

from tests.rig.server import Server

STEPS_A_SECOND = 4
BATCH_SECONDS = 10
GIB = 1024**3
#: the highest power of the first GPU, once: a chart must show it
SPIKE_WATTS = 987.5


def write(
    server: Server, hosts: int, gpus: int, seconds: int, *, bare: int = 0, slow: int = 3, name: str = "gpu"
) -> int:
    """The id of an active trial on `hosts` hosts with `gpus` GPUs and `bare` without, each with as many ranks.

    It began so many seconds ago. The first host has a gap of a tenth of that in its samples; rank `slow` works 40 %
    longer than the others in the second half. A bare host has one rank. Hosts are called `name` and a number.
    """
    call = f"profiled_run.fill({hosts}, {gpus}, {seconds}, {bare}, {slow}, {name!r})"
    return int(server.shell(f"from tests.rig import profiled_run; print({call})"))


def more(server: Server, trial_id: int, first: int, seconds: int) -> None:
    """So many more seconds of the first host, from this second on."""
    server.shell(f"from tests.rig import profiled_run; profiled_run.go_on({trial_id}, {first}, {seconds})")


def fill(hosts: int, gpus: int, seconds: int, bare: int, slow: int, name: str) -> int:
    """What `write` does, inside of Django."""
    from django.db import transaction

    from experiments.models import Trial
    from hosts.models import Slot
    from metrics import sample_store, timing_store
    from tests.rig.world import make_host, submit_experiment

    begin = time.time() - seconds
    experiment = submit_experiment(name="profiled", slots=1, activate=False)
    trial = Trial.objects.get(experiment=experiment)
    _began(trial, begin)
    rank = 0
    for number in range(hosts + bare):
        own = gpus if number < hosts else 0
        host = make_host(f"{name}{number + 1}" if own else f"cpu{number + 1 - hosts}", 0)
        Slot.objects.bulk_create(
            Slot(host=host, index=index, kind="cuda", uuid=uuid_of(number, index)) for index in range(own)
        )
        ranks = range(rank, rank + max(1, own))
        rank += len(ranks)
        for first in range(0, seconds, BATCH_SECONDS):
            if number == 0 and 0.4 <= first / seconds < 0.5:
                continue
            record = samples(begin, first, min(BATCH_SECONDS, seconds - first), number, own, ranks, seconds)
            with transaction.atomic():
                sample_store.store(trial.task_id, host.pk, host.name, [record])
        for first in range(0, seconds, 30):
            frames = [
                timings(begin, second, each, 1.4 if each == slow and second > seconds / 2 else 1.0)
                for second in range(first, min(first + 30, seconds))
                for each in ranks
            ]
            with transaction.atomic():
                timing_store.store(trial.task_id, host.name, frames)
    sample_store.merge_due(600)
    return int(trial.pk)


def go_on(trial_id: int, first: int, seconds: int) -> None:
    """What `more` does, inside of Django."""
    from django.db import transaction

    from experiments.models import Trial
    from hosts.models import Host
    from metrics import sample_store, timing_store

    trial = Trial.objects.get(pk=trial_id)
    host = Host.objects.get(name="gpu1")
    begin = trial.started_at.timestamp()
    gpus = host.slots.count()
    with transaction.atomic():
        record = samples(begin, first, seconds, 0, gpus, range(gpus), 10**9)
        sample_store.store(trial.task_id, host.pk, host.name, [record])
        frames = [
            timings(begin, second, rank, 1.0)
            for second in range(first, first + seconds)
            for rank in range(gpus)
        ]
        timing_store.store(trial.task_id, host.name, frames)


def _began(trial: Any, begin: float) -> None:
    from datetime import UTC, datetime

    from experiments.models import Experiment

    trial.started_at = datetime.fromtimestamp(begin, UTC)
    trial.state = "ACTIVE"
    trial.save()
    Experiment.objects.filter(pk=trial.experiment_id).update(state="ACTIVE")


def uuid_of(host: int, index: int) -> str:
    return f"GPU-{host:04x}{index:04x}-0000-4000-8000-000000000000"


def samples(
    begin: float, first: int, seconds: int, host: int, gpus: int, ranks: range, whole: int
) -> dict[str, Any]:
    """One record: `seconds` samples of a host from second `first` on."""
    chance = random.Random(first * 1000 + host)
    at = range(first, first + seconds)

    def column(middle: float, width: float) -> list[float]:
        return [max(0.0, middle + chance.gauss(0, width)) for _ in at]

    values: dict[str, list[float]] = {}
    for index in range(gpus):
        part = uuid_of(host, index)
        busy = [min(100.0, max(0.0, 88 - 6 * index + 10 * math.sin(second / 40))) for second in at]
        values[f"gpu_util/{part}"] = [min(100.0, max(0.0, one + chance.gauss(0, 6))) for one in busy]
        values[f"gpu_memory_used/{part}"] = column((40 + 3 * index) * GIB, 0.2 * GIB)
        values[f"gpu_memory_free/{part}"] = column((39 - 3 * index) * GIB, 0.2 * GIB)
        values[f"gpu_temperature/{part}"] = column(58 + 2 * index, 0.6)
        values[f"gpu_power/{part}"] = [
            SPIKE_WATTS
            if (host, index, second) == (0, 0, whole // 4)
            else 100 + 5 * busy[second - first] + chance.gauss(0, 9)
            for second in at
        ]
    values |= {
        "cpu_util_simple": column(34 + 5 * host, 4),
        "memory_free": column((380 - 20 * host) * GIB, 0.5 * GIB),
        "disk_iops": column(120, 40),
        "disk_throughput_read": column(210e6, 60e6),
        "disk_throughput_write": column(3e6, 2e6),
        "net_throughput_sent": column(1.1e9, 0.1e9),
        "net_throughput_recv": column(1.1e9, 0.1e9),
    }
    for rank in ranks:
        values[f"rank_memory/{rank}"] = column((9 + 0.4 * (rank % 8)) * GIB, 0.05 * GIB)
        values[f"rank_cpu/{rank}"] = column(1.4, 0.2)
    return {"k": "samples", "t": [begin + second for second in at], "v": values}


def timings(begin: float, second: int, rank: int, factor: float) -> dict[str, Any]:
    """One second's record of a rank; the gang's steps take 250 ms, and what a rank does not work it waits."""
    chance = random.Random(second * 4096 + rank)

    def row(mean: float) -> dict[str, float]:
        least, most = mean * 0.9, mean * (1.1 + (chance.random() < 0.01))
        total = mean * STEPS_A_SECOND
        return {"n": STEPS_A_SECOND, "sum": total, "min": least, "max": most, "p50": mean, "p95": mean * 1.08}

    noise = 1 + chance.gauss(0, 0.02)
    forward, load = 0.060 * factor * noise, 0.018 * factor * noise
    first = second * STEPS_A_SECOND + 1
    return {
        "k": "timings", "f": f"core.rank{rank}.jsonl", "e": 1, "r": rank,
        "t": [begin + second, begin + second + 1], "s": [first, first + STEPS_A_SECOND - 1],
        "v": {
            "step": row(0.250), "step.work": row(0.130 * factor * noise), "dataloader_next": row(load),
            "to_device": row(0.006), "train_batch": row(0.215), "train_batch.forward": row(forward),
            "train_batch.backward": row(0.105), "optimizer": row(0.004),
        },
        "c": {"samples": 32.0 * STEPS_A_SECOND},
    }  # fmt: skip

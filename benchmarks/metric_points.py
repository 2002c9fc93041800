"""The same points for Trainmaster and for MLflow: a trial that runs, batches of a runner, bodies of log_batch."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from trainmaster.runner.reports import Reports

NAMES = ["loss", "accuracy", "lr", "grad_norm", "tokens", "epoch", "loss_aux", "throughput"]
AT = 1_790_000_000.0
POINTS_PER_BATCH = 1000
#: Spikes of one point, and what lies around them.
SPIKE = 1e6


def values(points: int) -> list[float]:
    """Losses of double precision with a spike in every 10,000."""
    steps = np.arange(points)
    found = 3 / np.sqrt(1 + steps / 500) + np.random.default_rng(0).normal(0, 0.05, points)
    found[7_777::10_000] = SPIKE
    return [float(value) for value in found]


def reports(points: int, metrics: int) -> list[tuple[int, dict[str, float]]]:
    """Reports of so many metrics each, together so many points."""
    found = values(points)
    return [
        (step, dict(zip(NAMES[:metrics], found[step * metrics : (step + 1) * metrics], strict=True)))
        for step in range(points // metrics)
    ]


def runner_batches(points: int, metrics: int) -> list[tuple[int, bytes]]:
    """(offset, gzip) of each batch as the runner makes it of what the SDK writes: one record of columns."""
    each, offset, found = POINTS_PER_BATCH // metrics, 0, []
    told = reports(points, metrics)
    for start in range(0, len(told), each):
        columns = Reports(each, 2**20)
        for step, row in told[start : start + each]:
            record = {"type": "metrics", "group": "training", "steps_completed": step, "run_id": 1, "metrics": row,
                      "t": AT + step / 10}  # fmt: skip
            assert columns.take(record, json.dumps(record).encode(), 1)
        body = columns.record("core.rank0.jsonl")
        assert body is not None
        found.append((offset, gzip.compress(body, 1)))
        offset += len(body)
    return found


def log_batches(run: str, points: int, metrics: int) -> list[bytes]:
    """Return the points as bodies of MLflow's log_batch."""
    each, told = POINTS_PER_BATCH // metrics, reports(points, metrics)
    return [
        json.dumps(
            {
                "run_id": run,
                "metrics": [
                    {"key": name, "value": value, "timestamp": int(1000 * (AT + step / 10)), "step": step}
                    for step, row in told[start : start + each]
                    for name, value in row.items()
                ],
            }
        ).encode()
        for start in range(0, len(told), each)
    ]


def token_of(member: Any) -> str:
    """The token of its run, as long as those are."""
    return hashlib.sha256(f"run-token-of-{member.allocation_id}".encode()).hexdigest()


def new_trial() -> Any:
    """The first member of a trial that runs on one host."""
    from accounts.models import token_hash
    from dispatch.passes import pool_pass
    from hosts.models import Host
    from jobs.models import Allocation
    from tests.rig.world import make_host, members_of, submit_experiment

    make_host(f"gpu{Host.objects.count()}", 1)
    experiment = submit_experiment(name="benchmark")
    pool_pass.run(experiment.job.pool_id)
    member = members_of(experiment)[0]
    Allocation.objects.filter(pk=member.allocation_id).update(token_hash=token_hash(token_of(member)))
    return member


class Link:
    """One connection to the web process."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._link = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        self._headers = {"Authorization": f"Bearer {token}"}

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
        """The answer, which must be a success."""
        self._link.request(method, path, body, {**self._headers, **headers})
        answer = self._link.getresponse()
        said = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path} was answered {answer.status}: {said[:500]!r}")
        return said

    def close(self) -> None:
        self._link.close()

    def ship(self, member: Any, batch: tuple[int, bytes]) -> None:
        path = f"/runner/v1/streams/{member.allocation_id}/{member.index}?offset={batch[0]}"
        self.send("POST", path, batch[1], **{"Content-Encoding": "gzip"})


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and of those that it has made and that live."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(cpu_seconds(int(child)) for child in children)

"""How fast metrics are taken in, beside MLflow's log_batch on the same PostgreSQL in the same run.

The same points in batches of 1,000, prepared before, over one HTTP connection, a durable commit each, in turns:
a runner's batch here, the body of log_batch there; and one report a request, as the published client sends it, beside
log_metric. `python -m benchmarks.metrics_ingest` writes benchmarks/reports/metrics_ingest.md.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import database, mlflow_server
from benchmarks.metric_points import (
    AT,
    Link,
    cpu_seconds,
    log_batches,
    new_trial,
    runner_batches,
    token_of,
    values,
)
from benchmarks.mlflow_server import MLflow
from benchmarks.rows import Row, finish, size

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
os.environ["DJANGO_SETTINGS_MODULE"] = "webui.settings"
os.environ["TRAINMASTER_SECRET_KEY"] = "benchmark"
os.environ["TRAINMASTER_LOG_LEVEL"] = "WARNING"

POINTS = size("POINTS", 100_000, quick=10_000)
THEIR_POINTS = size("THEIR_POINTS", 20_000, quick=2_000)
SINGLE = size("SINGLE", 200, quick=50)
ROUNDS = size("ROUNDS", 5, quick=1)
#: times MLflow that batches must reach
FLOOR = 30.0
REPORT = ROOT / "benchmarks" / "reports" / "metrics_ingest.md"


@dataclass
class Round:
    """Points per second, milliseconds of each request, and of processor time of the server for a request."""

    rate: float
    took: list[float]
    cpu: float


def timed(send: Callable[[Any], object], bodies: Sequence[Any], points: int, pid: int) -> Round:
    """Send them one after the other; `points` are in all of them together."""
    took, cpu = [], cpu_seconds(pid)
    for body in bodies:
        begin = time.perf_counter()
        send(body)
        took.append(1000 * (time.perf_counter() - begin))
    return Round(1000 * points / sum(took), took, 1000 * (cpu_seconds(pid) - cpu) / len(bodies))


def ours(web: Any, metrics: int) -> Round:
    from metrics import series

    member = new_trial()
    link = Link(web.url, token_of(member))
    batches = runner_batches(POINTS, metrics)
    found = timed(lambda batch: link.ship(member, batch), batches, POINTS, web.pid)
    (loss,) = series.read(member.allocation.task.trial.pk, "training", ["loss"])
    assert loss.total * metrics == POINTS and loss.values.max() == max(values(POINTS)[::metrics])
    return found


def theirs(server: MLflow, metrics: int) -> Round:
    run = server.new_run()
    bodies = log_batches(run, THEIR_POINTS, metrics)
    found = timed(server.log_batch, bodies, THEIR_POINTS, server.pid)
    assert server.stored(run) == THEIR_POINTS // metrics - 1
    return found


def ours_single(web: Any) -> Round:
    member = new_trial()
    trial, link = member.allocation.task.trial.pk, Link(web.url, token_of(member))
    bodies = [
        json.dumps(
            {"group": "training", "metrics": {"trialId": trial, "trialRunId": 1, "stepsCompleted": step,
             "metrics": {"avgMetrics": {"loss": value}}}}
        ).encode()
        for step, value in enumerate(values(SINGLE))
    ]  # fmt: skip
    path = f"/api/v1/trials/{trial}/metrics"
    return timed(
        lambda body: link.send("POST", path, body, **{"Content-Type": "application/json"}),
        bodies,
        SINGLE,
        web.pid,
    )


def theirs_single(server: MLflow) -> Round:
    run = server.new_run()
    bodies = [
        json.dumps(
            {"run_id": run, "key": "loss", "value": value, "timestamp": int(1000 * AT), "step": step}
        ).encode()
        for step, value in enumerate(values(SINGLE))
    ]
    return timed(server.log_metric, bodies, SINGLE, server.pid)


def row(name: str, rounds: list[Round], beside: list[Round] | None) -> str:
    rates = [each.rate for each in rounds]
    ratio = "1"
    if beside:
        ratios = [each.rate / other.rate for each, other in zip(rounds, beside, strict=True)]
        ratio = f"{statistics.median(ratios):.1f} [{min(ratios):.1f} to {max(ratios):.1f}]"
    answers = sorted(took for each in rounds for took in each.took)
    cpu = statistics.median(each.cpu for each in rounds)
    return (
        f"| {name} | {statistics.median(rates):,.0f} [{min(rates):,.0f} to {max(rates):,.0f}] | {ratio} | "
        f"{statistics.median(answers):.1f} | {answers[int(len(answers) * 0.95)]:.1f} | {cpu:.1f} |"
    )


def report(found: dict[str, list[Round]], load: float) -> str:
    pairs = [
        ("1,000 reports of one metric", "one"),
        ("125 reports of eight metrics", "eight"),
        ("one report of one metric a request", "single"),
    ]
    lines = [
        "# Metrics over HTTP beside MLflow's tracking server",
        "",
        f"Ours: {POINTS:,} points, MLflow {_version()} ({mlflow_server.WORKERS} workers): {THEIR_POINTS:,}, in "
        "batches of "
        f"1,000 points, a durable commit each on the same PostgreSQL; {SINGLE} requests of one report (the published "
        f"client's beside log_metric). {ROUNDS} rounds in turns on {os.cpu_count()} cores at a load of {load:.1f}; one "
        "web process. Bodies are prepared before, so no client's time is in it. At least "
        f"{FLOOR:g} x MLflow is wanted for batches. Medians [least to most].",
        "",
        "| way | points/s | x MLflow of the round | request ms, median | p95 | CPU of the server, ms a request |",
        "|---|---|---|---|---|---|",
    ]
    for name, key in pairs:
        lines.append(row(f"MLflow, {name}", found[f"theirs {key}"], None))
        lines.append(row(f"Trainmaster, {name}", found[f"ours {key}"], found[f"theirs {key}"]))
    return "\n".join([*lines, ""])


def _version() -> str:
    text = (ROOT / "benchmarks" / "mlflow_requirements.txt").read_text()
    return text.partition("mlflow==")[2].split()[0]


def main() -> int:
    from tests.rig.parts import private_folder

    with ExitStack() as stack:
        folders = [
            stack.enter_context(private_folder(name)) for name in ("postgres", "redis", "web", "mlflow")
        ]
        stack.enter_context(database.parts(folders[0], folders[1]))
        from tests.rig.web import running_web

        variables = {"TRAINMASTER_LOG_LEVEL": "WARNING", "TRAINMASTER_LOG_BYTES_PER_SECOND": "1e12"}
        web = stack.enter_context(running_web(folders[2], **variables))
        server = stack.enter_context(mlflow_server.running(folders[3]))
        found: dict[str, list[Round]] = {}
        load = os.getloadavg()[0]
        for number in range(ROUNDS + 1):  # the first warms connections and code
            for key, measure in {
                "theirs one": lambda: theirs(server, 1),
                "ours one": lambda: ours(web, 1),
                "theirs eight": lambda: theirs(server, 8),
                "ours eight": lambda: ours(web, 8),
                "theirs single": lambda: theirs_single(server),
                "ours single": lambda: ours_single(web),
            }.items():
                result = measure()
                if number:
                    found.setdefault(key, []).append(result)
        text = report(found, max(load, os.getloadavg()[0]))
        measured = []
        for what, key, least in (
            ("1,000 reports of one metric", "one", FLOOR), ("125 reports of eight metrics", "eight", FLOOR),
            ("one report of one metric a request", "single", None),
        ):  # fmt: skip
            pairs = zip(found[f"ours {key}"], found[f"theirs {key}"], strict=True)
            ratio = statistics.median(here.rate / there.rate for here, there in pairs)
            measured.append(Row(f"points/s, {what}", ratio, "x MLflow", least=least))
        return finish(REPORT, text, measured)


if __name__ == "__main__":
    sys.exit(main())

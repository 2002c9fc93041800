"""How fast a curve of 100,000 points is read, beside the request that MLflow's chart makes, in the same run.

Both from the same PostgreSQL, in turns: the REST API's curve of at most 1,000 points here, MLflow's 320 sampled points
there; then a zoom into a hundredth, and reads without HTTP: one series, eight, a million points with spikes and gaps,
whose extremes are looked for. `python -m benchmarks.metrics_read` writes benchmarks/reports/metrics_read.md.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from benchmarks import database, metric_points, mlflow_server
from benchmarks.metric_points import AT, NAMES, Link, new_trial, values
from benchmarks.metrics_ingest import _version
from benchmarks.rows import Row, finish, size

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
os.environ["DJANGO_SETTINGS_MODULE"] = "webui.settings"
os.environ["TRAINMASTER_SECRET_KEY"] = "benchmark"
os.environ["TRAINMASTER_LOG_LEVEL"] = "WARNING"

POINTS = 100_000
MANY = size("MANY", 1_000_000, quick=50_000)
RUNS = size("RUNS", 20, quick=3)
FLOOR, GOAL = 4.0, 10.0
REPORT = ROOT / "benchmarks" / "reports" / "metrics_read.md"


def fill_ours(trial_id: int, names: list[str], points: int, odd: bool = False) -> None:
    """Reports of these metrics; `odd`: with NaN, infinities and a restart."""
    from metrics import ingest

    found = values(points)
    for start in range(0, points, 5000):
        ingest.store(
            trial_id,
            [
                ingest.Report(
                    1, "training", step, AT + step / 10, dict.fromkeys(names, _value(found[step], step, odd))
                )
                for step in range(start, min(start + 5000, points))
            ],
        )
    if odd:
        ingest.archive_after(trial_id, points // 2)
        for start in range(points // 2 + 1, points, 5000):
            ingest.store(
                trial_id,
                [
                    ingest.Report(
                        2, "training", step, AT + step / 10, {"loss": _value(found[step], step, odd)}
                    )
                    for step in range(start, min(start + 5000, points))
                ],
            )


def _value(value: float, step: int, odd: bool) -> float:
    if odd and step % 50_000 in {1234, 1235}:
        return float("nan") if step % 2 else float("inf")
    return value


def fill_theirs(run: str) -> None:
    """The rows that log_batch would have written."""
    with psycopg.connect(mlflow_server.database_url()) as link, link.cursor() as cursor:
        with cursor.copy("COPY metrics (key, value, timestamp, run_uuid, step, is_nan) FROM STDIN") as copy:
            for step, value in enumerate(values(POINTS)):
                copy.write_row(("loss", value, int(1000 * (AT + step / 10)), run, step, False))
        cursor.execute("ANALYZE metrics")


def timed(read: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    found = read()
    return 1000 * (time.perf_counter() - begin), found


def in_turns(theirs: Callable[[], Any], ours: Callable[[], Any]) -> tuple[list[float], list[float], Any, Any]:
    """Milliseconds of each, and what was read last."""
    took: tuple[list[float], list[float]] = ([], [])
    found: list[Any] = [None, None]
    for number in range(RUNS + 2):
        for place, read in enumerate((theirs, ours)):
            span, found[place] = timed(read)
            if number >= 2:
                took[place].append(span)
    return took[0], took[1], found[0], found[1]


def alone(read: Callable[[], Any]) -> list[float]:
    return [timed(read)[0] for _ in range(RUNS + 2)][2:]


def cell(took: list[float]) -> str:
    return f"{statistics.median(took):.1f} [{min(took):.1f} to {max(took):.1f}]"


def compared(name: str, theirs: list[float], ours: list[float], extremes: str) -> str:
    ratio = statistics.median(theirs) / statistics.median(ours)
    return f"| {name} | {cell(theirs)} | {cell(ours)} | {ratio:.1f} | {extremes} |"


def spikes(points: list[float]) -> str:
    expected = sum(value == metric_points.SPIKE for value in values(POINTS))
    return f"{sum(value == metric_points.SPIKE for value in points)} of {expected}"


def measure(web: Any, server: mlflow_server.MLflow) -> tuple[list[str], list[Row]]:
    from accounts.models import LoginToken
    from metrics import series
    from tests.rig.world import make_user

    trial = new_trial().allocation.task.trial.pk
    fill_ours(trial, ["loss"], POINTS)
    run = server.new_run()
    fill_theirs(run)
    server.reconnect()
    link = Link(web.url, LoginToken.issue(make_user("reader")))
    path = f"/api/v1/trials/time-series?trialIds={trial}&metricNames=loss&group=training&maxDatapoints=1000"

    def curve(more: str = "") -> list[float]:
        answer = json.loads(link.send("GET", path + more))
        return [point["values"]["loss"] for point in answer["trials"][0]["metrics"][0]["data"]]

    whole = in_turns(lambda: server.chart(run, "loss"), curve)
    zoom = in_turns(
        lambda: server.chart(run, "loss", 50_000, 51_000),
        lambda: curve("&startBatches=50000&endBatches=51000"),
    )
    theirs = spikes([point["value"] for point in whole[2]])
    lines = [
        "| request | MLflow, ms | Trainmaster, ms | times faster | spikes shown |",
        "|---|---|---|---|---|",
        compared(f"a curve of {POINTS:,} points", whole[0], whole[1], f"{theirs}, ours {spikes(whole[3])}"),
        compared("zoom: 1,001 of them", zoom[0], zoom[1], f"{len(zoom[2])} points, ours {len(zoom[3])}"),
        "",
        "| read without HTTP | ms |",
        "|---|---|",
        f"| one series of {POINTS:,} points | {cell(alone(lambda: series.read(trial, 'training', ['loss'])))} |",
    ]
    fill_ours(eight := new_trial().allocation.task.trial.pk, NAMES, POINTS)
    lines.append(
        f"| eight series of {POINTS:,} points | {cell(alone(lambda: series.read(eight, 'training')))} |"
    )
    fill_ours(many := new_trial().allocation.task.trial.pk, ["loss"], MANY, odd=True)
    (found,) = series.read(many, "training", ["loss"])
    known = np.array([_value(value, step, True) for step, value in enumerate(values(MANY))])
    assert found.total == MANY and len(found.steps) <= 1000
    assert np.nanmax(found.values[np.isfinite(found.values)]) == np.max(known[np.isfinite(known)])
    assert np.nanmin(found.values) == np.nanmin(known) and np.isnan(found.values).any()
    for step, value in zip(found.steps.astype(int), found.values, strict=True):
        assert value == known[step] or (np.isnan(value) and np.isnan(known[step]))
    lines.append(
        f"| one of {MANY:,} with spikes, NaN, infinities and a restart: least and most are in it | "
        f"{cell(alone(lambda: series.read(many, 'training', ['loss'])))} |"
    )
    ratios = [
        Row(
            what,
            statistics.median(took[0]) / statistics.median(took[1]),
            "x faster than MLflow",
            least=FLOOR,
            goal=GOAL,
        )
        for what, took in ((f"a curve of {POINTS:,} points", whole), ("a zoom into it", zoom))
    ]
    return lines, ratios


def report(lines: list[str], load: float) -> str:
    return "\n".join(
        [
            "# Curves beside MLflow's chart",
            "",
            f"One client, {RUNS} reads in turns on {os.cpu_count()} cores at a load of {load:.1f}; one web "
            f"process here, MLflow {_version()} with {mlflow_server.WORKERS} workers there, the same PostgreSQL. "
            "MLflow's chart asks for 320 sampled points, ours for at most 1,000 that hold every extreme. "
            f"At least {FLOOR:g} times faster is wanted, {GOAL:g} is the goal. Medians [least to most].",
            "",
            *lines,
            "",
        ]
    )


def main() -> int:
    from tests.rig.parts import private_folder

    with ExitStack() as stack:
        folders = [
            stack.enter_context(private_folder(name)) for name in ("postgres", "redis", "web", "mlflow")
        ]
        stack.enter_context(database.parts(folders[0], folders[1]))
        from tests.rig.web import running_web

        web = stack.enter_context(running_web(folders[2], TRAINMASTER_LOG_LEVEL="WARNING"))
        server = stack.enter_context(mlflow_server.running(folders[3]))
        load = os.getloadavg()[0]
        lines, found = measure(web, server)
        return finish(REPORT, report(lines, max(load, os.getloadavg()[0])), found)


if __name__ == "__main__":
    sys.exit(main())

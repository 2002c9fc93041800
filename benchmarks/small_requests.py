"""What a small request costs the server: those that programs send again and again, beside an empty answer.

Each as the published client (or the runner) sends it, one after the other over one connection, in turns with an empty
view of the same server (`http_floor`) and, where it is installed, with MLflow's log_metric on the same PostgreSQL.
`python -m benchmarks.small_requests` writes benchmarks/reports/small_requests.md; `OLD=<folder of another version>`
measures that version's server beside this one, in the same turns.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import database, mlflow_server
from benchmarks.metric_points import AT, Link, cpu_seconds, new_trial, token_of, values
from benchmarks.mlflow_server import MLflow
from benchmarks.rows import Row, finish, size

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
os.environ["DJANGO_SETTINGS_MODULE"] = "webui.settings"
os.environ["TRAINMASTER_SECRET_KEY"] = "benchmark"
os.environ["TRAINMASTER_LOG_LEVEL"] = "WARNING"

REQUESTS = size("REQUESTS", 300, 50)
ROUNDS = size("ROUNDS", 5, 1)
#: a run is under way: each two percent more of its steps move its search, which takes a report longer
FIRST_STEP = 1000
#: the folder of another version, whose server is measured in the same turns
OLD = os.environ.get("OLD", "")
#: processor time of a request, in times that of an empty answer: what is aimed for, 3 ms where an empty answer takes
#: 0.33 ms
GOAL = 9.0
#: through Django's middleware, with a thread and a connection for each request, they took 45 to 85 times as much
MOST = 40.0
REPORT = ROOT / "benchmarks" / "reports" / "small_requests.md"
EMPTY, REPORTED, THEIRS = (
    "empty answer (http_floor)",
    "one report of one metric, by a run",
    "MLflow: log_metric",
)


@dataclass
class Round:
    """Milliseconds that each request took, and of the server's processor time for one."""

    took: list[float]
    cpu: float


@dataclass
class Kind:
    """One kind of request: who sends it, and the bodies of as many as are wanted."""

    name: str
    token: str
    method: str
    path: str
    bodies: Callable[[], Iterator[bytes]] = field(default=lambda: iter([b""] * REQUESTS))


def kinds() -> list[Kind]:
    """Those that programs send, about a trial that runs here and one that runs elsewhere (detached)."""
    from accounts.models import LoginToken
    from experiments.models import Trial
    from tests.rig.world import make_user

    member = new_trial()
    run = member.allocation
    trial, token = run.task.trial, token_of(member)
    person = LoginToken.issue(make_user())
    detached = Trial.objects.get(pk=new_detached_trial())
    stream = f"/runner/v1/streams/{run.pk}/{member.index}"
    alive = json.dumps({"trialId": detached.pk}).encode()
    spool = json.dumps(
        {"state": "running", "spool_bytes": 0, "unshipped_bytes": 0, "dropped_bytes": 0}
    ).encode()
    return [
        Kind(EMPTY, token, "GET", "/runner/v1/identity", lambda: iter([b""] * 5 * REQUESTS)),
        Kind(REPORTED, token, "POST", f"/api/v1/trials/{trial.pk}/metrics",
             reports_of(trial.pk)),
        Kind("one report of one metric, by a detached run", person, "POST",
             f"/api/v1/trials/{detached.pk}/metrics", reports_of(detached.pk)),
        Kind("heartbeat of a detached run", person, "PATCH", f"/api/v1/trials/{detached.pk}",
             lambda: iter([alive] * REQUESTS)),
        Kind("heartbeat of a runner", token, "POST", f"{stream}/heartbeat", lambda: iter([spool] * REQUESTS)),
        Kind("should_preempt", token, "GET",
             f"/api/v1/allocations/{run.pk}/signals/preemption?timeout_seconds=0"),
        Kind("orders for a runner", token, "GET", f"{stream}/signals?wait=0"),
        Kind("GET of an experiment", person, "GET", f"/api/v1/experiments/{trial.experiment_id}"),
        Kind("GET of a trial", person, "GET", f"/api/v1/trials/{trial.pk}"),
    ]  # fmt: skip


def new_detached_trial() -> int:
    from accounts.models import LoginToken
    from experiments.models import Trial
    from tests.rig.api import Api
    from tests.rig.world import make_user

    config = "name: laptop\nsearcher: {name: single, metric: loss}\n"
    ada = Api(LoginToken.issue(make_user()))
    experiment = ada.post("experiments", {"config": config, "unmanaged": True})["experiment"]["id"]
    asked = {"experimentId": experiment, "hparams": {}, "unmanaged": True}
    trial = int(ada.post("trials", asked)["trial"]["id"])
    ada.post(f"trials/{trial}/start", {"resume": True})
    assert Trial.objects.filter(pk=trial).exists()
    return trial


def reports_of(trial: int) -> Callable[[], Iterator[bytes]]:
    """Bodies of reports, each of a later step than all before it. Of the first hundreds each moves the search."""
    steps = iter(range(FIRST_STEP, 10**9))

    def bodies() -> Iterator[bytes]:
        for value in values(REQUESTS):
            report = {"trialId": trial, "trialRunId": 1, "stepsCompleted": next(steps)}
            yield json.dumps(
                {"group": "training", "metrics": {**report, "metrics": {"avgMetrics": {"loss": value}}}}
            ).encode()

    return bodies


def timed(send: Callable[[bytes], object], bodies: list[bytes], pid: int) -> Round:
    took, cpu = [], cpu_seconds(pid)
    for body in bodies:
        begin = time.perf_counter()
        send(body)
        took.append(1000 * (time.perf_counter() - begin))
    return Round(took, 1000 * (cpu_seconds(pid) - cpu) / len(bodies))


def measured(web: Any, kind: Kind) -> Round:
    link = Link(web.url, kind.token)
    typed = {"Content-Type": "application/json"} if kind.method != "GET" else {}
    found = timed(lambda body: link.send(kind.method, kind.path, body, **typed), list(kind.bodies()), web.pid)
    link.close()
    return found


def log_metric(server: MLflow) -> Round:
    run = server.new_run()
    bodies = [
        json.dumps({"run_id": run, "key": "loss", "value": value, "timestamp": int(1000 * AT), "step": step})
        for step, value in enumerate(values(REQUESTS))
    ]
    return timed(server.log_metric, [body.encode() for body in bodies], server.pid)


def cpu(rounds: list[Round]) -> float:
    return statistics.median(each.cpu for each in rounds)


def row(name: str, rounds: list[Round], floor: float, before: list[Round] | None) -> str:
    took = sorted(each for one in rounds for each in one.took)
    cells = [
        f"{cpu(rounds):.2f} [{min(one.cpu for one in rounds):.2f} to {max(one.cpu for one in rounds):.2f}]",
        f"{cpu(rounds) / floor:.1f}",
        f"{statistics.median(took):.2f}",
        f"{took[int(len(took) * 0.95)]:.2f}",
    ]
    if before:
        ratios = [new.cpu / old.cpu for new, old in zip(rounds, before, strict=True)]
        was = statistics.median(each for one in before for each in one.took)
        cells += [f"{cpu(before):.2f}", f"{was:.2f}", f"{statistics.median(ratios):.2f}"]
    return f"| {name} | {' | '.join(cells)} |"


def report(found: dict[str, list[Round]], before: dict[str, list[Round]], load: float) -> str:
    head = ["request", "CPU ms [least to most]", "x http_floor", "ms, median", "p95"]
    if before:
        head += ["before: CPU ms", "ms, median", "CPU, now / before"]
    floor = cpu(found[EMPTY])
    return "\n".join(
        [
            "# Small requests",
            "",
            f"{REQUESTS} requests of each kind one after the other over one connection, in {ROUNDS} rounds in turns on "
            f"{os.cpu_count()} cores at a load of {load:.1f}; one web process, durable commits. CPU: processor time of "
            "the server for a request, without PostgreSQL's; `http_floor` is an empty answer of the same server. The "
            f"goal is {GOAL:g} x http_floor. Medians.",
            "",
            f"| {' | '.join(head)} |",
            "|---" * len(head) + "|",
            *(row(name, rounds, floor, before.get(name)) for name, rounds in found.items()),
            "",
        ]
    )


def rows(found: dict[str, list[Round]]) -> list[Row]:
    floor = cpu(found[EMPTY])
    ours = {name: cpu(rounds) / floor for name, rounds in found.items() if name not in {EMPTY, THEIRS}}
    rows = [
        Row(f"CPU of {name}", ratio, "x http_floor", most=MOST, goal=GOAL) for name, ratio in ours.items()
    ]
    if THEIRS in found:
        pairs = zip(found[REPORTED], found[THEIRS], strict=True)
        ratio = statistics.median(here.cpu / there.cpu for here, there in pairs)
        rows.append(Row("CPU of a report", ratio, "x MLflow"))
    return rows


def main() -> int:
    from tests.rig.parts import private_folder

    with ExitStack() as stack:
        folders = [
            stack.enter_context(private_folder(name))
            for name in ("postgres", "redis", "web", "old", "mlflow")
        ]
        stack.enter_context(database.parts(folders[0], folders[1]))
        from tests.rig.web import running_web

        quiet = {"TRAINMASTER_LOG_LEVEL": "WARNING"}
        web = stack.enter_context(running_web(folders[2], **quiet))
        old = stack.enter_context(running_web(folders[3], Path(OLD), **quiet)) if OLD else None
        has_mlflow = mlflow_server.PROGRAM.exists()
        server = stack.enter_context(mlflow_server.running(folders[4])) if has_mlflow else None
        asked = kinds()
        found: dict[str, list[Round]] = {}
        before: dict[str, list[Round]] = {}
        loads = []
        for number in range(ROUNDS + 1):  # the first warms connections and code
            loads.append(os.getloadavg()[0])
            results = []
            for kind in asked:
                results.append((found, kind.name, measured(web, kind)))
                if old:
                    results.append((before, kind.name, measured(old, kind)))
            if server:
                results.append((found, THEIRS, log_metric(server)))
            for table, name, result in results if number else []:
                table.setdefault(name, []).append(result)
        text = report(found, before, statistics.median(loads))
        return finish(REPORT, text, rows(found))


if __name__ == "__main__":
    sys.exit(main())

"""What a search of thousands of trials costs: in virtual time, and with its state kept in PostgreSQL at each event.

    python -m benchmarks.search [--trials 10000] [--events 60]

Starts a PostgreSQL (durable commits) and a Redis of its own, prints a table and writes benchmarks/reports/search.md.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import database
from benchmarks.one_pass import cpu_seconds
from benchmarks.rows import Row, finish, size

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
os.environ["DJANGO_SETTINGS_MODULE"] = "webui.settings"
os.environ["TRAINMASTER_SECRET_KEY"] = "benchmark"
os.environ["TRAINMASTER_LOG_LEVEL"] = "WARNING"

TRIALS = size("TRIALS", 10_000, quick=1_000)
EVENTS = size("EVENTS", 60, quick=10)
REPORT = ROOT / "benchmarks" / "reports" / "search.md"
SPACE = {
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": 0},
    "layers": {"type": "int", "minval": 1, "maxval": 9},
}
LENGTH = 256


def loss(hparams: dict[str, Any], units: int) -> float:
    return (float(hparams["lr"]) - 0.3) ** 2 + 1 / units


def searcher(trials: int, stop_once: bool) -> dict[str, Any]:
    return {
        "name": "adaptive_asha",
        "metric": "loss",
        "max_trials": trials,
        "max_length": LENGTH,
        "stop_once": stop_once,
    }


def simulated(trials: int) -> tuple[list[str], list[Row], dict[str, Any]]:
    """Lines of a table, figures, and the state of the last search, at its end."""
    from searching.simulate import simulate

    lines = [
        "| form | trials | s | CPU s | trained, of all to the end | state, KiB |",
        "|---|---|---|---|---|---|",
    ]
    found: list[Row] = []
    state: dict[str, Any] = {}
    for stop_once in (True, False):
        begin, cpu = time.perf_counter(), time.process_time()
        run = simulate(searcher(trials, stop_once), SPACE, 1, loss)
        took, cpu = time.perf_counter() - begin, time.process_time() - cpu
        state, form = run.state, "stopping" if stop_once else "promotion"
        part = (run.units or 0) / (LENGTH * trials)
        kib = len(json.dumps(state)) / 1024
        lines.append(f"| {form} | {run.trials:,} | {took:.2f} | {cpu:.2f} | {part:.1%} | {kib:.0f} |")
        found.append(Row(f"{run.trials:,} trials simulated, {form}", took, "s", goal=5.0))
    return lines, found, state


def kept(state: dict[str, Any], events: int) -> list[str]:
    """Milliseconds of one event each: load and lock the experiment, tell its search, store its state, commit."""
    from django.db import connection, transaction

    from accounts.models import User
    from experiments import search
    from experiments.models import Trial
    from experiments.transitions import lock
    from searching.state import RUNG, STANDING, Standing, request_id_of
    from tests.rig import trial_rows

    User.objects.create_user("admin", role=User.Role.ADMIN)
    trial = trial_rows.add("search", "ACTIVE")
    bracket = state["brackets"][0]
    state["over"] = False
    numbers = [number for number, each in enumerate(state["trials"]) if each[0] == 0][: 2 * events + 1]
    for number in numbers:  # as if these were still on their way to the first rung
        state["ends"][state["trials"][number][STANDING]] -= 1
        state["trials"][number][:] = [0, 0, 0, Standing.ON.value]
        bracket["live"].append(number)
    del numbers[-1]  # which stays on its way: the search is not over with the others
    type(trial.experiment).objects.filter(pk=trial.experiment_id).update(search=state)
    told: dict[str, list[float]] = {"between rungs": [], "at a rung": []}
    backend, cpu = connection.connection.info.backend_pid, dict.fromkeys(told, 0.0)
    for name, numbers_of_it, steps in (
        ("between rungs", numbers[:events], 0),
        ("at a rung", numbers[events:], bracket["rungs"][0]["units"]),
    ):
        before = time.process_time() + cpu_seconds(backend)
        for number in numbers_of_it:
            request_id = request_id_of(state, number)
            Trial.objects.filter(pk=trial.pk).update(request_id=request_id)
            begin = time.perf_counter()
            with transaction.atomic():
                experiment = lock(trial.experiment_id)
                of_event = Trial.objects.get(pk=trial.pk)
                search.validations_reported(experiment, of_event, [search.Validation(0.5, steps)])
            told[name].append((time.perf_counter() - begin) * 1000)
        cpu[name] = (time.process_time() + cpu_seconds(backend) - before) * 1000 / events
    assert experiment.search["trials"][numbers[-1]][RUNG] == 1
    lines = [
        "| one validation | CPU ms of Python and PostgreSQL | median ms | most ms |",
        "|---|---|---|---|",
    ]
    return lines + [
        f"| {name} | {cpu[name]:.1f} | {statistics.median(ms):.1f} | {max(ms):.1f} |"
        for name, ms in told.items()
    ]


def main() -> int:
    from tests.rig.parts import private_folder

    simulation, found, state = simulated(TRIALS)
    with ExitStack() as stack:
        folders = [stack.enter_context(private_folder(name)) for name in ("postgres", "redis")]
        stack.enter_context(database.parts(folders[0], folders[1]))
        database_lines = kept(state, EVENTS)
    lines = [
        "# A large search",
        "",
        f"adaptive_asha of {TRIALS:,} trials, 16 at once, on {os.cpu_count()} cores at a load of "
        f"{os.getloadavg()[0]:.1f}. Goal: simulated in 5 s.",
        "",
        *simulation,
        "",
        f"With the state of {TRIALS:,} trials in PostgreSQL (durable commits), from the lock of the experiment "
        "to the commit:",
        "",
        *database_lines,
        "",
    ]
    return finish(REPORT, "\n".join(lines), found)


if __name__ == "__main__":
    sys.exit(main())

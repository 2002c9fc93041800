"""A trial with many metrics of many points, as rows of a running server: for tests of its page and benchmarks."""

from tests.rig.server import Server

#: 10:00 UTC; step n was reported n tenths of a second later.
BEGIN = 1_795_255_200.0
BATCH = 2000

_FILL = """
import math, random
from datetime import UTC, datetime, timedelta
from experiments import metric_reports
from experiments.models import Trial
from metrics.ingest import Report
from tests.rig import trial_rows

NAME, METRICS, STEPS, STATE = {name!r}, {metrics}, {steps}, {state!r}
trial = trial_rows.add(NAME, STATE, metric="val_loss")
chance = random.Random(1)

def value(number, step):
    if number == 1 and step % 5000 < 40 and step > 100:
        return math.nan
    spike = 3 if (step, number) == (STEPS // 3, 0) else 0
    return (2 + number) * math.exp(-3 * step / STEPS) + chance.gauss(0, 0.05) + spike

names = ["loss", "grad_norm", "epoch", *(f"layer{{n // 4}}/weight_norm_{{n % 4}}" for n in range(METRICS))][:METRICS]
for first in range(1, STEPS + 1, {batch}):
    batch = []
    for step in range(first, min(first + {batch}, STEPS + 1)):
        values = {{name: value(number, step) for number, name in enumerate(names)}}
        if "epoch" in values:
            values["epoch"] = step * 10 // STEPS
        batch.append(Report(0, "training", step, {begin} + step / 10, values))
        if step % max(1, STEPS // 50) == 0:
            batch.append(Report(0, "validation", step, {begin} + step / 10, {{"val_loss": value(0, step) + 0.2}}))
    metric_reports.store(trial.experiment, trial, batch)
begun = datetime.fromtimestamp({begin}, UTC)
ended = begun + timedelta(seconds=STEPS / 10) if STATE == "COMPLETED" else None
Trial.objects.filter(pk=trial.pk).update(started_at=begun, ended_at=ended)
print(trial.pk)
"""


def write(server: Server, metrics: int, steps: int, *, name: str = "long", state: str = "COMPLETED") -> int:
    """The id of a trial with so many training metrics of so many points, with a spike, gaps, epochs and validations."""
    code = _FILL.format(name=name, metrics=metrics, steps=steps, state=state, batch=BATCH, begin=BEGIN)
    return int(server.shell(code))

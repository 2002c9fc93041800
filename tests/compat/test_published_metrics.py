"""The published client reads metrics: its CLI's tables, its SDK's reports, and the streams that its console used."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.compat.conftest import LIMIT_SECONDS, PublishedClient
from tests.compat.test_published_client import run_to_its_end

pytestmark = pytest.mark.compat

REPORTS = """
import determined as det
with det.core.init() as core:
    for step in (10, 20):
        core.train.report_training_metrics(step, {"loss": 1 / step})
    core.train.report_validation_metrics(20, {"loss": 0.25})
"""
READS = """
import json, sys
from determined.common.api import bindings
from determined.experimental import client
client.login(master=sys.argv[3], user="admin", password=sys.stdin.read())
session, experiment, trial = client._determined._session, int(sys.argv[1]), client.get_trial(int(sys.argv[2]))
asked = {"experimentId": experiment, "metricName": "loss"}
names = list(bindings.get_ExpMetricNames(session, ids=[experiment]))
batches = list(bindings.get_MetricBatches(session, metricType=bindings.v1MetricType.TRAINING, **asked))
snapshot = list(bindings.get_TrialsSnapshot(session, batchesProcessed=20, group="validation", **asked))
sample = list(bindings.get_TrialsSample(session, group="training", maxDatapoints=10, **asked))
print(json.dumps({
    "reports": [[m.steps_completed, m.group, m.trial_run_id, m.metrics] for m in trial.iter_metrics("training")],
    "validation": [[m.steps_completed, m.metrics] for m in trial.iter_metrics("validation")],
    "names": names[0].to_json(),
    "batches": [each.to_json() for each in batches],
    "snapshot": [each.to_json() for each in snapshot],
    "points": [[p.batches, p.values] for p in sample[0].trials[0].data],
    "promoted": list(sample[0].promotedTrials),
}))
"""


@pytest.fixture(scope="module")
def ended(det: PublishedClient, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, int]:
    """An experiment that has reported, and its trial."""
    experiment, trial = run_to_its_end(det, tmp_path_factory.mktemp("reports"), REPORTS)
    return experiment, int(trial["id"])


def test_its_sdk_and_its_streams_read_what_was_reported(
    det: PublishedClient, ended: tuple[int, int], tmp_path: Path
) -> None:
    experiment, trial = ended
    ran = subprocess.run(
        [str(det.program.with_name("python")), "-c", READS, str(experiment), str(trial), det.server.url],
        input=det.server.password, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}, text=True,
        capture_output=True, timeout=LIMIT_SECONDS, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    read: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    assert read["reports"] == [[10, "training", 1, {"loss": 0.1}], [20, "training", 1, {"loss": 0.05}]]
    assert read["validation"] == [[20, {"loss": 0.25}]]
    assert read["names"]["searcherMetrics"] == ["loss"] and read["names"]["trainingMetrics"] == ["loss"]
    assert read["batches"] == [{"batches": [10, 20]}]
    (row,) = read["snapshot"][0]["trials"]
    assert (row["trialId"], row["metric"], row["batchesProcessed"]) == (trial, 0.25, 20)
    assert read["points"] == [[10, {"loss": 0.1}], [20, {"loss": 0.05}]] and read["promoted"] == [trial]


def test_its_tables_hold_the_metrics(det: PublishedClient, ended: tuple[int, int]) -> None:
    experiment, trial = ended
    assert '"loss": 0.05' in det("trial", "describe", str(trial), "--metrics")
    said = det("experiment", "describe", str(experiment), "--metrics", "--csv")
    assert "Training Metric: loss" in said and "Validation Metric: loss" in said

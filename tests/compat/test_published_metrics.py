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
    read = said_by(det, tmp_path, READS, str(experiment), str(trial))
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


PROFILES = """
import datetime, json, sys
from determined.common.api import bindings
from determined.experimental import client
client.login(master=sys.argv[2], user="admin", password=sys.stdin.read())
session, trial = client._determined._session, int(sys.argv[1])
begin = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
times = [(begin + datetime.timedelta(seconds=n)).isoformat() for n in range(3)]
kinds = bindings.TrialProfilerMetricLabelsProfilerMetricType

def batch(name, kind, values, **labels):
    own = bindings.v1TrialProfilerMetricLabels(trialId=trial, name=name, metricType=kind, agentId="gpu-7", **labels)
    return bindings.v1TrialProfilerMetricsBatch(labels=own, values=values, batches=[1, 2, 3], timestamps=times)

sent = [
    batch("gpu_util", kinds.SYSTEM, [10.0, 20.0, 30.0], gpuUuid="GPU-1"),
    batch("net_throughput_sent", kinds.SYSTEM, [8.0, 16.0, 24.0]),
    batch("dataloader_next", kinds.TIMING, [0.25, 0.5, 0.125]),
    batch("samples_per_second", kinds.MISC, [64.0, 32.0, 16.0]),
]
bindings.post_PostTrialProfilerMetricsBatch(session, body=bindings.v1PostTrialProfilerMetricsBatchRequest(batches=sent))
groups = {"gpu": {"GPU-1": {"gpu_util": 40.0, "gpu_free_memory": 1e9}}, "cpu": {"cpu_util_simple": 12.5}}
for group, values in groups.items():  # as its ProfilerContext does
    bindings.post_ReportTrialMetrics(session, metrics_trialId=trial, body=bindings.v1ReportTrialMetricsRequest(
        group=group, metrics=bindings.v1TrialMetrics(metrics=bindings.v1Metrics(avgMetrics={"gpu-8": values}),
        trialId=trial, trialRunId=1, reportTime=times[0])))
(available,) = bindings.get_GetTrialProfilerAvailableSeries(session, trialId=trial, follow=True)
read = [each.batch for each in bindings.get_GetTrialProfilerMetrics(session, labels_trialId=trial, follow=True)]
asked = {"labels_trialId": trial, "labels_name": "cpu_util_simple", "labels_agentId": "gpu-8"}
one = bindings.get_GetTrialProfilerMetrics(session, **asked)
ours = lambda labels: labels.agentId.startswith("gpu-")
of = lambda labels: [labels.name, labels.agentId, labels.gpuUuid]
print(json.dumps({
    "series": [of(labels) for labels in available.labels if ours(labels)],
    "values": [[*of(each.labels), each.values, each.batches] for each in read if ours(each.labels)],
    "kinds": sorted({each.labels.metricType.name for each in read}),
    "times": [[at[:19] for at in each.timestamps] for each in read if of(each.labels)[:2] == ["gpu_util", "gpu-7"]],
    "sent": [at[:19] for at in times],
    "one": [each.batch.values for each in one],
}))
"""


def test_its_profiler_reports_and_reads(det: PublishedClient, ended: tuple[int, int], tmp_path: Path) -> None:
    read = said_by(det, tmp_path, PROFILES, str(ended[1]))
    sent = ["gpu_util", "gpu-7", "GPU-1"], ["net_throughput_sent", "gpu-7", ""]
    groups = (
        ["gpu_util", "gpu-8", "GPU-1"],
        ["gpu_free_memory", "gpu-8", "GPU-1"],
        ["cpu_util_simple", "gpu-8", ""],
    )
    timed = ["dataloader_next", "gpu-7", ""], ["samples_per_second", "gpu-7", ""]
    assert sorted(read["series"]) == sorted([*sent, *groups, *timed])
    assert read["kinds"] == ["MISC", "SYSTEM", "TIMING"]
    values = {tuple(row[:3]): row[3:] for row in read["values"]}
    assert values["gpu_util", "gpu-7", "GPU-1"] == [[10, 20, 30], [0, 0, 0]]
    assert values["net_throughput_sent", "gpu-7", ""] == [[8, 16, 24], [0, 0, 0]]
    assert values["dataloader_next", "gpu-7", ""] == [[0.25, 0.5, 0.125], [1, 2, 3]]
    assert values["samples_per_second", "gpu-7", ""] == [[64, 32, 16], [1, 2, 3]]
    assert values["gpu_util", "gpu-8", "GPU-1"][0] == [40]
    assert read["times"] == [read["sent"]] and read["one"] == [[12.5]]


def said_by(det: PublishedClient, home: Path, script: str, *words: str) -> dict[str, Any]:
    """What a script printed last that ran in the client's environment, with the server's URL as its last word."""
    ran = subprocess.run(
        [str(det.program.with_name("python")), "-c", script, *words, det.server.url],
        input=det.server.password, env={"HOME": str(home), "PATH": "/usr/bin:/bin"}, text=True,
        capture_output=True, timeout=LIMIT_SECONDS, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout.splitlines()[-1]))

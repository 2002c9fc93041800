"""`trial timings` on the whole server, of the example with timings."""

from __future__ import annotations

import json

from tests.rig.server import ROOT
from tests.trainmaster.cli.conftest import CommandLine

EXAMPLE = ROOT / "examples" / "core_api"


def test_the_timings_of_the_example_are_a_table(local_host: CommandLine) -> None:
    created = local_host("e", "create", str(EXAMPLE / "5_timings.yaml"), str(EXAMPLE), "-f")
    assert created.returncode == 0, created.stderr
    experiment = max(json.loads(local_host("e", "list", "--json").stdout), key=lambda each: each["id"])
    (trial,) = json.loads(local_host("e", "list-trials", str(experiment["id"]), "--json").stdout)
    shown = local_host("trial", "timings", str(trial["id"])).stdout.splitlines()
    assert [cell.strip() for cell in shown[0].split("|")] == [
        "Name",
        "Count",
        "Mean",
        "p50",
        "p95",
        "Of steps",
    ]
    rows = {
        cells[0]: cells[1:] for cells in ([cell.strip() for cell in line.split("|")] for line in shown[2:6])
    }
    assert set(rows) == {"step", "step.work", "train_batch", "dataloader_next"}
    assert rows["step"][0] == "60" and rows["step"][-1] == "100.0%" and rows["train_batch"][1].endswith(" ms")
    assert shown[6].startswith("samples: ") and shown[6].endswith("/s, all ranks together")
    found = json.loads(local_host("trial", "timings", str(trial["id"]), "--last-step", "10", "--json").stdout)
    assert found["ranks"] == [{"rank": 0, "host": "local"}] and "straggler" not in found
    csv = local_host("trial", "timings", str(trial["id"]), "-o", "csv").stdout.splitlines()
    assert csv[0] == "Name,Count,Mean,p50,p95,Of steps" and len(csv) == 5

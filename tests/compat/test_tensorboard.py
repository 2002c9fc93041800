"""TensorBoard reads the event files that are made of stored metrics: every value, step and time."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from metrics import ingest, tensorboard
from tests.rig.world import make_host, submit_experiment, trial_of

pytestmark = [pytest.mark.compat, pytest.mark.django_db]

TENSORBOARD = ["tensorboard==2.21.0", "setuptools<81"]
AT = 1_790_000_000.25
READS = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
found = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
found.Reload()
tags = found.Tags()["scalars"]
print(json.dumps({tag: [[e.step, e.wall_time, e.value] for e in found.Scalars(tag)] for tag in tags}))
"""


@pytest.fixture(scope="session")
def tensorboard_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with TensorBoard: of TENSORBOARD_VENV where that is set, else installed for this session."""
    given = os.environ.get("TENSORBOARD_VENV")
    venv = Path(given) if given else tmp_path_factory.mktemp("tensorboard")
    if not given:
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(venv / "bin/pip"), "install", "--quiet", *TENSORBOARD], check=True)
    return venv / "bin/python"


def test_tensorboard_reads_what_was_reported(tensorboard_python: Path, tmp_path: Path) -> None:
    make_host("gpu1", slots=2)
    trial = trial_of(submit_experiment(name="digits"))
    steps = [*range(1, 2000), 20_000, 3_000_000, 2**33]
    odd = {7: math.nan, 8: math.inf, 9: -math.inf}
    rows = [
        ingest.Report(1, "training", step, AT + n, {"loss": odd.get(step, 1 / step), "a/b é": float(n)})
        for n, step in enumerate(steps)
    ]
    ingest.store(trial.pk, rows)
    file = tmp_path / "events.out.tfevents.1.trainmaster"
    file.write_bytes(b"".join(tensorboard.event_file(trial.pk, "training", AT)))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    read = subprocess.run(
        [str(tensorboard_python), "-c", READS, str(tmp_path)],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(read.stdout)
    assert set(found) == {"loss", "a/b é"}
    assert [row[:2] for row in found["loss"]] == [[step, AT + n] for n, step in enumerate(steps)]
    values = [value for _, _, value in found["loss"]]
    assert values == pytest.approx([odd.get(step, 1 / step) for step in steps], rel=1e-6, nan_ok=True)
    assert [value for _, _, value in found["a/b é"]] == list(range(len(steps)))

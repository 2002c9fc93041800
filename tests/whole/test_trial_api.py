"""`entrypoint: model_def:DigitsTrial` on two hosts: paused in the middle of an epoch, it ends with the same weights."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rig.hosts import HostRig
from tests.rig.stack import Stack, code_of, config, running_stack

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.hosts, pytest.mark.chaos]  # two trainings of four ranks

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "trial_api"
LIMIT_SECONDS = 300.0
BATCHES = 120


@pytest.fixture(scope="module")
def stack(host_rig: HostRig) -> Iterator[Stack]:
    """Two hosts with two slots each, whose jobs run this Python with its torch."""
    with running_stack(host_rig) as stack:
        stack.add_hosts(python=sys.executable)
        yield stack


def train(stack: Stack, folder: Path) -> int:
    """The repository's example on all four slots, its checkpoints in this folder, as the config says."""
    example = yaml.safe_load((EXAMPLE / "trial.yaml").read_text())
    changes: dict[str, Any] = {
        "searcher": {**example["searcher"], "max_length": {"batches": BATCHES}},
        "checkpoint_storage": {"type": "shared_fs", "host_path": str(folder)},
        "checkpoint_policy": "none",
        "reproducibility": {"experiment_seed": 5},
    }
    fields = ("hyperparameters", "data", "min_validation_period", "scheduling_unit")
    text = config(4, example["entrypoint"], **{name: example[name] for name in fields}, **changes)
    files = {name: text for name, text in code_of(EXAMPLE).items() if name.endswith(".py")}
    return stack.submit(files, text)


def saved(stack: Stack, experiment: int) -> dict[int, str]:
    """Step to id of its checkpoints."""
    found = stack.get(f"/api/v1/experiments/{experiment}/checkpoints")["checkpoints"]
    return {int(entry["metadata"]["steps_completed"]): entry["uuid"] for entry in found}


def finished(stack: Stack, experiment: int, folder: Path) -> list[Any]:
    """The weights that it ended with."""
    assert stack.wait_end(experiment, LIMIT_SECONDS) == "STATE_COMPLETED", stack.lines_by_rank(experiment)
    path = folder / saved(stack, experiment)[BATCHES] / "state_dict.pth"
    (model,) = torch.load(path, weights_only=False)["models_state_dict"]
    return list(model.values())


def test_a_trial_class_on_two_hosts_is_paused_and_ends_with_the_same_weights(
    stack: Stack, tmp_path: Path
) -> None:
    straight = finished(stack, train(stack, tmp_path), tmp_path)
    experiment = train(stack, tmp_path)

    def reported() -> bool:
        rows = stack.get(f"/api/v1/trials/{stack.trial(experiment)['id']}/workloads?limit=0")["workloads"]
        return any("training" in row for row in rows)

    stack.wait(reported, LIMIT_SECONDS, "the first report")
    stack.post(f"/api/v1/experiments/{experiment}/pause")
    stack.wait(lambda: not stack.holders(), LIMIT_SECONDS, "the slots to be free")
    (step,) = saved(stack, experiment)
    assert 0 < step < BATCHES
    stack.post(f"/api/v1/experiments/{experiment}/activate")
    again = finished(stack, experiment, tmp_path)
    assert all(torch.equal(one, other) for one, other in zip(straight, again, strict=True))
    trial_id = stack.trial(experiment)["id"]
    names = {entry["name"] for entry in stack.get(f"/api/v1/trials/{trial_id}/timings")["summary"]}
    assert {
        "dataloader_next",
        "to_device",
        "train_batch",
        "step_lr_schedulers",
        "from_device",
        "reduce_metrics",
    } <= names

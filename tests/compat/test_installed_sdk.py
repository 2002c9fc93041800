"""`environment: {sdk: installed}`: a trial whose `determined` is the published package on the host, as it is."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.conftest import PublishedClient
from tests.rig.server import Server
from tests.rig.stack import Stack, config, local_host

pytestmark = pytest.mark.compat

LIMIT_SECONDS = 120.0
EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples" / "core_api"


@pytest.fixture(scope="module")
def stack(server: Server, det_program: Path) -> Iterator[Stack]:
    """A host of this machine whose Python has the published package."""
    python = str(det_program.parent / "python3")
    with local_host(server, "published", slots=1, python=python) as stack:
        yield stack


def training_steps(stack: Stack, experiment: int) -> list[int]:
    trial = stack.trial(experiment)["id"]
    rows = stack.get(f"/api/v1/trials/{trial}/workloads?limit=0")["workloads"]
    return [row["training"]["totalBatches"] for row in rows if "training" in row]


def submit(stack: Stack, folder: Path) -> int:
    script = (EXAMPLES / "2_checkpoints.py").read_text()
    script = script.replace(
        "import determined as det", "import determined as det\n\nprint('uses', det.__file__)"
    )
    script = script.replace("core.init()", "core.init(tensorboard_mode=det.core.TensorboardMode.MANUAL)")
    script += (
        "\nprint('at the end', sorted(p.name for p in pathlib.Path('/run/determined/info').iterdir()))\n"
    )
    text = config(
        1,
        "python3 2_checkpoints.py",
        searcher={"name": "single", "metric": "x", "smaller_is_better": False, "max_length": 100},
        environment={"sdk": "installed"},
        checkpoint_storage={"type": "shared_fs", "host_path": str(folder), "storage_path": "kept"},
    )
    return stack.submit({"2_checkpoints.py": script}, text)


def test_a_trial_of_the_published_package_is_paused_and_goes_on_to_its_end(
    stack: Stack, tmp_path: Path
) -> None:
    experiment = submit(stack, tmp_path)
    stack.wait(lambda: len(training_steps(stack, experiment)) >= 2, LIMIT_SECONDS, "the first reports")
    stack.post(f"/api/v1/experiments/{experiment}/pause")
    stack.wait(
        lambda: stack.experiment(experiment)["state"] == "STATE_PAUSED" and not stack.holders(),
        LIMIT_SECONDS,
        "the pause",
    )
    before = training_steps(stack, experiment)
    stack.post(f"/api/v1/experiments/{experiment}/activate")
    ended = stack.wait_end(experiment, LIMIT_SECONDS)
    lines = [record["log"] for record in stack.records(stack.trial(experiment)["id"])]
    assert ended == "STATE_COMPLETED", lines[-40:]
    assert training_steps(stack, experiment) == list(range(10, 101, 10))
    assert before[-1] < 100 and any(f"continuing from batch {before[-1]}, " in line for line in lines)
    assert sum("site-packages/determined/" in line for line in lines if line.startswith("uses")) == 2
    assert any("cluster.json" in line for line in lines if line.startswith("at the end"))
    assert not Path("/run/determined/info").exists(), "nothing of it is seen outside"
    found = stack.get(f"/api/v1/experiments/{experiment}/checkpoints")["checkpoints"]
    kept = [each["uuid"] for each in found if each["state"] == "STATE_COMPLETED"]  # the others go at the end
    assert kept and all((tmp_path / "kept" / uuid / "state").is_file() for uuid in kept)
    trial = stack.trial(experiment)
    assert trial["restarts"] == 0 and trial["bestValidation"]["metrics"]["avgMetrics"]["x"] == 100


def test_its_checkpoints_cannot_be_kept_on_the_server(stack: Stack) -> None:
    text = config(1, "python3 train.py", environment={"sdk": "installed"})
    status, sentence = stack.refused("POST", "/api/v1/experiments", {"config": text, "modelDefinition": []})
    assert status == 400 and "environment.sdk is installed" in sentence


def test_its_command_line_works_in_a_run_whose_training_code_has_ours(stack: Stack) -> None:
    ours = "import determined; print('uses', determined.__file__)"
    experiment = stack.submit({"ours.py": ours}, config(1, "det version && python3 ours.py"))
    ended = stack.wait_end(experiment, LIMIT_SECONDS)
    lines = [record["log"] for record in stack.records(stack.trial(experiment)["id"])]
    assert ended == "STATE_COMPLETED", lines[-40:]
    assert any("0.38.1" in line for line in lines)
    assert any(line.startswith("uses") and "/trainmaster/" in line for line in lines)


def test_its_command_line_works_in_a_shell_and_with_a_login_acts_for_a_user(
    stack: Stack, det_program: Path, tmp_path: Path
) -> None:
    outside = PublishedClient(det_program, stack.server, tmp_path)
    experiment = stack.submit({}, config(1, "true", name="listed"))
    row = f"{experiment} | admin | listed"
    shell = outside("shell", "start", "-d").split()[-1]

    def inside(command: str) -> str:
        return re.sub(" +", " ", outside("shell", "open", shell, command))

    try:
        assert "version: 0.38.1" in inside("det version")
        refused = inside("det e list")
        assert "A run's token can only be used for that run's own reports" in refused and row not in refused
        login = f"env -u DET_USER_TOKEN DET_USER=admin DET_PASS={stack.server.password}"
        assert row in inside(f"{login} det e list")
    finally:
        outside("shell", "kill", shell)

"""A tour of the published client, verb by verb as its users know them: each command is run, and says what it should.

test_published_client.py looks at the consequences of the main ones; this is about all that are in scope (decisions.md).
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compat.conftest import PATIENCE_SECONDS, PublishedClient
from tests.compat.test_published_client import CONFIG, LASTING, create, record, state, wait_for
from tests.rig.pace import wait_until

pytestmark = pytest.mark.compat

#: reports, saves two checkpoints and ends: of a trial with one alone the client's `t download` finds none
TRAINING = """
import determined as det
with det.core.init() as context:
    print('trained', flush=True)
    context.train.report_training_metrics(steps_completed=5, metrics={'loss': 0.5})
    context.train.report_validation_metrics(steps_completed=5, metrics={'loss': 0.4})
    for step in (4, 5):
        with context.checkpoint.store_path({'steps_completed': step}) as (path, _):
            (path / 'weights.txt').write_text('x')
"""
UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@dataclass(frozen=True)
class Trained:
    experiment: int
    trial: int
    checkpoint: str
    folder: Path

    @property
    def ids(self) -> tuple[str, str]:
        return str(self.experiment), str(self.trial)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """config.yaml, and the folders `short` and `lasting` with a train.py each."""
    folder = tmp_path_factory.mktemp("tour")
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "template.yaml").write_text("resources: {priority: 30}\n")
    for name, code in (("short", TRAINING), ("lasting", LASTING)):
        (folder / name).mkdir()
        (folder / name / "train.py").write_text(code)
    return folder


@pytest.fixture(scope="module")
def trained(det: PublishedClient, files: Path) -> Trained:
    """An experiment that was followed from its submission to its end."""
    config = str(files / "config.yaml")
    more = ("--config", "hyperparameters.lr=0.2", "--config", "checkpoint_storage.save_trial_latest=2")
    said = det("e", "create", config, str(files / "short"), *more, "-f")
    assert "Waiting for first trial to begin..." in said
    assert "|| trained" in said
    experiment = re.search(r"Created experiment (\d+)", said)
    trial = re.search(r"Following first trial with ID (\d+)", said)
    assert experiment and trial, said
    det("e", "wait", experiment[1], "--polling-interval", "1")
    checkpoint = re.search(UUID, det("e", "lc", experiment[1], "--best", "1", "--csv"))
    assert checkpoint
    return Trained(int(experiment[1]), int(trial[1]), checkpoint[0], files)


@pytest.fixture
def running(det: PublishedClient, files: Path) -> Iterator[int]:
    experiment = create(det, files / "lasting")
    wait_for(det, experiment, "RUNNING")
    yield experiment
    det("e", "kill", str(experiment))
    wait_for(det, experiment, "CANCELED")


def test_the_server_says_what_it_is_and_has_a_message_for_everybody(det: PublishedClient) -> None:
    assert "cluster_id" in det("version")
    assert json.loads(det("master", "info", "--json"))["clusterName"]
    assert "heartbeat_seconds" in det("master", "config")
    det("master", "cluster-message", "set", "-m", "down at noon", "-d", "1h")
    assert "down at noon" in det("master", "cluster-message", "get")
    det("master", "cluster-message", "clear")
    assert "down at noon" not in det("master", "cluster-message", "get")
    assert len(det("master", "logs", "--tail", "2").splitlines()) >= 2
    det("resources", "raw", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z")


def test_accounts_and_access_tokens(det: PublishedClient) -> None:
    det("user", "create", "ann", "--password", "Long-Word-1")
    det("user", "rename", "ann", "anna")
    det("user", "edit", "anna", "--display-name", "Anna", "--admin", "true")
    det("user", "deactivate", "anna")
    assert "anna" not in det("user", "list")
    assert "anna" in det("user", "list", "--all")
    det("user", "activate", "anna")
    made = re.search(r"TokenID: (\d+)", det("token", "create", "--description", "of the tour"))
    assert made
    assert "of the tour" in det("token", "list")
    assert made[1] in det("token", "describe", made[1])
    det("token", "edit", made[1], "--description", "another word")
    det("token", "revoke", made[1])
    assert made[1] not in re.findall(r"^ +(\d+) \|", det("token", "list"), re.M)


def test_workspaces_projects_and_templates(det: PublishedClient, trained: Trained) -> None:
    template = str(trained.folder / "template.yaml")
    det("w", "create", "tour")
    det("w", "edit", "tour", "--name", "tour2")
    for words in (("w", "describe"), ("w", "list-pools"), ("w", "archive"), ("w", "unarchive")):
        det(*words, "tour2")
    det("p", "create", "tour2", "first", "--description", "words")
    det("p", "edit", "tour2", "first", "--new_name", "second")
    assert "second" in det("w", "list-projects", "tour2") + det("p", "list", "tour2")
    for verb in ("describe", "archive", "unarchive"):
        det("p", verb, "tour2", "second")
    det("e", "move", str(trained.experiment), "tour2", "second")
    assert str(trained.experiment) in det("p", "list-experiments", "tour2", "second")
    refused = det.run("p", "delete", "tour2", "second", "--yes")
    assert (refused.returncode, "still has experiments" in refused.stderr) == (1, True)
    det("e", "move", str(trained.experiment), "Uncategorized", "Uncategorized")
    det("p", "delete", "tour2", "second", "--yes")
    det("tpl", "create", "base", template, "-w", "tour2")
    det("tpl", "set", "base", template)
    det("tpl", "set-value", "config", "base", template)
    assert "priority: 30" in det("tpl", "ls", "-d") + det("tpl", "describe", "base")
    det("tpl", "rm", "base")
    det("w", "delete", "tour2", "--yes")


def test_all_that_is_asked_of_an_experiment(det: PublishedClient, trained: Trained, tmp_path: Path) -> None:
    one, _ = trained.ids
    assert re.search(r"lr:\s+type: const\s+val: 0.2", det("e", "config", one))
    assert '"loss"' in det("e", "describe", one, "--json")
    det("e", "describe", one, "--metrics", "--outdir", str(tmp_path))
    assert "0.4" in (tmp_path / "workloads.csv").read_text()
    assert "Trial ID" in det("e", "lt", one) + det("e", "list-trials", one, "--csv")
    assert trained.checkpoint in det("e", "lc", one, "--best", "1", "--csv")
    assert "trained" in det("e", "logs", one, "--json")
    det("e", "download-model-def", one, "--output-dir", str(tmp_path))
    (archive,) = tmp_path.glob("*.tgz")
    with tarfile.open(archive) as code:
        assert "train.py" in code.getnames()
    for words in (("name", "a name"), ("description", "words")):
        det("e", "set", words[0], one, words[1])
    det("e", "label", "add", one, "kept")
    det("e", "label", "remove", one, "kept")
    det("e", "set", "log-retention", one, "--days", "10")
    det("e", "set", "gc-policy", one, "--yes", *(f"--save-{which}=1" for which in
        ("experiment-best", "trial-best")), "--save-trial-latest=2")  # fmt: skip
    det("e", "delete-tb-files", one)
    det("e", "archive", one)
    assert f" {one} |" not in det("e", "list")
    assert "a name" in det("e", "ls", "-a", "--show_project")
    det("e", "unarchive", one)
    assert "1" in det("preview-search", str(trained.folder / "config.yaml"))


def test_all_that_is_asked_of_a_trial_and_its_checkpoint(
    det: PublishedClient, trained: Trained, tmp_path: Path
) -> None:
    _, trial = trained.ids
    for options in ((), ("--metrics",), ("--metrics-summary",), ("--json",), ("--csv",)):
        assert "COMPLETED" in det("t", "describe", trial, *options)
    assert "trained" in det("t", "logs", "-f", trial)
    det("t", "set", "log-retention", trial, "--forever")
    det("t", "support-bundle", trial, "-o", str(tmp_path))
    (bundle,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(bundle) as archive:
        assert len(archive.getnames()) == 4
    for which in ("--latest", "--best"):
        det("t", "download", trial, which, "-o", str(tmp_path / which))
        assert (tmp_path / which / "weights.txt").read_text() == "x"
    assert trained.checkpoint in det("c", "describe", trained.checkpoint)
    det("c", "download", trained.checkpoint, "-o", str(tmp_path / "whole"), "--mode", "master")
    assert (tmp_path / "whole" / "weights.txt").exists()


def test_test_mode_tries_one_batch(det: PublishedClient, files: Path) -> None:
    """Deprecated in its last release, and there: each stage gets its check mark as the trial reports."""
    said = det("e", "create", str(files / "config.yaml"), str(files / "short"), "-t")
    assert "Model definition test succeeded" in said
    assert "Testing checkpointing.... [✔]" in said


def test_what_has_ended_goes_on_and_is_deleted(det: PublishedClient, files: Path, tmp_path: Path) -> None:
    experiment = create(det, files / "short")
    one = str(experiment)
    det("e", "wait", one, "--polling-interval", "1")
    det("e", "continue", one, "--config", "searcher.max_length.batches=20")
    det("e", "wait", one, "--polling-interval", "1")
    (kept,) = re.findall(UUID, det("e", "lc", one, "--best", "1", "--csv"))  # older ones may just be going
    det("c", "rm", kept, "--glob", "weights*", "--yes")
    det("c", "delete", kept, "--yes")
    det("e", "delete", one, "--yes")
    assert wait_until(lambda: det.run("e", "describe", one).returncode != 0, PATIENCE_SECONDS)


def test_the_queue_and_the_tasks_of_what_runs(det: PublishedClient, running: int) -> None:
    one, job = str(running), record(det, running)["jobId"]
    for form in ("--json", "--yaml", "--table", "--csv"):
        assert job in det("j", "ls", "-p", "default", form)
    det("job", "update", job, "--priority", "7")
    det("job", "update-batch", f"{job}.priority=8")
    det("e", "set", "priority", one, "20")
    det("e", "set", "max-slots", one, "1")
    det("e", "set", "max-slots", one, "none")
    task = re.search(rf"{running}\.{UUID}", det("task", "list", "--json"))
    assert task
    assert task[0] in det("task", "list", "--csv")
    assert wait_until(lambda: "line 100" in det("task", "logs", task[0], "--tail", "5"), PATIENCE_SECONDS)
    det("e", "pause", one)
    det("e", "unpause", one)
    wait_for(det, running, "RUNNING")
    det("task", "kill", task[0])
    assert wait_until(lambda: "CANCELED" in state(det, running), PATIENCE_SECONDS)


def test_hosts_are_switched_off_and_on(det: PublishedClient) -> None:
    assert "compat" in det("a") + det("a", "ls", "--csv")
    for words in (("slot", "disable", "compat", "0"), ("slot", "enable", "compat", "0"),
                  ("agent", "disable", "--all"), ("agent", "enable", "--all")):  # fmt: skip
        det(*words)
    assert "FREE" in det("s", "ls")


@pytest.mark.parametrize("noun", ["notebook", "shell", "tensorboard"])
def test_interactive_tasks_are_started_listed_and_ended(
    det: PublishedClient, trained: Trained, noun: str
) -> None:
    of = [str(trained.experiment)] if noun == "tensorboard" else []
    more = [] if noun == "shell" else ["--no-browser"]
    started = det(noun, "start", *of, "-d", *more).split()[-1]
    assert started in det(noun, "list", "--json")
    assert "resources" in det(noun, "config", started)
    det(noun, "set", "priority", started, "10")
    det(noun, "logs", started)
    det(noun, "kill", started)
    assert wait_until(lambda: started not in det("task", "list"), PATIENCE_SECONDS)

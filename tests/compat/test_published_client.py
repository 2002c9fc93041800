"""The published client works unmodified: log in, submit, list, describe, follow logs, steer, edit the queue."""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.compat.conftest import PATIENCE_SECONDS, PublishedClient
from tests.rig.pace import wait_until

pytestmark = pytest.mark.compat

CONFIG = """
name: compat
entrypoint: python3 train.py
searcher: {name: single, metric: loss, max_length: {batches: 10}}
hyperparameters: {lr: 0.1}
resources: {slots_per_trial: 1}
max_restarts: 0
"""
#: prints 1..N, then waits for a file that nobody makes, so that it ends only when it is told to
LASTING = "import time\nfor n in range(1, 101):\n    print('line', n, flush=True)\nwhile True:\n    time.sleep(0.2)\n"
SHORT = "for n in range(1, 101):\n    print('line', n, flush=True)\n"


@pytest.fixture
def context(tmp_path: Path) -> Path:
    folder = tmp_path / "context"
    folder.mkdir()
    (tmp_path / "config.yaml").write_text(CONFIG)
    (folder / "train.py").write_text(LASTING)
    return folder


def create(det: PublishedClient, context: Path, *more: str) -> int:
    said = det("experiment", "create", str(context.parent / "config.yaml"), str(context), *more)
    found = re.search(r"Created experiment (\d+)", said)
    assert found, said
    return int(found[1])


def run_to_its_end(det: PublishedClient, folder: Path, script: str) -> tuple[int, dict[str, Any]]:
    """An experiment of CONFIG that runs this as its train.py, and the record of its trial once it has ended."""
    context = folder / "context"
    context.mkdir()
    (folder / "config.yaml").write_text(CONFIG)
    (context / "train.py").write_text(script)
    experiment = create(det, context)
    det("experiment", "wait", str(experiment), "--polling-interval", "1")
    path, token = f"/api/v1/experiments/{experiment}/trials", det.server.token()
    return experiment, dict(det.server.request("GET", path, token=token)["trials"][0])


def record(det: PublishedClient, experiment: int) -> dict[str, Any]:
    answer = det.server.request("GET", f"/api/v1/experiments/{experiment}", token=det.server.token())
    return dict(answer["experiment"])


def state(det: PublishedClient, experiment: int) -> str:
    return str(record(det, experiment)["state"])


def wait_for(det: PublishedClient, experiment: int, wanted: str) -> None:
    assert wait_until(lambda: wanted in state(det, experiment), PATIENCE_SECONDS), state(det, experiment)


def test_the_client_knows_who_it_is_and_what_it_talks_to(det: PublishedClient) -> None:
    assert "logged in as user 'admin'" in det("user", "whoami")
    assert "admin" in det("user", "list")
    assert "clusterId" in det("master", "info")
    assert "compat" in det("agent", "list")
    assert "FREE" in det("slot", "list")


def test_an_experiment_is_created_paused_activated_and_killed(det: PublishedClient, context: Path) -> None:
    experiment = create(det, context)
    wait_for(det, experiment, "RUNNING")
    assert str(experiment) in det("experiment", "list")
    assert "Trial ID" in det("experiment", "describe", str(experiment))
    assert "Trial" in det("task", "list")
    det("experiment", "pause", str(experiment))
    assert "PAUSED" in state(det, experiment)
    det("experiment", "activate", str(experiment))
    wait_for(det, experiment, "RUNNING")
    det("experiment", "kill", str(experiment))
    wait_for(det, experiment, "CANCELED")
    det("experiment", "archive", str(experiment))
    det("experiment", "delete", str(experiment), "--yes")


def test_the_log_is_complete_and_in_order(det: PublishedClient, context: Path) -> None:
    (context / "train.py").write_text(SHORT)
    experiment = create(det, context)
    det("experiment", "wait", str(experiment), "--polling-interval", "1")
    said = det("experiment", "logs", str(experiment))
    assert re.findall(r"line (\d+)", said) == [str(n) for n in range(1, 101)]
    last = re.findall(r"line (\d+)", det("experiment", "logs", str(experiment), "--tail", "20"))
    assert last == [str(n) for n in range(101 - len(last), 101)], (
        "the last 20 lines, some of them the server's"
    )
    assert len(last) > 10


def test_a_command_is_run_listed_and_killed(det: PublishedClient, tmp_path: Path) -> None:
    (tmp_path / "say.py").write_text("print('said')\n")
    said = det("command", "run", "-c", str(tmp_path), "-v", "/tmp:/elsewhere", "python3", "say.py")
    assert "|| said" in said
    command = det("command", "run", "-d", "--config", "resources.slots=1", "sleep", "600").strip()
    assert wait_until(lambda: "RUNNING" in det("command", "describe", command[:8]), PATIENCE_SECONDS)
    assert command in det("command", "list")
    assert command in det("task", "list")
    assert "TYPE_COMMAND" in det("job", "list")
    assert "sleep" in det("command", "config", command)
    det("command", "set", "priority", command, "5")
    det("command", "kill", command[:8])
    assert "killed by admin" in det("command", "logs", "-f", command)
    assert wait_until(lambda: "TERMINATED" in det("command", "list", "--all"), PATIENCE_SECONDS)


def test_the_queue_is_listed_and_edited(det: PublishedClient, context: Path) -> None:
    experiments = [create(det, context), create(det, context)]
    jobs = [record(det, experiment)["jobId"] for experiment in experiments]
    det("job", "update", jobs[1], "--priority", "7")
    det("job", "update-batch", f"{jobs[0]}.priority=8")
    said = det("job", "list")
    assert said.index(jobs[1]) < said.index(jobs[0])
    refused = det.run("job", "update", jobs[1], "--priority", "100")
    assert refused.returncode != 0
    assert "between 1 and 99" in refused.stdout + refused.stderr
    for experiment in experiments:
        det("experiment", "kill", str(experiment))


def test_fields_labels_templates_workspaces_and_users_are_changed(
    det: PublishedClient, context: Path
) -> None:
    experiment = create(det, context, "--paused")
    det("experiment", "set", "name", str(experiment), "renamed")
    det("experiment", "set", "priority", str(experiment), "50")
    det("experiment", "set", "max-slots", str(experiment), "2")
    det("experiment", "label", "add", str(experiment), "night")
    assert "renamed" in det("experiment", "list")
    (context.parent / "template.yaml").write_text("resources: {priority: 30}\n")
    det("template", "create", "t1", str(context.parent / "template.yaml"))
    assert "priority: 30" in det("template", "describe", "t1")
    det("template", "remove", "t1")
    det("workspace", "create", "lab")
    det("project", "create", "lab", "vision")
    det("experiment", "move", str(experiment), "lab", "vision")
    assert "renamed" in det("project", "list-experiments", "lab", "vision")
    det("user", "create", "eve", "--password", "Long-Word-1")
    det("user", "link-with-agent-user", "eve", "--agent-uid", "1001", "--agent-user", "eve",
        "--agent-gid", "1001", "--agent-group", "eve")  # fmt: skip
    assert "eve" in det("user", "list")
    det("experiment", "cancel", str(experiment))


def test_a_wrong_config_is_refused_with_the_servers_sentence(det: PublishedClient, context: Path) -> None:
    config = str(context.parent / "config.yaml")
    refused = det.run("experiment", "create", config, str(context), "--config", "resources.slots_per_trial=x")
    assert refused.returncode != 0
    assert "resources.slots_per_trial" in refused.stdout + refused.stderr


def test_code_is_downloaded_again(det: PublishedClient, context: Path, tmp_path: Path) -> None:
    experiment = create(det, context, "--paused")
    det("experiment", "download-model-def", str(experiment), "--output-dir", str(tmp_path))
    assert list(tmp_path.glob("*.tgz"))
    det("experiment", "kill", str(experiment))


def test_hosts_and_slots_are_disabled_drained_and_enabled(det: PublishedClient, context: Path) -> None:
    experiment = create(det, context)
    wait_for(det, experiment, "RUNNING")
    assert "Trial 1" in det("slot", "list")
    drained = det("agent", "disable", "compat", "--drain")
    assert "Tasks still in progress on draining nodes." in drained
    assert "compat" in drained.split("Agent", 1)[1]
    assert '"draining": true' in det("agent", "list", "--json")
    det("agent", "enable", "compat")
    det("slot", "disable", "compat", "1")
    assert "compat,default,1,False" in det("slot", "list", "--csv")
    det("slot", "enable", "compat", "1")
    det("experiment", "kill", str(experiment))
    wait_for(det, experiment, "CANCELED")


def test_history_of_usage_is_printed_by_attempt_and_summed_up(det: PublishedClient, context: Path) -> None:
    experiment = create(det, context)
    wait_for(det, experiment, "RUNNING")
    now = datetime.now(UTC)
    times = [f"{now + timedelta(hours=shift):%Y-%m-%dT%H:%M:%SZ}" for shift in (-1, 1)]
    rows = list(csv.DictReader(io.StringIO(det("resources", "raw", *times))))
    mine = [row for row in rows if row["experiment_id"] == str(experiment)]
    assert [(row["kind"], row["username"], row["slots"]) for row in mine] == [("training", "admin", "1")]
    assert f'"experimentId":{experiment}' in det("res", "raw", "--json", *times).replace(": ", ":")
    days = [f"{now + timedelta(days=shift):%Y-%m-%d}" for shift in (-1, 1)]
    assert "username,admin," in det("resources", "aggregated", *days)
    month = f"{now:%Y-%m}"
    assert f"total,total,{month}," in det("resources", "aggregated", "--monthly", month, month)
    assert "byUsername" in det("resources", "agg", "--json", *days)
    assert det("res", "allocations", *times).startswith("allocation_id,task_type,username,workspace_name,")
    det("experiment", "kill", str(experiment))
    wait_for(det, experiment, "CANCELED")

"""Submitting, following and steering from the command line, on the whole server with a host that is this machine."""

from __future__ import annotations

import csv
import io
import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.rig import pace
from tests.trainmaster.cli.conftest import CommandLine

CONFIG = """
name: {name}
entrypoint: python3 train.py {arguments}
searcher: {{name: single, metric: x, max_length: 10}}
max_restarts: 0
"""
WIDE = "resources.slots_per_trial=9"
# Prints 1..N; with `hold` it goes on until somebody ends it.
CODE = """
import sys, time
for number in range(1, int(sys.argv[1]) + 1):
    print(number, flush=True)
while "hold" in sys.argv:
    time.sleep(0.1)
sys.exit(3 if "fail" in sys.argv else 0)
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text(CODE)
    return folder


def config(tmp_path: Path, arguments: str, name: str = "counts") -> str:
    file = tmp_path / f"{name}.yaml"
    file.write_text(CONFIG.format(name=name, arguments=arguments))
    return str(file)


def created(tm: CommandLine, *words: str) -> int:
    done = tm("e", "create", *words)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


def row(tm: CommandLine, experiment_id: int) -> dict[str, Any]:
    answer = json.loads(tm("e", "describe", str(experiment_id), "--json").stdout)
    found: dict[str, Any] = answer[0]
    return found


def numbers(text: str) -> list[str]:
    """The bare numbers at the ends of the log's lines."""
    last = [line.split()[-1] for line in text.splitlines() if line.strip()]
    return [word for word in last if word.isdigit()]


def test_a_followed_experiment_prints_every_line_and_ends_with_its_result(
    local_host: CommandLine, code: Path, tmp_path: Path
) -> None:
    done = local_host("e", "create", config(tmp_path, "200"), str(code), "-f")
    assert done.returncode == 0, done.stderr
    assert numbers(done.stdout)[-200:] == [str(number) for number in range(1, 201)]
    assert "Following first trial with ID" in done.stderr
    assert "To reopen log stream, run: trainmaster trial logs -f" in done.stderr


def test_the_folder_of_init_trains_as_it_is(local_host: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "first"
    assert local_host("init", str(folder)).returncode == 0
    done = local_host("e", "create", str(folder / "config.yaml"), str(folder), "-f")
    assert done.returncode == 0, done.stderr
    assert "batch 100: loss 0.000000" in done.stdout


def test_a_followed_experiment_that_fails_ends_with_1(
    local_host: CommandLine, code: Path, tmp_path: Path
) -> None:
    done = local_host("e", "create", config(tmp_path, "3 fail"), str(code), "-f")
    assert done.returncode == 1
    assert "on local: exit code 3." in done.stderr
    assert "ended: ERROR" in done.stderr


def test_a_follower_is_told_what_it_waits_for_and_which_script_is_missing(
    local_host: CommandLine, code: Path, tmp_path: Path
) -> None:
    (code / "train.py").rename(code / "other.py")
    out = tmp_path / "out"
    command = local_host.command("e", "create", config(tmp_path, "3"), str(code), "-f", "--config", WIDE)
    with out.open("w") as file:
        following = subprocess.Popen(command, stdout=file, stderr=file, env=local_host.environment)
    assert pace.wait_until(lambda: "Waiting: needs 9 slots" in out.read_text(), 60), out.read_text()
    following.send_signal(signal.SIGINT)
    assert following.wait(60) == 3
    said = out.read_text()
    assert "the entrypoint names train.py, which is not among these files" in said
    explained = local_host("job", "explain", said.split("trainmaster job explain ")[1].split()[0])
    assert "needs 9 slots" in explained.stdout
    assert local_host("e", "kill", said.split("Created experiment ")[1].split()[0]).returncode == 0


def test_ctrl_c_leaves_the_job_alone_and_says_how_to_reopen_the_log(
    local_host: CommandLine, code: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = local_host.command("e", "create", config(tmp_path, "5 hold"), str(code), "-f")
    with out.open("w") as file:
        following = subprocess.Popen(command, stdout=file, stderr=file, env=local_host.environment)
    counted = ["1", "2", "3", "4", "5"]  # one alone may be the experiment's number
    assert pace.wait_until(lambda: numbers(out.read_text())[-5:] == counted, 60), out.read_text()
    following.send_signal(signal.SIGINT)
    assert following.wait(60) == 3
    said = out.read_text()
    assert "keeps running. To reopen the log, run: trainmaster trial logs -f" in said
    experiment_id = int(said.split("Created experiment ")[1].split()[0])
    assert row(local_host, experiment_id)["experiment"]["state"] == "STATE_RUNNING"
    assert local_host("e", "kill", str(experiment_id)).returncode == 0
    assert local_host("e", "wait", str(experiment_id), "--polling-interval", "0.2").returncode == 1


def test_the_log_can_be_read_in_parts(local_host: CommandLine, code: Path, tmp_path: Path) -> None:
    experiment_id = created(local_host, config(tmp_path, "30"), str(code))
    assert local_host("e", "wait", str(experiment_id), "--polling-interval", "0.2").returncode == 0
    trial_id = str(row(local_host, experiment_id)["trials"][0]["id"])
    whole = local_host("trial", "logs", trial_id, "--stdtype", "stdout", "--json").stdout
    records = [json.loads(line) for line in whole.splitlines()]
    printed = [record for record in records if record.get("log", "").strip().isdigit()]
    assert [record["log"].strip() for record in printed] == [str(number) for number in range(1, 31)]
    tail = local_host("trial", "logs", trial_id, "--tail", "3", "--search", "30").stdout
    assert numbers(tail)[-1:] == ["30"]
    assert len(local_host("e", "logs", str(experiment_id), "--head", "4").stdout.splitlines()) == 4
    task_id = row(local_host, experiment_id)["trials"][0]["taskId"]
    assert numbers(local_host("task", "logs", task_id).stdout)[-1] == "30"


def test_jobs_are_listed_in_order_moved_and_changed_by_prefix(
    local_host: CommandLine, code: Path, tmp_path: Path
) -> None:
    first = created(
        local_host, config(tmp_path, "1 hold", "first"), str(code), "--config", "resources.slots_per_trial=2"
    )
    second = created(
        local_host, config(tmp_path, "1 hold", "second"), str(code), "--config", "resources.slots_per_trial=2"
    )
    ids = [row(local_host, number)["experiment"]["jobId"] for number in (first, second)]

    def listed() -> list[dict[str, str]]:
        answer = local_host("job", "ls", "--csv").stdout
        assert answer.splitlines()[0].endswith(",User,Waiting for,Starts,Deadline")
        return [line for line in csv.DictReader(io.StringIO(answer)) if line["ID"] in ids]

    try:
        assert [line["Job Name"] for line in listed()] == ["first", "second"]
        changed = local_host("job", "update", ids[1][:8], "--ahead-of", ids[0][:8])
        assert changed.returncode == 0, changed.stderr
        assert [line["Job Name"] for line in listed()] == ["second", "first"]
        batch = [f"{one[:8]}.priority=1" for one in ids]
        assert local_host("job", "update-batch", *batch).returncode == 0
        assert [line["Priority"] for line in listed()] == ["1", "1"]
        for top in ids:
            assert local_host("job", "update-batch", f"{top[:8]}.to-top").returncode == 0
            assert listed()[0]["ID"] == top
        heading = local_host("job", "list").stdout.splitlines()[0]
        assert [cell.strip() for cell in heading.split("|")] == [
            "#", "ID", "Type", "Job Name", "Priority", "Submitted", "Slots (acquired/needed)", "Status", "User",
        ]  # fmt: skip
        why = local_host("job", "explain", ids[0][:8])
        assert why.returncode == 0, why.stderr
        assert re.match(
            rf"Job {ids[0][:8]} in pool default: active(, (pausing|saving|stopping))?, 1 job ahead",
            why.stdout,
        )
        refused = local_host("job", "update", ids[0], "--priority", "100")
        assert refused.returncode == 1
        assert "1 to 99" in refused.stderr or "between 1 and 99" in refused.stderr
        assert local_host("job", "update", "zzz", "--priority", "3").returncode == 1
        assert local_host("job", "list", "-p", "nowhere").returncode == 1
        assert "not found" in local_host("job", "explain", "zzz").stderr
        assert local_host("job", "explain", str(first)).stdout == local_host("job", "explain", ids[0]).stdout
        unknown = local_host("job", "explain", "7654321")
        assert unknown.returncode == 1 and "there is no experiment 7654321" in unknown.stderr
        assert "`trainmaster experiment list`" in unknown.stderr
    finally:
        for number in (first, second):
            local_host("e", "kill", str(number))


def test_a_paused_experiment_waits_for_its_activation(
    local_host: CommandLine, code: Path, tmp_path: Path
) -> None:
    number = str(created(local_host, config(tmp_path, "1"), str(code), "--paused"))
    assert row(local_host, int(number))["experiment"]["state"] == "STATE_PAUSED"
    assert local_host("e", "activate", number).returncode == 0
    assert local_host("e", "wait", number, "--polling-interval", "0.2").returncode == 0
    assert local_host("e", "archive", number).returncode == 0
    mine = json.loads(local_host("e", "list", "-o", "json").stdout)
    assert int(number) not in [one["id"] for one in mine]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [", "is not YAML: line 1"),
        (
            "entrypoint: x\nsearcher: {name: single, metric: m}\nresources: {slots_per_trial: one}",
            '<config>.resources.slots_per_trial: found "one"',
        ),
        ("searcher: {name: single, metric: m}", "<config>.entrypoint: found nothing"),
        (
            "entrypoint: x\nsearcher: {name: single, metric: m}\nnonsense: 1",
            "<config>.nonsense: found an unknown field",
        ),
    ],
)
def test_a_wrong_config_is_refused_with_a_sentence_that_names_the_field(
    tm: CommandLine, code: Path, tmp_path: Path, text: str, sentence: str
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    before = {each["id"] for each in json.loads(tm("e", "list", "-a", "--json").stdout)}
    done = tm("e", "create", str(file), str(code))
    assert done.returncode == 1
    assert "Failed to create the experiment:" in done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert {each["id"] for each in json.loads(tm("e", "list", "-a", "--json").stdout)} == before


def test_a_folder_that_is_too_large_is_refused_before_it_is_sent(
    tm: CommandLine, code: Path, tmp_path: Path
) -> None:
    with (code / "weights.pt").open("wb") as file:
        file.truncate(96 * 1024 * 1024)
    done = tm("e", "create", config(tmp_path, "1"), str(code))
    assert done.returncode == 1
    assert "weights.pt" in done.stderr
    assert ".detignore" in done.stderr


def test_a_login_is_remembered_and_forgotten(tm: CommandLine, tmp_path: Path) -> None:
    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        nobody = {"TRAINMASTER_TOKEN": "", "DET_USER_TOKEN": "", "XDG_CONFIG_HOME": str(tmp_path)}
        return tm(*words, environment={**nobody, **more})

    assert "you are not logged in" in run("e", "list").stderr
    wrong = run("user", "login", "admin", DET_USER="admin", DET_PASS="wrong")
    assert wrong.returncode == 1
    assert "refused the login of admin" in wrong.stderr
    assert run("user", "login", "admin", DET_USER="admin", DET_PASS=tm.server.password).returncode == 0
    assert run("user", "whoami").stdout == "You are logged in as user 'admin'\n"
    assert tm.server.password not in (tmp_path / "trainmaster" / "auth.json").read_text()
    assert run("user", "logout").returncode == 0
    assert "you are not logged in" in run("user", "whoami").stderr

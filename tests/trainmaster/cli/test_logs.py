"""Reading and following logs from the command line, on the whole server with a host that is this machine."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rig import pace
from tests.rig.server import ROOT, Server
from tests.trainmaster.cli.conftest import CommandLine
from tests.trainmaster.cli.terminal import Terminal

CONFIG = """
name: {name}
entrypoint: python3 train.py {arguments}
searcher: {{name: single, metric: x, max_length: 10}}
resources: {{slots_per_trial: {slots}}}
max_restarts: 0
"""
#: Four ranks say what they do; with `hold` it goes on until somebody ends it, with `fail N` it ends with N.
CODE = """
import sys, time
for step in range(10):
    for rank in range(4):
        stream = sys.stderr if rank == 3 else sys.stdout
        print(f"[rank={rank}] step {step} of rank {rank}", file=stream, flush=True)
print("[rank=2] ERROR: a tensor is NaN", flush=True)
if "hold" in sys.argv:
    number = 0
    while True:
        number += 1
        print(f"tick {number}", flush=True)
        time.sleep(0.05)
sys.exit(int(sys.argv[2]) if sys.argv[1:2] == ["fail"] else 0)
"""

Submit = Callable[..., int]


@pytest.fixture
def submit(local_host: CommandLine, tmp_path: Path) -> Submit:
    """Create an experiment with these arguments of its script; the id of its trial."""
    return submitting(local_host, tmp_path)


def submitting(tm: CommandLine, tmp_path: Path) -> Submit:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text(CODE)

    def create(arguments: str = "", slots: int = 1) -> int:
        file = tmp_path / "config.yaml"
        file.write_text(CONFIG.format(name="logs", arguments=arguments, slots=slots))
        done = tm("e", "create", str(file), str(folder))
        assert done.returncode == 0, done.stderr
        experiment = done.stdout.split()[-1]
        return int(json.loads(tm("e", "describe", experiment, "--json").stdout)[0]["trials"][0]["id"])

    return create


def experiment_of(tm: CommandLine, trial: int) -> str:
    return str(json.loads(tm("t", "describe", str(trial), "--json").stdout)["experimentId"])


def ended(tm: CommandLine, trial: int) -> None:
    tm("e", "wait", experiment_of(tm, trial), "--polling-interval", "0.2")


@pytest.fixture
def done(local_host: CommandLine, submit: Submit) -> int:
    """A trial that has completed."""
    trial = submit()
    ended(local_host, trial)
    return trial


def test_lines_are_chosen_and_shown_as_asked(local_host: CommandLine, done: int) -> None:
    def lines(*words: str) -> list[str]:
        ran = local_host("trial", "logs", str(done), "--no-prefix", *words)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.splitlines()

    def ranks(*words: str) -> set[str]:
        return {line.split()[-1] for line in lines(*words) if line.startswith("step")}

    assert ranks("--rank", "0-3,!1") == {"0", "2", "3"}
    assert ranks("--rank", "0", "--rank", "host:local 3") == {"0", "3"}
    assert lines("--rank", "2", "--grep", "step [89] of") == ["step 8 of rank 2", "step 9 of rank 2"]
    assert lines("--search", "STEP 4 OF RANK 1") == ["step 4 of rank 1"]
    assert [line.replace("ERROR: ", "") for line in lines("--level", "ERROR")] == ["a tensor is NaN"]
    assert lines("--stream", "stderr", "--tail", "1") == ["step 9 of rank 3"]
    assert any("has started" in line for line in lines("--stream", "server"))
    assert lines("--since", "2030-01-01") == [] == lines("--until", "9w")
    assert len(lines("--since", "1h", "--rank", "0")) == 10
    shown = local_host(
        "trial", "logs", str(done), "--rank", "1", "--head", "1", "--timestamps", "none"
    ).stdout
    assert shown == "local [rank=1] || step 0 of rank 1\n"


def test_a_rank_that_never_wrote_is_named_and_is_no_success(local_host: CommandLine, done: int) -> None:
    for words in (["--rank", "9"], ["--rank", "9", "-f"]):
        ran = local_host("trial", "logs", str(done), *words)
        assert ran.returncode == 1 and ran.stdout == ""
        assert f"Trial {done} has no log lines from --rank 9; ranks 0-3 have log lines." in ran.stderr
    for words in (["--host", "nope"], ["--host", "nope", "-f"]):
        ran = local_host("trial", "logs", str(done), *words)
        assert ran.returncode == 1 and ran.stdout == ""
        assert f"Trial {done} has no log lines from --host nope; host local has log lines." in ran.stderr
    ran = local_host("trial", "logs", str(done), "--host", "nope", "--rank", "1", "--level", "ERROR")
    assert "--rank 1 --host nope that match the other options; ranks 0-3 on host local have" in ran.stderr
    refused = local_host("trial", "logs", str(done), "--rank", "²")
    assert refused.returncode == 1 and "is not a rank expression; allowed:" in refused.stderr


def test_a_task_that_has_ended_is_known_by_the_beginning_of_its_id(
    local_host: CommandLine, done: int
) -> None:
    whole = json.loads(local_host("t", "describe", str(done), "--json").stdout)["taskId"]
    unique = whole[: whole.index(".") + 2]  # no other task begins with the number of this trial
    ran = local_host("task", "logs", unique, "--rank", "1", "--head", "1", "--no-prefix")
    assert ran.stdout == "step 0 of rank 1\n", ran.stderr
    assert local_host("task", "pulse", unique).returncode == 0
    kept = local_host("task", "set", "log-retention", unique, "--days", "9")
    assert kept.returncode == 0 and whole in kept.stdout + kept.stderr
    unknown = local_host("task", "logs", "nosuch")
    assert unknown.returncode == 1 and "nosuch not found" in unknown.stderr


def test_the_end_of_a_followed_log_is_the_jobs_own(
    local_host: CommandLine, submit: Submit, done: int
) -> None:
    assert local_host("trial", "logs", str(done), "-f").returncode == 0
    failing = submit("fail 7")
    followed = local_host("trial", "logs", str(failing), "-f")
    assert followed.returncode == 7
    assert "exit code 7" in followed.stderr and "Trial log stream ended." in followed.stderr
    assert len(re.findall(r"step \d of rank 2", followed.stdout)) == 10
    assert local_host("trial", "logs", str(failing)).returncode == 0, "showing a log is no failure"
    task = json.loads(local_host("t", "describe", str(failing), "--json").stdout)["taskId"]
    assert local_host("task", "logs", task, "-f", "--tail", "1").returncode == 7
    assert local_host("e", "logs", experiment_of(local_host, failing), "-f").returncode == 7


def test_a_command_ends_its_log_with_its_exit_code(local_host: CommandLine) -> None:
    command = local_host("command", "run", "-d", "--slots", "0", "echo said; exit 5").stdout.strip()
    followed = local_host("command", "logs", "-f", command[:8], "--no-prefix", "--stream", "stdout")
    assert followed.returncode == 5 and followed.stdout == "said\n"


def test_ctrl_c_ends_with_130_and_leaves_the_job_alone(
    local_host: CommandLine, submit: Submit, tmp_path: Path
) -> None:
    trial, out = submit("hold"), tmp_path / "out"
    with out.open("w") as file:
        command = local_host.command("trial", "logs", "-f", str(trial), "--rank", "none", "--no-prefix")
        following = subprocess.Popen(command, stdout=file, stderr=file, env=local_host.environment)
    assert pace.wait_until(lambda: "tick 5" in out.read_text(), 60), out.read_text()
    following.send_signal(signal.SIGINT)
    assert following.wait(60) == 130
    assert "Traceback" not in out.read_text()
    assert f"trainmaster trial logs -f {trial}" in out.read_text()
    tail = tmp_path / "tail"
    with tail.open("w") as file:
        command = local_host.command("trial", "logs", "-f", str(trial), "--tail", "3")
        killed = subprocess.Popen(command, stdout=file, stderr=file, env=local_host.environment)
    assert pace.wait_until(lambda: "tick" in tail.read_text(), 60), tail.read_text()
    local_host("t", "kill", str(trial))
    assert killed.wait(60) == 1, tail.read_text()
    ticks = [int(number) for number in re.findall(r"tick (\d+)", tail.read_text())]
    assert ticks == list(range(ticks[0], ticks[-1] + 1)), "from the tail on, each line once"


def test_a_reader_that_has_enough_is_quiet(local_host: CommandLine, done: int) -> None:
    words = " ".join(map(shlex.quote, local_host.command("trial", "logs", str(done))))
    ran = subprocess.run(
        ["bash", "-c", f"{words} | head -n 2"],
        env=local_host.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert len(ran.stdout.splitlines()) == 2 and ran.stderr == ""


def test_a_job_that_waits_says_why(local_host: CommandLine, submit: Submit) -> None:
    trial = submit(slots=9)

    def says_why() -> bool:
        shown = local_host("trial", "logs", str(trial), "--stream", "stdout")
        return shown.returncode == 0 and "Waiting: needs 9 slots" in shown.stderr

    assert pace.wait_until(says_why, 60)
    following = subprocess.Popen(
        local_host.command("trial", "logs", "-f", str(trial)),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=local_host.environment,
    )  # fmt: skip
    assert following.stderr is not None
    assert "Waiting: needs 9 slots" in following.stderr.readline()
    local_host("e", "kill", experiment_of(local_host, trial))
    assert following.wait(60) == 1


def test_ranks_have_colours_on_a_terminal(local_host: CommandLine, done: int) -> None:
    environment = {name: value for name, value in local_host.environment.items() if name != "NO_COLOR"}
    terminal = Terminal(
        local_host.command("trial", "logs", str(done), "--rank", "0-1"),
        {**environment, "TERM": "xterm-256color"},
    )
    assert terminal.wait() == 0
    colours = dict(re.findall(r"\x1b\[38;5;(\d+)mlocal \[rank=(\d)\]", terminal.said))
    assert len(colours) == 2 and set(colours.values()) == {"0", "1"}


def test_one_of_several_trials_is_chosen(local_host: CommandLine, submit: Submit, tmp_path: Path) -> None:
    submit()
    file = tmp_path / "grid.yaml"
    search = (
        "searcher: {name: grid, metric: x, max_length: 10}\n"
        "hyperparameters: {a: {type: categorical, vals: [1, 2]}}\n"
    )
    text = CONFIG.format(name="grid", arguments="", slots=1)
    file.write_text(re.sub(r"searcher: .*\n", search, text))
    experiment = local_host("e", "create", str(file), str(tmp_path / "code")).stdout.split()[-1]
    local_host("e", "wait", experiment, "--polling-interval", "0.2")
    trials = [
        one["id"] for one in json.loads(local_host("e", "describe", experiment, "--json").stdout)[0]["trials"]
    ]
    first = local_host("e", "logs", experiment, "--json", "--head", "1")
    assert json.loads(first.stdout)["trialId"] == trials[0]
    assert f"has 2 trials; showing the first, trial {trials[0]}" in first.stderr
    latest = local_host("e", "logs", experiment, "--trial", "latest", "--json", "--head", "1")
    assert json.loads(latest.stdout)["trialId"] == trials[1] and latest.stderr == ""
    refused = local_host("e", "logs", experiment, "--trial", "999999")
    assert refused.returncode == 1 and f"it has {trials[0]}, {trials[1]}" in refused.stderr


@pytest.mark.survive(25)
def test_a_follower_outlives_a_restart_of_the_server(own_server: Server, tmp_path: Path) -> None:
    tm = CommandLine(own_server)
    assert tm("host", "add", "local", "--slots", "2", "--allow-login-account", "--yes").returncode == 0
    trial, out, complaints = submitting(tm, tmp_path)("hold"), tmp_path / "out", tmp_path / "complaints"
    with out.open("w") as stdout, complaints.open("w") as stderr:
        words = tm.command(
            "trial", "logs", "-f", str(trial), "--rank", "none", "--no-prefix", "--source", "task"
        )
        following = subprocess.Popen(words, stdout=stdout, stderr=stderr, env=tm.environment, cwd=ROOT)
    assert pace.wait_until(lambda: "tick 5\n" in out.read_text(), 60), complaints.read_text()
    for _ in range(2):
        web = own_server.kill_part("web")
        own_server.wait_replaced("web", web)
        seen = len(out.read_text().splitlines())
        assert pace.wait_until(lambda: len(out.read_text().splitlines()) > seen + 20, 60)  # noqa: B023
    assert tm("t", "kill", str(trial)).returncode == 0
    assert following.wait(120) == 1, complaints.read_text()
    ticks = [int(line.split()[1]) for line in out.read_text().splitlines() if line.startswith("tick")]
    assert ticks == list(range(1, len(ticks) + 1)), "no gap and no repeat"
    assert complaints.read_text().count("Reconnecting to the log") >= 1
    assert "The log continues after the last line shown." in complaints.read_text()


def test_log_retention_is_set_shown_tried_and_done(local_host: CommandLine, done: int) -> None:
    assert "for 40 days" in local_host("t", "set", "log-retention", str(done), "--days", "40").stdout
    assert (
        "forever"
        in local_host("e", "set", "log-retention", experiment_of(local_host, done), "--forever").stdout
    )
    shown = local_host("log-retention", "show")
    assert shown.returncode == 0 and re.search(r"Logs stored: [\d,]+ lines of [\d,]+ logs?", shown.stdout), (
        shown.stderr
    )
    assert "By default, logs are kept forever." in shown.stdout
    assert "The next cleanup removes nothing." in local_host("task", "cleanup-logs", "--dry-run").stdout
    local_host("t", "set", "log-retention", str(done), "--days", "0")
    dry = local_host("log-retention", "cleanup", "--dry-run").stdout
    assert re.search(rf"^ +{done} \|", dry, re.M) and "of 1 log," in dry
    refused = local_host("log-retention", "cleanup")
    assert refused.returncode == 2 and "--yes to confirm" in refused.stderr
    removed = local_host("task", "cleanup-logs", "--yes")
    assert removed.returncode == 0 and re.match(r"Removed \d\d lines of 1 logs\.", removed.stdout), removed
    left = local_host("trial", "logs", str(done), "--no-prefix").stdout
    assert left == "The log was removed when its job ended (set for this log).\n"

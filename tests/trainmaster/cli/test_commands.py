"""Commands from the command line, on the whole server with a host that is this machine."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.rig import pace
from tests.trainmaster.cli.conftest import CommandLine


def test_output_goes_where_it_was_written_and_the_exit_code_is_the_commands(local_host: CommandLine) -> None:
    ran = local_host("command", "run", "seq 1 300; echo aside >&2; exit 3")
    assert ran.stdout.splitlines() == [str(number) for number in range(1, 301)]
    assert ran.returncode == 3
    assert "aside" in ran.stderr.splitlines()
    assert ran.stderr.splitlines()[-1].endswith(": exit code 3 on local.")
    good = local_host("cmd", "run", "--", "echo", "a  b", "$HOME")
    assert (good.returncode, good.stdout) == (0, "a  b $HOME\n")


def test_it_runs_in_the_folder_that_was_given(local_host: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "here.txt").write_text("from here\n")
    ran = local_host("command", "run", "-c", str(folder), "cat", "here.txt")
    assert ran.stdout == "from here\n"
    elsewhere = local_host("command", "run", "--config", "work_dir=/usr", "--", "pwd")
    assert elsewhere.stdout == "/usr\n"
    nowhere = local_host("command", "run", "--config", "work_dir=/nowhere", "--", "pwd")
    assert "work_dir: the folder /nowhere does not exist on local" in nowhere.stderr
    assert (nowhere.returncode, "change work_dir in the config" in nowhere.stderr) == (2, True)


@pytest.mark.parametrize("words", [["no-such-program --help"], ["--", "no-such-program", "--help"]])
def test_a_program_that_the_host_lacks_is_named(local_host: CommandLine, words: list[str]) -> None:
    ran = local_host("command", "run", *words)
    assert ran.returncode == 127
    assert "exit code 127: command not found: no-such-program" in ran.stderr
    assert "no-such-program is not on the PATH of jobs on local: check its spelling" in ran.stderr


def test_a_file_and_options_make_the_config(local_host: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "command.yaml"
    file.write_text(
        "description: nightly\nentrypoint: echo $WORD\nenvironment: {environment_variables: [WORD=x]}\n"
    )
    words = ["--config-file", str(file), "--slots", "0", "--config", "resources.priority=9"]
    command_id = local_host("command", "run", "-d", *words).stdout.strip()
    short = command_id[:8]
    shown = local_host("command", "config", short).stdout
    assert "description: nightly" in shown
    assert "priority: 9" in shown
    followed = local_host("command", "logs", "-f", short)
    assert "|| x" in followed.stdout
    described = json.loads(local_host("command", "describe", short, "--json").stdout)
    assert (described["phase"], described["slots"], described["exitCode"]) == ("COMPLETED", 0, 0)
    assert command_id in local_host("command", "list", "-q").stdout


def test_ctrl_c_leaves_the_command_alone_and_kill_ends_it(local_host: CommandLine, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with out.open("w") as file:
        following = subprocess.Popen(
            local_host.command("command", "run", "echo begun; sleep 600"),
            stdout=file, stderr=file, env=local_host.environment,
        )  # fmt: skip
    assert pace.wait_until(lambda: "begun" in out.read_text().splitlines(), 60), out.read_text()
    following.send_signal(signal.SIGINT)
    assert pace.wait_until(lambda: following.poll() is not None, 60), out.read_text()
    assert following.returncode == 3, out.read_text()
    said = out.read_text()
    short = said.split("Launched command ")[1][:8]
    assert f"Command {short} keeps running" in said
    assert f"To reopen the log, run: trainmaster command logs -f {short}" in said
    assert "Killed command" in local_host("command", "kill", short).stdout
    local_host("command", "logs", "-f", short)
    described = json.loads(local_host("command", "describe", short, "--json").stdout)
    assert (described["phase"], described["ending"]) == ("CANCELED", "killed by admin, exit code 143")


def test_a_host_that_is_disabled_without_a_question_says_what_it_stopped(local_host: CommandLine) -> None:
    command_id = local_host("command", "run", "-d", "sleep 600").stdout.strip()

    def described() -> dict[str, str]:
        answer: dict[str, str] = json.loads(local_host("command", "describe", command_id, "--json").stdout)
        return answer

    assert pace.wait_until(lambda: described()["phase"] == "RUNNING", 60), described()
    disabled = local_host("host", "disable", "local")
    assert local_host("host", "enable", "local").returncode == 0
    assert (disabled.returncode, disabled.stderr.strip()) == (0, f"stopped: cmd {command_id[:8]}")
    local_host("command", "kill", command_id)
    assert pace.wait_until(lambda: described()["phase"] in ("CANCELED", "ERROR"), 60), described()


def test_wrong_command_lines_get_a_sentence(local_host: CommandLine) -> None:
    nothing = local_host("command", "run")
    assert (nothing.returncode, "no command given" in nothing.stderr) == (2, True)
    twice = local_host("command", "run", "--depends-on", "3", "--config", "depends_on=[4]", "true")
    assert (twice.returncode, "are the same field: give one of them" in twice.stderr) == (2, True)
    field = local_host("command", "run", "--config", "resources.slotz=1", "true")
    assert (field.returncode, "did you mean slots?" in field.stderr) == (1, True)
    unknown = local_host("command", "describe", "ffffffff")
    assert (unknown.returncode, "command ffffffff not found" in unknown.stderr) == (1, True)
    large = local_host("command", "run", "-d", "--slots", "9", "true")
    assert (large.returncode, "needs 9 slots on one host" in large.stderr) == (1, True)
    assert local_host("pool", "edit", "default", "--no-launch-error").returncode == 0
    waits = local_host("command", "run", "-d", "--slots", "9", "true")
    assert local_host("pool", "edit", "default", "--launch-error").returncode == 0
    assert "needs 9 slots on one host" in waits.stderr
    short = waits.stdout[:8]
    assert "between 1 and 99" in local_host("command", "set", "priority", short, "0").stderr
    assert local_host("command", "set", "priority", short, "7").returncode == 0
    moved = local_host("job", "update", json.loads(local_host("command", "describe", short, "--json").stdout)["jobId"],
                       "--resource-pool", "default")  # fmt: skip
    assert "cancel" in moved.stderr
    assert local_host("command", "kill", short, "ffffffff", "-f").returncode == 1

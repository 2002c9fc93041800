"""Commands from the command line, on the whole server with a host that is this machine."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.rig import pace
from tests.trainmaster.cli.conftest import CommandLine

BATCH_SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=train --time=5 --ntasks=2 --mem=1G
#SBATCH --output=%x-%A_%a.out
#SBATCH --array=1-5:2%2
echo "element $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT, job $TRAINMASTER_ARRAY_ID, $1, LR=$LR"
srun sh -c 'echo "task $SLURM_PROCID"'
"""


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


def test_a_script_becomes_an_array_whose_output_is_in_files_and_on_the_server(
    local_host: CommandLine, tmp_path: Path
) -> None:
    script = tmp_path / "train.sh"
    script.write_text(BATCH_SCRIPT)
    words = ["sbatch", "--parsable", "-W", "-D", str(tmp_path), "train.sh", "big"]
    ran = local_host(*words, environment={"LR": "0.1"})
    assert ran.returncode == 0, ran.stderr
    assert "sbatch: --mem=1G is not taken over: memory is not reserved" in ran.stderr
    array_id = ran.stdout.strip()
    for index in (1, 3, 5):
        lines = (tmp_path / f"train-{array_id}_{index}.out").read_text().splitlines()
        assert lines[0] == f"element {index} of 3, job {array_id}, big, LR=0.1"
        assert sorted(lines[1:]) == ["task 0", "task 1"]
    element = local_host("array", "elements", array_id, "--json").stdout
    assert '"description": "train [5]"' in element
    waits = local_host(
        "sbatch", "--parsable", f"--dependency=afterok:{array_id[:8]}_3", "-n1", "--wrap", "true"
    )
    config = local_host("command", "config", waits.stdout.strip()).stdout
    assert "depends_on" in config and ":success" in config and array_id not in config
    each = local_host(
        "sbatch", "--parsable", "-d", f"aftercorr:{array_id[:8]}", "-a1,5", "-n1", "--wrap", "true"
    )
    assert f"{array_id}:each" in local_host("command", "config", each.stdout.strip()).stdout
    alone = local_host("sbatch", "--parsable", "-d", f"aftercorr:{array_id[:8]}", "-n1", "--wrap", "true")
    assert f"{array_id}:success" in local_host("command", "config", alone.stdout.strip()).stdout


def test_a_script_submits_the_next_step_with_a_token_of_its_user(
    local_host: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "next.sh").write_text("#!/bin/sh\necho after $FIRST\n")
    script = tmp_path / "first.sh"
    script.write_text("#!/bin/sh\nFIRST=$SLURM_JOB_ID sbatch --parsable -d afterok:$SLURM_JOB_ID next.sh\n")
    words = ["sbatch", "--parsable", "-W", "-D", str(tmp_path)]
    # also where Slurm is installed, whose sbatch would be called
    (tmp_path / "alone.sh").write_text("#!/bin/sh\nPATH=${PATH%%:*}\nsbatch next.sh\n")
    first = local_host(*words, "alone.sh")
    assert first.returncode == 1, "the token of a run submits nothing"
    said = local_host("command", "logs", first.stdout.strip()).stdout
    assert "a job submits others only with an access token" in said
    made = local_host("token", "create", "--scope", "write", "-e", "1", "-d", "steps").stdout
    token = made.partition("Access-Token: ")[2].split()[0]
    export = "--export=ALL,TRAINMASTER_TOKEN"
    first = local_host(*words, export, "first.sh", environment={"TRAINMASTER_TOKEN": token})
    said = local_host("command", "logs", first.stdout.strip()).stdout
    assert first.returncode == 0, said
    assert token not in local_host("command", "config", first.stdout.strip()).stdout
    second = next(line for line in reversed(said.split()) if line.count("-") == 4)
    assert "after" in local_host("command", "logs", "-f", second).stdout
    assert f"{first.stdout.strip()}:success" in local_host("command", "config", second).stdout


def test_what_is_tried_or_refused_submits_nothing(local_host: CommandLine) -> None:
    before = local_host("command", "list", "-a", "-q").stdout
    tried = local_host("sbatch", "--test-only", "--nice=10", "-n2", "--wrap", "true")
    assert tried.stdout == "sbatch: would submit wrap: wrap (slots 2, pool default)\n", tried.stderr
    strict = local_host("sbatch", "--strict", "--mem=1G", "--wrap", "true")
    assert (strict.returncode, strict.stdout) == (2, "")
    assert "nothing was submitted, because of --strict" in strict.stderr
    too_large = local_host("sbatch", "--test-only", "-n100", "--wrap", "true")
    assert too_large.returncode == 1 and "slots" in too_large.stderr
    gang = local_host("sbatch", "-N2", "--wrap", "srun torchrun --nnodes 2 train.py")
    assert gang.returncode == 2 and "a batch script runs on one host here" in gang.stderr
    assert 'entrypoint: "python3 -m trainmaster.launch.torch_distributed train.py"' in gang.stdout
    waits = local_host(
        "sbatch", "-N2", "-d", "afterok:7", "--mem", "1G", "--gres=shard:2", "--wrap", "srun python a.py"
    )
    assert 'depends_on: ["7:success"]' in waits.stdout and "--gres=shard" in waits.stderr
    assert local_host("sbatch", "-N2", "--parsable", "--wrap", "true").stdout == ""
    nowhere = local_host("sbatch", "-p", "nowhere", "--wrap", "true")
    assert "--partition is 'nowhere', allowed: default." in nowhere.stderr
    assert local_host("command", "list", "-a", "-q").stdout == before

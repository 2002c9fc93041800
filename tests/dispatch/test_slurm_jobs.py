"""The words of a job that is handed to Slurm, and what they come to in a shell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from dispatch.engines import slurm_jobs
from dispatch.engines.slurm_jobs import Wish
from hosts.slurm.settings import JobSettings, SlurmSettings
from tests.dispatch.sshd import wait_until


def test_a_job_asks_for_whole_parts_of_its_nodes() -> None:
    settings = SlurmSettings(
        "stars", partition="gpu", gpu_type="a100", sbatch_args=("--mem=0", "--exclude=g7,g8")
    )
    own = settings.with_job(JobSettings(("--constraint=ib", "--exclude=g9"), None, "h100"))
    wish = Wish("7.x.1", 2, 16, "/sha%re", minutes=90, grace_seconds=300, exclude={"g2", "g1"})
    words = slurm_jobs.command(own, wish)
    assert words[:3] == ("sbatch", "--mem=0", "--constraint=ib"), (
        "what Trainmaster sets comes last, which counts"
    )
    for word in (
        "--parsable", "--no-requeue", "--signal=B:USR1@300", "--comment=7.x.1", "--nodes=2", "--gres=gpu:h100:8",
        "--partition=gpu", "--time=90", "--exclude=g7,g8,g9,g1,g2", "--ntasks-per-node=1",
        "--output=/sha%%re/slurm/7.x.1.txt",
    ):  # fmt: skip
        assert word in words
    assert sum(word.startswith("--exclude") for word in words) == 1
    assert not any(word.startswith(("--account", "--qos", "--cpus")) for word in words)


@pytest.mark.parametrize(
    ("pool", "wish", "cpus"),
    [
        (
            SlurmSettings("stars", slot_type="cpu"),
            Wish("7.x.1", 2, 4, "/f", cpus_per_slot=3),
            "--cpus-per-task=6",
        ),
        (SlurmSettings("stars"), Wish("7.x.1", 2, 16, "/f", cpus_per_slot=12), "--cpus-per-task=96"),
        (SlurmSettings("stars"), Wish("7.x.1", 1, 0, "/f", cpus_per_slot=12), "--cpus-per-task=1"),
        (
            SlurmSettings("stars", sbatch_args=("--cpus-per-gpu=4",)),
            Wish("7.x.1", 1, 8, "/f", cpus_per_slot=12),
            "--cpus-per-gpu=4",
        ),
    ],
)
def test_a_job_asks_for_the_cpus_of_its_slots(pool: SlurmSettings, wish: Wish, cpus: str) -> None:
    words = slurm_jobs.command(pool, wish)
    assert [word for word in words if word.startswith("--cpus")] == [cpus]


@pytest.mark.parametrize(
    ("said", "job"), [("123\n", "123"), ("note\n42;stars\n", "42"), ("", ""), ("sbatch: error", "")]
)
def test_the_id_of_a_job_is_read_or_not_known(said: str, job: str) -> None:
    assert slurm_jobs.job_id_of(said) == job


def test_some_errors_of_sbatch_leave_a_doubt() -> None:
    assert slurm_jobs.may_have_come("Batch job submission failed: Socket timed out on send/recv operation")
    assert not slurm_jobs.may_have_come("Batch job submission failed: Invalid partition name specified")


def test_the_script_asks_to_save_and_ends_as_its_step(tmp_path: Path) -> None:
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\ntouch begun\nwhile [ ! -e "it\'s asked" ]; do sleep 0.05; done\nexit 7\n')
    srun.chmod(0o755)
    word = slurm_jobs.word_of({"urls": ["http://it's $HOME"], "cert_sha256": None}, "t0ken")
    tell = ["sh", "-c", "cat > told.part; mv told.part told"]
    script = slurm_jobs.script(["attend"], ["touch", "it's asked"], tell, word, "printed")
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    batch = subprocess.Popen(["sh", "-c", script], cwd=tmp_path, env=path)
    wait_until((tmp_path / "begun").exists)
    batch.send_signal(signal.SIGUSR1)
    assert batch.wait(60) == 7
    wait_until((tmp_path / "told").exists)
    assert (tmp_path / "told").read_text() == f"{word}\n" and json.loads(word)["token"] == "t0ken"
    (tmp_path / "printed").touch()
    srun.write_text("#!/bin/sh\nexit 0\n")
    subprocess.run(["sh", "-c", script], cwd=tmp_path, env=path, check=True)
    assert not (tmp_path / "printed").exists(), "what ended well needs no explanation"


def test_a_node_with_a_folder_of_its_own_waits_for_its_program(tmp_path: Path) -> None:
    """What srun starts there. The program comes with the run: its Python gets the words that follow."""
    python, run = tmp_path / "python", tmp_path / "runs" / "7.x.1.3"
    python.write_text('#!/bin/sh\nprintf "%s\n" "$@"\n')
    python.chmod(0o755)

    def on_node(words: tuple[str, ...]) -> str:
        env = {**os.environ, "SLURM_NODEID": "3"}
        shell = words[words.index("/bin/sh") :]
        return subprocess.run(shell, env=env, check=True, capture_output=True, text=True).stdout

    save = slurm_jobs.ask_to_save_apart(str(python), str(tmp_path), "7.x.1", 4)
    assert on_node(slurm_jobs.attend_apart(str(python), str(tmp_path), "7.x.1", 0.2)) == ""
    assert on_node(save) == ""
    (run / "program").mkdir(parents=True)
    words = on_node(slurm_jobs.attend_apart(str(python), str(tmp_path), "7.x.1", 60)).splitlines()
    assert words == ["-S", "-E", f"{run}/program", "attend", str(tmp_path), "7.x.1", "60"]
    assert on_node(save).splitlines()[2:] == [f"{run}/program", "ask_to_save", str(tmp_path), "7.x.1", "4"]
    if os.getuid() == 0:
        for place in (run, run.parent, tmp_path):  # a stranger's program, where everybody may write
            os.chown(place, 65534, -1)
            assert on_node(save) == ""
            os.chown(place, 0, -1)
    run.rename(tmp_path / "elsewhere")
    run.symlink_to(tmp_path / "elsewhere")
    assert on_node(save) == ""


def test_what_jobs_print_goes_nowhere_without_a_shared_folder() -> None:
    assert "--output=/dev/null" in slurm_jobs.command(SlurmSettings("stars"), Wish("7.x.1", 1, 1, ""))
    assert "rm -f" not in slurm_jobs.script(
        ["attend"], ["save"], ["true"], "{}", slurm_jobs.output("", "7.x.1")
    )

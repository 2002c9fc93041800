"""A batch script on a host: its variables, its files, srun, scontrol, signals and requeues, without a server."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from tests.trainmaster.slurm.job_file import ID, JOB_FILE, NUMBER
from trainmaster.environment import PORTS
from trainmaster.paths import RunPaths
from trainmaster.protocol import RUN_DIR
from trainmaster.slurm import amounts, batch, sbatch, scontrol, variables
from trainmaster.slurm.handed import FOLDER, JOB, SCRIPT
from trainmaster.slurm.options import BadScript
from trainmaster.slurm.srun import step_of

ROOT = Path(__file__).resolve().parents[3]
LIMIT_SECONDS = 60


def put(place: Path, text: str, **job: Any) -> None:
    """What a submission sends to the host."""
    (place / FOLDER).mkdir()
    (place / SCRIPT).write_text(text)
    (place / JOB).write_text(json.dumps({**JOB_FILE, **job}))


def started(
    place: Path,
    text: str,
    more: dict[str, str] | None = None,
    program: Sequence[str] = ("-m", "trainmaster.slurm.batch"),
    **job: Any,
) -> subprocess.Popen[str]:
    """The script as a host starts it, in `place`."""
    put(place, text, **job)
    own = {"PYTHONPATH": str(ROOT), "DET_TASK_ID": ID, "DET_AGENT_ID": "gpu1"}
    return subprocess.Popen(
        [sys.executable, *program, "train.sh"],
        cwd=place, env={**os.environ, **own, **(more or {})}, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def run(
    place: Path, text: str, more: dict[str, str] | None = None, **job: Any
) -> subprocess.CompletedProcess[str]:
    """The script as a host runs it, to its end."""
    with started(place, text, more, **job) as process:
        out, error = process.communicate(timeout=LIMIT_SECONDS)
    return subprocess.CompletedProcess(process.args, process.returncode, out, error)


def test_the_script_has_its_variables_arguments_and_files(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("from a file\n")
    text = """\
#!/bin/bash -e
echo "$SLURM_JOB_ID $SLURM_JOB_NAME ${SLURM_NTASKS-none} $SLURM_SUBMIT_DIR $LR $1"
cat
echo aside >&2
exit 3
"""
    ran = run(
        tmp_path,
        text,
        arguments=["a b"],
        environment={"LR": "0.1"},
        input="in",
        output="%x-%j.out",
        error="%x.err",
    )
    said = f"{NUMBER} train none /home/ada/code 0.1 a b\nfrom a file\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, said, "aside\n")
    assert (tmp_path / f"train-{ID}.out").read_text() == said
    assert (tmp_path / "train.err").read_text() == "aside\n"


def test_without_the_folder_nothing_runs_and_without_that_of_the_log_the_script_does(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir(), second.mkdir()
    ran = run(first, "#!/bin/sh\necho ran\n", folder="/nowhere")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "the folder /nowhere cannot be used on gpu1" in ran.stderr and "--context ." in ran.stderr
    ran = run(second, "#!/bin/sh\necho ran\n", output="logs/%j.out")
    assert (ran.returncode, ran.stdout) == (0, "ran\n")
    assert (
        f"logs/{ID}.out cannot be written: No such file or directory. The folder logs does not exist."
        in ran.stderr
    )


def test_srun_starts_the_tasks_and_ends_with_the_worst_code(tmp_path: Path) -> None:
    text = """\
#!/bin/bash -l
unset PYTHONPATH
srun -l sh -c 'echo $SLURM_PROCID/$SLURM_NTASKS $SLURM_STEP_ID $CUDA_VISIBLE_DEVICES'
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)
[ "$head" = "$SLURM_JOB_NODELIST" ] && echo found
sh -c 'srun -n1 -o step-%t.out echo into a file'
srun -n2 -K sh -c '[ $SLURM_PROCID = 1 ] && exit 5; exec sleep 60'
echo code $?
srun -N2 true
scontrol hold 7
"""
    ran = run(tmp_path, text, {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, ntasks=2, gpus=2, gpus_per_task=1)
    lines = ran.stdout.splitlines()
    assert sorted(lines[:2]) == ["0: 0/2 0 GPU-a", "1: 1/2 0 GPU-b"]
    assert lines[2:] == ["found", "code 143"], ran.stderr
    assert (tmp_path / "step-0.out").read_text() == "into a file\n"
    assert "srun: task 1 ended with exit code 5." in ran.stderr
    assert "srun: --nodes=2: this job has one host." in ran.stderr
    assert ran.returncode == 1 and "scontrol: 'hold 7' does not exist in a job of Trainmaster" in ran.stderr


def test_the_signal_comes_before_the_time_is_over_to_the_script_or_to_the_steps(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir(), second.mkdir()
    text = "#!/bin/bash\ntrap 'echo warned; exit 4' USR1\ntouch ready\nwhile :; do sleep 0.1; done\n"
    warning = {"seconds": 101, "signal": 10, "signal_seconds": 100}
    ran = run(first, text, **warning, signal_script_only=True)
    assert (ran.returncode, ran.stdout) == (4, "warned\n")
    text = f"#!/bin/bash\nsrun bash -c {shlex.quote(text.partition(chr(10))[2])}\n"
    ran = run(second, text, **warning)
    assert (ran.returncode, ran.stdout) == (4, "warned\n"), ran.stderr


def test_a_requeued_script_starts_again_as_often_as_it_may(tmp_path: Path) -> None:
    text = "#!/bin/bash\necho start ${SLURM_RESTART_COUNT-first}\nscontrol requeue $DET_TASK_ID\nsleep 60\n"
    ran = run(tmp_path, text, requeues=2, output="log")
    assert ran.stdout.splitlines() == ["start first", "start 1", "start 2"]
    assert (tmp_path / "log").read_text() == ran.stdout
    assert ran.returncode == 143 and "started again 2 times, as often as --requeues allows" in ran.stderr


def test_what_was_stopped_does_not_start_again(tmp_path: Path) -> None:
    text = """\
#!/bin/bash
trap 'scontrol requeue $SLURM_JOB_ID; exit 1' TERM
srun bash -c 'trap "echo saved; exit" TERM; echo begun; while :; do sleep 0.1; done' &
wait
"""
    with started(tmp_path, text, requeues=3) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        os.killpg(process.pid, signal.SIGTERM)
        out, _ = process.communicate(timeout=LIMIT_SECONDS)
    assert out == "saved\n"
    assert process.returncode in (1, 143)


def test_a_requeue_ends_all_that_the_start_before_has_begun(tmp_path: Path) -> None:
    train = "exec 9>lock; flock -n 9 || echo two at once; trap '' TERM; touch $1; while :; do sleep 0.1; done"
    (tmp_path / "train").write_text(f"#!/bin/bash\n{train}\n")
    text = """\
#!/bin/bash
number=${SLURM_RESTART_COUNT:-0}
bash train began$number &
(setsid bash -c 'trap "" HUP; exec sleep 300' &)
until [ -e began$number ]; do sleep 0.1; done
scontrol requeue $SLURM_JOB_ID
wait
"""
    code = (
        "import sys; from trainmaster.slurm import batch; batch._OWN_END_SECONDS = batch._KILL_SECONDS = 0.3; "
        "sys.exit(batch.main())"
    )
    ran = run(tmp_path, text, program=["-c", code], requeues=1, output="log")
    assert "started again 1 times" in ran.stderr and ran.stdout == ""


def test_a_stop_waits_for_what_still_saves_and_a_background_child_alone_is_not_waited_for(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir(), second.mkdir()
    saving = "trap 'sleep 1; echo saved; exit' TERM; echo begun; while :; do sleep 0.1; done"
    program = ["-c", "import sys; from trainmaster.slurm import batch, copying; copying._END_SECONDS = 0.2; "
               "sys.exit(batch.main())"]  # fmt: skip
    with started(
        first, f'#!/bin/bash\nbash -c "{saving}" &\nwait\n', program=program, output="o", error="e"
    ) as job:
        assert job.stdout is not None and job.stdout.readline() == "begun\n"
        os.killpg(job.pid, signal.SIGTERM)
        assert (job.communicate(timeout=LIMIT_SECONDS)[0], job.returncode) == ("saved\n", 143)
    assert (first / "o").read_text() == "begun\nsaved\n"
    text = "#!/bin/sh\nsleep 50 &\necho $! > pid\n"
    with started(second, text, program=program, output="o", error="e") as job:
        assert job.wait(timeout=LIMIT_SECONDS) == 0
        os.kill(int((second / "pid").read_text()), signal.SIGTERM)


def test_a_stop_before_the_script_exists_stops_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "in")
    code = (
        "import os, sys; from trainmaster.slurm import batch; real = batch._Start._opened_input\n"
        "def opened(self): print('opening', flush=True); return real(self)\n"
        "batch._Start._opened_input = opened; sys.exit(batch.main())"
    )
    with started(tmp_path, "#!/bin/sh\necho ran\n", program=["-c", code], input="in") as job:
        assert job.stdout is not None and job.stdout.readline() == "opening\n"
        job.terminate()
        assert (job.communicate(timeout=LIMIT_SECONDS)[0], job.returncode) == ("", 143)


def test_modules_of_the_script_do_not_replace_those_of_srun(tmp_path: Path) -> None:
    for name in ("signal.py", "json.py"):
        (tmp_path / name).write_text("raise SystemExit('of the user')\n")
    put_elsewhere = tmp_path / "job"
    put_elsewhere.mkdir()
    ran = run(put_elsewhere, "#!/bin/sh\nsrun echo ran\n", folder=str(tmp_path))
    assert (ran.returncode, ran.stdout) == (0, "ran\n"), ran.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("", "srun needs a command."),
        ("--multi-prog conf", "--multi-prog: start each program by an srun of its own."),
        ("--test-only hostname", "--test-only: a step is not checked beforehand."),
        ("--jobid=8 hostname", "--jobid=8: a step belongs to the job whose script starts it."),
        ("--container=x hostname", "--container=x: name an image for the job"),
        ("-F hosts hostname", "--nodefile=hosts: this job has one host."),
        ("-d afterok:1 hostname", "--dependency=afterok:1: a step waits for nothing"),
        ("--begin=now+1hour hostname", "--begin=now+1hour: a step starts at once"),
        ("-w gpu7 hostname", "this job runs on gpu1 alone"),
        ("-N 2 hostname", "this job has one host"),
        ("-n many x", "--ntasks is 'many'"),
        ("--no-such x", "srun has no option --no-such."),
    ],
)
def test_what_srun_cannot_do_is_said(words: str, sentence: str) -> None:
    with pytest.raises(BadScript) as refused:
        step_of(words.split(), {"SLURM_JOB_NODELIST": "gpu1"})
    assert sentence in str(refused.value)


def test_options_of_srun_that_change_nothing_are_taken() -> None:
    words = [
        "--mpi=pmix",
        "--cpu-bind=none",
        "-u",
        "--gres=gpu:1",
        "--jobid=7",
        "--exact",
        "-K0",
        "-w",
        "gpu1",
    ]
    own = {"SLURM_NTASKS": "4", "SLURM_JOB_NODELIST": "gpu1", "SLURM_GPUS_ON_NODE": "1", "SLURM_JOB_ID": "7"}
    step = step_of([*words, "python", "-n", "3"], own)
    assert (step.command, step.tasks, step.ends_together) == (["python", "-n", "3"], 4, False)
    assert step.environment == own


def test_srun_passes_the_variables_that_it_is_told_to() -> None:
    own = {"SLURM_JOB_ID": "7", "LR": "0.1", "SEED": "3", "PATH": "/bin", "TRAINMASTER_RUN": "7.0"}
    kept = {"SLURM_JOB_ID": "7", "PATH": "/bin", "TRAINMASTER_RUN": "7.0"}
    passed = {
        option: step_of([f"--export={option}", "x"], own).environment
        for option in ("ALL,X=1", "NONE", "LR,X=1")
    }
    assert passed == {"ALL,X=1": {**own, "X": "1"}, "NONE": kept, "LR,X=1": {**kept, "LR": "0.1", "X": "1"}}
    assert step_of(["-c4", "x"], own).environment == {**own, "SLURM_CPUS_PER_TASK": "4"}


def test_a_step_gets_all_gpus_a_share_for_each_task_or_none() -> None:
    own = {"CUDA_VISIBLE_DEVICES": "a,b,c,d", "SLURM_GPUS_ON_NODE": "4"}
    shares = {
        words: step_of([*words.split(), "x"], own).gpus
        for words in ("--gpus=4", "--gpus-per-task=2 -n2", "--gres=none", "--gres=nvme:1")
    }
    assert list(shares.values()) == [(None, False), (2, False), (None, True), (None, False)]
    assert step_of(["-n4", "x"], {**own, "SLURM_GPUS_PER_TASK": "1"}).gpus.per_task == 1
    assert step_of(["-n1", "x"], {**own, "SLURM_GPUS_PER_TASK": "1"}).gpus.per_task is None
    assert step_of(["--ntasks-per-gpu=2", "x"], own).tasks == 8
    for words, sentence in {
        "--gpus=1": "every step gets all 4 GPUs of the script, not 1 of its own",
        "--gres=gpu:2": "not 2 of its own",
        "-n1 --gpus-per-task=1": "not 1 of its own",
        "--gpus=8": "the script has 4 GPUs, the step needs 8",
    }.items():
        with pytest.raises(BadScript, match=sentence):
            step_of([*words.split(), "x"], own)
    assert step_of(["--gpus=1", "x"], {**own, "CUDA_VISIBLE_DEVICES": "a"}).gpus == (None, False)


def test_srun_names_the_file_or_folder_that_is_missing(tmp_path: Path) -> None:
    text = """\
#!/bin/sh
srun -i nowhere cat
srun -D gone pwd
srun no-such-program
echo of the script | srun -i none cat
echo of the script | srun -i 0 cat
srun -t 0:1 sleep 60
echo $?
srun --export=ALL,X=1 -c2 sh -c 'echo $X $SLURM_CPUS_PER_TASK'
"""
    ran = run(tmp_path, text)
    assert [line for line in ran.stderr.splitlines() if line.startswith("srun")] == [
        "srun: nowhere cannot be used: No such file or directory.",
        "srun: gone cannot be used: No such file or directory.",
        "srun: no-such-program cannot be started: No such file or directory.",
        "srun: the limit of --time, 1 s, is over.",
    ]
    assert ran.stdout == "of the script\n143\n1 2\n"


def test_file_names() -> None:
    own = {
        "DET_TASK_ID": "7",
        "TRAINMASTER_ARRAY_ID": "5",
        "SLURM_ARRAY_TASK_ID": "3",
        "SLURM_JOB_NAME": "x",
        "USER": "ada",
    }
    names = variables.symbols(own, rank=2, step="1")
    assert amounts.file_name("%x-%A_%3a-%j-%J-%t-%s-%u-%%.out", names) == "x-5_003-7-7.1-2-1-ada-%.out"
    assert amounts.file_name("\\%j", names) == "%j"


def test_an_element_of_an_array_knows_which_one_it_is() -> None:
    own = {
        "DET_TASK_ID": ID,
        "TRAINMASTER_ARRAY_ID": "5",
        "TRAINMASTER_ARRAY_INDEX": "3",
        "TRAINMASTER_ARRAY_MAX": "9",
    }
    job: Any = {**JOB_FILE, "array_step": 3, "cpus_per_task": 4, "ntasks": 2}
    found = variables.of_job(job, own, node="gpu1", cpus=64)
    assert {name: value for name, value in found.items() if "ARRAY" in name} == {
        "SLURM_ARRAY_JOB_ID": variables.number_of("5"), "SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_MAX": "9",
        "SLURM_ARRAY_TASK_STEP": "3",
    }  # fmt: skip
    assert (found["SLURM_CPUS_ON_NODE"], found["SLURM_CPUS_PER_TASK"]) == ("8", "4")
    assert "SLURM_ARRAY_TASK_ID" not in variables.of_job(job, {"DET_TASK_ID": ID}, node="gpu1", cpus=64)


def test_ids_are_numbers_with_which_libraries_compute() -> None:
    found = variables.of_job(cast(Any, JOB_FILE), {"DET_TASK_ID": ID}, node="gpu1", cpus=64)
    job_id = found["SLURM_JOB_ID"]
    assert job_id == NUMBER == found["SLURM_JOBID"] and 0 < int(job_id) < 2**31
    assert int(job_id[-4:]) >= 0 and int(job_id) % 2**12 >= 0, "as Lightning and JAX find a port"
    assert not {"SLURM_NTASKS", "SLURM_NPROCS"} & set(found) and found["SLURM_TASKS_PER_NODE"] == "1"
    assert "SLURM_RESTART_COUNT" not in variables.of_start(cast(Any, JOB_FILE), 0, 0.0)


def test_scontrol_requeues_by_the_number_and_by_the_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"DET_TASK_ID": ID, "TRAINMASTER_ARRAY_ID": "5", "TRAINMASTER_ARRAY_INDEX": "3"}
    found = variables.of_job(cast(Any, JOB_FILE), own, node="gpu1", cpus=64)
    for name, value in {**own, **found, batch.STEPS: str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / batch.REQUEUE).touch()  # as if it were on its way
    for job_id in (ID, NUMBER, "5_3", f"{found['SLURM_ARRAY_JOB_ID']}_3"):
        scontrol._requeue([job_id])
    with pytest.raises(BadScript):
        scontrol._requeue(["5_4"])


def test_what_the_run_needs_stays_at_the_head_of_its_paths() -> None:
    own = {"PATH": "/venv/bin:/usr/bin", "PYTHONPATH": "/bundle:/site", "DET_TASK_ID": ID}
    job: Any = {**JOB_FILE, "environment": {"PATH": "/opt/conda/bin:/usr/bin", "PYTHONPATH": "/home/ada"}}
    found = variables.environment_of(job, own, {}, "/programs")
    assert found["PATH"] == "/programs:/opt/conda/bin:/usr/bin:/venv/bin"
    assert found["PYTHONPATH"] == "/bundle:/home/ada:/site"


def test_what_the_config_sets_is_not_replaced_by_the_shell(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path / "run")
    paths.spec.parent.mkdir(parents=True)
    paths.spec.write_text(json.dumps({"environment": {"LR": "0.1"}}))
    own = {"LR": "0.1", "SEED": "1", RUN_DIR: str(tmp_path / "run")}
    ran = run(tmp_path, "#!/bin/sh\necho $LR $SEED\n", own, environment={"LR": "0.5", "SEED": "2"})
    assert ran.stdout == "0.1 2\n"


def test_a_job_that_a_job_submits_gets_neither_its_ports_nor_the_interface_of_its_gang() -> None:
    ports = dict.fromkeys(PORTS.values(), "17001")
    own = {
        **ports,
        "DET_INTER_NODE_NETWORK_INTERFACE": "ib0",
        "LR": "0.1",
        "PATH": "/usr/bin",
        "PYTHONPATH": "",
    }
    interfaces = {"NCCL_SOCKET_IFNAME": "ib0", "GLOO_SOCKET_IFNAME": "ib0"}
    kept = {name: value for name, value in own.items() if name not in ports}
    path = {"PATH": "/runs/1/code/.sbatch/bin:/usr/bin:/runs/2/code/.sbatch/bin"}
    assert sbatch.without_ours({**own, **interfaces, **path}, []) == kept
    assert sbatch.without_ours({**own, **interfaces}, list(interfaces)) == {**kept, **interfaces}
    own_choice = {"NCCL_SOCKET_IFNAME": "eth1"}
    assert sbatch.without_ours({**own, **own_choice}, []) == {**kept, **own_choice}, "the script has set it"


def test_without_a_token_sbatch_is_the_one_of_the_cluster_where_there_is_one(tmp_path: Path) -> None:
    own = {"TRAINMASTER_TOKEN": ""}
    (tmp_path / "none").mkdir()
    lacking = run(tmp_path / "none", "#!/bin/sh\nPATH=${PATH%%:*}:/nowhere\nsbatch -n1 next.sh\n", own)
    assert lacking.returncode == 1 and "only with an access token" in lacking.stderr
    (tmp_path / "sbatch").write_text('#!/bin/sh\necho "of the cluster: $*"\n')
    (tmp_path / "sbatch").chmod(0o755)
    (tmp_path / "one").mkdir()
    ran = run(
        tmp_path / "one", "#!/bin/sh\nsbatch -n1 'a b'\n", {**own, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    )
    assert (ran.returncode, ran.stdout) == (0, "of the cluster: -n1 a b\n")


def test_the_first_line_is_read_as_the_kernel_does(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#! /usr/bin/env -S python3 -u \nx\n")
    assert batch.interpreter(script) == ["/usr/bin/env", "-S python3 -u"]

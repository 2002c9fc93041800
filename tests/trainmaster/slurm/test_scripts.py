"""Batch scripts as people have them, and the commands that they become (pure)."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.config import parse
from trainmaster.cli.sbatch import pool_of
from trainmaster.slurm import options, script, several_hosts
from trainmaster.slurm.exports import Exported, exported
from trainmaster.slurm.options import BadScript
from trainmaster.slurm.translate import Place, Pool, SeveralHosts, Translated, translated

GPUS = Pool("fast", "TYPE_CUDA", 42, ["gpu1", "gpu2", "gpu3"])
CORES = Pool("small", "TYPE_CPU", 42, ["cpu1"])
NOTHING = Exported({}, {}, [], [], [])


def become(
    text: str, *words: str, pool: Pool = GPUS, exports: Exported = NOTHING, **variables: str
) -> Translated:
    """What the script becomes with these words before its name, submitted in /home/ada/code."""
    given, rest = options.parsed(words)
    place = Place("/home/ada/code", "login", "train.sh", rest)
    sources = (
        script.directives(script.checked(text, "train.sh"), "train.sh"),
        options.of_environment(variables),
        given,
    )
    return translated(options.merged(*sources), place, pool, exports)


SINGLE_GPU = """\
#!/bin/bash
#SBATCH --job-name=resnet
#SBATCH --output=logs/%x-%j.out
#SBATCH --error=logs/%x-%j.err
#SBATCH --time=1-12:00:00
#SBATCH --partition=gpu
#SBATCH --gres=gpu:a100:1
#SBATCH --cpus-per-task=8
#SBATCH --mem=32G
#SBATCH --mail-type=END,FAIL
#SBATCH --mail-user=ada@example.org

module load cuda/12.4
source activate pytorch
srun python train.py --epochs 90
"""
ARRAY = """\
#!/bin/bash -l
#SBATCH -J sweep -a 0-99:2%8   # every second
#SBATCH -t 30
#SBATCH -G 1
python train.py --seed $SLURM_ARRAY_TASK_ID
"""
MPI_LIKE = """\
#!/bin/sh
#SBATCH --ntasks 16
#SBATCH --cpus-per-task=2
#SBATCH -t 10:30
srun ./simulate
"""
ONE_NODE_OF_GPUS = """\
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=a100:4
#SBATCH --signal=B:USR1@300
#SBATCH --time=04:00:00
#SBATCH --exclusive
#SBATCH --account=vision
#SBATCH --qos=normal
srun python train.py
"""
QUOTED = """\
#!/usr/bin/env python3
# a comment, then nothing

#SBATCH --job-name="two words" --comment='it''s fine'
##SBATCH --time=1
 #SBATCH --time=2
#SBATCH--time=3
#SBATCH --nodelist=gpu[1-2] --exclude=gpu2
#SBATCH -d afterok:12:3f2a01bc,afterany:9c04d2f1_3,singleton
import os
#SBATCH --time=5
"""

TABLE: list[tuple[str, str, Pool, dict[str, Any], list[str]]] = [
    (
        "one GPU",
        SINGLE_GPU,
        GPUS,
        {
            "description": "resnet",
            "entrypoint": ["python3", "-m", "trainmaster.slurm.batch", "train.sh"],
            "resources": {"slots": 1, "resource_pool": "gpu", "max_time": 129600},
        },
        ["--mem=32G", "--mail-type=END,FAIL", "--mail-user", "GPU a100 is not chosen", ],
    ),
    (
        "an array",
        ARRAY,
        GPUS,
        {"resources": {"slots": 1, "resource_pool": "fast", "max_time": 1800}, "array": "0-99:2%8"},
        [],
    ),
    ("cores", MPI_LIKE, CORES, {"resources": {"slots": 32, "resource_pool": "small", "max_time": 630}}, []),
    (
        "cores among GPUs",
        MPI_LIKE,
        GPUS,
        {"resources": {"slots": 0, "resource_pool": "fast", "max_time": 630}},
        ["reserves no cores"],
    ),
    (
        "a whole host",
        ONE_NODE_OF_GPUS,
        GPUS,
        {"resources": {"slots": 4, "resource_pool": "fast", "max_time": 14400}},
        ["--exclusive", "--account=vision", "--qos=normal", "GPU a100"],
    ),
    (
        "quotes",
        QUOTED,
        GPUS,
        {
            "description": "two words",
            "resources": {"slots": 0, "resource_pool": "fast", "max_time": 180, "hosts": ["gpu1"]},
        },
        ["--nodelist"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "pool", "config", "remarks"), TABLE, ids=[row[0] for row in TABLE])
def test_a_script_becomes_a_command(
    name: str, text: str, pool: Pool, config: dict[str, Any], remarks: list[str]
) -> None:
    found = become(text, pool=pool)
    assert {key: found.config.get(key) for key in config} == config
    assert found.config.get("array") == config.get("array")
    said = "\n".join(found.remarks)
    assert all(remark in said for remark in remarks), said
    if not remarks:
        assert not found.remarks


def test_what_the_host_gets_beside_the_script() -> None:
    job = become(ONE_NODE_OF_GPUS).job
    assert (job["ntasks"], job["ntasks_per_node"], job["gpus"], job["seconds"]) == (4, 4, 4, 14400)
    assert (job["signal"], job["signal_seconds"], job["signal_script_only"]) == (10, 300, True)
    assert job["told"]["SLURM_JOB_ACCOUNT"] == "vision"
    job = become(SINGLE_GPU, "-D", "run1").job
    assert (job["folder"], job["submit_folder"]) == ("/home/ada/code/run1", "/home/ada/code")
    assert (job["output"], job["error"], job["told"]["SLURM_MEM_PER_NODE"]) == (
        "logs/%x-%j.out",
        "logs/%x-%j.err",
        "32768",
    )


def test_what_it_waits_for() -> None:
    found = become(QUOTED)
    assert [tuple(need) for need in found.needs] == [
        ("12", "success", None), ("3f2a01bc", "success", None), ("9c04d2f1", "end", 3),
    ]  # fmt: skip
    assert found.singleton and found.job["told"]["SLURM_JOB_COMMENT"] == "its fine"
    [need] = become(ARRAY, "--dependency", "3f2a01bc-0000-4000-8000-000000000000").needs
    assert need.condition == "end", "afterany is the type that may be left out"
    assert [need.condition for need in become(ARRAY, "-d", "afternotok:7,aftercorr:8").needs] == [
        "failure",
        "each",
    ]


def test_the_command_line_wins_over_variables_and_those_over_the_script() -> None:
    variables = {
        "SBATCH_TIMELIMIT": "20",
        "SBATCH_PARTITION": "fast",
        "SBATCH_REQUEUE": "0",
        "SBATCH_WAIT": "",
    }
    given = options.merged(
        script.directives(ARRAY, "x"), options.of_environment(variables), options.parsed(["-t5"])[0]
    )
    assert (given["time"], given["partition"], given["job-name"]) == ("5", "fast", "sweep")
    assert "wait" in given and "requeue" not in given


def test_in_a_copy_of_the_folder_relative_files_are_not_written() -> None:
    found = become(SINGLE_GPU, "--context", ".")
    assert (found.job["folder"], found.job["output"], found.job["error"]) == (None, None, None)
    assert sum("is not written, since the job runs in a copy" in remark for remark in found.remarks) == 2
    absolute = become(ARRAY, "--context=.", "-o/scratch/%j", "--requeues=2")
    assert absolute.job["output"] == "/scratch/%j"
    assert absolute.config["resources"]["max_time"] == 3 * 1800 and absolute.job["seconds"] == 1800


def test_of_several_partitions_the_first_is_the_pool() -> None:
    found = become(ARRAY, "-p", "fast,small")
    assert found.config["resources"]["resource_pool"] == "fast"
    assert found.remarks == ["--partition=fast,small: the job waits in the pool fast alone."]


def test_without_a_partition_the_pool_is_the_one_that_the_server_would_take() -> None:
    rows = [
        {"name": "gpus", "defaultComputePool": True, "defaultAuxPool": False},
        {"name": "cores", "defaultComputePool": False, "defaultAuxPool": True},
    ]
    words = ("--gres=gpu:1", "--gpus-per-task=1", "-n4", "--gpus=0", "-pgpus -n4")
    found = [pool_of(rows, options.merged(options.parsed(each.split())[0])) for each in words]
    assert [row["name"] if row else "" for row in found] == ["gpus", "gpus", "cores", "cores", "gpus"]
    assert pool_of([], {}) is None


def test_nice_is_an_offset_from_the_pools_priority() -> None:
    priority = {
        text: become(ARRAY, f"--nice{text}").config["resources"]["priority"] for text in ("", "=10", "=-90")
    }
    assert priority == {"": 99, "=10": 52, "=-90": 1}
    assert "--priority=5 is not taken over" in become(ARRAY, "--priority=5").remarks[0]


def test_gpus_are_counted_however_they_are_asked_for() -> None:
    text = "#!/bin/sh\ntrue\n"
    counted = {
        words: become(text, *words.split()).config["resources"]["slots"]
        for words in (
            "--gres=gpu", "--gres=gpu:2", "--gres=gpu:v100:3", "--gres=gpu:a100", "--gres=gpu:2(S:0,1)", "--gres=none",
            "-G a100:2,h100:1",
            "--gpus-per-task=2 -n 3", "--gpus=4 --ntasks-per-gpu=1",
        )
    }  # fmt: skip
    assert list(counted.values()) == [1, 2, 3, 1, 2, 0, 3, 6, 4], counted
    shared = [become(text, "--gpus=8", "--gpus-per-task=2", *more).job for more in ([], ["-n2"])]
    assert [(job["ntasks"], job["gpus"]) for job in shared] == [(4, 8), (2, 8)]
    assert become(text, "-G1").job["ntasks"] is None
    assert become(text, "--gpus=4", "--ntasks-per-gpu=2").job["ntasks"] == 8
    assert "--gres=nvme:1 is not taken over" in become(text, "--gres=gpu:1,nvme:1").remarks[0]
    assert "has no GPUs" in become(text, "-G1", pool=CORES).remarks[0]


REFUSED = [
    ("--nodes=2", "--nodes=2 takes several hosts: a batch script runs on one host here"),
    ("-N 2-4", "runs on one host here"),
    ("--ntasks=8 --ntasks-per-node=4", "takes several hosts"),
    ("--gpus=16 --gpus-per-node=8", "takes several hosts"),
    ("--begin=now+1hour", "cannot be held until a time"),
    ("-H", "cannot be held"),
    ("--time=1:2:3:4", "--time is '1:2:3:4', allowed: minutes"),
    ("--time=soon", "allowed: minutes"),
    ("-n 0", "--ntasks is '0', allowed: a whole number of 1 or more."),
    ("--dependency=afterok:1?afterok:2", "`?` (any of them) does not exist"),
    ("--dependency=after:1", "'after' does not exist here"),
    ("--dependency=afterok", "'afterok' names no job, allowed: such as afterok:3f2a01bc."),
    ("--dependency=afterburstbuffer:1", "'afterburstbuffer' does not exist here"),
    ("--gpus-per-socket=2", "sockets are not counted here"),
    ("--gpus=1 --gpus-per-task=2", "more than all 1 GPUs"),
    ("--dependency=afterok:soon", "'soon' is not the ID of a job"),
    ("--signal=B:FOO@10", "there is no signal FOO"),
    ("--exclude=gpu[1-3]", "leaves no host of pool fast"),
    ("--nodelist=gpu[a-b]", "allowed: names such as gpu1,gpu2"),
    ("--exclude=gpu[1-99999999]", "more than 10,000 hosts"),
    ("--nice=--5", "--nice is '--5', allowed: a whole number"),
    ("--nice=low", "allowed: a whole number"),
    ("--open-mode=rewrite", "allowed: append, truncate"),
    ("--gres=gpu:a100:x", "allowed: gpu:2, or a type"),
    ("--gpus=many", "allowed: a number of GPUs"),
    ("--mem=lots", "not a size of memory"),
    ("--no-such-option", "sbatch has no option --no-such-option."),
    ("--mem", "--mem needs a value."),
    ("--parsable=1", "--parsable takes no value"),
    ("--nod=1", "--nod is ambiguous: --nodefile, --nodelist, --nodes."),
    ("-z", "sbatch has no option -z."),
]


@pytest.mark.parametrize(("words", "sentence"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_is_wrong_or_would_be_another_job_is_refused(words: str, sentence: str) -> None:
    with pytest.raises(BadScript) as refused:
        become("#!/bin/sh\ntrue\n", *words.split())
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "train.sh is empty."),
        ("echo\n", "its first line must be #! and an interpreter"),
        ("#!/bin/sh\n#SBATCH --time=5 more\n", "train.sh, line 2: 'more' belongs to no option."),
        ("#!/bin/sh\n#SBATCHX --time=5\n", "train.sh, line 2: 'X' belongs to no option."),
        ("#!/bin/sh\n\n#SBATCH --tim\n", "train.sh, line 3: --tim is ambiguous: --time, --time-min."),
        ("#!/bin/sh\n#SBATCH -J 'a\n", "train.sh, line 2: the quote ' is not closed."),
        ("#!/bin/sh\n#SBATCH hetjob\n", "heterogeneous jobs do not exist here"),
    ],
)
def test_a_script_that_sbatch_would_not_take_is_refused_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(BadScript) as refused:
        become(text)
    assert sentence in str(refused.value)


def test_words_after_the_script_are_its_own() -> None:
    given, rest = options.parsed(["-vQ", "-O", "--job-n", "x", "-N1", "-n=2", "train.sh", "--time=5", "-x"])
    assert options.merged(given) == {
        "verbose": "",
        "quiet": "",
        "overcommit": "",
        "job-name": "x",
        "nodes": "1",
        "ntasks": "2",
    }
    assert rest == ["train.sh", "--time=5", "-x"]
    assert options.parsed(["--wrap", "ls", "--"]) == ([(options.by_name("wrap"), "ls")], [])


SHELL = {
    "HOME": "/home/ada", "USER": "ada", "PATH": "/opt/conda/bin:/usr/bin", "LR": "0.1", "WANDB_API_KEY": "secret",
    "CONDA_PREFIX": "/opt/conda", "SSH_AUTH_SOCK": "/tmp/x", "DET_MASTER": "http://x", "CUDA_VISIBLE_DEVICES": "0",
    "BASH_FUNC_module%%": "() { x; }", "BASH_FUNC_ml()": "x", "TERM": "xterm", "HIP_VISIBLE_DEVICES": "0",
    "PROMPT_COMMAND": "x", "SLURM_CONF": "x", "TMUX_PANE": "1", "OMP_NUM_THREADS": "4",
    "DATABASE_URL": "postgres://ada:secret@db/x", "PGPASSWORD": "secret", "STORE": "AccountName=a;AccountKey=secret",
}  # fmt: skip


def test_what_is_exported() -> None:
    shared = exported(None, SHELL, shares_folders=True)
    assert shared.passed == {name: SHELL[name] for name in ("PATH", "LR", "CONDA_PREFIX", "OMP_NUM_THREADS")}
    assert (shared.named, shared.secrets) == ({}, ["DATABASE_URL", "PGPASSWORD", "STORE", "WANDB_API_KEY"])
    sent = exported("ALL,WANDB_API_KEY,SEED=3", SHELL, shares_folders=False)
    assert sent == Exported(
        {"LR": "0.1", "OMP_NUM_THREADS": "4"},
        {"WANDB_API_KEY": "secret", "SEED": "3"},
        ["DATABASE_URL", "PGPASSWORD", "STORE"],
        ["ml", "module"],
        ["CONDA_PREFIX", "PATH"],
    )
    assert (shared.functions, shared.folders) == (["ml", "module"], [])
    assert exported("NONE", SHELL, True) == NOTHING
    ordinary = {
        "DETECTRON2_DATASETS": "/d",
        "PROMPT_LENGTH": "5",
        "TERMINATE_AFTER": "9",
        "SLURMM": "1",
        "HOST_": "x",
    }
    assert exported(None, ordinary, True).passed == ordinary
    assert exported("LR,NOT_SET,NAME='a,b'", SHELL, True).named == {"LR": "0.1", "NAME": "a,b"}
    with pytest.raises(BadScript):
        exported("a b", SHELL, True)
    variables = become(ARRAY, exports=sent).config["environment"]["environment_variables"]
    assert variables == ["WANDB_API_KEY=secret", "SEED=3"]


SEVERAL = """\
#!/bin/bash
#SBATCH --job-name=pretrain --nodes=4 --gpus-per-node=8 --ntasks-per-node=1
#SBATCH --time=12:00:00 --partition=fast

module load cuda/12.4   # of the cluster
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)
ip=$(srun --nodes=1 -w "$head" hostname --ip-address)
srun hostname
OMP_NUM_THREADS=4 srun --cpu-bind=none torchrun --nnodes=$SLURM_NNODES --nproc_per_node 8 \\
   --rdzv_id $RANDOM --rdzv-backend=c10d --rdzv_endpoint "$ip:29500" --log-dir logs \\
   train.py --lr 0.1 --name "two words" &
wait
"""


def test_a_script_for_several_hosts_is_refused_with_the_experiment_that_does_it() -> None:
    with pytest.raises(SeveralHosts) as refused:
        become(SEVERAL)
    size = refused.value.size
    assert (size.nodes, size.tasks, size.gpus) == (4, 4, 32)
    given = options.merged(script.directives(SEVERAL, "train.sh"))
    text = several_hosts.config_of(given, "train.sh", SEVERAL, "fast", 4, 8, ["7:success", "9:end"])
    config = parse(text).effective()
    assert config["depends_on"] == ["7:success", "9:end"]
    assert config["entrypoint"] == (
        "OMP_NUM_THREADS=4 python3 -m trainmaster.launch.torch_distributed --log-dir logs -- train.py --lr 0.1 "
        '--name "two words"'
    )
    resources = config["resources"]
    assert (resources["slots_per_trial"], resources["max_time"], resources["resource_pool"]) == (
        32,
        43200,
        "fast",
    )
    assert (config["name"], config["max_restarts"]) == ("pretrain", 0)
    comments = [line for line in text.splitlines() if line.startswith("#   ")]
    assert comments[0] == "#   module load cuda/12.4   # of the cluster" and comments[-1] == "#   wait"
    for words in (["-N", "2", "--gpus=16"], ["--ntasks=8", "--ntasks-per-node=4", "--gpus-per-task=2"]):
        with pytest.raises(SeveralHosts) as refused:
            become("#!/bin/sh\ntrue\n", *words)
        assert (refused.value.size.nodes, refused.value.size.gpus) == (2, 16)


@pytest.mark.parametrize(
    ("line", "entrypoint"),
    [
        ("srun -N2 -n16 python -u train.py --x $Y", "python3 -m trainmaster.launch.torch_distributed train.py --x $Y"),
        ("exec srun python3 -m pkg.train a", "python3 -m trainmaster.launch.torch_distributed -m pkg.train a"),
        ("srun python -m torch.distributed.run --standalone -m pkg.train",
         "python3 -m trainmaster.launch.torch_distributed -m pkg.train"),
        ("srun bash -c 'cd x; ./run  it'", "bash -c 'cd x; ./run  it'"),
        ("srun python -c 'print(1)'", "python -c 'print(1)'"),
        ("time A=1 srun singularity exec img.sif time python a.py &", "A=1 singularity exec img.sif time python a.py"),
        ("srun torchrun --nnodes 2 --rdzv_endpoint $(scontrol show hostnames $X | head -n1):29500 train.py",
         "python3 -m trainmaster.launch.torch_distributed train.py"),
        ('srun torchrun --rdzv_id "$(a "$(b (c))" d)" --log-dir `date +%s x` train.py "$((1 + 2))"',
         'python3 -m trainmaster.launch.torch_distributed --log-dir `date +%s x` -- train.py "$((1 + 2))"'),
        ('srun torchrun --rdzv_id "$(a $(b $(c $(d e))))" train.py',
         "python3 -m trainmaster.launch.torch_distributed train.py"),
        ("srun torchrun --rdzv_id $(a $(b $(c $(d e)))) train.py",
         "python3 -m trainmaster.launch.torch_distributed train.py"),
        ("srun --no-such-option x", "python3 -m trainmaster.launch.torch_distributed train.py"),
        ("mpirun ./simulate", "python3 -m trainmaster.launch.torch_distributed train.py"),
        ("srun", "python3 -m trainmaster.launch.torch_distributed train.py"),
    ],
)  # fmt: skip
def test_what_srun_starts_becomes_the_entrypoint(line: str, entrypoint: str) -> None:
    assert several_hosts.launch_of(f"#!/bin/sh\necho begun\n{line}\n").entrypoint == entrypoint


@pytest.mark.parametrize(
    "line", ["srun --container-image=a python x.py", "if true; then srun python x.py; fi"]
)
def test_a_line_with_srun_that_cannot_be_read_is_shown(line: str) -> None:
    before = "#!/bin/sh\nx=$(srun hostname)\necho 'an srun follows'\nsrun hostname\n"
    remark = several_hosts.launch_of(f"{before}{line}\n").remark
    assert remark.endswith(f"could not be told from this line: {line}")
    assert "No line with srun" in several_hosts.launch_of("x=$(srun hostname)\nmpirun x\n").remark

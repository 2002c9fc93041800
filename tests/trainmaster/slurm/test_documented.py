"""docs/slurm.md says of each option what becomes of it, and its scripts are taken."""

from __future__ import annotations

import re
from pathlib import Path

from trainmaster.slurm import options, script, variables
from trainmaster.slurm.exports import Exported
from trainmaster.slurm.options import LOST, NOTHING, REFUSED
from trainmaster.slurm.translate import Place, Pool, translated

PAGE = (Path(__file__).resolve().parents[3] / "docs/slurm.md").read_text()
SAID = {NOTHING: "nothing has to be done", REFUSED: "refused", LOST: "not taken over"}


def test_each_option_is_in_the_table_once_with_its_fate() -> None:
    rows = [
        line.split(" | ")
        for line in PAGE.partition("| option | becomes |")[2].split("\n\n")[0].splitlines()[2:]
    ]
    found = {name: row[1] for row in rows for name in re.findall(r"--([a-z-]+)", row[0])}
    assert sorted(found) == sorted(option.name for option in options.SBATCH)
    for option in options.SBATCH:
        if option.fate in SAID:
            assert found[option.name].startswith(SAID[option.fate]), option.name
    letters = {letter for row in rows for letter in re.findall(r"`-(\w)`", row[0])}
    assert letters == {option.short for option in options.SBATCH if option.short}


def test_its_script_becomes_the_command_that_it_promises() -> None:
    text, *_ = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    given = options.merged(script.directives(text, "train.sh"))
    place, pool = Place("/home/ada", "login", "train.sh", []), Pool("default", "TYPE_CUDA", 42, [])
    config = translated(given, place, pool, Exported({}, {}, [], [], [])).config
    assert config["array"] == "0-9%4"
    assert config["resources"] == {"slots": 1, "resource_pool": "default", "max_time": 43200}


def test_its_variables_exist() -> None:
    from tests.trainmaster.slurm.job_file import ID, JOB_FILE

    own = {
        "DET_TASK_ID": ID,
        **{f"TRAINMASTER_ARRAY_{name}": "1" for name in ("ID", "INDEX", "COUNT", "MIN", "MAX")},
    }
    job = {**JOB_FILE, "seconds": 60, "gpus": 1, "cpus_per_task": 1, "ntasks": 1, "ntasks_per_node": 1}
    known = {**variables.of_job(job, own, node="gpu1", cpus=1), **variables.of_start(job, 1, 0.0)}  # type: ignore[arg-type]
    told = PAGE.partition("In the job, these exist:")[2].partition("\n\n")[0]
    assert not set(re.findall(r"SLURM_\w+", told)) - set(known)

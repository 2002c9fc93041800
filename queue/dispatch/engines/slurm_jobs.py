"""The words of a job that is handed to Slurm: the options of sbatch and the script on its stdin. Pure.

The script runs nothing of the user's. It tells the server that it has begun, and on each node it waits for the run that
the server sends there (docs/decisions/0022), so a job that was submitted twice, or whose task is gone, runs nothing.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hosts.slurm.settings import SlurmSettings
from trainmaster.own_folders import SHELL
from trainmaster.protocol import ServerAddress

#: on each node, whose program comes with the run; $1: its Python, $2: the folder of runs, $3: the attempt; then a verb
#: a disk of the node may be everybody's, so nothing runs from a folder that another account has made
_ON_NODE = (
    "runs=$2; run=$2/$3.$SLURM_NODEID; python=$1; shift 3; {before}{ours}; "
    'ours "$runs/.." "$runs" "$run" || exit 0; exec "$python" -S -E "$run/program" "$@"'
)
_WAIT = """left={fifths}
while [ ! -e "$run/program" ]; do
    [ "$left" -gt 0 ] || exit 0
    left=$((left - 1)); sleep 0.2
done
"""
#: what a step inherits of the login node's environment besides Slurm's own variables
_EXPORTED = "PATH,HOME,USER,LOGNAME,SHELL,LANG,MODULEPATH,LD_LIBRARY_PATH"
_ID_DIGITS = 20
_IN_DOUBT = re.compile(r"timed out|contact|connection|communication|zero bytes|try again", re.IGNORECASE)

_SCRIPT = """#!/bin/sh
save() {{
    asked=1
    {ask}
}}
trap save USR1
{tell} <<'END' >/dev/null 2>&1 &
{word}
END
srun ${{SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"}} {srun} &
step=$!
code=127
while :; do
    asked=
    wait "$step"
    now=$?
    [ "$now" -eq 127 ] || code=$now
    [ -n "$asked" ] || break
done
[ "$code" -ne 0 ] || {tidy}
exit "$code"
"""


@dataclass(frozen=True)
class Wish:
    """What one job asks for. `attempt`, the id of the allocation, is its comment, by which it is found again.

    `folder`: of the login node's runs, shared with the nodes; empty: they share none. `cpus_per_slot`: 0, not known.
    `minutes`: its time limit; None: the partition's. `exclude`: nodes that it avoids. `printer`: whose account has the
    folder of what it prints; empty: the one that all jobs share.
    """

    attempt: str
    nodes: int
    slots: int
    folder: str
    cpus_per_slot: int = 0
    minutes: int | None = None
    grace_seconds: int = 60
    exclude: Collection[str] = ()
    printer: str = ""


def job_id_of(said: str) -> str:
    """Slurm's id in what `sbatch --parsable` printed, which adds `;cluster` in a federation; empty without one."""
    lines = said.strip().splitlines()
    found = lines[-1].partition(";")[0].strip() if lines else ""
    return found if found.isdecimal() and len(found) <= _ID_DIGITS else ""


def may_have_come(said: str) -> bool:
    """Whether the controller may have taken a job although sbatch failed: by its words, the answer was lost."""
    return _IN_DOUBT.search(said) is not None


def command(settings: SlurmSettings, wish: Wish) -> tuple[str, ...]:
    """The words of sbatch, which reads the script from stdin. `settings`: with what the job's config says."""
    each = wish.slots // wish.nodes
    gpu = f"gpu:{settings.gpu_type}" if settings.gpu_type else "gpu"
    given, exclude = _without_exclude(settings.sbatch_args)
    options = {
        "partition": settings.partition,
        "account": settings.account,
        "qos": settings.qos,
        "time": str(wish.minutes) if wish.minutes else "",
        "gres": f"{gpu}:{each}" if settings.is_gpu and each else "",
        "cpus-per-task": _cpus(settings, each, wish.cpus_per_slot, given),
        "exclude": ",".join([*exclude, *sorted(wish.exclude)]),
    }
    return (
        "sbatch", *given, "--parsable", "--no-requeue", f"--signal=B:USR1@{wish.grace_seconds}",
        f"--comment={wish.attempt}", f"--job-name={wish.attempt}", f"--nodes={wish.nodes}", "--ntasks-per-node=1",
        f"--output={output(wish.folder, wish.attempt, wish.printer).replace('%', '%%')}", "--open-mode=truncate",
        f"--export={_EXPORTED}", "--chdir=/", *(f"--{name}={value}" for name, value in options.items() if value),
    )  # fmt: skip


def _cpus(settings: SlurmSettings, each: int, per_slot: int, given: Sequence[str]) -> str:
    """The CPUs of a job on each node: its slots' part of the node's, unless the pool or the config says how many."""
    if any(word.startswith(("--cpus-per-", "-c")) for word in given):
        return ""
    if settings.is_gpu and each:
        return str(each * per_slot) if per_slot else ""  # not known: as the cluster has it
    return str(max(1, each * per_slot if per_slot else each))


def _without_exclude(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options without --exclude, and what it named: sbatch would take the last one alone."""
    given, exclude = [], []
    for word in arguments:
        name, equals, value = word.partition("=")
        if name == "--exclude" and equals:
            exclude.append(value)
        elif word.startswith("-x") and len(word) > 2:
            exclude.append(word[2:].removeprefix("="))
        else:
            given.append(word)
    return given, [value for value in exclude if value]


#: what jobs print whose nodes see no folder of the login node's
NOWHERE = "/dev/null"


def printed_folder(folder: str) -> str:
    """Where each account has its own folder of what jobs printed: nobody else may put a link there."""
    return f"{folder}/printed"


def output_folder(folder: str, printer: str = "") -> str:
    """Where what jobs printed is kept, in the folder that the cluster shares. `printer`: as in `Wish`."""
    return f"{printed_folder(folder)}/{printer}" if printer else f"{folder}/slurm"


def output(folder: str, attempt: str, printer: str = "") -> str:
    """What the job of an attempt printed: why it began no run. One that ended well has none.

    `folder`: empty where nodes share none with the login node.
    """
    return f"{output_folder(folder, printer)}/{attempt}.txt" if folder else NOWHERE


def script(attend: Sequence[str], ask: Sequence[str], tell: Sequence[str], word: str, printed: str) -> str:
    """The batch script. `attend`: the words that srun starts once on each node. `printed`: its output, see `output`.

    Beside them, the words of `tell` let the server know that the job has begun, by `word`, a line that they read.

    srun is told how many CPUs the job has for each node: since 22.05 it does not read that any more.

    SIGUSR1, which Slurm sends to the script before the time limit, has the runs asked to save by the words of `ask`. It
    is not passed on to the step: Slurm would send it to every process there, most of which would die of it.
    """
    words = ["--ntasks-per-node=1", "--kill-on-bad-exit=0", "--wait=0", "--input=none", *attend]
    tidy = f"rm -f {shlex.quote(printed)}" if printed != NOWHERE else ":"
    return _SCRIPT.format(
        srun=shlex.join(words), ask=shlex.join(ask), tell=shlex.join(tell), word=word, tidy=tidy
    )


def attend(runner: Sequence[str], workdir: str, attempt: str, seconds: float) -> tuple[str, ...]:
    """What runs on each node (trainmaster/runner/attending.py)."""
    return (*runner, "attend", workdir, attempt, f"{seconds:g}")


def attend_apart(python: str, workdir: str, attempt: str, seconds: float) -> tuple[str, ...]:
    """The same where each node has its own folder: it waits for the run in a shell, as there is no program yet."""
    line = _ON_NODE.format(ours=SHELL, before=_WAIT.format(fifths=int(seconds * 5)))
    runs = f"{workdir}/runs"
    return (
        "--overlap", "/bin/sh", "-c", line, "attend", python, runs, attempt, "attend", workdir, attempt, f"{seconds:g}",
    )  # fmt: skip


def ask_to_save_apart(python: str, workdir: str, attempt: str, nodes: int) -> tuple[str, ...]:
    """What leaves the order in the folders of all runs of the job, each on its node."""
    line = _ON_NODE.format(ours=SHELL, before='[ -e "$run/program" ] || exit 0; ')
    step = (
        "srun",
        "--overlap",
        "--gres=none",
        "--mem=0",
        "--ntasks-per-node=1",
        "--input=none",
        "/bin/sh",
        "-c",
        line,
    )
    return (*step, "save", python, f"{workdir}/runs", attempt, "ask_to_save", workdir, attempt, str(nodes))


def tell_begun(runner: Sequence[str], attempt: str) -> tuple[str, ...]:
    """What tells the server that the job has begun (trainmaster/runner/telling.py)."""
    return (*runner, "tell_begun", attempt)


def word_of(server: ServerAddress, token: str) -> str:
    """Where the server is, and the proof that the job was submitted for the attempt."""
    return json.dumps({"urls": server["urls"], "cert_sha256": server["cert_sha256"], "token": token})


def ask_to_save(runner: Sequence[str], workdir: str, attempt: str, nodes: int) -> tuple[str, ...]:
    """What leaves the order in the folders of all runs of the job."""
    return (*runner, "ask_to_save", workdir, attempt, str(nodes))

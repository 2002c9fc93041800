"""Run a batch script on a host: `python3 -m trainmaster.slurm.batch NAME [ARGS]`, in the folder that was sent.

The script gets SLURM_… and the programs srun and scontrol; its output is copied to the files of --output and --error;
the signal of --signal is sent before its time is over.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Dict, List, Optional, Tuple, cast

from trainmaster.slurm import amounts, variables
from trainmaster.slurm.copying import Copies, opened
from trainmaster.slurm.handed import FOLDER, JOB, SCRIPT, JobFile

_BUNDLE = Path(__file__).resolve().parents[2]
#: where srun says that it runs, by its pid
STEPS = "TRAINMASTER_SBATCH_STEPS"
_PROGRAMS = ("srun", "scontrol")
_LACKING = 2


def main() -> int:
    """Its exit code, as a shell gives it."""
    root = Path.cwd()
    job = cast(JobFile, json.loads((root / JOB).read_text(encoding="utf-8")))
    folder = root / (job["folder"] or ".")
    try:
        os.chdir(str(folder))
    except OSError as error:
        print(_without_folder(folder, error), file=sys.stderr)
        return _LACKING
    own = dict(os.environ)
    slurm = variables.of_job(job, own, node=_node(), cpus=len(os.sched_getaffinity(0)), now=time.time())
    environment = variables.environment_of(job, own, slurm, str(_made_programs(root)))
    environment.update(_functions(root))
    steps = root / FOLDER / "steps"
    steps.mkdir(exist_ok=True)
    environment[STEPS] = str(steps)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, frame: None)  # the script is told by itself; we wait for its end
    return _run(job, root, environment)


def _run(job: JobFile, root: Path, environment: Dict[str, str]) -> int:
    copies = Copies()
    streams = _streams(job, environment, copies)
    words = [*interpreter(root / SCRIPT), str(root / SCRIPT), *job["arguments"]]
    try:
        with open(_input(job, environment), "rb") as source:  # noqa: PTH123
            script = subprocess.Popen(
                words, env=environment, stdin=source, stdout=streams[0], stderr=streams[1]
            )
    except OSError as error:
        print(f"ERROR: trainmaster: {error.filename} cannot be used: {error.strerror}.", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126
    copies.begin()
    if job["signal"] is not None and job["seconds"] is not None:
        _warn_later(job, script, Path(environment[STEPS]))
    code = script.wait()
    copies.finish()
    return code if code >= 0 else 128 - code


def interpreter(script: Path) -> List[str]:
    """What its first line names: a program, and the rest of the line as one argument."""
    with script.open(encoding="utf-8", errors="replace") as file:
        first = file.readline()
    return first[2:].strip().split(None, 1)


def _input(job: JobFile, environment: Dict[str, str]) -> str:
    pattern = job["input"]
    return amounts.file_name(pattern, variables.symbols(environment)) if pattern else os.devnull


def _streams(
    job: JobFile, environment: Dict[str, str], copies: Copies
) -> Tuple[Optional[int], Optional[int]]:
    """What the script writes to: our own streams, or pipes that are copied to them and to files."""
    names = variables.symbols(environment)
    output, error = (
        opened(amounts.file_name(pattern, names), job["appends"]) if pattern else None
        for pattern in (job["output"], job["error"])
    )
    if job["error"] is None:
        error = output  # as in Slurm, one file for both
    return (
        None if output is None else copies.pipe([1, output]),
        None if error is None else copies.pipe([2, error]),
    )


def _warn_later(job: JobFile, script: "subprocess.Popen[bytes]", steps: Path) -> None:
    """Send the signal of --signal once the time is almost over: to the script alone, or to what srun has started."""
    number = job["signal"] or 0

    def warn() -> None:
        told = [script.pid] if job["signal_script_only"] else [int(path.name) for path in steps.iterdir()]
        for pid in told:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    timer = threading.Timer(max(0, (job["seconds"] or 0) - job["signal_seconds"]), warn)
    timer.daemon = True
    timer.start()


def _made_programs(root: Path) -> Path:
    """A folder with srun and scontrol, for all that look along PATH."""
    folder = root / FOLDER / "bin"
    folder.mkdir(exist_ok=True)
    for name in _PROGRAMS:
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec {_called(name)} "$@"\n', encoding="utf-8")
        path.chmod(0o755)
    return folder


def _functions(root: Path) -> Dict[str, str]:
    """The same as functions, for `#!/bin/bash -l`, whose profile sets another PATH."""
    return {f"BASH_FUNC_{name}%%": f'() {{ {_called(name)} "$@"\n}}' for name in _PROGRAMS}


def _called(name: str) -> str:
    """It does not look for the package along PYTHONPATH, which scripts set to other folders."""
    found = f"import sys; sys.path.insert(0, {str(_BUNDLE)!r}); from trainmaster.slurm import {name}"
    code = f"{found}; sys.exit({name}.main())"
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}"


def _node() -> str:
    """This host by a name under which it finds itself."""
    name = socket.gethostname().split(".")[0]
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "localhost"
    return name


def _without_folder(folder: Path, error: OSError) -> str:
    host = os.environ.get("DET_AGENT_ID", socket.gethostname())
    return (
        f"ERROR: trainmaster: the folder {folder} cannot be used on {host}: {error.strerror}. A batch script runs in "
        "the folder of its submission, as in Slurm. If the hosts do not share it, send it along: "
        "trainmaster sbatch --context . SCRIPT; or name another with --chdir."
    )


if __name__ == "__main__":
    sys.exit(main())

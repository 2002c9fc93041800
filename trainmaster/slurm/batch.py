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
from typing import Callable, Dict, List, Optional, Tuple, cast

from trainmaster.slurm import amounts, variables
from trainmaster.slurm.copying import Copies, opened
from trainmaster.slurm.handed import FOLDER, JOB, SCRIPT, JobFile

_BUNDLE = Path(__file__).resolve().parents[2]
#: a folder of files: `script`, the script's pid; one for each srun that runs, named by its pid; `requeue`, if asked for
STEPS = "TRAINMASTER_SBATCH_STEPS"
PID, REQUEUE = "script", "requeue"
_PROGRAMS = ("srun", "scontrol")
_AGAIN = "bash_env"
_LACKING = 2
_KILL_SECONDS = 30.0  # from SIGTERM to SIGKILL at the end of a start's time, as Slurm's KillWait
_OWN_END_SECONDS = 5.0  # for what has called `scontrol requeue`, before SIGTERM
_LOOK_SECONDS = 0.1


def main() -> int:
    """Its exit code, as a shell gives it."""
    root = Path(os.environ.get("DET_WORKDIR") or os.getcwd())  # noqa: PTH109
    job = cast(JobFile, json.loads((root / JOB).read_text(encoding="utf-8")))
    folder = root / (job["folder"] or ".")
    try:
        os.chdir(str(folder))
    except OSError as error:
        print(_without_folder(folder, error), file=sys.stderr)
        return _LACKING
    own = dict(os.environ)
    slurm = variables.of_job(job, own, node=_node(), cpus=len(os.sched_getaffinity(0)))
    environment = variables.environment_of(job, own, slurm, str(_made_programs(root)))
    environment.setdefault("BASH_ENV", str(root / FOLDER / _AGAIN))
    environment[STEPS] = str(root / FOLDER / "steps")
    environment["PWD"] = str(folder)
    heard: List[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(
            number, lambda number, frame: heard.append(number)
        )  # the script has it, too; we wait for its end
    restarts = 0
    while True:
        start = _Start(job, root, {**environment, **variables.of_start(job, restarts, time.time())})
        code = start.run(appends=job["appends"] or restarts > 0)
        if signal.SIGTERM in heard or not start.is_requeued():  # what was stopped does not start again
            return code
        if restarts == job["requeues"]:
            print(_without_requeues(restarts), file=sys.stderr, flush=True)
            return code or 1
        restarts += 1


class _Start:
    """One start of the script; there are more only where it is requeued."""

    def __init__(self, job: JobFile, root: Path, environment: Dict[str, str]) -> None:
        self._job, self._root, self._environment = job, root, environment
        self._steps = Path(environment[STEPS])
        self._script: "Optional[subprocess.Popen[bytes]]" = None
        self._timers: List[threading.Timer] = []

    def run(self, appends: bool) -> int:
        """Its exit code."""
        self._steps.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self._note(REQUEUE).unlink()
        copies = Copies()
        streams = self._streams(copies, appends)
        words = [*interpreter(self._root / SCRIPT), str(self._root / SCRIPT), *self._job["arguments"]]
        try:
            with open(self._input(), "rb") as source:  # noqa: PTH123
                self._script = subprocess.Popen(
                    words, env=self._environment, stdin=source, stdout=streams[0], stderr=streams[1]
                )
        except OSError as error:
            print(f"ERROR: trainmaster: {error.filename} cannot be used: {error.strerror}.", file=sys.stderr)
            return 127 if isinstance(error, FileNotFoundError) else 126
        self._note(PID).write_text(str(self._script.pid), encoding="ascii")
        copies.begin()
        self._set_timers()
        code = self._script.wait()
        if self.is_requeued():
            self._end_steps()
        for timer in self._timers:
            timer.cancel()
        copies.finish()
        return code if code >= 0 else 128 - code

    def is_requeued(self) -> bool:
        """Whether the script has called `scontrol requeue`."""
        return self._note(REQUEUE).exists()

    def _note(self, name: str) -> Path:
        return self._steps / name

    def _input(self) -> str:
        pattern = self._job["input"]
        return amounts.file_name(pattern, variables.symbols(self._environment)) if pattern else os.devnull

    def _streams(self, copies: Copies, appends: bool) -> Tuple[Optional[int], Optional[int]]:
        """What the script writes to: our own streams, or pipes that are copied to them and to files."""
        names = variables.symbols(self._environment)
        output, error = (
            opened(amounts.file_name(pattern, names), appends) if pattern else None
            for pattern in (self._job["output"], self._job["error"])
        )
        if self._job["error"] is None:
            error = output  # as in Slurm, one file for both
        return (
            None if output is None else copies.pipe([1, output]),
            None if error is None else copies.pipe([2, error]),
        )

    def _set_timers(self) -> None:
        """Send the signal of --signal before the time is over; if the script may be requeued, end it then."""
        seconds = self._job["seconds"]
        if seconds is None:
            return
        if self._job["signal"] is not None:
            self._later(seconds - self._job["signal_seconds"], self._warn)
        if self._job["requeues"]:  # else the server ends it, since its time is that of the whole job
            self._later(seconds, lambda: self._tell(signal.SIGTERM))
            self._later(seconds + _KILL_SECONDS, lambda: self._tell(signal.SIGKILL))

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        timer = threading.Timer(max(0, seconds), call)
        timer.daemon = True
        timer.start()
        self._timers.append(timer)

    def _warn(self) -> None:
        """As in Slurm: to the script alone, or to what srun has started."""
        number = self._job["signal"] or 0
        if self._job["signal_script_only"]:
            _kill(self._script.pid if self._script else 0, number)
        for pid in [] if self._job["signal_script_only"] else self._running():
            _kill(pid, number)

    def _tell(self, number: int) -> None:
        for pid in [*self._running(), *([self._script.pid] if self._script else [])]:
            _kill(pid, number)

    def _running(self) -> List[int]:
        """Those of srun; one that was killed has left its file behind."""
        return [
            int(path.name) for path in self._steps.iterdir() if path.name.isdecimal() and _is_srun(path.name)
        ]

    def _end_steps(self) -> None:
        """The script is requeued, and what it has started goes with it; whoever asked for it may end by itself."""
        for number, seconds in (
            (0, _OWN_END_SECONDS),
            (signal.SIGTERM, _KILL_SECONDS),
            (signal.SIGKILL, 1.0),
        ):
            for pid in self._running():
                _kill(pid, number)
            deadline = time.monotonic() + seconds
            while self._running() and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)


def _kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        if pid:
            os.kill(pid, number)


def _is_srun(pid: str) -> bool:
    """Whether the process is ours: a number may have been given to another one."""
    try:
        return b"trainmaster.slurm import srun" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def interpreter(script: Path) -> List[str]:
    """What its first line names: a program, and the rest of the line as one argument."""
    with script.open(encoding="utf-8", errors="replace") as file:
        first = file.readline()
    return first[2:].strip().split(None, 1)


def _made_programs(root: Path) -> Path:
    """A folder with srun and scontrol, which leads PATH: also after the profile of `#!/bin/bash -l` has set another."""
    folder = root / FOLDER / "bin"
    folder.mkdir(exist_ok=True)
    for name in _PROGRAMS:
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec {_called(name)} "$@"\n', encoding="utf-8")
        path.chmod(0o755)
    again = (
        f"case $PATH in {shlex.quote(str(folder))}:*) ;; *) PATH={shlex.quote(str(folder))}:$PATH ;; esac\n"
    )
    (root / FOLDER / _AGAIN).write_text(again, encoding="utf-8")
    return folder


def _called(name: str) -> str:
    """It does not look for the package along PYTHONPATH, which scripts set to other folders."""
    found = f"import sys; sys.path.insert(0, {str(_BUNDLE)!r}); from trainmaster.slurm import {name}"
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(f'{found}; sys.exit({name}.main())')}"


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


def _without_requeues(restarts: int) -> str:
    return (
        f"ERROR: trainmaster: the script asked to be requeued and was started again {restarts} times, as often as "
        "--requeues allows."
    )


if __name__ == "__main__":
    sys.exit(main())

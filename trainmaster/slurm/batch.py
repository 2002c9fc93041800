"""Run a batch script on a host: `python3 -m trainmaster.slurm.batch NAME [ARGS]`, in the folder that was sent.

The script gets SLURM_… and the programs srun, scontrol and sbatch; its output is copied to the files of --output and
--error; the signal of --signal is sent before its time is over.
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
from types import FrameType
from typing import BinaryIO, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, cast

from trainmaster.paths import RunPaths
from trainmaster.processes import become_subreaper, descendants
from trainmaster.protocol import RUN_DIR
from trainmaster.slurm import amounts, variables
from trainmaster.slurm.copying import Copies, opened
from trainmaster.slurm.handed import FOLDER, JOB, SCRIPT, JobFile

_BUNDLE = Path(__file__).resolve().parents[2]
#: a folder of files: `script`, the script's pid; one for each srun that runs, named by its pid; `requeue`, if asked for
STEPS = "TRAINMASTER_SBATCH_STEPS"
PID, REQUEUE = "script", "requeue"
#: beside that folder, the one of the programs
BIN = "bin"
_PROGRAMS = ("srun", "scontrol", "sbatch")
_AGAIN = "bash_env"
_LACKING = 2
_KILL_SECONDS = 30.0  # from SIGTERM to SIGKILL at the end of a start's time, as Slurm's KillWait
_OWN_END_SECONDS = 5.0  # for what has called `scontrol requeue`, before SIGTERM
_LOOK_SECONDS = 0.1
_STOPPED = 128 + signal.SIGTERM


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
    environment = variables.environment_of(job, own, slurm, str(_made_programs(root)), configured(own))
    environment.setdefault("BASH_ENV", str(root / FOLDER / _AGAIN))
    environment[STEPS] = str(root / FOLDER / "steps")
    environment["PWD"] = str(folder)
    become_subreaper()  # a start ends with all that it has started
    stop = _Stop()
    restarts = 0
    while True:
        start = _Start(job, root, {**environment, **variables.of_start(job, restarts, time.time())}, stop)
        code = start.run(appends=job["appends"] or restarts > 0)
        if stop.is_heard or not start.is_requeued():  # what was stopped does not start again
            return code
        if restarts == job["requeues"]:
            print(_without_requeues(restarts), file=sys.stderr, flush=True)
            return code or 1
        restarts += 1


class _Stopped(Exception):
    """SIGTERM came before the script was started."""


class _Stop:
    """Whether SIGTERM has come. The script gets signals as well, since it is in our group; we wait for its end."""

    def __init__(self) -> None:
        self.is_heard = False
        self._interrupts = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, self._hear)

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """SIGTERM raises _Stopped in here, also if it came before: files may be pipes that nobody opens."""
        self._interrupts = True
        try:
            if self.is_heard:
                raise _Stopped
            yield
        finally:
            self._interrupts = False

    def _hear(self, number: int, frame: Optional[FrameType]) -> None:
        if number == signal.SIGTERM:
            self.is_heard = True
            if self._interrupts:
                raise _Stopped


class _Start:
    """One start of the script; there are more only where it is requeued."""

    def __init__(self, job: JobFile, root: Path, environment: Dict[str, str], stop: _Stop) -> None:
        self._job, self._root, self._environment, self._stop = job, root, environment, stop
        self._steps = Path(environment[STEPS])
        self._script: "Optional[subprocess.Popen[bytes]]" = None
        self._timers: List[threading.Timer] = []

    def run(self, appends: bool) -> int:
        """Its exit code."""
        self._steps.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self._note(REQUEUE).unlink()
        copies = Copies()
        try:
            with self._stop.interrupting():
                streams = self._streams(copies, appends)
                source = self._opened_input()
            with source:
                self._script = self._started(source, streams)
        except _Stopped:
            return _STOPPED
        except OSError as error:
            print(f"ERROR: trainmaster: {error.filename} cannot be used: {error.strerror}.", file=sys.stderr)
            return 127 if isinstance(error, FileNotFoundError) else 126
        if (
            self._stop.is_heard
        ):  # it came before the script was in our group, or before it was a program of its own
            self._tell(signal.SIGTERM)
        self._note(PID).write_text(str(self._script.pid), encoding="ascii")
        copies.begin()
        self._set_timers()
        code = self._script.wait()
        if self.is_requeued():
            self._end_rest()
        for timer in self._timers:
            timer.cancel()
        copies.finish(lambda: self._stop.is_heard)
        return code if code >= 0 else 128 - code

    def _started(
        self, source: BinaryIO, streams: Tuple[Optional[int], Optional[int]]
    ) -> "subprocess.Popen[bytes]":
        words = [*interpreter(self._root / SCRIPT), str(self._root / SCRIPT), *self._job["arguments"]]
        return subprocess.Popen(
            words, env=self._environment, stdin=source, stdout=streams[0], stderr=streams[1]
        )

    def is_requeued(self) -> bool:
        """Whether the script has called `scontrol requeue`."""
        return self._note(REQUEUE).exists()

    def _note(self, name: str) -> Path:
        return self._steps / name

    def _opened_input(self) -> BinaryIO:
        pattern = self._job["input"]
        path = amounts.file_name(pattern, variables.symbols(self._environment)) if pattern else os.devnull
        return open(path, "rb")  # noqa: PTH123  # the caller closes it

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
        for pid in [] if self._job["signal_script_only"] else self._steps_running():
            _kill(pid, number)

    def _tell(self, number: int) -> None:
        """To the script and all that it has started, whether it still belongs to it or not."""
        for process in descendants(os.getpid()):
            _kill(process["pid"], number)

    def _steps_running(self) -> List[int]:
        """Those of srun; one that was killed has left its file behind."""
        return [
            int(path.name) for path in self._steps.iterdir() if path.name.isdecimal() and _is_srun(path.name)
        ]

    def _end_rest(self) -> None:
        """The script is requeued, and all that it has started ends before; whoever asked for it may end by itself.

        When the job is stopped, the host ends it all, in its own time.
        """
        for number, seconds in (
            (0, _OWN_END_SECONDS),
            (signal.SIGTERM, _KILL_SECONDS),
            (signal.SIGKILL, _OWN_END_SECONDS),
        ):
            if number:
                self._tell(number)
            deadline = time.monotonic() + seconds
            while descendants(os.getpid()) and time.monotonic() < deadline and not self._stop.is_heard:
                time.sleep(_LOOK_SECONDS)
        _reap()


def _kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        if pid:
            os.kill(pid, number)


def _reap() -> None:
    """Orphans that have ended are ours to wait for."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


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
    """A folder with them, which leads PATH: also after the profile of `#!/bin/bash -l` has set another."""
    folder = root / FOLDER / BIN
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
    """It looks for modules neither in the current folder nor along PYTHONPATH, where scripts may have a signal.py."""
    found = f"import sys; sys.path.insert(0, {str(_BUNDLE)!r}); from trainmaster.slurm import {name}"
    return f"{shlex.quote(sys.executable)} -I -c {shlex.quote(f'{found}; sys.exit({name}.main())')}"


def configured(own: Mapping[str, str]) -> List[str]:
    """Names of the variables that the command's config sets, also by a template or the pool."""
    try:
        path = RunPaths(Path(own[RUN_DIR])).spec
        return list(json.loads(path.read_text(encoding="utf-8"))["environment"])
    except (KeyError, OSError, ValueError):
        return []


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

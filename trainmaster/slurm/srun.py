"""`srun` within a batch script: runs a command once for each task, on this host."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from trainmaster.launch import wrap_rank
from trainmaster.paths import RunPaths
from trainmaster.protocol import RUN_DIR
from trainmaster.slurm import amounts, exports, variables
from trainmaster.slurm.batch import STEPS
from trainmaster.slurm.copying import Copies, opened
from trainmaster.slurm.options import (
    FLAG,
    OPTIONAL,
    REFUSED,
    REQUIRED,
    BadScript,
    Option,
    merged,
    parsed,
    shown,
)

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
_PEER_SECONDS = 10.0  # from SIGTERM to SIGKILL for a task whose peer has failed, with --kill-on-bad-exit
_REFUSED = 1
_STEP_KILL_SECONDS = 30.0  # from SIGTERM to SIGKILL at the end of --time, as Slurm's KillWait
_ONE_HOST = "this job has one host"
_SCRIPTS = "call the program in the script, before or after srun"
#: what `step_of` and `main` act on
_TAKEN: Sequence[Option] = (
    *(Option(name, short) for name, short in (
        ("chdir", "D"), ("cpus-per-task", "c"), ("error", "e"), ("export", ""), ("gpus", "G"), ("gpus-per-node", ""),
        ("gpus-per-task", ""), ("gres", ""), ("input", "i"), ("jobid", ""), ("nodelist", "w"), ("nodes", "N"),
        ("ntasks", "n"), ("ntasks-per-gpu", ""), ("ntasks-per-node", ""), ("open-mode", ""), ("output", "o"),
        ("time", "t"),
    )),
    Option("kill-on-bad-exit", "K", OPTIONAL),
    Option("label", "l", FLAG),
)  # fmt: skip
#: without these, another thing would be done
_NOT_DONE: Sequence[Option] = (
    Option("begin", "b", REQUIRED, REFUSED, "a step starts at once; use sleep in the script"),
    Option("container", "", REQUIRED, REFUSED, "name an image for the job: --config environment.image=NAME"),
    Option("dependency", "d", REQUIRED, REFUSED, "a step waits for nothing; wait in the script"),
    Option("exclude", "x", REQUIRED, REFUSED, _ONE_HOST),
    Option("gpus-per-socket", "", REQUIRED, REFUSED, "sockets are not counted here; give --gpus"),
    Option("het-group", "", REQUIRED, REFUSED, "heterogeneous jobs do not exist here"),
    Option("hold", "H", FLAG, REFUSED, "a step cannot be held"),
    Option("multi-prog", "", FLAG, REFUSED, "start each program by an srun of its own"),
    Option("nodefile", "F", REQUIRED, REFUSED, _ONE_HOST),
    Option("relative", "r", REQUIRED, REFUSED, _ONE_HOST),
    Option("test-only", "", FLAG, REFUSED, "a step is not checked beforehand"),
    Option("tres-per-task", "", REQUIRED, REFUSED, "give --gpus-per-task and --cpus-per-task"),
    *(Option(name, "", REQUIRED, REFUSED, _SCRIPTS) for name in ("epilog", "prolog", "task-epilog", "task-prolog")),
    *(Option(name, "", REQUIRED, REFUSED, "a step runs as the account of its job") for name in ("gid", "uid")),
)  # fmt: skip
#: binding, MPI, what is reserved, and what Slurm ignores within a job as well
_IGNORED: Sequence[Option] = (
    *(Option(name, short) for name, short in (
        ("account", "A"), ("clusters", "M"), ("constraint", "C"), ("core-spec", "S"), ("distribution", "m"),
        ("extra-node-info", "B"), ("job-name", "J"), ("licenses", "L"), ("partition", "p"), ("qos", "q"),
        ("threads", "T"), ("wait", "W"),
    )),
    *(Option(name) for name in (
        "accel-bind", "acctg-freq", "comment", "cores-per-socket", "cpu-bind", "cpu-freq", "cpus-per-gpu", "deadline",
        "gpu-bind", "gpu-freq", "gres-flags", "hint", "mail-type", "mail-user", "mem", "mem-bind", "mem-per-cpu",
        "mem-per-gpu", "mincpus", "mpi", "network", "ntasks-per-core", "ntasks-per-socket", "prefer", "priority",
        "profile", "reservation", "signal", "sockets-per-node", "switches", "thread-spec", "threads-per-core",
        "time-min", "tmp", "wckey",
    )),
    *(Option(name, short, OPTIONAL) for name, short in (
        ("bcast", ""), ("exclusive", ""), ("immediate", "I"), ("nice", ""), ("no-kill", "k"), ("propagate", ""),
        ("x11", ""),
    )),
    *(Option(name, short, FLAG) for name, short in (
        ("contiguous", ""), ("disable-status", "X"), ("exact", ""), ("overcommit", "O"), ("overlap", ""),
        ("oversubscribe", "s"), ("preserve-env", "E"), ("pty", ""), ("quiet", "Q"), ("quit-on-interrupt", ""),
        ("spread-job", ""), ("unbuffered", "u"), ("use-min-nodes", ""), ("verbose", "v"),
    )),
)  # fmt: skip
TABLE: Sequence[Option] = (*_TAKEN, *_NOT_DONE, *_IGNORED)
#: what a task needs of the script's variables where --export passes none: Slurm's and the run's own
_KEPT = re.compile(r"(SLURM|DET|TRAINMASTER)_\w+|PATH|PYTHONPATH|HOME|USER|CUDA_VISIBLE_DEVICES")


class Gpus(NamedTuple):
    """`per_task`: None if each task sees all of them; `are_hidden`: none is seen."""

    per_task: Optional[int]
    are_hidden: bool


class Step(NamedTuple):
    """What a call of srun asks for."""

    command: List[str]
    tasks: int
    gpus: Gpus
    #: of each task, before what tells it from the others
    environment: Dict[str, str]
    folder: Optional[str]
    output: Optional[str]
    error: Optional[str]
    input: Optional[str]
    appends: bool
    is_labelled: bool
    ends_together: bool
    seconds: Optional[int]


def step_of(words: Sequence[str], own: Dict[str, str]) -> Step:
    """The step that a command line describes, within a job whose variables are `own` (pure). Raises BadScript."""
    given, command = parsed(words, TABLE, "srun")
    for option, value in given:
        if option.fate == REFUSED:
            raise BadScript(f"{shown(option.name, value)}: {option.sentence}.")
    options = merged(given)
    if not command:
        raise BadScript("srun needs a command.")
    _refuse_elsewhere(options, own)
    per_node, per_gpu = (amounts.number(options, f"ntasks-per-{name}") for name in ("node", "gpu"))
    tasks = amounts.number(options, "ntasks") or per_node or (per_gpu and per_gpu * len(_devices(own)))
    tasks = tasks or int(own.get("SLURM_NTASKS", "1"))
    environment = _environment(options.get("export"), own)
    if "cpus-per-task" in options:
        environment["SLURM_CPUS_PER_TASK"] = str(amounts.number(options, "cpus-per-task"))
    return Step(
        command,
        tasks,
        _gpus(options, tasks, own),
        environment,
        options.get("chdir"),
        options.get("output"),
        options.get("error"),
        options.get("input"),
        options.get("open-mode", "truncate").startswith("a"),
        "label" in options,
        options.get("kill-on-bad-exit", "0") != "0",
        amounts.seconds(options["time"]) if "time" in options else None,
    )


def _refuse_elsewhere(options: Dict[str, str], own: Dict[str, str]) -> None:
    nodes = amounts.fewest_nodes(options["nodes"]) if "nodes" in options else 1
    if nodes > 1:
        raise BadScript(f"--nodes={options['nodes']}: {_ONE_HOST}.")
    node = own.get("SLURM_JOB_NODELIST", "")
    if options.get("nodelist", node) != node:
        raise BadScript(f"--nodelist={options['nodelist']}: this job runs on {node} alone.")
    if "jobid" in options and options["jobid"] not in (own.get("SLURM_JOB_ID"), own.get(variables.ID)):
        raise BadScript(f"--jobid={options['jobid']}: a step belongs to the job whose script starts it.")


def _environment(option: Optional[str], own: Dict[str, str]) -> Dict[str, str]:
    """--export: all variables of the script, or those that are named; ours stay."""
    passes_all, named = exports.named(option or "ALL", own)
    found = {name: value for name, value in own.items() if passes_all or _KEPT.fullmatch(name)}
    return {**found, **named}


def _devices(own: Dict[str, str]) -> List[str]:
    """The GPUs that the script sees, or as many names as it has in a pool without GPUs."""
    seen = [each for each in own.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
    return seen or ["" for _ in range(int(own.get("SLURM_GPUS_ON_NODE", "0")))]


def _gpus(options: Dict[str, str], tasks: int, own: Dict[str, str]) -> Gpus:
    """How the GPUs are divided among the tasks. Raises BadScript for a part of them: steps do not share them out."""
    available = len(_devices(own))
    counted: Dict[str, int] = {}
    for name in ("gpus", "gpus-per-node", "gpus-per-task"):
        if name in options:
            counted[name] = amounts.gpus(options[name], name)[0] * (tasks if name == "gpus-per-task" else 1)
    if "gres" in options and re.search(r"gpu|none", options["gres"]):
        counted["gres"] = amounts.gres(options["gres"]).gpus
    for name, count in counted.items():
        if count > available:
            raise BadScript(
                f"{shown(name, options[name])}: the script has {available} GPUs, the step needs {count}."
            )
        if 0 < count < available:
            raise BadScript(
                f"{shown(name, options[name])}: every step gets all {available} GPUs of the script, not {count} of its "
                "own. Submit each program as a job or as an element of an array, or set CUDA_VISIBLE_DEVICES for each "
                "srun (docs/slurm.md)."
            )
    if "gpus-per-task" not in options:
        per_task = int(own.get("SLURM_GPUS_PER_TASK", "0"))
        return Gpus(per_task if per_task * tasks == available else None, 0 in counted.values())
    return Gpus(amounts.gpus(options["gpus-per-task"], "gpus-per-task")[0] or None, 0 in counted.values())


def main() -> int:
    """The largest exit code of its tasks."""
    own = dict(os.environ)
    try:
        step = step_of(sys.argv[1:], own)
    except BadScript as error:
        print(f"srun: {error}", file=sys.stderr)
        return _REFUSED
    return _Tasks(step, own).run()


class _Tasks:
    def __init__(self, step: Step, own: Dict[str, str]) -> None:
        self._step, self._own = step, own
        self._copies = Copies()
        self._tasks: List["subprocess.Popen[bytes]"] = []
        self._number = 0
        self._kill_at: Optional[float] = None
        self._is_stopped = False
        self._files: Dict[str, Optional[int]] = {}

    def run(self) -> int:
        signal.pthread_sigmask(signal.SIG_BLOCK, {*_FORWARDED, signal.SIGCHLD})
        note = self._noted()
        try:
            for rank in range(self._step.tasks):
                self._tasks.append(self._started(rank))
        except OSError as error:  # of the command, the file of --input or the folder of --chdir
            how = "started" if error.filename == self._step.command[0] else "used"
            print(f"srun: {error.filename} cannot be {how}: {error.strerror}.", file=sys.stderr)
            self._tell(signal.SIGKILL)
            return 127 if isinstance(error, FileNotFoundError) else 126
        self._copies.begin()
        code = self._wait()
        self._copies.finish(lambda: self._is_stopped or signal.SIGTERM in signal.sigpending())
        if note is not None:
            with contextlib.suppress(OSError):
                note.unlink()
        return code

    def _noted(self) -> Optional[Path]:
        """Its number is how many steps there were; its file says to the batch script's parent that it runs."""
        if STEPS not in self._own:
            return None
        folder = Path(self._own[STEPS])
        while True:
            counted = folder.with_name(f"step{self._number}")
            try:
                counted.touch(exist_ok=False)
                break
            except FileExistsError:
                self._number += 1
        note = folder / str(os.getpid())
        note.touch()
        return note

    def _started(self, rank: int) -> "subprocess.Popen[bytes]":
        step = self._step
        environment = {**step.environment}
        environment.update(variables.of_task(rank, step.tasks, self._number, self._own, step.gpus.per_task))
        if step.gpus.are_hidden:
            environment["CUDA_VISIBLE_DEVICES"] = ""
        output, error = self._streams(rank)
        words = step.command
        if output is None and error is None and step.tasks > 1 and self._writes_to_the_log():
            words = [sys.executable, "-I", "-S", str(Path(wrap_rank.__file__).resolve()), str(rank), *words]
        source = self._input(rank)
        stdin = None if source is None else os.open(source, os.O_RDONLY)
        try:
            return subprocess.Popen(
                words, env=environment, cwd=step.folder, stdin=stdin, stdout=output, stderr=error,
                start_new_session=True, preexec_fn=_unblock,
            )  # fmt: skip
        finally:
            if stdin is not None:
                os.close(stdin)

    def _input(self, rank: int) -> Optional[str]:
        """The file that a task reads, None for what the script reads: the first task alone, or the one of --input=N."""
        given = self._step.input
        if not given or given == "all" or given.isdecimal():
            return os.devnull if rank != int(given if given and given != "all" else 0) else None
        if given == "none":
            return os.devnull
        return amounts.file_name(given, variables.symbols(self._own, rank, str(self._number)))

    def _streams(self, rank: int) -> Tuple[Optional[int], Optional[int]]:
        """Where a task writes to: our own streams, or what is copied to a file (and the log), or is labelled."""
        step, label = self._step, f"{rank}: ".encode() if self._step.is_labelled else b""
        output = self._file(step.output, rank)
        error = self._file(step.error, rank) if step.error else output
        found: List[Optional[int]] = []
        for number, file in ((1, output), (2, error)):
            if file is not None:
                found.append(self._copies.pipe([file, *self._log(rank, number)], label))
            else:
                found.append(self._copies.pipe([number], label) if label else None)
        return found[0], found[1]

    def _file(self, pattern: Optional[str], rank: int) -> Optional[int]:
        if not pattern or pattern in ("none", "all"):
            return os.open(os.devnull, os.O_WRONLY) if pattern == "none" else None
        path = amounts.file_name(pattern, variables.symbols(self._own, rank, str(self._number)))
        if path not in self._files:
            self._files[path] = opened(str(Path(self._step.folder or ".") / path), self._step.appends)
        return self._files[path]

    def _log(self, rank: int, stream: int) -> List[int]:
        """The rank's own stream of the run's log, where what goes to files can be seen live."""
        if not self._own.get(RUN_DIR):
            return []
        path = RunPaths(Path(self._own[RUN_DIR])).rank_stream(rank, "stdout" if stream == 1 else "stderr")
        with contextlib.suppress(OSError):
            return [os.open(str(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)]
        return []

    def _writes_to_the_log(self) -> bool:
        """Whether our stdout is the run's log itself, rather than a pipe of the script or a file."""
        if not self._own.get(RUN_DIR):
            return False
        log = RunPaths(Path(self._own[RUN_DIR])).launcher_stream("stdout")
        try:
            return os.path.samestat(os.fstat(1), log.stat())
        except OSError:
            return False

    def _wait(self) -> int:
        """Every signal that comes is handed to the tasks."""
        end_at = None if self._step.seconds is None else time.monotonic() + self._step.seconds
        while any(task.poll() is None for task in self._tasks):
            wait = 0.2 if self._kill_at else 5.0 if end_at is None else 1.0
            info = signal.sigtimedwait({*_FORWARDED, signal.SIGCHLD}, wait)
            if info is not None and info.si_signo != signal.SIGCHLD:
                self._tell(info.si_signo)
                self._is_stopped |= info.si_signo == signal.SIGTERM
            failed = any(task.poll() for task in self._tasks)
            if failed and self._step.ends_together and self._kill_at is None:
                self._kill_at = time.monotonic() + _PEER_SECONDS
                self._tell(signal.SIGTERM)
            if end_at is not None and self._kill_at is None and time.monotonic() > end_at:
                print(f"srun: the limit of --time, {self._step.seconds} s, is over.", file=sys.stderr)
                self._kill_at = time.monotonic() + _STEP_KILL_SECONDS
                self._tell(signal.SIGTERM)
            if self._kill_at is not None and time.monotonic() > self._kill_at:
                self._tell(signal.SIGKILL)
        codes = [task.returncode for task in self._tasks]
        for rank, code in enumerate(codes):
            if code and self._step.tasks > 1:
                how = f"signal {-code}" if code < 0 else f"exit code {code}"
                print(f"srun: task {rank} ended with {how}.", file=sys.stderr)
        return max(code if code >= 0 else 128 - code for code in codes)

    def _tell(self, number: int) -> None:
        for task in self._tasks:
            if task.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(task.pid, number)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, set())

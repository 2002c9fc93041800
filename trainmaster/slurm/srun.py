"""`srun` within a batch script: runs a command once for each task, on this host."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from trainmaster.launch import wrap_rank
from trainmaster.paths import RunPaths
from trainmaster.protocol import RUN_DIR
from trainmaster.slurm import amounts, variables
from trainmaster.slurm.batch import STEPS
from trainmaster.slurm.copying import Copies, opened
from trainmaster.slurm.options import FLAG, OPTIONAL, BadScript, Option, merged, parsed

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
_PEER_SECONDS = 10.0  # from SIGTERM to SIGKILL for a task whose peer has failed, with --kill-on-bad-exit
_REFUSED = 1
#: name, letter and value of its options; those that `_Step` does not read change nothing here
TABLE: Sequence[Option] = (
    *(Option(name, short) for name, short in (
        ("chdir", "D"), ("cpus-per-task", "c"), ("error", "e"), ("export", ""), ("gpus-per-task", ""), ("input", "i"),
        ("nodelist", "w"), ("nodes", "N"), ("ntasks", "n"), ("ntasks-per-node", ""), ("open-mode", ""),
        ("output", "o"), ("account", "A"), ("begin", "b"), ("clusters", "M"), ("constraint", "C"), ("core-spec", "S"),
        ("dependency", "d"), ("distribution", "m"), ("exclude", "x"), ("extra-node-info", "B"), ("gpus", "G"),
        ("job-name", "J"), ("licenses", "L"), ("nodefile", "F"), ("partition", "p"), ("qos", "q"), ("relative", "r"),
        ("threads", "T"), ("time", "t"), ("wait", "W"),
    )),
    *(Option(name) for name in (
        "accel-bind", "acctg-freq", "bb", "bbf", "bcast-exclude", "cluster-constraint", "comment", "container",
        "cores-per-socket", "cpu-bind", "cpu-freq", "cpus-per-gpu", "deadline", "delay-boot", "epilog", "gid",
        "gpu-bind", "gpu-freq", "gpus-per-node", "gpus-per-socket", "gres", "gres-flags", "het-group", "hint", "jobid",
        "mail-type", "mail-user", "mcs-label", "mem", "mem-bind", "mem-per-cpu", "mem-per-gpu", "mincpus", "mpi",
        "msg-timeout", "network", "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-socket", "power", "prefer",
        "priority", "profile", "prolog", "reservation", "signal", "slurmd-debug", "sockets-per-node", "switches",
        "task-epilog", "task-prolog", "thread-spec", "threads-per-core", "time-min", "tmp", "tres-per-task", "uid",
        "wckey",
    )),
    *(Option(name, short, OPTIONAL) for name, short in (
        ("bcast", ""), ("compress", ""), ("exclusive", ""), ("immediate", "I"), ("kill-on-bad-exit", "K"),
        ("nice", ""), ("no-kill", "k"), ("propagate", ""), ("resv-ports", ""), ("send-libs", ""), ("x11", ""),
    )),
    *(Option(name, short, FLAG) for name, short in (
        ("label", "l"), ("multi-prog", ""), ("pty", ""), ("contiguous", ""), ("disable-status", "X"), ("exact", ""),
        ("hold", "H"), ("mem-bind-sort", ""), ("no-allocate", "Z"), ("overcommit", "O"), ("overlap", ""),
        ("oversubscribe", "s"), ("preserve-env", "E"), ("quiet", "Q"), ("quit-on-interrupt", ""), ("reboot", ""),
        ("spread-job", ""), ("test-only", ""), ("unbuffered", "u"), ("use-min-nodes", ""), ("verbose", "v"),
        ("version", "V"),
    )),
)  # fmt: skip


class Step(NamedTuple):
    """What a call of srun asks for."""

    command: List[str]
    tasks: int
    gpus_per_task: Optional[int]
    folder: Optional[str]
    output: Optional[str]
    error: Optional[str]
    input: Optional[str]
    appends: bool
    is_labelled: bool
    ends_together: bool


def step_of(words: Sequence[str], own: Dict[str, str]) -> Step:
    """The step that a command line describes, within a job whose variables are `own` (pure). Raises BadScript."""
    given, command = parsed(words, TABLE, "srun")
    options = merged(given)
    if not command:
        raise BadScript("srun needs a command.")
    if "multi-prog" in options:
        raise BadScript("srun --multi-prog does not exist here; start each program by an srun of its own.")
    nodes = amounts.fewest_nodes(options["nodes"]) if "nodes" in options else 1
    if nodes > 1:
        raise BadScript(f"srun --nodes={options['nodes']}: this job has one host.")
    node = own.get("SLURM_JOB_NODELIST", "")
    if options.get("nodelist", node) != node:
        raise BadScript(f"srun --nodelist={options['nodelist']}: this job runs on {node} alone.")
    per_node = amounts.number(options, "ntasks-per-node")
    tasks = amounts.number(options, "ntasks") or per_node or int(own.get("SLURM_NTASKS", "1"))
    per_task = (
        amounts.gpus(options["gpus-per-task"], "gpus-per-task")[0] if "gpus-per-task" in options else None
    )
    if per_task is None and own.get("SLURM_GPUS_PER_TASK", "").isdecimal():
        per_task = int(own["SLURM_GPUS_PER_TASK"])
    return Step(
        command,
        tasks,
        per_task,
        options.get("chdir"),
        options.get("output"),
        options.get("error"),
        options.get("input"),
        options.get("open-mode", "truncate").startswith("a"),
        "label" in options,
        options.get("kill-on-bad-exit", "0") != "0",
    )


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
        except OSError as error:
            print(f"srun: {self._step.command[0]} cannot be started: {error.strerror}.", file=sys.stderr)
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
        environment = {**self._own}
        environment.update(variables.of_task(rank, step.tasks, self._number, self._own, step.gpus_per_task))
        output, error = self._streams(rank)
        words = step.command
        if output is None and error is None and step.tasks > 1 and self._writes_to_the_log():
            words = [sys.executable, "-I", "-S", str(Path(wrap_rank.__file__).resolve()), str(rank), *words]
        names = variables.symbols(self._own, rank, str(self._number))
        source = amounts.file_name(step.input, names) if step.input else os.devnull if rank else None
        stdin = None if source is None else os.open(source, os.O_RDONLY)
        try:
            return subprocess.Popen(
                words, env=environment, cwd=step.folder, stdin=stdin, stdout=output, stderr=error,
                start_new_session=True, preexec_fn=_unblock,
            )  # fmt: skip
        finally:
            if stdin is not None:
                os.close(stdin)

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
        while any(task.poll() is None for task in self._tasks):
            info = signal.sigtimedwait({*_FORWARDED, signal.SIGCHLD}, 0.2 if self._kill_at else 5.0)
            if info is not None and info.si_signo != signal.SIGCHLD:
                self._tell(info.si_signo)
                self._is_stopped |= info.si_signo == signal.SIGTERM
            failed = any(task.poll() for task in self._tasks)
            if failed and self._step.ends_together and self._kill_at is None:
                self._kill_at = time.monotonic() + _PEER_SECONDS
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

"""On a node that Slurm has given to an attempt: waits for the run that the server sends there, and looks after it.

This is the task that `srun` starts, once on each node. The job was submitted before anybody knew where it would run,
so the run's folder comes later, into the folder that the login node and all nodes share, or by a step of the job into
the node's own, together with this program. A stop that the server leaves
there is carried out here, and so is SIGTERM. Slurm sends that to every process of the step, so launcher and runner let
it pass: they have to bring the end of what it ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import List, Optional

from trainmaster.host import launch_lock
from trainmaster.jsonfile import make_json, read_object
from trainmaster.paths import RunPaths, Workdir
from trainmaster.processes import exit_status
from trainmaster.runner.detached import spawn_in_session
from trainmaster.runner.slurm_gpus import name_gpus
from trainmaster.runner.state import read_exit, read_shipped, read_spec
from trainmaster.runner.stopping import begin_stop, read_stop

#: how often the folder of runs is looked into: at first, and after a while
_LOOK_SECONDS = (0.1, 1.0)
#: how often a run that runs is looked after
_TEND_SECONDS = 0.5
_LOCK_SECONDS = 60.0
#: code of a task that has run nothing
_NOTHING_RAN = 0
_SIGNALS = (signal.SIGTERM, signal.SIGCHLD)
#: within which Slurm has sent SIGTERM to all processes of a step
_TOLD_SECONDS = 1.0

#: the signals of Slurm that this process has got
_told: List[int] = []


def attend(paths: RunPaths, seconds: float) -> int:
    """Exit code of the task: that of the entrypoint, 0 if the run did not come within `seconds` or is another job's."""
    signal.pthread_sigmask(signal.SIG_BLOCK, set(_SIGNALS))
    if not _came(paths, seconds):
        return _NOTHING_RAN
    keeper = _start(paths)
    if keeper is None:
        return _NOTHING_RAN
    _look_after(paths, keeper)
    end = read_exit(paths)
    shipped = read_shipped(paths)
    if read_object(paths.ticket).get("own_folder") and shipped["finished"] and shipped["refused"] is None:
        _remove(paths)
    code = end["code"] if end else None
    return code if code is not None else 1


def _remove(paths: RunPaths) -> None:
    """The folder of a run that is over and shipped, which nobody else reaches any more, and bundles that are old."""
    shutil.rmtree(paths.root, ignore_errors=True)
    for left in (paths.launch_lock, paths.revoked):
        with contextlib.suppress(OSError):
            left.unlink()
    from trainmaster.host import controlling, old_bundles  # not needed before a run has ended

    workdir = Workdir(paths.root.parent.parent)
    with contextlib.suppress(OSError):
        old = old_bundles.candidates(workdir)
        if old:
            old_bundles.remove(workdir, old, controlling.status({}, workdir)["runs"])


def _came(paths: RunPaths, seconds: float) -> bool:
    """True once the folder of the run is there and this job is the one that was chosen for it."""
    until, pause = time.monotonic() + seconds, _LOOK_SECONDS[0]
    while True:
        with contextlib.suppress(OSError):  # it may be remembered for long that there was no such folder
            os.listdir(paths.root.parent)  # noqa: PTH208
        with contextlib.suppress(OSError):  # the folder or its file server is away for a moment
            chosen = _is_chosen(paths)
            if chosen is not None:
                return chosen
        found = signal.sigtimedwait({signal.SIGTERM}, pause)
        if found is not None or time.monotonic() > until:
            _say(f"{paths.key} was not sent to this node.")
            return False
        pause = min(_LOOK_SECONDS[1], pause * 1.1)


def _is_chosen(paths: RunPaths) -> Optional[bool]:
    """Whether this job is to start the run; None: its folder has not come yet."""
    if paths.is_revoked():
        _say(f"The server has withdrawn {paths.key}.")
        return False
    if not paths.is_ours():
        return None
    ticket = read_object(paths.ticket)
    if not ticket:
        return None
    chosen = str(ticket.get("job_id")) == os.environ.get("SLURM_JOB_ID")
    if not chosen:
        _say(f"{paths.key} runs in job {ticket.get('job_id')}.")
    return chosen


def _start(paths: RunPaths) -> Optional[int]:
    """The pid of the run's launcher; None if one was started before: a job that was requeued runs nothing twice."""
    lock = launch_lock.take(paths.launch_lock, _LOCK_SECONDS)
    if lock is None or paths.state.exists():
        _say(f"{paths.key} has been started before.")
        return None
    try:
        with contextlib.suppress(OSError):
            name_gpus(paths)
        return spawn_in_session("keep", paths, str(lock), keep_open=(lock,))
    finally:
        os.close(lock)


def _look_after(paths: RunPaths, keeper: int) -> None:
    """Until the launcher has ended, which waits for its runner.

    What cannot be read or written is tried again: if this process ended, Slurm would end the run.
    """
    told, ordered = False, None
    while True:
        found = signal.sigtimedwait(set(_SIGNALS), _TEND_SECONDS)
        told = told or (found is not None and found.si_signo == signal.SIGTERM)
        with contextlib.suppress(OSError):
            if told:
                make_json(paths.preempt, {"reason": "slurm"})
                begin_stop(paths, {"grace_seconds": _grace(paths), "reason": "slurm"})
                told = False
            ordered = _passed_on(paths, ordered)
        if _has_ended(keeper):
            return


def _passed_on(paths: RunPaths, ordered: Optional[float]) -> Optional[float]:
    """Carry out the stop that lies in the folder, if its deadline is not `ordered`; the one that is carried out now."""
    order = read_stop(paths)
    if order is None or order["deadline"] == ordered or read_exit(paths) is not None:
        return ordered
    begin_stop(paths, {"grace_seconds": max(0.0, order["deadline"] - time.time()), "reason": order["reason"]})
    return order["deadline"]


def _grace(paths: RunPaths) -> float:
    return float(read_spec(paths)["limits"]["grace_seconds"])


def _has_ended(keeper: int) -> bool:
    """Takes every child that has ended: the launcher, and those that carry out stops."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == keeper:
            code, _ = exit_status(status)
            if code:
                _say(f"The launcher ended with exit code {code}.")
            return True
        if pid == 0:
            return False


def _say(sentence: str) -> None:
    sys.stderr.write(f"trainmaster: {sentence}\n")
    sys.stderr.flush()


def outlive_signals() -> None:
    """Let this process, launcher or runner of a run, survive what Slurm sends to all. What it starts dies of it."""
    signal.signal(signal.SIGTERM, lambda number, _: _told.append(number))
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGUSR1})


def ended_by_slurm(paths: RunPaths, code: Optional[int]) -> bool:
    """Whether Slurm has ended the entrypoint: this process received the same signal, or does within a moment."""
    if code == 0 or not paths.ticket.exists():
        return False
    until = time.monotonic() + _TOLD_SECONDS
    while not _told and time.monotonic() < until:
        time.sleep(0.02)
    return bool(_told)


def main(verb: str, words: List[str]) -> int:
    """`attend <workdir> <allocation> <seconds>`, where the number of the node says which member it has; or
    `ask_to_save <workdir> <allocation> <nodes>`, of all members.
    """
    workdir, allocation = Workdir(Path(words[0])), words[1]
    if verb == "attend":
        node = int(os.environ.get("SLURM_NODEID", "0"))
        return attend(workdir.run(f"{allocation}.{node}"), float(words[2]))
    for member in range(int(words[2])):
        paths = workdir.run(f"{allocation}.{member}")
        if paths.control.is_dir() and paths.is_ours():
            make_json(paths.preempt, {"reason": "slurm"})
    return 0

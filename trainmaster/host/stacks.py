"""`stack`: what the ranks of a run are doing right now, as the stacks of their Python threads.

A process that was started under our sitecustomize writes them itself when it is signalled. Whether it was is read
from /proc first, because the signal would end any other process. py-spy, where the host has it, needs no consent of
the process: it alone can look into one that is stopped, and it shows native frames too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Union

from trainmaster.host.accounts import for_each_owner
from trainmaster.host.asking import output_of
from trainmaster.host.errors import answer_each, objects_of
from trainmaster.host.flight import Recorder
from trainmaster.host.system_calls import moved_bytes, waiting_call
from trainmaster.jsonfile import read_object
from trainmaster.paths import RunPaths, Workdir
from trainmaster.processes import PROC, boot_id, is_alive
from trainmaster.protocol import SHOW_STACKS
from trainmaster.rank_processes import RankProcesses, Seen, look_at, waits_in
from trainmaster.runner.state import locked

#: for all ranks that are asked for together
ANSWER_SECONDS = 5.0
_QUIET_SECONDS = 0.1
_POLL_SECONDS = 0.02
_PY_SPY_SECONDS = 5.0
_PY_SPIES_SECONDS = 8.0
TEXT_BYTES = 128 * 1024
_STOPPED = ("T", "t")


def stack(request: Dict[str, Any], workdir: Workdir) -> Dict[str, Any]:
    """By {"runs": {run key: {"ranks": [number…] or null for all}}}, {"runs": {run key: {"ranks": {number: answer}}}}.

    An answer has `pid` and `state` of the process that was asked, and `text` or the sentence `message`. With
    `"collectives": true` beside `ranks` it also has `collectives` (flight.py) where the rank can tell.
    """
    needs = 'The verb `stack` needs {"runs": {run key: {"ranks": [number…] or null}}}.'
    return {"runs": for_each_owner("stack", _stacks_of_own, objects_of(request, needs), {}, workdir)}


def _stacks_of_own(request: Dict[str, Any], workdir: Workdir) -> Dict[str, Any]:
    def stacks_of(key: str) -> Dict[str, Any]:
        paths = workdir.run(key)
        if not paths.spec.exists():
            return {"error": "absent", "message": f"The run {key} is not on this host."}
        paths.stacks.mkdir(mode=0o700, exist_ok=True)
        with locked(paths.stacks / ".lock"):  # who truncates a file must not take what another has asked for
            wanted = request["runs"][key]
            return {"ranks": _ask(paths, wanted.get("ranks"), bool(wanted.get("collectives")))}

    return answer_each(request["runs"], stacks_of)


def _ask(paths: RunPaths, wanted: Optional[Sequence[int]], with_collectives: bool) -> Dict[str, Any]:
    found = RankProcesses(paths.key, alone=read_object(paths.spec).get("members") == 1).look()
    ranks = sorted(found) if wanted is None else [int(rank) for rank in wanted]
    asked = {rank: Asked(paths, found[rank]) for rank in ranks if rank in found}
    recorders = {rank: Recorder(paths, found[rank]) for rank in asked} if with_collectives else {}
    everything: List[Union[Asked, Recorder]] = [*recorders.values(), *asked.values()]
    for one in everything:
        one.ask()
    until = time.monotonic() + ANSWER_SECONDS
    while any(one.writes() for one in everything) and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
    spies_until = time.monotonic() + _PY_SPIES_SECONDS
    answers: Dict[str, Any] = {}
    for rank in ranks:
        if rank in asked:
            answers[str(rank)] = asked[rank].answer(spies_until)
            told = recorders[rank].answer() if rank in recorders else None
            if told is not None:
                answers[str(rank)]["collectives"] = told
        else:
            answers[str(rank)] = {"message": f"No process of rank {rank} runs here."}
    return answers


class Asked:
    """One rank that is asked: the first of its processes that can answer, else its first process."""

    def __init__(self, paths: RunPaths, processes: List[Seen]) -> None:
        files = [(seen, answer_file(paths, seen.pid)) for seen in processes]
        self._process, self._file = next((pair for pair in files if pair[1]), (processes[0], None))
        self._code = f"{paths.code}{os.sep}"
        self._others = len(processes) - 1
        self._used = sum(seen.cpu_seconds for seen in processes)
        self._pids = [seen.pid for seen in processes]
        self._moved = moved_bytes(self._pids)
        self._asked = False
        self._size = 0
        self._grown_at = 0.0

    def ask(self) -> None:
        """Signal it, unless the process is stopped (it would answer once it is continued) or has no handler."""
        if self._file is None or self._process.state in _STOPPED:
            return
        process = {"pid": self._process.pid, "start_time": self._process.start_time}
        if not is_alive(process, boot_id()):  # type: ignore[arg-type]  # a ProcessRef
            return
        os.truncate(self._file, 0)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, SHOW_STACKS)
            self._asked, self._grown_at = True, time.monotonic()

    def writes(self) -> bool:
        """True until its answer has not grown for a moment."""
        if not self._asked or self._file is None:
            return False
        size, now = self._file.stat().st_size, time.monotonic()
        if size != self._size:
            self._size, self._grown_at = size, now
        return size == 0 or now - self._grown_at < _QUIET_SECONDS

    def answer(self, spies_until: float) -> Dict[str, Any]:
        now = look_at(self._process.pid)
        answer: Dict[str, Any] = {
            "pid": self._process.pid,
            "state": now.state if now else "",
            "others": self._others,
            "cpu_seconds": round(self._used, 2),
            "moved_bytes": self._moved,
            "moved_bytes_after": moved_bytes(self._pids),  # with those of its answer
        }
        if now is None:
            return {**answer, "message": f"Process {self._process.pid} has just ended."}
        place = waits_in(now.pid)
        if place:
            answer["waits_in"] = place
        call, file = waiting_call(now.pid)
        answer.update({name: value for name, value in (("call", call), ("file", file)) if value})
        own = self._own_words()
        spied = by_py_spy(now, spies_until)
        if own or spied:
            return {**answer, "text": "\n".join(filter(None, [own, spied]))}
        return {**answer, "message": self._why_not(now)}

    def _own_words(self) -> str:
        if self._file is None or not self._size:
            return ""
        with self._file.open("rb") as file:
            text = _without_own_thread(file.read(TEXT_BYTES).decode("utf-8", "replace").rstrip())
        return text.replace(self._code, "")  # the job's own files by the names that its author knows

    def _why_not(self, now: Seen) -> str:
        if now.state in _STOPPED:
            return (
                f"Process {now.pid} is stopped (state {now.state}): it can answer once it continues (SIGCONT). "
                "If py-spy is installed on the host, its stack can be read as it is."
            )
        if self._file is None:
            return (
                f"Process {now.pid} has no handler that shows its stack: it is not a Python program, or it was started "
                "without the run's environment (python -I, -E or -S). If py-spy is installed on the host, "
                "its stack can be read."
            )
        return (
            f"Process {now.pid} did not answer within {ANSWER_SECONDS:.0f} s (state {now.state}): it is blocked in the "
            "kernel, or it blocks all signals."
        )


def _without_own_thread(text: str) -> str:
    """The stacks without the thread of ours that tells what the flight recorder knows."""
    return "\n\n".join(part for part in text.split("\n\n") if "compat/flight_recorder.py" not in part)


def answer_file(paths: RunPaths, pid: int) -> Optional[Path]:
    """Where the process writes its stacks when it is signalled; None if the signal would end it.

    It must catch the signal, and still have the file open that our handler writes to.
    """
    try:
        status = Path(PROC, str(pid), "status").read_text(errors="replace")
        caught = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), 16)
        if not caught >> (SHOW_STACKS - 1) & 1:
            return None
        folder = paths.stacks.resolve()
        for link in Path(PROC, str(pid), "fd").iterdir():
            target = Path(os.readlink(link))  # noqa: PTH115  # Path.readlink needs Python 3.9
            if target.parent == folder and target.exists():
                return target
    except (OSError, StopIteration, ValueError):  # gone meanwhile, or another account's
        return None
    return None


def by_py_spy(process: Seen, until: float) -> str:
    """What py-spy says of the process, with native frames unless it is stopped; empty where it cannot."""
    program = _py_spy(process.pid)
    left = min(_PY_SPY_SECONDS, until - time.monotonic())
    if program is None or left <= 0:
        return ""
    # native frames need the process to be stopped for a moment, and one that is stopped already cannot be
    way = "--nonblocking" if process.state in _STOPPED else "--native"
    said = output_of([program, "dump", way, "--pid", str(process.pid)], left) or b""
    text = said[:TEXT_BYTES].decode("utf-8", "replace").rstrip()
    return f"As py-spy sees it:\n{text}" if text else ""


def _py_spy(pid: int) -> Optional[str]:
    """The program, from beside the process's Python or from PATH."""
    try:
        # not resolved: in a virtual environment the link itself lies beside its programs
        beside = str(Path(os.fsdecode(Path(PROC, str(pid), "cmdline").read_bytes().split(b"\0")[0])).parent)
    except OSError:
        beside = ""
    path = os.pathsep.join(
        filter(None, [beside if beside.startswith("/") else "", os.environ.get("PATH", os.defpath)])
    )
    return shutil.which("py-spy", path=path)

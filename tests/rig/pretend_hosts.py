"""Hosts that are values: they answer verbs as docs/protocol.md says, and know what really lives on them.

No process is started. A test decides when a launcher gets going, when a run writes, ships and ends, and which answers
are lost; what the server believes is then held against `living`, the truth.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dispatch.runs.intake import Intake, Over
from dispatch.ssh.contact_errors import Unreachable, VerbFailed
from logs.streams import OffsetConflict

Payload = dict[str, Any]
Store = Callable[[str, int, bytes], Intake]


@dataclass
class Run:
    """One member's run on its host, as the host's files and processes have it."""

    key: str
    slots: list[int]
    #: its launcher holds the launch lock, and has written no state.json
    starting: bool = True
    starting_seconds: float = 0.0
    folder: bool = True
    #: processes that carry its marker
    processes: int = 0
    unkillable: bool = False
    killed_seconds: float | None = None
    preempting: bool = False
    stopping: bool = False
    #: the entrypoint has ended; None as its value: nobody knows the code
    exited: bool = False
    exit_file: dict[str, Any] | None = None
    outbox: list[bytes] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    #: bytes that the runner believes to be stored, and the most that was ever acknowledged to it
    shipped: int = 0
    acknowledged: int = 0
    #: its exit record is in the outbox, so nothing follows
    closed: bool = False
    refused: bool = False

    @property
    def size(self) -> int:
        return sum(map(len, self.outbox))

    @property
    def finished(self) -> bool:
        return self.refused or (self.closed and self.shipped >= self.size)

    def write(self, **record: Any) -> None:
        if not self.closed:
            self.outbox.append(json.dumps(record).encode() + b"\n")

    def print_line(self) -> None:
        if self.processes and not self.exited:
            self.lines.append(f"{self.key} line {len(self.lines) + 1}")
            self.write(k="lines", f="rank0.stdout", e=1, t=time.time(), r=0, s="stdout", m=self.lines[-1])

    def begin(self) -> None:
        """The launcher comes to writing state.json and starts the entrypoint."""
        self.starting, self.processes = False, 2
        self.write(k="state", t=time.time(), state="running")

    def end(self, code: int | None, *, left: int = 0, boot_id: str = "") -> None:
        """The entrypoint ends; `left` of its processes live on."""
        if self.exited or self.starting:
            return
        self.exited, self.processes = True, left
        if code is not None:
            self.exit_file = {"code": code, "signal": None, "ended_at": time.time()}
        if left:
            self.killed_seconds = 0.0
        else:
            self._close(code, boot_id)

    def _close(self, code: int | None, boot_id: str = "") -> None:
        """The runner has seen the end of all processes, and writes the last record."""
        self.write(k="exit", t=time.time(), code=code, signal=None, stopped=self.stopping, boot_id=boot_id)
        self.closed = True

    def die(self) -> None:
        """The last of its processes are gone."""
        self.processes, self.killed_seconds = 0, None
        if self.exited and not self.closed:
            self._close(self.exit_file["code"] if self.exit_file else None)

    def take(self, count: int) -> tuple[int, bytes]:
        """The next batch: so many whole records from where the runner believes the stream to stand."""
        at, first = 0, len(self.outbox)
        for place, record in enumerate(self.outbox):
            if at == self.shipped:
                first = place
                break
            at += len(record)
        return self.shipped, b"".join(self.outbox[first : first + count])

    def heard(self, answer: Intake) -> None:
        self.shipped = self.acknowledged = max(self.acknowledged, answer.offset)
        self.stopping |= answer.stop is not None
        self.preempting |= answer.preempt is not None

    def is_over(self) -> None:
        """The server refuses: whatever lives is stopped, and nothing is shipped any more."""
        self.refused = True
        self.end(143)
        if not self.unkillable:
            self.processes = 0


class Pretended:
    """One host: what lives on it, and whether it can be reached."""

    _boots = itertools.count(1)

    def __init__(self, name: str) -> None:
        self.name = name
        self.runs: dict[str, Run] = {}
        self.revoked: set[str] = set()
        #: launches that are on their way although their sender has given up waiting
        self.late: list[Payload] = []
        self.batches: list[tuple[Run, int, bytes]] = []
        self.reachable = True
        self.boot_id = f"boot {next(self._boots)}"
        #: contacts in a row that failed, as the server must have seen them, and the seconds over which they did
        self.failed_contacts = 0
        self.failing_seconds = 0.0

    def living(self) -> list[Run]:
        """Runs of which something lives, or of which something may still start."""
        return [run for run in self.runs.values() if run.processes or run.starting]

    def was_heard(self) -> None:
        """The server has noted an answer, or was away: a series of failed contacts begins anew."""
        self.failed_contacts, self.failing_seconds = 0, 0.0

    def time_passes(self, seconds: float) -> None:
        if self.failed_contacts:
            self.failing_seconds += seconds
        for run in self.runs.values():
            run.starting_seconds += seconds
            if run.killed_seconds is not None:
                run.killed_seconds += seconds
            if run.exit_file:
                run.exit_file["ended_at"] -= seconds

    def reboot(self) -> None:
        self.boot_id = f"boot {next(self._boots)}"
        self.late.clear()
        for key, run in list(self.runs.items()):
            run.processes = 0
            if run.starting:
                del self.runs[key]
            elif run.exited:
                run.die()
            else:
                run.end(None, boot_id=self.boot_id)

    # --- verbs

    def verb(self, name: str, payload: Payload, fate: int) -> dict[str, Any]:
        """Answer. By `fate` the order is lost (1), the answer is (2), a launch comes later (3), it is refused (4)."""
        if not self.reachable or fate == 1:
            raise self._unanswered(f"{self.name} does not answer.", delivered=False)
        if fate == 3 and name == "launch":
            self.late.append(payload)
            raise self._unanswered(f"{self.name} has not answered in time.", delivered=True)
        if fate == 4:
            raise VerbFailed("disk", f"The disk of {self.name} is full.")
        answer = getattr(self, f"_{name}")(payload)
        if fate == 2:
            raise self._unanswered(f"The answer of {self.name} was lost.", delivered=True)
        return {"boot_id": self.boot_id, **answer}

    def _unanswered(self, sentence: str, *, delivered: bool) -> Unreachable:
        self.failed_contacts += 1
        return Unreachable(sentence, delivered=delivered)

    def _launch(self, payload: Payload) -> dict[str, Any]:
        spec = payload["spec"]
        key = spec["run_key"]
        if key in self.revoked:
            raise VerbFailed("revoked", f"The launch of {key} was given up.")
        if run := self.runs.get(key):
            return {"state": "starting"} if run.starting else {"state": "already"}
        self.runs[key] = Run(key, [slot["index"] for slot in spec["slots"]])
        if len(self.runs) % 3 == 0:  # its launcher is slow
            return {"state": "starting"}
        self.runs[key].begin()
        return {"state": "launched"}

    def late_launch(self) -> None:
        if self.late:
            try:
                self._launch(self.late.pop(0))
            except VerbFailed:
                return

    def _revoke(self, payload: Payload) -> dict[str, Any]:
        key = payload["run_key"]
        run = self.runs.get(key)
        if run and not run.starting:
            return {"state": "begun"}
        self.revoked.add(key)
        self.runs.pop(key, None)
        return {"state": "revoked"}

    def _status(self, payload: Payload) -> dict[str, Any]:
        for key, stored in payload.get("stored", {}).items():
            self.runs[key].shipped = stored
        return {"now": time.time(), "runs": {key: self._state(key) for key in payload["runs"]}}

    def _state(self, key: str) -> dict[str, Any]:
        run = self.runs.get(key)
        if run is None:
            return {"state": "absent"}
        pids = [1000 + number for number in range(run.processes)]
        if not run.folder:
            return {"state": "remains", "pids": pids} if pids else {"state": "absent"}
        if run.starting:
            return {"state": "starting", "starting_seconds": run.starting_seconds}
        return {
            "state": "running" if pids else "ended",
            "pids": pids,
            "exit": run.exit_file,
            "outbox_bytes": run.size,
            "unshipped_bytes": run.size - run.shipped,
            "finished": run.finished,
            "refused": "refused" if run.refused else "",
            "killed_seconds": run.killed_seconds,
        }

    def _each(self, payload: Payload) -> list[Run]:
        return [run for key in payload["runs"] if (run := self.runs.get(key)) and run.processes]

    def _stop(self, payload: Payload) -> dict[str, Any]:
        for run in self._each(payload):
            run.stopping = True
        return {"runs": {run.key: {"stopping": True} for run in self._each(payload)}}

    def _preempt(self, payload: Payload) -> dict[str, Any]:
        for run in self._each(payload):
            run.preempting = True
        return {"runs": {run.key: {"preempting": True} for run in self._each(payload)}}

    def _clean(self, payload: Payload) -> dict[str, Any]:
        found = {}
        for key, order in payload["runs"].items():
            run = self.runs.get(key)
            if run and run.processes and order["signal"] == "KILL" and not run.unkillable:
                run.die()
            left = [{"pid": 1000 + number} for number in range(run.processes if run else 0)]
            found[key] = {"count": len(left), "left": left}
        return {"runs": found}

    # --- what happens there by itself

    def run_goes_on(self, run: Run, how: int) -> None:
        """One step of one run: mostly lines, sometimes an end, of each kind that hosts have seen."""
        if run.starting:
            if how % 4:
                run.begin()
        elif run.exited and run.processes:
            if not run.unkillable or how == 11:
                run.die()
        elif run.processes and run.stopping:
            run.unkillable = how == 8
            run.end(143, left=1 if how in {7, 8} else 0)
        elif run.processes and run.preempting:
            run.write(k="core", f="core.rank0.jsonl", e=1, d={"type": "preempt_ack"})
            run.end(0)
        elif run.processes and how == 9:
            run.end(0)
        elif run.processes and how == 10:
            run.end(1)
        elif run.processes and how == 11:  # its launcher is killed, and then its ranks
            run.end(None, left=1)
            run.killed_seconds = None
        elif run.processes and how == 12:  # a cleaner of old files takes its folder, and the runner with it
            run.folder, run.refused = False, True
            self.late.clear()
        elif not run.folder and how % 2:
            run.processes = 0
        else:
            run.print_line()

    def ship(self, run: Run, store: Store, count: int, fate: int) -> None:
        """The runner sends its next records. `fate` 1: the answer is lost, 2: the batch stays on its way."""
        if run.refused or run.starting or not self.reachable:
            return
        offset, body = run.take(count)
        if fate == 2:
            self.batches.append((run, offset, body))
        elif body:
            self.arrive(run, offset, body, store, is_answered=fate != 1)

    def late_batch(self, store: Store) -> None:
        """A batch that was on its way arrives, when its sender has long sent it again or gone on."""
        if self.batches and self.reachable:
            self.arrive(*self.batches.pop(0), store, is_answered=False)

    def arrive(self, run: Run, offset: int, body: bytes, store: Store, *, is_answered: bool) -> None:
        try:
            answer = store(run.key, offset, body)
        except OffsetConflict as conflict:
            if is_answered:
                run.shipped = conflict.stored
                run.acknowledged = max(run.acknowledged, conflict.stored)
            return
        except Over:
            if is_answered:
                run.is_over()
            return
        if is_answered:
            run.heard(answer)

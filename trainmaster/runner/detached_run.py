"""The runner of a detached run: it ships the same records, but starts, stops and kills nobody.

Its ranks were started by their user, and end when they like. What a launcher would have written into `exit.json` is
made here of what the ranks have said.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from typing import Optional

from trainmaster.jsonfile import write_json
from trainmaster.paths import RunPaths
from trainmaster.protocol import ExitFile
from trainmaster.runner import oom_kills
from trainmaster.runner.detached_ranks import GIVE_UP_SECONDS, DetachedRanks, RankEnd
from trainmaster.runner.records import state_record
from trainmaster.runner.running import Runner
from trainmaster.runner.shipping import say
from trainmaster.runner.state import try_lock

_LOOK_SECONDS = 0.05
_LAST_WORDS_SECONDS = 3.0
_REFUSED_LOOK_SECONDS = 1.0


class DetachedRunner(Runner):
    """One member of a detached run."""

    def __init__(self, paths: RunPaths) -> None:
        self.ranks = DetachedRanks(paths)
        self._oom_kills = oom_kills.counted()
        self._failed = False
        super().__init__(paths)

    def run(self) -> None:
        # Who ends all processes of a session or a job means the ranks; what they said last is still to be shipped.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        super().run()

    def _is_over_at_once(self) -> bool:
        return False  # its checkpoints are shipped before its exit is written

    def _processes(self) -> DetachedRanks:
        return self.ranks

    def _note_running(self) -> None:
        if not self.outbox.running:
            self._append(state_record(time.time(), "running"))
            self.outbox.running = True

    def _has_ended(self) -> bool:
        if self.paths.exit.exists():
            return True
        for end in self.ranks.look_for_ends():
            self._note_end(end)
        if not self.ranks.over:
            return False
        self._await_last_words()
        self._keep_trying(self._write_exit_file)
        return True

    def _note_end(self, end: RankEnd) -> None:
        """A failure goes where a launch module would have written it: into the rank's own records."""
        if not end.said:
            how = f"exit code {end.code}" if end.code else "killed, or it crashed"
            if end.signal:
                how = f"by signal {end.signal}"
            self._say_in_log(f"trainmaster: rank {end.rank} ended without core_v2.close(): {how}.")
        if end.said and end.code == 0:
            return
        told = self._failed and not end.said and end.signal in (None, signal.SIGTERM)
        record = {
            "type": "rank_ended" if told else "rank_failed",
            "rank": end.rank,
            "code": end.code,
            "signal": end.signal,
            "t": end.t,
        }
        self._failed = True
        with contextlib.suppress(OSError):  # the exit says it too
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            descriptor = os.open(self.paths.core_records(end.rank), flags, 0o600)
            os.write(descriptor, json.dumps(record).encode() + b"\n")
            os.close(descriptor)

    def _await_last_words(self) -> None:
        """What a killed rank wrote may still be on its way into the spool."""
        until = time.monotonic() + _LAST_WORDS_SECONDS
        for end in self.ranks.ends:
            lock: Optional[int] = None
            while not end.said and lock is None and time.monotonic() < until:
                lock = try_lock(self.paths.tee_lock(end.rank))
                if lock is None:
                    self._collect()
                    time.sleep(_LOOK_SECONDS)
            if lock is not None:
                os.close(lock)

    def _write_exit(self) -> None:
        """Checkpoints come first: with its exit the attempt is over, and the next one gives up what is PARTIAL."""
        while self._collect():
            pass
        while self.uploads.pending() and self.weather.refusal is None:
            self._upkeep()
            time.sleep(_LOOK_SECONDS)
        super()._write_exit()

    def _write_exit_file(self) -> None:
        failed = [end for end in self.ranks.ends if not (end.said and end.code == 0)]
        first = failed[0] if failed else None
        record: ExitFile = {
            "code": first.code if first else 0,
            "signal": first.signal if first else None,
            "ended_at": max([end.t for end in self.ranks.ends] or [time.time()]),
            "stopped": False,
            "oom_kills": oom_kills.since(self._oom_kills),
        }
        write_json(self.paths.exit, record)

    def _upkeep(self) -> None:
        """Nobody but this process remembers the run on this machine, so it does not try for ever."""
        super()._upkeep()
        if self.outbox.exited and time.time() - self.paths.outbox.stat().st_mtime > GIVE_UP_SECONDS:
            say(
                f"The server was unreachable for too long. The unsent output of {self.paths.key} stays on this machine."
            )
            os._exit(0)

    def _stop_refused(self, refusal: str) -> None:
        """The server will not hear of this run any more. The ranks are their user's: they go on, and are only followed.

        What they write is still moved into the outbox, which keeps the disk from filling.
        """
        say(f"The server refused the token of {self.paths.key} ({refusal}). Nothing more will be sent.")
        self.ended.set()
        self.shipper.ended.set()
        self.uploads.ended.set()
        self._save_shipped(finished=False)
        while not self._has_ended():
            self._collect()
            self._upkeep()
            time.sleep(_REFUSED_LOOK_SECONDS)

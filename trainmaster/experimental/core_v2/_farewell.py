"""The end of a detached run: how its process ends, and the last wait until the server has everything.

How it ends is told as far as Python lets it know: `sys.exit`, exceptions, the end of the script. The wait says what is
still to be sent.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from types import TracebackType
from typing import Any, Callable, List, NamedTuple, NoReturn, Optional, Tuple, Type

from trainmaster import quantities
from trainmaster.errors import InvalidHP
from trainmaster.jsonfile import read_json
from trainmaster.paths import RunPaths
from trainmaster.runner.state import read_shipped

_LOOK_SECONDS = 0.05
#: a wait that is longer is explained, and again this often
QUIET_SECONDS = 2.0
TOLD_EVERY_SECONDS = 10.0
#: given up when nothing has moved for so long, and in any case after the limit
STUCK_SECONDS = 30.0
LIMIT_SECONDS = 600.0
_INTERRUPTED = 130


class Left(NamedTuple):
    """What is still to be done: ranks here that go on, bytes of records, checkpoints and their bytes."""

    ranks: List[int]
    record_bytes: int
    checkpoints: int
    checkpoint_bytes: int

    def __str__(self) -> str:
        parts = []
        if self.record_bytes:
            parts.append(f"{quantities.size(self.record_bytes)} of records")
        if self.checkpoints:
            noun = "checkpoint" if self.checkpoints == 1 else "checkpoints"
            parts.append(f"{self.checkpoints} {noun} ({quantities.size(self.checkpoint_bytes)})")
        return " and ".join(parts) or "the last records"


class Farewell:
    """`wait` is called by the first rank of a machine when it has ended."""

    def __init__(self, paths: RunPaths) -> None:
        self._paths = paths

    def wait(self) -> None:
        """Until all is sent, or nothing moves any more; then the runner goes on alone."""
        began = moved = time.monotonic()
        told_at, before = began + QUIET_SECONDS - TOLD_EVERY_SECONDS, self._standing()
        while not self._finished():
            time.sleep(_LOOK_SECONDS)
            now, standing = time.monotonic(), self._standing()
            if standing != before:
                before, moved = standing, now
            if now - moved > STUCK_SECONDS or now - began > LIMIT_SECONDS:
                self.say_left()
                return
            if now - told_at > TOLD_EVERY_SECONDS:
                told_at = now
                self._say_progress(self.left())
        refusal = read_shipped(self._paths)["refused"]
        if refusal:
            tell(
                f"The server did not accept the rest of this run ({refusal}); it is kept in {self._paths.root}."
            )

    def left(self) -> Left:
        known = (read_json(self._paths.ranks) or {}).get("ranks", {})
        ranks = [int(rank) for rank in known if not self._paths.rank_end(int(rank)).exists()]
        size = self._paths.outbox.stat().st_size if self._paths.outbox.exists() else 0
        waiting = (read_json(self._paths.uploads) or {}).get("waiting", [])
        total = sum(sum(upload["resources"].values()) for upload in waiting)
        return Left(ranks, max(0, size - read_shipped(self._paths)["offset"]), len(waiting), total)

    def _standing(self) -> Tuple[object, ...]:
        """Another one whenever something has moved.

        Beside a checkpoint that waits, records say nothing: samples of this machine go on for as long as it does.
        """
        left = self.left()
        if left.checkpoints:
            return left.ranks, left.checkpoints, self._paths.uploads.stat().st_mtime_ns
        return left.ranks, read_shipped(self._paths)["offset"]

    def _finished(self) -> bool:
        return read_shipped(self._paths)["finished"] or not self._paths.spec.exists()

    def _say_progress(self, left: Left) -> None:
        if left.ranks:
            tell(f"Waiting for {ranks_in_words(left.ranks)} of this machine, which has not ended yet.")
        else:
            tell(f"Still to be sent: {left}.")

    def say_left(self) -> None:
        """What goes on when nobody waits any more."""
        left = self.left()
        if left.ranks:
            tell(
                f"The run ends when {ranks_in_words(left.ranks)} of this machine has ended too; a process in the "
                "background keeps sending."
            )
        else:
            tell(
                f"Not sent yet: {left}. It is stored in {self._paths.root}, and a process in the background "
                "keeps sending it while this machine is up; a later detached run on this machine also sends it."
            )


def ranks_in_words(ranks: List[int]) -> str:
    return (
        f"rank {ranks[0]}" if len(ranks) == 1 else f"each of the ranks {', '.join(map(str, sorted(ranks)))}"
    )


def tell(sentence: str) -> None:
    """To the terminal; the log of the run is over."""
    try:
        sys.stderr.write(f"trainmaster: {sentence}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # nobody listens there any more
        return


class ProcessEnd:
    """`code` is the exit code so far; `at_exit` is called once when the interpreter ends, in this process alone.

    `raise SystemExit(n)` without `sys.exit` is not seen: it counts as a good end.
    """

    def __init__(self, at_exit: Callable[[], None]) -> None:
        self.code = 0
        self._pid = os.getpid()
        self._at_exit = at_exit
        self._exit, self._hook = sys.exit, sys.excepthook
        sys.exit = self._leave
        sys.excepthook = self._failed
        atexit.register(self._ended)

    def forget(self) -> None:
        """What comes now is not this run's any more. Hooks that others have put over ours stay."""
        atexit.unregister(self._ended)
        if sys.exit == self._leave:
            sys.exit = self._exit
        if sys.excepthook == self._failed:
            sys.excepthook = self._hook

    def _leave(self, status: Any = None) -> NoReturn:
        self.code = exit_code(status)
        self._exit(status)

    def _failed(
        self, kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]
    ) -> None:
        self.code = _INTERRUPTED if issubclass(kind, KeyboardInterrupt) else 1
        self._hook(kind, error, trace)

    def _ended(self) -> None:
        if os.getpid() == self._pid:  # a fork of it that ends is another matter
            self._at_exit()


def exit_code(status: Any) -> int:
    """What a process ends with after `sys.exit(status)`."""
    if status is None:
        return 0
    return status & 0xFF if isinstance(status, int) else 1


def code_of_exception(error: Optional[BaseException]) -> int:
    """What a process would end with if nobody caught `error`; 0 for None, and for InvalidHP, which ends it well."""
    if error is None or isinstance(error, InvalidHP):
        return 0
    if isinstance(error, SystemExit):
        return exit_code(error.code)
    return _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1

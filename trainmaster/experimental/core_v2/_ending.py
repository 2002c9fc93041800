"""How this process is going to end, as far as Python lets it know: `sys.exit`, exceptions, the end of the script."""

from __future__ import annotations

import atexit
import os
import sys
from types import TracebackType
from typing import Any, Callable, NoReturn, Optional, Type

from trainmaster.errors import InvalidHP

_INTERRUPTED = 130


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

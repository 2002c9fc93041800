"""The memory that `ps` and /proc show as a process's arguments and variables, and what its forks write into it.

A fork shows what its parent was executed with. Its arguments are overwritten in place, and the variables that it has
beside its parent's are written over one that was given for this purpose.
"""

from __future__ import annotations

import ctypes
from typing import Dict, List

_ARG_START, _ARG_END, _ENV_START = 45, 46, 47  # in /proc/self/stat, counted from the field behind the name


class ShownMemory:
    """`arguments` and `spare` are (address, bytes)."""

    def __init__(self, arguments: "tuple[int, int]", spare: "tuple[int, int]") -> None:
        self._arguments = arguments
        self._spare = spare
        self._executed = ctypes.string_at(*arguments)

    @classmethod
    def find(cls, variables: bytes, spare: str) -> ShownMemory:
        """Use `spare` of the variables that /proc/self/environ has; LookupError if the kernel hides where it is."""
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].split()
        start, end, first = (int(fields[index]) for index in (_ARG_START, _ARG_END, _ENV_START))
        at = (b"\0" + variables).find(b"\0" + spare.encode() + b"=")
        if not 0 < start < end <= first or at < 0:
            raise LookupError("the kernel does not show where the arguments of a process are")
        return cls((start, end - start), (first + at, variables.index(b"\0", at) + 1 - at))

    def show(self, command: List[str]) -> None:
        """Show this command line, cut to the length of the one that was executed, and nothing in place of the spare."""
        _overwrite(self._arguments, "\0".join(command).encode("utf-8", "surrogateescape"))
        _overwrite(self._spare, b"")

    def restore(self, variables: Dict[bytes, bytes]) -> None:
        """Show the arguments that were executed, and these variables in place of the spare."""
        ctypes.memmove(self._arguments[0], self._executed, self._arguments[1])
        text = b""  # those that tell the rank are among the shortest
        for name, value in sorted(variables.items(), key=lambda each: len(each[0])):
            entry = name + b"=" + value + b"\0"
            if len(text) + len(entry) <= self._spare[1]:
                text += entry
        _overwrite(self._spare, text)


def _overwrite(place: "tuple[int, int]", text: bytes) -> None:
    address, room = place
    ctypes.memmove(address, text[: room - 1].ljust(room, b"\0"), room)

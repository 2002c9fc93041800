"""`serve`: verbs by the same process for as long as stdin is open, each in a fork of it.

A verb that is a program of its own costs 50 ms of Python each time; here it costs a fork. One request is a line
{"id", "verb", "bytes"} and then so many bytes, which are what stdin would be for the verb alone; one answer is a line
{"id", "answer"}. Requests are answered as they are done, not in the order in which they came.
"""

from __future__ import annotations

import json
import os
import selectors
import sys
import tempfile
from pathlib import Path
from typing import IO, Any, Callable, Dict, Optional

from trainmaster import bounded_json
from trainmaster.processes import boot_id
from trainmaster.runner import warm

Answer = Dict[str, Any]
#: (verb, workdir, stdin) -> the answer, errors included
Perform = Callable[[str, Path, IO[bytes]], Answer]

_READ_BYTES = 1024 * 1024
_IN_MEMORY_BYTES = 1024 * 1024


class Call:
    """A verb that is being done in a child; `said` is what it has written of its answer."""

    def __init__(self, number: int, verb: str, child: int, pipe: int) -> None:
        self.number = number
        self.verb = verb
        self.child = child
        self.pipe = pipe
        self.said = bytearray()

    def answer(self) -> Answer:
        """What the child said, once it has ended."""
        os.close(self.pipe)
        _, status = os.waitpid(self.child, 0)
        try:
            answer: Answer = bounded_json.loads(bytes(self.said))
        except ValueError:
            message = f"The verb {self.verb} ended without an answer (wait status {status})."
            answer = {"error": "broke", "message": message}
        return answer


class Serving:
    """Reads requests from stdin and writes answers to stdout, in one thread, so that it may fork."""

    def __init__(self, folder: Path, perform: Perform) -> None:
        self._folder = folder
        self._perform = perform
        self._selector = selectors.DefaultSelector()
        self._calls: Dict[int, Call] = {}  # by pipe
        self._input = bytearray()
        self._header: Optional[Dict[str, Any]] = None
        self._body: Optional[IO[bytes]] = None
        self._missing = 0

    def run(self) -> int:
        """Until stdin ends; what is still being done then is finished by the children alone."""
        _warm_up()
        os.set_blocking(0, True)
        self._selector.register(0, selectors.EVENT_READ)
        _write({"serving": 1, "boot_id": boot_id()})
        while True:
            for key, _ in self._selector.select():
                if key.fd != 0:
                    self._hear(self._calls[key.fd])
                elif not self._read():
                    return 0

    def _read(self) -> bool:
        data = os.read(0, _READ_BYTES)
        self._input += data
        while self._input and self._take():
            pass
        return bool(data)

    def _take(self) -> bool:
        """Use up a header or a part of a body from the input; False when more must come first."""
        if self._header is None:
            line, newline, rest = bytes(self._input).partition(b"\n")
            if not newline:
                return False
            self._header, self._input = json.loads(line), bytearray(rest)
            self._missing = int(self._header["bytes"])
            self._body = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115  # closed by _start
        assert self._body is not None
        piece = self._input[: self._missing]
        self._body.write(piece)
        del self._input[: len(piece)]
        self._missing -= len(piece)
        if self._missing == 0:
            self._start(self._header, self._body)
            self._header, self._body = None, None
        return True

    def _start(self, header: Dict[str, Any], body: IO[bytes]) -> None:
        body.seek(0)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            self._carry_out(str(header["verb"]), body, writer)
        os.close(writer)
        body.close()
        self._calls[reader] = Call(int(header["id"]), str(header["verb"]), child, reader)
        self._selector.register(reader, selectors.EVENT_READ)

    def _carry_out(self, verb: str, body: IO[bytes], writer: int) -> None:
        """In the child: do the verb, say the answer, end."""
        try:
            self._selector.close()
            for pipe in self._calls:
                os.close(pipe)
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(null, 1)
            with os.fdopen(writer, "wb") as file:
                file.write(json.dumps(self._perform(verb, self._folder, body)).encode())
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(0)

    def _hear(self, call: Call) -> None:
        data = os.read(call.pipe, _READ_BYTES)
        if data:
            call.said += data
            return
        self._selector.unregister(call.pipe)
        del self._calls[call.pipe]
        _write({"id": call.number, "answer": call.answer()})


def _write(line: Dict[str, Any]) -> None:
    data = json.dumps(line).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


def _warm_up() -> None:
    """Import all that the usual verbs, launcher, runner and stopper need, which are forks of this process from now on.

    What is left out here, each of them would import again.
    """
    from trainmaster.host import controlling, launching, old_bundles, revoking  # noqa: F401
    from trainmaster.runner import keeper, running, stopping  # noqa: F401
    from trainmaster.runner.__main__ import main

    "localhost".encode("idna")  # as each first connection does with its host's name: a codec of 5 ms

    warm.warm_up(main)

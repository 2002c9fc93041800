"""`python3 -m trainmaster.serving KIND …`: starts the program, opens the door to it, and ends as the program ends.

KIND is `shell`, `notebook`, `tensorboard [ARGUMENTS]` or `port N -- COMMAND`, whose command listens on port N.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import List, Optional

from trainmaster import dialect_words
from trainmaster.core._records import Records
from trainmaster.paths import RunPaths
from trainmaster.protocol import Spec
from trainmaster.runner.state import read_spec
from trainmaster.serving import programs, shell
from trainmaster.serving.door import EVERYWHERE, LOOPBACK, Door, Opener, close, to_port

_LOOK_SECONDS = 0.1
_NOT_FOUND = 127


class Task:
    """This run, a folder for its sockets, and what was started in it."""

    def __init__(self, paths: RunPaths) -> None:
        self.paths = paths
        self.spec: Spec = read_spec(paths)
        # short, since a socket's path has at most 107 bytes; nobody else may look into it
        self.folder = Path(tempfile.mkdtemp(prefix="trainmaster-", dir="/tmp"))
        self.socket = str(self.folder / "socket")
        self.base = f"/proxy/{self.spec['task_id']}/"
        self.program: Optional[subprocess.Popen[bytes]] = None

    def prepare(self, kind: str, words: List[str]) -> Opener:
        """Start the program of this kind; how a connection to it is opened. Raises NotInstalled, NoSshd, OSError."""
        if kind == "shell":
            keys = os.environ.pop(shell.HOST_KEY, ""), os.environ.pop(shell.AUTHORIZED_KEY, "")
            return shell.to_sshd(shell.find_sshd(), shell.prepare(self.folder, self.paths.code, *keys))
        if kind == "port":
            self.program = subprocess.Popen(words[2:])
            return to_port(int(words[0]))
        if kind == "notebook":
            self.program = subprocess.Popen(programs.notebook(self.socket, self.base, str(self.paths.code)))
        elif kind == "tensorboard":
            self._start_tensorboard(words)
        else:
            raise ValueError(f"the kind is {kind!r}; allowed: shell, notebook, tensorboard, port")
        return partial(asyncio.open_unix_connection, self.socket)

    def _start_tensorboard(self, words: List[str]) -> None:
        from trainmaster.serving.tensorboard_files import Files

        files = Files(self.paths, self.spec, self.paths.root / "event-files")
        command = programs.tensorboard(self.socket, self.base, str(files.folder), words)
        threading.Thread(target=files.follow, daemon=True).start()
        self.program = subprocess.Popen(command)

    async def serve(self, opener: Opener) -> int:
        """Open the door, say so once the program takes connections, and wait for its end; its exit code."""
        loop = asyncio.get_event_loop()
        told: asyncio.Future[int] = loop.create_future()  # to end
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _tell, told, 128 + number)
        door = Door(self.spec["gang"]["secret"], self.spec["run_key"], opener)
        await door.open(
            self.spec["gang"]["ports"].get("comm", 0), EVERYWHERE if self.paths.ticket.exists() else LOOPBACK
        )
        ends = [told]
        if self.program is not None:
            ends.append(asyncio.ensure_future(self._end_of_program()))
        said = asyncio.ensure_future(self._say_when_ready(opener, door.port))
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        said.cancel()
        if self.program is None:
            return told.result()
        self.program.terminate()
        return await ends[1]

    async def _end_of_program(self) -> int:
        assert self.program is not None
        code = await asyncio.get_event_loop().run_in_executor(None, self.program.wait)
        return code if code >= 0 else 128 - code

    async def _say_when_ready(self, opener: Opener, port: int) -> None:
        while self.program is not None and not await _takes_connections(opener):
            await asyncio.sleep(_LOOK_SECONDS)
        if self.program is None:  # an sshd says so of itself; this one is started for each connection
            print(dialect_words.listening("127.0.0.1", port), flush=True)
        Records(str(self.paths.root), 0).append("ready", port=port)


def _tell(told: "asyncio.Future[int]", code: int) -> None:
    if not told.done():
        told.set_result(code)


async def _takes_connections(opener: Opener) -> bool:
    try:
        _, writer = await opener()
    except OSError:
        return False
    close(writer)
    return True


def main(words: List[str]) -> int:
    paths = RunPaths.from_environment()
    if paths is None or not words:
        print("trainmaster.serving runs inside a task and is started by the server.", file=sys.stderr)
        return 2
    task = Task(paths)
    try:
        opener = task.prepare(words[0], words[1:])
        return asyncio.run(task.serve(opener))
    except (programs.NotInstalled, shell.NoSshd) as error:
        return _lacking(paths, str(error))
    except FileNotFoundError as error:
        return _lacking(paths, f"{socket.gethostname()} has no command {error.filename!r}")
    finally:
        shutil.rmtree(task.folder, ignore_errors=True)


def _lacking(paths: RunPaths, sentence: str) -> int:
    """Say in the log and to the server what this host lacks to run the program; the exit code."""
    print(f"ERROR: trainmaster: {sentence}.", file=sys.stderr)
    Records(str(paths.root), 0).append("lacking", sentence=sentence)
    return _NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

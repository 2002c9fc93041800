"""TensorBoard on a Unix socket, run by a Python that has it: `… FOLDER SOCKET PREFIX [its own arguments]`.

By itself it listens on a port, where every account of the host could read what it shows.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any, List

from trainmaster import dialect_words


class _OnSocket:
    """What TensorBoard asks of a server class (tensorboard.program.TensorBoardServer)."""

    path = ""

    def __init__(self, application: Any, flags: Any) -> None:
        from werkzeug.serving import make_server

        self._prefix = flags.path_prefix
        self._server = make_server(f"unix://{self.path}", 0, application, threaded=True)

    def serve_forever(self) -> None:
        self._server.serve_forever()

    def get_url(self) -> str:
        return "http://localhost:0"  # it notes a port for those who look for it by that

    def print_serving_message(self) -> None:
        from tensorboard.version import VERSION

        print(dialect_words.tensorboard_at(VERSION, f"{self._prefix}/"), flush=True)


def main(words: List[str]) -> None:
    from tensorboard import default, program

    folder, _OnSocket.path, prefix, *more = words
    os.umask(0o077)
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    tensorboard = program.TensorBoard(default.get_plugins(), server_class=_OnSocket)
    options = ["--logdir", folder, "--path_prefix", prefix, "--reload_interval", "5"]
    # the fast loader is a program of its own that listens on a port
    options += ["--reload_multifile", "true", "--load_fast", "false"]
    tensorboard.configure(["tensorboard", *options, *more])
    tensorboard.main()


if __name__ == "__main__":
    main(sys.argv[1:])

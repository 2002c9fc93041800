"""Questions of training code to the server; reports never come this way."""

from __future__ import annotations

import logging
import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Callable, Iterator, TypeVar

from trainmaster._info import ClusterInfo, read_server_address

if TYPE_CHECKING:
    from trainmaster.http import ServerClient

logger = logging.getLogger("trainmaster.core")

PATIENCE_SECONDS = 3600.0  # a server that is being upgraded must not end a training that wants to resume
_BACKOFF_SECONDS = (0.5, 15.0)
_UNKNOWN_TOKEN = 401  # a restored backup answers so until somebody has noticed

Answer = TypeVar("Answer")


@contextmanager
def server_client(info: ClusterInfo) -> Iterator[ServerClient]:
    """A client for the server as this run's server.json says now; Unreachable when it has no address."""
    from trainmaster.http import ServerClient, Unreachable

    address = read_server_address(info._run_dir)
    if not address["urls"]:
        raise Unreachable("This run does not know the address of the server yet.")
    with ServerClient(
        address["urls"][0], info.session_token, address["cert_sha256"], identity=info._identity
    ) as client:
        yield client


def patiently(info: ClusterInfo, what: str, ask: Callable[[ServerClient], Answer]) -> Answer:
    """`ask` until the server can be reached and knows this run, for at most an hour; its other errors are raised."""
    from trainmaster.http import Later, Refused, Unreachable

    until = time.monotonic() + PATIENCE_SECONDS
    pause = _BACKOFF_SECONDS[0]
    while True:
        try:
            with server_client(info) as client:
                return ask(client)
        except (Unreachable, Later, Refused) as error:
            is_over = isinstance(error, Refused) and error.status != _UNKNOWN_TOKEN
            if is_over or time.monotonic() + pause > until:
                raise
            logger.warning("%s is waiting for the server: %s", what, error)
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, _BACKOFF_SECONDS[1])

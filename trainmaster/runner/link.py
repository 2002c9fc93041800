"""The runner's way to the server: the URLs of server.json in turn, with backoff, and what a refusal means."""

from __future__ import annotations

import random
import threading
import time
from typing import IO, Any, Dict, Iterator, Mapping, Optional, Tuple, Union
from urllib.parse import quote

from trainmaster.http import (
    Answered,
    HttpError,
    Later,
    Query,
    Refused,
    Reply,
    ServerClient,
    Unproved,
    Unreachable,
)
from trainmaster.identity import identity_of
from trainmaster.paths import RunPaths
from trainmaster.protocol import Spec
from trainmaster.runner.runner_log import say
from trainmaster.runner.state import read_server

OVER = 410  # the status of an answer that says what the token is for is over
#: It counts when it is repeated this much later, with no good answer in between: the last batches may be welcome yet.
OVER_SECONDS = 1.0
#: For how long the server must not know the token of a run, with no good answer in between, before the run ends. A
#: restored backup or a wrong database does that, and people need time to notice.
UNKNOWN_TOKEN_SECONDS = 6 * 3600.0
_SAY_AGAIN_SECONDS = 600.0
_LONGEST_WAIT_SECONDS = 10.0


class Weather:
    """What the threads of a runner tell each other about the server."""

    def __init__(
        self, over_seconds: float = OVER_SECONDS, unknown_token_seconds: float = UNKNOWN_TOKEN_SECONDS
    ) -> None:
        self._changed = threading.Condition()
        self._failing = False
        self._refused_first: Dict[int, float] = {}  # by status
        self._over_seconds = over_seconds
        self._unknown_token_seconds = unknown_token_seconds
        self._said_at: Optional[float] = None
        self.refusal: Optional[str] = None
        self.refusal_status: Optional[int] = None

    def good(self) -> None:
        """The server answered: those who back off may try at once."""
        with self._changed:
            self._refused_first.clear()
            if self._failing:
                self._failing = False
                self._changed.notify_all()

    def bad(self) -> None:
        with self._changed:
            self._failing = True

    def refused(self, error: Refused) -> None:
        """Believe when it is repeated that the attempt is over (410), after hours that its token is unknown (401).

        What did not come from this run's own server is no refusal, but Unproved.
        """
        with self._changed:
            now = time.monotonic()
            first = self._refused_first.setdefault(error.status, now)
            patience = self._over_seconds if error.status == OVER else self._unknown_token_seconds
            if now - first >= patience:
                self.refusal, self.refusal_status = f"{error.status}: {error}", error.status
                self._changed.notify_all()
        if self.refusal is None:
            self.note(f"The server rejected this run's token ({error}). The run continues.")

    def drains(self) -> None:
        """The entrypoint has ended by itself. "It is over" counts from now on: the rest of a stream is welcome longer.

        The server may have told the end before, while a process survived SIGKILL, and refused heartbeats since.
        """
        with self._changed:
            self._refused_first.pop(OVER, None)
            if self.refusal_status == OVER:
                self.refusal = self.refusal_status = None

    def note(self, sentence: str) -> None:
        """Say in the runner's log what is wrong with the server, at most every ten minutes."""
        with self._changed:
            now = time.monotonic()
            if self._said_at is not None and now - self._said_at < _SAY_AGAIN_SECONDS:
                return
            self._said_at = now
        say(sentence)

    def wait(self, seconds: float) -> None:
        """Until `seconds` are over, or another thread reached the server again."""
        with self._changed:
            self._changed.wait(seconds)


class Backoff:
    """Growing, jittered waits, the first of `low` seconds."""

    def __init__(self, low: float = 0.2) -> None:
        self._low = low
        self._failures = 0

    def reset(self) -> None:
        self._failures = 0

    def seconds(self, error: Optional[HttpError] = None) -> float:
        """How long to wait after one more failure, by the server's Retry-After if `error` has one."""
        at_least = error.retry_after if isinstance(error, Later) else None
        wait = min(_LONGEST_WAIT_SECONDS, self._low * 2.0 ** min(self._failures, 20))
        self._failures += 1
        return max(wait, at_least or 0.0) * random.uniform(0.5, 1.0) + (at_least or 0.0) * 0.5


class Link:
    """One thread's requests for one run."""

    def __init__(self, paths: RunPaths, spec: Spec, weather: Weather) -> None:
        self._paths = paths
        self._token = spec["token"]
        self._identity = identity_of(spec)
        self._weather = weather
        self._client: Optional[ServerClient] = None
        self._address: Tuple[str, Optional[str]] = ("", None)
        self.stream = f"/runner/v1/streams/{quote(spec['allocation_id'], safe='')}/{spec['member']}"

    def request(
        self,
        method: str,
        path: str,
        body: Union[bytes, IO[bytes], None] = None,
        *,
        query: Optional[Query] = None,
        headers: Optional[Mapping[str, str]] = None,
        compress: bool = False,
        timeout: Optional[float] = None,
    ) -> Reply:
        """Send it to the URL that worked last, else to each of server.json in turn. Raises an HttpError."""
        failure: Optional[Unreachable] = None
        for address in self._addresses():
            try:
                reply = self._connected(address).request(
                    method,
                    path,
                    body,
                    query=query,
                    headers=headers,
                    compress=compress,
                    repeatable=True,
                    timeout=timeout,
                )
            except Unreachable as error:
                if isinstance(error, Unproved):
                    self._weather.note(str(error))
                failure = error
                self._client = None
                if body is not None and not isinstance(body, bytes):
                    body.seek(0)
            except Refused as error:
                self._weather.refused(error)
                raise
            else:
                self._weather.good()
                return reply
        self._weather.bad()
        raise failure or Unreachable("server.json does not contain a server URL yet.")

    def _addresses(self) -> Iterator[Tuple[str, Optional[str]]]:
        """The URL in use, then those that server.json names now (read only if the first fails)."""
        if self._client is not None:
            yield self._address
        server = read_server(self._paths)
        yield from ((url, server["cert_sha256"]) for url in server["urls"])

    def _connected(self, address: Tuple[str, Optional[str]]) -> ServerClient:
        if self._client is None or self._address != address:
            self._client = ServerClient(address[0], self._token, address[1], identity=self._identity)
            self._address = address
        return self._client


def is_lasting(error: Exception) -> bool:
    """True for an answer that says the request itself is wrong (404 before a checkpoint's record has arrived, too)."""
    return isinstance(error, Answered) and not isinstance(error, (Later, Refused))


def expect_object(reply: Reply) -> Mapping[str, Any]:
    """The JSON object of an answer; Unreachable when it is none, for then another server stands there."""
    try:
        body = reply.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise Unreachable(
            f"The server answered {reply.status} without a JSON object; it may be another server."
        )
    return body

"""The runner's way to the server: the URLs of server.json in turn, with backoff, and what a refusal means."""

from __future__ import annotations

import random
import threading
import time
from typing import IO, Any, List, Mapping, Optional, Tuple, Union
from urllib.parse import quote

from trainmaster.http import Query, Refused, Reply, ServerClient, Unreachable
from trainmaster.paths import RunPaths
from trainmaster.protocol import Spec
from trainmaster.runner.state import read_server

OVER = 410  # the status of an answer that says what the token is for is over
_REFUSED_SECONDS = 1.0  # a refusal counts when it is repeated this much later, with no good answer in between


class Weather:
    """What the threads of a runner tell each other about the server."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._failing = False
        self._refused_first: Optional[float] = None
        self.refusal: Optional[str] = None
        self.refusal_status: Optional[int] = None

    def good(self) -> None:
        """The server answered: those who back off may try at once."""
        with self._changed:
            self._refused_first = None
            if self._failing:
                self._failing = False
                self._changed.notify_all()

    def bad(self) -> None:
        with self._changed:
            self._failing = True

    def refused(self, error: Refused) -> None:
        """Believe a refusal only when it is repeated: behind a tunnel's port may stand another server for a moment."""
        with self._changed:
            now = time.monotonic()
            if self._refused_first is None:
                self._refused_first = now
            elif now - self._refused_first >= _REFUSED_SECONDS:
                self.refusal, self.refusal_status = f"{error.status}: {error}", error.status
                self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Until `seconds` are over, or another thread reached the server again."""
        with self._changed:
            self._changed.wait(seconds)


class Backoff:
    """Growing, jittered waits between `low` and `high` seconds."""

    def __init__(self, low: float = 0.2, high: float = 10.0) -> None:
        self._low, self._high = low, high
        self._failures = 0

    def reset(self) -> None:
        self._failures = 0

    def seconds(self, at_least: Optional[float] = None) -> float:
        """How long to wait after one more failure; `at_least` is the server's Retry-After."""
        wait = min(self._high, self._low * 2.0 ** min(self._failures, 20))
        self._failures += 1
        return max(wait, at_least or 0.0) * random.uniform(0.5, 1.0) + (at_least or 0.0) * 0.5


class Link:
    """One thread's requests for one run."""

    def __init__(self, paths: RunPaths, spec: Spec, weather: Weather, timeout: float = 30.0) -> None:
        self._paths = paths
        self._token = spec["token"]
        self._weather = weather
        self._timeout = timeout
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
        raise failure or Unreachable("server.json names no URL of the server yet.")

    def _addresses(self) -> List[Tuple[str, Optional[str]]]:
        """The URL in use, then those that server.json names now (read only if the first fails)."""
        if self._client is not None:
            return [self._address, *self._named()]
        return self._named()

    def _named(self) -> List[Tuple[str, Optional[str]]]:
        server = read_server(self._paths)
        return [(url, server["cert_sha256"]) for url in server["urls"]]

    def _connected(self, address: Tuple[str, Optional[str]]) -> ServerClient:
        if self._client is None or self._address != address:
            self._client = ServerClient(address[0], self._token, address[1], self._timeout)
            self._address = address
        return self._client


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

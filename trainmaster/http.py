"""A small HTTP client on the standard library, for the runner, the SDK and the CLI.

One `ServerClient` keeps one connection alive; it is for one thread at a time (make one per thread, it costs
nothing until its first request). Errors are typed by what the caller can do about them.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import select
import socket
import ssl
from contextlib import contextmanager
from typing import IO, Any, Dict, Iterator, Mapping, NamedTuple, Optional, Sequence, Tuple, Type, Union
from urllib.parse import urlencode, urlsplit

from trainmaster.identity import CHALLENGE_HEADER, IDENTITY_PATH, PROOF_HEADER, Identity
from trainmaster.protocol import PROTOCOL, PROTOCOL_HEADER
from trainmaster.storage_faults import is_of_file

Query = Union[Mapping[str, Any], Sequence[Tuple[str, Any]]]


class HttpError(Exception):
    """Base of all errors of a request; the message is a sentence."""


class Unreachable(HttpError):
    """No HTTP answer came: no connection, a timeout, a broken one, or a certificate other than the pinned one."""


class CertificateMismatch(Unreachable):
    """The server's certificate has another fingerprint than the pinned one."""


class Unproved(Unreachable):
    """Something answered that did not prove to be this run's server; what it said counts for nothing."""


class Answered(HttpError):
    """The server answered with an error; `status`, `body` (decoded JSON or None) and `text` say what."""

    def __init__(self, status: int, body: Any, text: str) -> None:
        self.status = status
        self.body = body
        self.text = text
        super().__init__(sentence_of(body) or f"The server answered {status}: {text[:300] or 'no text'}")


class Refused(Answered):
    """401 or 410: the token is refused, or what it is for is over."""


class Conflict(Answered):
    """409; for a stream `offset` is where it stands."""

    @property
    def offset(self) -> Optional[int]:
        offset = self.body.get("offset") if isinstance(self.body, dict) else None
        return offset if isinstance(offset, int) else None


class Later(Answered):
    """429 or any 5xx: the same request may work later; `retry_after` in seconds if the server named it."""

    retry_after: Optional[float] = None


class Reply(NamedTuple):
    """A whole answer below 400."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body) if self.body else None


def sentence_of(body: Any) -> Optional[str]:
    """The server's own sentence in an error body of any of its dialects."""
    if not isinstance(body, dict):
        return None
    error = body.get("error")
    inner = error.get("message") if isinstance(error, dict) else None
    candidates = [body.get("message"), body.get("detail"), inner, error]
    return next((text for text in candidates if isinstance(text, str) and text), None)


class ServerClient:
    """Requests to one server URL, with bearer token, pinned certificate and timeouts in seconds.

    With an `identity` each connection is proved before the token is sent on it, and each answer before it is believed.
    """

    def __init__(
        self,
        url: str,
        token: Optional[str] = None,
        cert_sha256: Optional[str] = None,
        timeout: float = 30.0,
        tls: Optional[ssl.SSLContext] = None,
        identity: Optional[Identity] = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"The server URL {url!r} is not http://host[:port] or https://host[:port].")
        self.url = url.rstrip("/")
        self.token = token
        self.timeout = timeout
        self._parts = parts
        self._given_tls = tls
        self._identity = identity
        self._pin = cert_sha256.replace(":", "").lower() if cert_sha256 else None
        self._connection: Optional[http.client.HTTPConnection] = None

    def __enter__(self) -> ServerClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def identity(self) -> Optional[Identity]:
        """Which server this must be; None: whoever answers at the URL."""
        return self._identity

    @identity.setter
    def identity(self, identity: Optional[Identity]) -> None:
        if identity != self._identity:  # the connection was proved to another one, or to nobody
            self.close()
            self._identity = identity

    @property
    def authority(self) -> str:
        """Host and port, as a Host header names them."""
        return self._parts.netloc.rpartition("@")[2]

    def take_socket(self) -> socket.socket:
        """A new connection to the server, with TLS and pinned certificate, for who speaks another protocol on it."""
        self.close()
        try:
            connection = self._connect(self.timeout)
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{self.url} cannot be reached: {reason_of(error)}.") from error
        return connection.sock

    def get(self, path: str, query: Optional[Query] = None, timeout: Optional[float] = None) -> Reply:
        return self.request("GET", path, query=query, timeout=timeout)

    def post(self, path: str, value: object = None, query: Optional[Query] = None) -> Reply:
        """POST `value` as JSON."""
        return self.request("POST", path, json.dumps(value).encode(), query=query)

    def request(
        self,
        method: str,
        path: str,
        body: Union[bytes, IO[bytes], None] = None,
        *,
        query: Optional[Query] = None,
        headers: Optional[Mapping[str, str]] = None,
        compress: bool = False,
        repeatable: Optional[bool] = None,
        timeout: Optional[float] = None,
    ) -> Reply:
        """Send one request and read the whole answer.

        A `body` of bytes is JSON unless `headers` say otherwise, and is sent gzipped with `compress`; a file
        is streamed and needs a Content-Length in `headers`. With `repeatable` (any method but POST and PATCH, or
        as the caller says) a kept-alive connection that breaks is replaced once. Raises an HttpError.
        """
        prepared = self._headers(body, headers, compress)
        if compress and isinstance(body, bytes):
            body = gzip.compress(body, compresslevel=1)
        if repeatable is None:
            repeatable = method not in ("POST", "PATCH")
        if body is not None and not isinstance(body, bytes):
            repeatable = False  # the file has been read
        target = self._target(path, query)
        response = self._send(method, target, body, prepared, timeout or self.timeout, repeatable)
        try:
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unreachable(f"The response of {self.url} was interrupted: {reason_of(error)}.") from error
        if response.will_close:
            self.close()
        if response.status >= 400:
            raise _error(response, content)
        return Reply(response.status, dict(response.headers.items()), _decoded(content, response))

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        *,
        query: Optional[Query] = None,
        headers: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = None,
    ) -> Iterator[http.client.HTTPResponse]:
        """An answer to be read piece by piece (downloads, NDJSON lines); its connection is not used again."""
        target = self._target(path, query)
        prepared = self._headers(None, headers, False)
        response = self._send(method, target, None, prepared, timeout or self.timeout, method == "GET")
        try:
            if response.status >= 400:
                raise _error(response, response.read())
            yield response
        except (OSError, http.client.HTTPException) as error:
            if is_of_file(error):  # who reads the answer cannot keep it: no reason to ask again
                raise
            raise Unreachable(f"The response of {self.url} was interrupted: {reason_of(error)}.") from error
        finally:
            self.close()

    def _target(self, path: str, query: Optional[Query]) -> str:
        prefix = self._parts.path.rstrip("/")
        return prefix + path + (f"?{urlencode(query, doseq=True)}" if query else "")

    def _headers(
        self, body: Union[bytes, IO[bytes], None], extra: Optional[Mapping[str, str]], compress: bool
    ) -> Dict[str, str]:
        headers = {"Accept": "application/json", PROTOCOL_HEADER: str(PROTOCOL)}
        if isinstance(body, bytes):
            headers["Content-Type"] = "application/json"
            if compress:
                headers["Content-Encoding"] = "gzip"
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        headers.update(extra or {})
        return headers

    def _send(
        self,
        method: str,
        target: str,
        body: Union[bytes, IO[bytes], None],
        headers: Mapping[str, str],
        timeout: float,
        repeatable: bool,
    ) -> http.client.HTTPResponse:
        if self._connection is not None and _closed_by_peer(self._connection):
            self.close()
        for reused in (True, False) if self._connection is not None else (False,):
            try:
                return self._exchange(self._connected(timeout), method, target, body, headers)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                timed_out = isinstance(error, socket.timeout)
                if not (reused and repeatable) or timed_out:
                    raise Unreachable(f"{self.url} cannot be reached: {reason_of(error)}.") from error
            except BaseException:
                self.close()
                raise
        raise AssertionError("the loop returns or raises")

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: Union[bytes, IO[bytes], None],
        headers: Mapping[str, str],
    ) -> http.client.HTTPResponse:
        """One request on this connection. Raises Unproved when another server than this run's has answered it."""
        if self._identity is None:
            connection.request(method, target, body=body, headers=dict(headers))
            return connection.getresponse()
        challenge = self._identity.challenge()
        connection.request(method, target, body=body, headers={**headers, CHALLENGE_HEADER: challenge.header})
        response = connection.getresponse()
        if not challenge.is_met(response.getheader(PROOF_HEADER), response.status):
            raise Unproved(_what_answered(self.url, response))
        return response

    def _prove(self, connection: http.client.HTTPConnection) -> None:
        """Nothing that is secret is sent on this connection before its other end has proved who it is."""
        response = self._exchange(connection, "GET", self._target(IDENTITY_PATH, None), None, {})
        response.read()
        if response.will_close:
            raise Unreachable(
                f"{self.url} closes the connection after each response, so it cannot prove which server gets "
                "the token. Configure the proxy there to keep connections open."
            )
        connection.auto_open = 0  # else http.client replaces a closed connection by one that proved nothing

    def _connected(self, timeout: float) -> http.client.HTTPConnection:
        if self._connection is None:
            self._connection = self._connect(timeout)
        if self._connection.sock is not None:
            self._connection.sock.settimeout(timeout)
        return self._connection

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "http":
            connection = http.client.HTTPConnection(host, port, timeout=timeout)
        else:
            connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=self._tls())
        connection.connect()
        sock: Any = connection.sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._pin and self._parts.scheme == "https":
            found = hashlib.sha256(sock.getpeercert(binary_form=True) or b"").hexdigest()
            if found != self._pin:
                connection.close()
                raise CertificateMismatch(
                    f"{self.url} presented a certificate with SHA-256 {found}; expected: {self._pin}. "
                    "Either the certificate was replaced, or this is another server."
                )
        if self._identity is not None:
            try:
                self._prove(connection)
            except BaseException:
                connection.close()
                raise
        return connection

    def _tls(self) -> ssl.SSLContext:
        if self._given_tls is not None:
            return self._given_tls
        context = ssl.create_default_context()
        if self._pin:  # the fingerprint is the whole proof: an own certificate has no authority behind it
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def _closed_by_peer(connection: http.client.HTTPConnection) -> bool:
    """An idle connection has nothing to read; if it has, that is the peer's goodbye."""
    if connection.sock is None:
        return True
    readable = select.poll()
    readable.register(connection.sock, select.POLLIN)
    return bool(readable.poll(0))


def _what_answered(url: str, response: http.client.HTTPResponse) -> str:
    """A sentence about a stranger, by what its headers say of it."""
    said = [
        f"{name}: {''.join(filter(str.isprintable, value))[:80]}"
        for name in ("Server", "Content-Type", "WWW-Authenticate", "Location")
        for value in [response.getheader(name)]
        if value
    ]
    return (
        f"The server at {url} did not prove that it is this run's server, so it is ignored. "
        f"It answered {response.status} ({'; '.join(said) or 'no header identifies it'})."
    )


def _error(response: http.client.HTTPResponse, content: bytes) -> Answered:
    status = response.status
    text = content.decode("utf-8", "replace")
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    kinds: Dict[int, Type[Answered]] = {401: Refused, 410: Refused, 409: Conflict, 429: Later}
    error = kinds.get(status, Later if status >= 500 else Answered)(status, body, text)
    if isinstance(error, Later):
        error.retry_after = _seconds(response.getheader("Retry-After"))
    return error


def _seconds(value: Optional[str]) -> Optional[float]:
    try:
        return max(0.0, float(value)) if value else None
    except ValueError:  # the date form is allowed by HTTP, and rare: let the caller's own backoff decide
        return None


def _decoded(content: bytes, response: http.client.HTTPResponse) -> bytes:
    return gzip.decompress(content) if response.getheader("Content-Encoding") == "gzip" else content


def reason_of(error: BaseException) -> str:
    """Why there is no answer, as the end of a sentence."""
    if isinstance(error, socket.timeout):
        return "no response in time"
    if isinstance(error, http.client.IncompleteRead):
        return "the connection was closed before the end"
    return str(error) or type(error).__name__

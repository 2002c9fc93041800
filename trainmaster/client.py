"""A typed client of the server's REST interface, for people's programs and the CLI.

It waits for a server that restarts, for a bounded time and with a word to the user, and only where the request
cannot have been carried out already.
"""

from __future__ import annotations

import http.client
import io
import json
import random
import socket
import ssl
import time
import uuid
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple
from urllib.parse import quote

from trainmaster._info import identity_behind
from trainmaster.http import Answered, CertificateMismatch, HttpError, Later, Reply, ServerClient, Unreachable

Json = Dict[str, Any]
Query = Sequence[Tuple[str, Any]]
Progress = Callable[[int, int], None]

RETRY_LIMIT_SECONDS = 30.0
_FIRST_WAIT_SECONDS = 0.25
_LONGEST_WAIT_SECONDS = 3.0
_PAGE = 200
_RETRIED = (429, 502, 503, 504)
#: a stream is quiet while its job is; after this it is opened anew, in case the connection is dead
STREAM_TIMEOUT_SECONDS = 120.0
UPLOAD_TIMEOUT_SECONDS = 600.0


class StreamFailed(HttpError):
    """The server ended a stream with an error of its own; `code` is its status."""

    def __init__(self, sentence: str, code: int) -> None:
        self.code = code
        super().__init__(sentence)


class StreamQuiet(Unreachable):
    """Nothing came for a long time: the job says nothing, or the connection is dead without a word."""


class Client:
    """The server at `url`; `notify` hears a sentence when it is away and tried again. `tls` is who vouches for it."""

    def __init__(
        self,
        url: str,
        token: Optional[str] = None,
        cert_sha256: Optional[str] = None,
        notify: Callable[[str], None] = lambda sentence: None,
        retry_limit_seconds: float = RETRY_LIMIT_SECONDS,
        stream_timeout_seconds: float = STREAM_TIMEOUT_SECONDS,
        tls: Optional[ssl.SSLContext] = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._http = ServerClient(url, cert_sha256=cert_sha256, tls=tls)
        self.token = token
        self._notify = notify
        self._limit = retry_limit_seconds
        self._stream_timeout = stream_timeout_seconds

    @property
    def token(self) -> Optional[str]:
        return self._http.token

    @token.setter
    def token(self, token: Optional[str]) -> None:
        self._http.token = token
        self._http.identity = identity_behind(token, self.url)

    def close(self) -> None:
        self._http.close()

    def connection(self) -> ServerClient:
        """What speaks to the server, logged in, for tunnels."""
        return self._http

    # --- requests -------------------------------------------------------------------------------------------

    def call(
        self, method: str, path: str, body: Any = None, query: Query = (), headers: Mapping[str, str] = {}
    ) -> Any:
        """The JSON answer to a request with a JSON body. Raises an HttpError."""
        content = None if body is None else json.dumps(body).encode()
        repeatable = method in ("GET", "PUT", "DELETE") or "Idempotency-Key" in headers
        sent = {"Content-Type": "application/json", **headers}

        def once() -> Reply:
            return self._http.request(method, path, content, query=query, headers=sent)

        return self._patiently(once, repeatable).json()

    def get(self, path: str, query: Query = ()) -> Any:
        return self.call("GET", path, query=query)

    def post(self, path: str, body: Any = None) -> Any:
        return self.call("POST", path, {} if body is None else body)

    def pages(self, path: str, rows: str, query: Query = (), limit: int = 0, offset: int = 0) -> List[Json]:
        """All rows of a list (or `limit` of them, from `offset`), page by page."""
        found: List[Json] = []
        while True:
            want = min(_PAGE, limit - len(found)) if limit else _PAGE
            page = self.get(path, [*query, ("limit", want), ("offset", offset + len(found))])
            found += page[rows]
            total = (page.get("pagination") or {}).get("total", 0)
            if not page[rows] or offset + len(found) >= total or (limit and len(found) >= limit):
                return found

    def lines(self, path: str, query: Query = ()) -> Iterator[Json]:
        """The records of an NDJSON stream, to its proper end.

        Raises Unreachable when it breaks off, StreamQuiet when nothing comes, StreamFailed with the server's error.
        """
        with self._http.stream("GET", path, query=query, timeout=self._stream_timeout) as response:
            for line in _lines(response):
                record = json.loads(line)
                if "error" in record:
                    raise _stream_failure(record["error"])
                yield record.get("result", record)

    def pieces(self, path: str, query: Query = (), headers: Mapping[str, str] = {}) -> Iterator[bytes]:
        """A file, piece by piece. Raises Unreachable when it breaks off."""
        timeout = self._stream_timeout
        with self._http.stream("GET", path, query=query, headers=headers, timeout=timeout) as response:
            while True:
                piece = response.read1(65536)
                if not piece:
                    return
                yield piece

    def upload(self, path: str, body: Any, progress: Progress) -> Any:
        """POST a large JSON body, telling `progress` the bytes sent and the bytes in all. Sent once, ever."""
        content = json.dumps(body).encode()
        headers = {
            "Content-Type": "application/json",
            "Content-Length": str(len(content)),
            "Idempotency-Key": str(uuid.uuid4()),
        }

        def once() -> Reply:
            told = _Told(content, progress)
            return self._http.request("POST", path, told, headers=headers, timeout=UPLOAD_TIMEOUT_SECONDS)

        return self._patiently(once, repeatable=True).json()

    def _patiently(self, once: Callable[[], Reply], repeatable: bool) -> Reply:
        """`once`, again while the server is away, as long as the limit allows."""
        wait, deadline, told = _FIRST_WAIT_SECONDS, time.monotonic() + self._limit, False
        while True:
            try:
                return once()
            except HttpError as error:
                pause = _pause(error, wait)
                if not _may_repeat(error, repeatable) or time.monotonic() + pause > deadline:
                    raise
                if not told:
                    self._notify(f"{error} Trying again for up to {self._limit:.0f} s.")
                    told = True
                time.sleep(pause)
                wait = min(wait * 2, _LONGEST_WAIT_SECONDS)

    # --- who and what ---------------------------------------------------------------------------------------

    def info(self) -> Json:
        """{cluster_id, cluster_name, master_id, version}; needs no login."""
        return dict(self.get("/info"))

    def login(self, username: str, hashed_password: str) -> str:
        """A token. Raises Answered with status 401 when name and password do not belong together."""
        body = {"username": username, "password": hashed_password, "isHashed": True}
        return str(self.post("/api/v1/auth/login", body)["token"])

    def me(self) -> Json:
        return dict(self.get("/api/v1/me")["user"])

    def user(self, name: str) -> Json:
        return dict(self.get(f"/api/v1/users/{quote(name, safe='')}/by-username")["user"])

    # --- experiments, trials, jobs --------------------------------------------------------------------------

    def create_experiment(self, request: Json, progress: Progress = lambda done, total: None) -> Json:
        """POST /api/v1/experiments; `request` has config (YAML), modelDefinition, template, projectId, activate."""
        return dict(self.upload("/api/v1/experiments", request, progress))

    def experiment(self, experiment_id: int) -> Json:
        """{experiment, config, jobSummary?}."""
        return dict(self.get(f"/api/v1/experiments/{experiment_id}"))

    def trials_of(self, experiment_id: int, limit: int = 0, offset: int = 0) -> List[Json]:
        """All of them, the first first, or `limit` from `offset`."""
        query = [("sortBy", "SORT_BY_ID"), ("orderBy", "ORDER_BY_ASC")]
        return self.pages(f"/api/v1/experiments/{experiment_id}/trials", "trials", query, limit, offset)

    def trial(self, trial_id: int) -> Json:
        return dict(self.get(f"/api/v1/trials/{trial_id}")["trial"])

    def job_queue(
        self,
        pool: Optional[str] = None,
        limit: int = 0,
        offset: int = 0,
        reverse: bool = False,
        user: Optional[str] = None,
    ) -> List[Json]:
        """The jobs of a pool (None: the default one) in the order in which it considers them, of all or one user."""
        query: List[Tuple[str, Any]] = [("orderBy", "ORDER_BY_DESC" if reverse else "ORDER_BY_ASC")]
        if pool:
            query.append(("resourcePool", pool))
        if user:
            query.append(("users", user))
        rows = self.pages("/api/v1/job-queues-v2", "jobs", query, limit, offset)
        return [row.get("full") or row.get("limited") or row for row in rows]

    def explain_job(self, job_id: str) -> Json:
        """Why each task of a job waits: the last pass's reason, and all blockers as of now."""
        return dict(self.get(f"/api/v1/jobs/{quote(job_id, safe='')}/explain"))

    def update_jobs(self, updates: Sequence[Json]) -> List[str]:
        """Apply all edits or none; what the server says has changed."""
        answer = self.post("/api/v1/job-queues", {"updates": list(updates)})
        return list((answer or {}).get("changes") or [])

    def preview_jobs(self, updates: Sequence[Json]) -> Json:
        """What these edits would do: {changes, order, movedJobs, stops, starts, stopsOthers}. Changes nothing."""
        return dict(self.post("/api/v1/job-queues/preview", {"updates": list(updates)}))

    def undo_edit(self) -> List[str]:
        """Take back the last edit of whoever is logged in; what the server says has changed."""
        return list(self.post("/api/v1/job-queues/undo")["changes"])

    def resource_pools(self) -> List[Json]:
        return self.pages("/api/v1/resource-pools", "resourcePools")

    def edit_resource_pool(self, name: str, changes: Json) -> Json:
        """Change rules of the pool; {"resourcePool": the pool as it is then, "changed": [fields]}."""
        return dict(self.call("PATCH", f"/api/v1/resource-pools/{quote(name, safe='')}", changes))

    # --- hosts ----------------------------------------------------------------------------------------------

    def hosts(self) -> List[Json]:
        return self.pages("/api/v1/hosts", "hosts")

    def host(self, name: str) -> Json:
        return dict(self.get(_host(name))["host"])

    def host_samples(self, name: str, names: Sequence[str], seconds: float) -> List[Json]:
        """What was measured on the host in the last so many seconds, a series per name and GPU."""
        query = [("from", time.time() - seconds), *(("names", each) for each in names)]
        return list(self.get(f"{_host(name)}/samples", query)["series"])

    def add_host(self, host: Json) -> Json:
        """Begin to add a host; the answer is its first state, `admitting`."""
        return dict(self.post("/api/v1/hosts", host)["host"])

    def server_key(self) -> str:
        """The server's public SSH key, as a line of authorized_keys."""
        return str(self.get("/api/v1/hosts/server-key")["publicKey"]).strip()

    def host_action(self, name: str, action: str, body: Optional[Json] = None) -> Json:
        """doctor, enable, disable, drain or accept-key; the host as it is then."""
        return dict(self.post(f"{_host(name)}/{action}", body).get("host") or {})

    def edit_host(self, name: str, changes: Json) -> Json:
        """Change python, activate or pool; the host as it is then."""
        return dict(self.call("PATCH", _host(name), changes)["host"])

    def remove_host(self, name: str) -> None:
        self.call("DELETE", _host(name))


class _Told(io.BytesIO):
    """A body that says how far it has been read."""

    def __init__(self, content: bytes, progress: Progress) -> None:
        super().__init__(content)
        self._total = len(content)
        self._progress = progress

    def read(self, size: Optional[int] = -1) -> bytes:
        found = super().read(size)
        self._progress(self.tell(), self._total)
        return found


def _host(name: str) -> str:
    return f"/api/v1/hosts/{quote(name, safe='')}"


def _stream_failure(error: Any) -> StreamFailed:
    if not isinstance(error, dict):
        return StreamFailed(str(error), 500)
    code = error.get("code")
    return StreamFailed(
        str(error.get("message") or error.get("error") or error), code if isinstance(code, int) else 500
    )


def _lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
    rest = b""
    while True:
        try:
            piece = response.read1(65536)
        except socket.timeout as error:
            raise StreamQuiet("No data was received for a while.") from error
        if not piece:
            break
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line for line in whole if line.strip())
    if rest.strip():
        yield rest


def _may_repeat(error: HttpError, repeatable: bool) -> bool:
    """Whether the same request may be sent again, and may go better."""
    if isinstance(error, Answered):
        return isinstance(error, Later) and error.status in _RETRIED
    if isinstance(error, CertificateMismatch) or isinstance(error.__cause__, (socket.gaierror, ValueError)):
        return False
    never_sent = isinstance(error.__cause__, ConnectionRefusedError)
    return isinstance(error, Unreachable) and (repeatable or never_sent) and not _is_tls(error)


def _is_tls(error: HttpError) -> bool:
    return type(error.__cause__).__module__ == "ssl"


def _pause(error: HttpError, wait: float) -> float:
    asked = error.retry_after if isinstance(error, Later) else None
    return asked if asked is not None else wait * random.uniform(0.7, 1.3)

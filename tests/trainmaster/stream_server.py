"""A small real HTTP server that keeps the stream contract of docs/protocol.md, for tests of the runner."""

import gzip
import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from trainmaster.identity import CHALLENGE_HEADER, IDENTITY_PATH, PROOF_HEADER, proof

TOKEN = "run-token"
PROOF_KEY = "what the true server and the run alone know"


def lines_of(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The single lines of `lines` records: `f r s t`, its level `l` or None, whether it is cut `c`, its text `m`."""
    lines = []
    for record in records:
        levels = dict(record.get("l", []))
        cut = record.get("c", [])
        for index, text in enumerate(record["m"].split("\n")):
            own = {key: record[key] for key in ("f", "r", "s", "t")}
            lines.append({**own, "l": levels.get(index), "c": index in cut, "m": text})
    return lines


class StreamServer:
    """Stores one stream and its checkpoints in memory; can go away, come back, refuse and give orders."""

    proof_key = PROOF_KEY
    cluster_id = "c1"

    def __init__(self, port: int = 0, listens_on: str = "127.0.0.1") -> None:
        self.listens_on = listens_on
        self.lock = threading.Condition()
        self.data = b""
        self.arrivals: list[tuple[float, int]] = []  # when the stream reached which offset
        self.conflicts = 0
        self.heartbeats: list[dict[str, Any]] = []
        self.preempt: dict[str, Any] | None = None
        self.stop_order: dict[str, Any] | None = None
        self.refuse_with: int | None = None
        #: not 0: the answer to the exit record is lost, batches get 410 from then on, and uploads 503 before so many
        self.ends_with_410s = 0
        self.said_410 = 0
        self.beats_are_refused = False  # heartbeats and polls get 410, as of a run whose end is known
        self.uploads_wait = False  # they get 503
        self.proves = True  # a proxy in front of it that asks for a login answers without a proof
        self.files: dict[str, bytes] = {}
        self.completed: dict[str, dict[str, int]] = {}
        self.hide_files_once = False
        self.spoils = 0  # so many files arrive with another content
        self.port = port
        self._http: ThreadingHTTPServer | None = None
        self.up()

    @property
    def address(self) -> dict[str, Any]:
        """server.json for this server."""
        return {"urls": [f"http://127.0.0.1:{self.port}"], "cert_sha256": None}

    def up(self) -> None:
        server = self

        bound = type("Bound", (self.handler(),), {"stream_server": server})
        self._http = _Server((self.listens_on, self.port), bound)
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def handler(self) -> type[BaseHTTPRequestHandler]:
        return Handler

    def down(self) -> None:
        """Stop listening, and break every open connection as a dying process would."""
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http.break_connections()
            self._http = None

    def records(self, kind: str | None = None) -> list[dict[str, Any]]:
        with self.lock:
            lines = self.data.splitlines()
        records = [json.loads(line) for line in lines if line.strip()]
        return [record for record in records if kind in (None, record["k"])]

    def lines(self) -> list[dict[str, Any]]:
        return lines_of(self.records("lines"))

    def texts(self, file: str) -> list[str]:
        return [line["m"] for line in self.lines() if line["f"] == file]

    def exit(self) -> dict[str, Any] | None:
        return next(iter(self.records("exit")), None)

    def wait_for(self, true: Callable[[], Any], seconds: float = 60.0) -> Any:
        """The first true value of `true`; AssertionError after `seconds`."""
        until = time.monotonic() + seconds
        with self.lock:
            while not (value := true()):
                assert time.monotonic() < until, (
                    f"not within {seconds} s; the stream ends {self.data[-600:]!r}"
                )
                self.lock.wait(0.02)
        return value

    @property
    def waits_for_410s(self) -> bool:
        return self.said_410 < self.ends_with_410s

    def orders(self) -> dict[str, Any]:
        return {"preempt": self.preempt, "stop": self.stop_order}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.open_connections: set[socket.socket] = set()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open_connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.open_connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A broken connection is what these tests are about."""

    def break_connections(self) -> None:
        for connection in list(self.open_connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stream_server: StreamServer

    def do_POST(self) -> None:
        server, url = self.stream_server, urlsplit(self.path)
        body = self._body()
        if self._refused():
            return
        if server.ends_with_410s and server.exit() and "/streams/" in url.path:
            with server.lock:
                server.said_410 += 1
            self._answer(410, {"message": "The allocation is over."})
        elif url.path.endswith("/heartbeat"):
            with server.lock:
                server.heartbeats.append(json.loads(body))
            self._answer(200, server.orders())
        elif url.path.endswith("/complete"):
            self._complete(url.path.split("/")[-2], json.loads(body)["resources"])
        else:
            self._store(int(parse_qs(url.query)["offset"][0]), body)

    def do_PUT(self) -> None:
        body = self._body()
        if self._refused():
            return
        url = urlsplit(self.path)
        _, _, rest = url.path.partition("/checkpoints/")
        uuid, _, path = rest.partition("/parts/")
        name, query = f"{uuid}/{unquote(path)}", parse_qs(url.query)
        offset, size = int(query["offset"][0]), int(query["size"][0])
        with self.stream_server.lock:
            if self.stream_server.spoils:
                self.stream_server.spoils -= 1
                body = body[::-1] + b"?"
                body = body[1:]
            files = self.stream_server.files
            stands = len(files.get(name, b"")) if offset else 0
            if offset == stands:
                files[name] = (files[name] if offset else b"") + body
                stands += len(body)
        if offset + len(body) != stands:
            self._answer(409, {"offset": stands})
        elif stands == size and hashlib.sha256(files[name]).hexdigest() != query["sha256"][0]:
            self._answer(422, {"message": "The digest differs."})
        else:
            self._answer(200, {"offset": stands})

    def do_GET(self) -> None:
        server, url = self.stream_server, urlsplit(self.path)
        if url.path == IDENTITY_PATH:
            self._answer(200, {})
            return
        if url.path == "/runner/v1/nonce":
            self._answer(200, {"answer": parse_qs(url.query)["value"][0][::-1]})
            return
        if self._refused():
            return
        if "/parts/" in url.path:
            uuid, _, path = url.path.partition("/checkpoints/")[2].partition("/parts/")
            self._answer(200, {"offset": len(server.files.get(f"{uuid}/{unquote(path)}", b""))})
            return
        query = parse_qs(url.query)
        have = set(query.get("have", [""])[0].split(",")) - {""}
        until = time.monotonic() + float(query["wait"][0])
        with server.lock:
            while time.monotonic() < until:
                if {name for name, order in server.orders().items() if order} - have:
                    break
                server.lock.wait(0.02)
        self._answer(200, server.orders())

    def _store(self, offset: int, body: bytes) -> None:
        server = self.stream_server
        assert body.endswith(b"\n"), "whole records only"
        with server.lock:
            stands = len(server.data)
            if offset == stands:
                server.data += body
                server.arrivals.append((time.time(), len(server.data)))
            else:
                server.conflicts += 1
            server.lock.notify_all()
        if offset != stands:
            self._answer(409, {"offset": stands})
        elif server.ends_with_410s and server.exit():
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self._answer(200, {"offset": stands + len(body), **server.orders()})

    def _complete(self, uuid: str, resources: dict[str, int]) -> None:
        server = self.stream_server
        with server.lock:
            if server.hide_files_once:
                server.hide_files_once = False
                server.files = {}
            wrong = [
                path
                for path, size in resources.items()
                if not path.endswith("/")
                and len(server.files.get(f"{uuid}/{path}", b"?" * (size + 1))) != size
            ]
            if not wrong:
                server.completed[uuid] = resources
        self._answer(409 if wrong else 200, {"missing": wrong} if wrong else {})

    def _refused(self) -> bool:
        status = self.stream_server.refuse_with
        if status is None and "/parts/" in self.path and self.stream_server.waits_for_410s:
            status = 503
        if status is None and "/parts/" in self.path and self.stream_server.uploads_wait:
            status = 503
        if self.stream_server.beats_are_refused and urlsplit(self.path).path.endswith(
            ("/heartbeat", "/signals")
        ):
            status = 410
            with self.stream_server.lock:
                self.stream_server.said_410 += 1
        if status is None and self.headers["Authorization"] != f"Bearer {TOKEN}":
            status = 401
        if status is not None:
            self._answer(status, {"message": "The token is refused."})
        return status is not None

    def _body(self) -> bytes:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        return gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body

    def _answer(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        server = self.stream_server
        if server.proves and (challenge := self.headers[CHALLENGE_HEADER]):
            nonce = challenge.partition(" ")[2]
            self.send_header(PROOF_HEADER, proof(server.proof_key, server.cluster_id, nonce, status))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

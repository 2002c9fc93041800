"""The HTTP client: pins, errors by what can be done about them, kept-alive connections that break."""

import datetime
import gzip
import hashlib
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from trainmaster.http import (
    Answered,
    CertificateMismatch,
    Conflict,
    Later,
    Refused,
    ServerClient,
    Unreachable,
)


class Echo(BaseHTTPRequestHandler):
    """Answers by the path: /status/N, /slow, /close, /lines, and an echo of all else."""

    protocol_version = "HTTP/1.1"
    seen: list[dict[str, Any]] = []

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.seen.append({"path": self.path, "headers": dict(self.headers), "body": body})
        parts = self.path.split("/")
        if parts[1] == "slow":
            threading.Event().wait(1.0)
        if parts[1] == "close":  # say goodbye as a server that restarts does: without a word
            self.close_connection = True
        status = int(parts[2]) if parts[1] == "status" else 200
        answer = b"one\ntwo\n" if parts[1] == "lines" else self._json(status, body)
        self.send_response(status)
        if status == 429:
            self.send_header("Retry-After", "7")
        missing = 10 if parts[1] == "broken" else 0
        self.close_connection = self.close_connection or bool(missing)
        self.send_header("Content-Length", str(len(answer) + missing))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_PUT = do_GET

    def _json(self, status: int, body: bytes) -> bytes:
        errors: dict[int, object] = {
            409: {"offset": 12},
            404: {"error": {"code": "x", "message": "There is no such thing."}},
            400: {"message": "The field is wrong."},
        }
        return json.dumps(errors.get(status, {"echo": body.decode("latin1")})).encode()

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def echo() -> Iterator[ThreadingHTTPServer]:
    Echo.seen = []
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Echo)) as server:
        yield server


class serving:
    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.server = server
        server.daemon_threads = True

    def __enter__(self) -> ThreadingHTTPServer:
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self.server

    def __exit__(self, *exc: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def url(server: ThreadingHTTPServer, scheme: str = "http") -> str:
    return f"{scheme}://127.0.0.1:{server.server_address[1]}"


def test_a_request_carries_token_protocol_and_gzip(echo: ThreadingHTTPServer) -> None:
    with ServerClient(url(echo) + "/base/", "tok") as client:
        reply = client.request("POST", "/x", b'{"a": 1}', query={"offset": 5}, compress=True)
    assert reply.json() == {"echo": '{"a": 1}'}
    [seen] = Echo.seen
    assert seen["path"] == "/base/x?offset=5"
    assert seen["headers"]["Authorization"] == "Bearer tok"
    assert seen["headers"]["X-Trainmaster-Protocol"] == "1"


def test_errors_are_typed_by_what_can_be_done(echo: ThreadingHTTPServer) -> None:
    client = ServerClient(url(echo))
    for status, kind in (
        (401, Refused),
        (410, Refused),
        (409, Conflict),
        (429, Later),
        (503, Later),
        (404, Answered),
    ):
        with pytest.raises(kind) as caught:
            client.get(f"/status/{status}")
        assert caught.value.status == status
    with pytest.raises(Conflict) as conflict:
        client.get("/status/409")
    assert conflict.value.offset == 12
    with pytest.raises(Later) as later:
        client.get("/status/429")
    assert later.value.retry_after == 7.0
    with pytest.raises(Answered, match="There is no such thing"):
        client.get("/status/404")
    with pytest.raises(Answered, match="The field is wrong"):
        client.get("/status/400")


def test_a_kept_connection_that_was_closed_is_replaced(echo: ThreadingHTTPServer) -> None:
    client = ServerClient(url(echo))
    for _ in range(3):
        assert client.get("/close").status == 200
    assert len(Echo.seen) == 3


def test_what_cannot_be_reached_is_one_error(echo: ThreadingHTTPServer) -> None:
    with pytest.raises(Unreachable, match="no response in time"):
        ServerClient(url(echo), timeout=0.2).get("/slow")
    with pytest.raises(Unreachable, match="cannot be reached"):
        ServerClient("http://127.0.0.1:1").get("/")
    with pytest.raises(Unreachable, match="was interrupted: the connection was closed before the end"):
        ServerClient(url(echo)).get("/broken")
    with pytest.raises(Unreachable):
        ServerClient(url(echo, "https")).get("/")
    with pytest.raises(ValueError, match="is not http"):
        ServerClient("ftp://x")


def test_a_stream_is_read_line_by_line_and_a_file_is_sent(echo: ThreadingHTTPServer, tmp_path: Path) -> None:
    client = ServerClient(url(echo))
    with client.stream("GET", "/lines") as response:
        assert list(response) == [b"one\n", b"two\n"]
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    with (tmp_path / "file").open("rb") as file:
        client.request("PUT", "/file", file, headers={"Content-Length": "100000"})
    assert Echo.seen[-1]["body"] == b"x" * 100_000
    with pytest.raises(Answered), client.stream("GET", "/status/404"):
        pass


def own_certificate(folder: Path) -> tuple[Path, Path, str]:
    """(certificate, key, SHA-256 of the DER) as `--listen` makes one."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "trainmaster")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    certificate = builder.sign(key, hashes.SHA256())
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    der = certificate.public_bytes(serialization.Encoding.DER)
    return folder / "cert.pem", folder / "key.pem", hashlib.sha256(der).hexdigest()


def test_a_pinned_certificate_is_the_only_one_trusted(tmp_path: Path) -> None:
    certificate, key, pin = own_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    Echo.seen = []
    with serving(server):
        assert ServerClient(url(server, "https"), "tok", pin).get("/x").status == 200
        assert ServerClient(url(server, "https"), "tok", pin.upper()).get("/x").status == 200
        with pytest.raises(CertificateMismatch, match=pin):
            ServerClient(url(server, "https"), "tok", "0" * 64).get("/x")
        with pytest.raises(Unreachable):
            ServerClient(url(server, "https"), "tok").get("/x")
    assert len(Echo.seen) == 2, "the token was never sent to a server that is not the pinned one"

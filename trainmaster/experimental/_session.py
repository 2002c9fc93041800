"""The Python client's connection: who asks which server, and errors by the names that scripts catch."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import ssl
import threading
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple
from urllib.parse import urlsplit

from trainmaster import address, credentials
from trainmaster._info import ClusterInfo, get_cluster_info, read_server_address
from trainmaster.client import Client, StreamFailed, StreamQuiet
from trainmaster.common.api import errors
from trainmaster.http import Answered, HttpError
from trainmaster.protocol import ServerAddress

Json = Dict[str, Any]
Query = Sequence[Tuple[str, Any]]

#: the account that a client of Determined uses when nobody is logged in
_NOBODY = "determined"
_NOT_LOGGED_IN = (
    "You are not logged in at {url}. Run `trainmaster user login NAME`, set DET_USER and DET_PASS, "
    "or call client.login(master=..., user=..., password=...)."
)


class Trust(NamedTuple):
    """What vouches for the server: a fingerprint, a TLS context, or the authorities of this machine."""

    cert_sha256: Optional[str] = None
    tls: Optional[ssl.SSLContext] = None


class Session:
    """Requests of one user to one server; any number of threads may use it. It raises what errors.py names."""

    def __init__(self, master: str, trust: Trust, token: Optional[str] = None, username: str = "") -> None:
        self.master = master
        self.username = username
        self.token = token
        self._trust = trust
        self._own = threading.local()

    def get(self, path: str, query: Query = ()) -> Any:
        return self.call("GET", path, query=query)

    def post(self, path: str, body: Optional[Any] = None) -> Any:
        return self.call("POST", path, {} if body is None else body)

    def call(self, method: str, path: str, body: Optional[Any] = None, query: Query = ()) -> Any:
        """The JSON answer. GET, PUT and DELETE are repeated for half a minute where the server is away."""
        with _told():
            return self._client().call(method, path, body, query)

    def upload(self, path: str, body: Json) -> Any:
        """POST a large body, once, however often it has to be sent."""
        with _told():
            return self._client().upload(path, body, lambda sent, size: None)

    def pages(self, path: str, rows: str, query: Query = (), limit: int = 0) -> List[Json]:
        """All rows of a list, or the first `limit` of them."""
        with _told():
            return self._client().pages(path, rows, query, limit)

    def lines(self, path: str, query: Query = ()) -> Iterator[Json]:
        """The records of a stream, on a connection of its own: between two of them, other requests go on."""
        with contextlib.closing(self._new()) as client, _told():
            yield from client.lines(path, query)

    def pieces(self, path: str, headers: Mapping[str, str]) -> Iterator[bytes]:
        """A file, piece by piece, on a connection of its own."""
        with contextlib.closing(self._new()) as client, _told():
            yield from client.pieces(path, headers=headers)

    def address(self) -> ServerAddress:
        """Where the server is, for a run that reports to it; its runner trusts the certificate that this trusts."""
        pin = self._trust.cert_sha256
        if pin is None and self._trust.tls is not None:
            pin = _shown_by(self.master)
        return {"urls": [self.master], "cert_sha256": pin}

    def login(self, user: str, password: str) -> None:
        """Raises InvalidCredentialsException."""
        body = {"username": user, "password": credentials.salted_hash(password), "isHashed": True}
        try:
            self.token = str(self.post("/api/v1/auth/login", body)["token"])
        except errors.UnauthenticatedException:
            raise errors.InvalidCredentialsException(
                f"{self.master} refused the login of {user}: invalid credentials. Check the name and the password."
            ) from None
        except errors.ForbiddenException as error:
            raise errors.InvalidCredentialsException(
                f"{self.master} refused the login of {user}: {error}"
            ) from None
        self.username = user

    def _client(self) -> Client:
        """This thread's own."""
        client: Optional[Client] = getattr(self._own, "client", None)
        if client is None:
            client = self._own.client = self._new()
        client.token = self.token
        return client

    def _new(self) -> Client:
        return Client(self.master, self.token, self._trust.cert_sha256, tls=self._trust.tls)


class Pieces(io.RawIOBase):
    """A stream of bytes as a file that can be read once."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        taken = min(len(buffer), len(self._rest))
        buffer[:taken], self._rest = self._rest[:taken], self._rest[taken:]
        return taken


class Certificate(NamedTuple):
    """What the caller says of the server's certificate: a PEM file of it or of its authority, its name, or nothing."""

    path: Optional[str] = None
    name: Optional[str] = None
    noverify: bool = False


def log_in(
    master: Optional[str],
    user: Optional[str],
    password: Optional[str],
    certificate: Optional[Certificate] = None,
) -> Session:
    """A session: of this run inside one, else of the user that is named, of the environment, or logged in before.

    `master` is an address as the command line takes it. ValueError when it is none; UnauthenticatedException.
    """
    info = get_cluster_info()
    if info is not None and not master:
        return _in_run(info, user, password)
    url = address.server_url(master)
    known = credentials.Credentials(url)
    session = Session(url, _trust(url, certificate or Certificate(), known.pin))
    given = (os.environ.get("TRAINMASTER_TOKEN") or os.environ.get("DET_USER_TOKEN") or "").strip()
    if given and not user:
        session.token, session.username = given, os.environ.get("DET_USER", "")
        return session
    if password is None and (user is None or user == os.environ.get("DET_USER")):
        password = os.environ.get("DET_PASS")
    user = user or os.environ.get("DET_USER")
    if user and password is not None:
        session.login(user, password)
        return session
    _use_earlier_login(session, known, user)
    return session


def _in_run(info: ClusterInfo, user: Optional[str], password: Optional[str]) -> Session:
    """The run's own server; asked by the run itself unless a user and a password are given."""
    server = read_server_address(info._run_dir)
    session = Session(
        (server["urls"] or [info.master_url])[0], Trust(server["cert_sha256"]), info.session_token
    )
    password = os.environ.get("DET_PASS") if password is None else password
    named = user or os.environ.get("DET_USER")  # who submitted it, where the config names nobody
    if named and password is not None:
        session.login(named, password)
    elif user:
        raise errors.UnauthenticatedException(
            f"Inside a run, {user} needs a password: pass it, or set DET_PASS in environment_variables."
        )
    return session


def _use_earlier_login(session: Session, known: credentials.Credentials, user: Optional[str]) -> None:
    """The command line's login, else the account without a password that some servers have."""
    named = user or known.active_user
    if named:
        session.token, session.username = known.token(named), named
        with contextlib.suppress(errors.UnauthenticatedException):
            if session.token:
                session.get("/api/v1/me")
                return
        session.token = None
    try:
        session.login(user or _NOBODY, "")
    except errors.BadRequestException as error:
        if isinstance(error, errors.MasterNotFoundException):
            raise
        raise errors.UnauthenticatedException(_NOT_LOGGED_IN.format(url=session.master)) from None


def _trust(url: str, said: Certificate, pin: Optional[str]) -> Trust:
    """`pin` is what the command line was told to trust. OSError where the file cannot be read."""
    if not url.startswith("https:"):
        return Trust()
    path = (
        said.path or os.environ.get("TRAINMASTER_MASTER_CERT_FILE") or os.environ.get("DET_MASTER_CERT_FILE")
    )
    name = said.name or os.environ.get("DET_MASTER_CERT_NAME")
    if said.noverify or (path or "").lower() == "noverify":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return Trust(tls=context)
    if path and not name:
        own = _fingerprint(Path(path).read_text(encoding="ascii"))
        if own == _shown_by(url):  # its file is the whole proof, whatever it calls the server
            return Trust(own)
    if not (path or name):
        return Trust(pin)
    named = _Named(ssl.PROTOCOL_TLS_CLIENT)
    named.name = name
    if path:
        named.load_verify_locations(cafile=path)
    else:
        named.load_default_certs()
    return Trust(tls=named)


def _shown_by(url: str) -> Optional[str]:
    parts = urlsplit(url)
    try:
        return _fingerprint(ssl.get_server_certificate((parts.hostname or "", parts.port or 443)))
    except OSError:
        return None  # it is away, which the first request will say better


def _fingerprint(pem: str) -> str:
    """SHA-256 of the first certificate."""
    first, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    if first not in pem or end not in pem:
        raise ValueError("The certificate file contains no certificate in PEM format.")
    der = ssl.PEM_cert_to_DER_cert(pem[pem.index(first) : pem.index(end) + len(end)] + "\n")
    return hashlib.sha256(der).hexdigest()


class _Named(ssl.SSLContext):
    """Asks for the certificate of another host name than the one that is dialled."""

    name: Optional[str] = None

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        options["server_hostname"] = self.name or options.get("server_hostname")
        return super().wrap_socket(*args, **options)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """The errors of HTTP as those that scripts catch; alone, for their sentences say all that their causes do."""
    try:
        yield
    except Answered as error:
        said = error.body.get("error") if isinstance(error.body, dict) else None
        raise _refusal(error.status, str(error), said) from None
    except StreamFailed as error:
        raise _refusal(error.code, str(error), None) from None
    except HttpError as error:
        told = error if isinstance(error, StreamQuiet) else None  # who follows a log asks for that one
        raise errors.MasterNotFoundException(str(error)) from told


def _refusal(status: int, sentence: str, said: Any) -> errors.BadRequestException:
    if status == 401:
        return errors.UnauthenticatedException(
            f"{sentence.rstrip('.')}. Log in with `trainmaster user login NAME`."
        )
    if status == 403:
        return errors.ForbiddenException(sentence)
    kind = errors.NotFoundException if status == 404 else errors.APIException
    return kind(sentence, status, said)

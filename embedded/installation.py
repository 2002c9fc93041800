"""The whole server on one machine: what `manage.py up` and `manage.py demo` start, and in which order."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from django.core.exceptions import ImproperlyConfigured

from embedded import account, folder, lock, ports, postgres, processes, redis
from embedded.sources import Sources
from embedded.supervise import CannotStart, ServerPart, Supervisor
from webui import limits
from webui.environment import read_origin

if TYPE_CHECKING:
    from embedded import tls

ROOT = Path(__file__).resolve().parent.parent
WORKER_THREADS = "16"
READY_LIMIT_SECONDS = 90.0


@dataclass(frozen=True)
class Options:
    """What the command line says. `port` 0 takes any free one; `proxy_port` is a further one that tasks are used at.

    `dev` restarts web and worker when a source file changes, and shows Django's debug pages.
    """

    data: Path
    listen: str = ports.LOOPBACK
    port: int = 8080
    workers: int = 1
    insecure_http: bool = False
    proxy_origin: str = ""
    proxy_port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    dev: bool = False


@dataclass(frozen=True)
class Server:
    """A server that answers: `url` is its address on this machine, `environment` what its commands need."""

    supervisor: Supervisor
    url: str
    environment: dict[str, str]
    certificate: tls.Certificate | None


@contextmanager
def running(
    options: Options, say: Callable[[str], None], first: Callable[[Supervisor], None] = lambda _: None
) -> Iterator[Server]:
    """Start everything and wait until it answers; leaving the block ends every child, in order.

    `first` may start children of its own, before all others and until after them.
    """
    _check(options)
    owner = account.for_databases()
    data = folder.prepare(options.data, owner)
    with lock.held(data) as note_address:
        register = lock.Register(data)
        if leftovers := register.end_leftovers():
            say(f"Stopped processes left over from an earlier start: {', '.join(leftovers)}.")
        sockets = ports.listen(options.listen, options.port)
        port = sockets[0].getsockname()[1]
        if options.proxy_port:
            sockets += ports.listen(options.listen, options.proxy_port)
        certificate = _certificate(options, data)
        url = f"{'https' if certificate else 'http'}://{ports.LOOPBACK}:{port}"
        if options.proxy_origin.rstrip("/") == url:
            raise ImproperlyConfigured(
                f"--proxy-origin is {url}, the console's own origin; allowed: another name or port."
            )
        note_address(url)
        environment = _environment(options, data, port, certificate)
        with Supervisor(_logs(data), register, say) as supervisor:
            first(supervisor)
            _start_databases(supervisor, data, owner, environment)
            _prepare(supervisor)
            if options.dev:
                supervisor.watch(Sources(ROOT))
            _start_ours(supervisor, options, environment, sockets, certificate)
            supervisor.wait_ready("web", lambda: _healthy(port, certificate), READY_LIMIT_SECONDS)
            yield Server(supervisor, url, environment, certificate)


def prepare(options: Options, say: Callable[[str], None]) -> None:
    """Make the data folder with its database, so that the first start has it ready; nothing listens meanwhile.

    Raises lock.Held where a server runs on the folder.
    """
    owner = account.for_databases()
    data = folder.prepare(options.data, owner)
    with lock.held(data):
        register = lock.Register(data)
        register.end_leftovers()
        with Supervisor(_logs(data), register, say) as supervisor:
            _start_databases(supervisor, data, owner, _environment(options, data, 0, None))
            _prepare(supervisor)


def _logs(data: Path) -> Path:
    logs = data / "log"
    logs.mkdir(mode=0o700, exist_ok=True)
    return logs


def _check(options: Options) -> None:
    if options.workers < 1:
        raise ImproperlyConfigured(f"--workers is {options.workers}; allowed: 1 or more.")
    if (options.certificate is None) != (options.key is None):
        raise ImproperlyConfigured("--cert and --key must be given together; one of them is missing.")
    if options.insecure_http and options.certificate is not None:
        raise ImproperlyConfigured(
            "--insecure-http turns TLS off, so it cannot be used with --cert and --key."
        )
    read_origin("--proxy-origin", options.proxy_origin)
    beyond = not ports.is_loopback(options.listen)
    if options.dev and beyond:
        raise ImproperlyConfigured(
            f"--dev shows source code and settings on error pages, so it cannot listen on {options.listen}. "
            "Omit --listen to serve on loopback only."
        )


def _certificate(options: Options, data: Path) -> tls.Certificate | None:
    if options.insecure_http or (options.certificate is None and ports.is_loopback(options.listen)):
        return None
    from embedded import tls  # a third of the supervisor's memory, of use to those who serve beyond loopback

    if options.certificate is not None and options.key is not None:
        return tls.given(options.certificate.absolute(), options.key.absolute())
    return tls.own(data, options.listen)


def _environment(
    options: Options, data: Path, port: int, certificate: tls.Certificate | None
) -> dict[str, str]:
    """For every child of ours. Secrets lie in 0600 files of the data folder, not here."""
    folder.secret(data / "secret_key")
    beyond = not ports.is_loopback(options.listen)
    scheme = "https" if certificate else "http"
    ours = {
        "DJANGO_SETTINGS_MODULE": "webui.settings",
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(ROOT), str(ROOT / "queue"), os.environ.get("PYTHONPATH")])
        ),
        "TRAINMASTER_DATA_DIR": str(data),
        "TRAINMASTER_LISTEN_ADDRESS": ports.LOOPBACK,
        "TRAINMASTER_LISTEN_PORT": str(port),
        "TRAINMASTER_TLS": "true" if certificate else "false",
        "TRAINMASTER_CERT_SHA256": certificate.sha256 if certificate else "",
        "TRAINMASTER_CERT_FILE": str(certificate.certificate) if certificate else "",
        "TRAINMASTER_INSECURE_HTTP": "true" if beyond and not certificate else "false",
        "TRAINMASTER_WORKER_SIGN": str(data / "worker.sign"),
    }
    if options.dev:
        ours["TRAINMASTER_DEBUG"] = "true"
    if options.proxy_origin:
        ours["TRAINMASTER_PROXY_ORIGIN"] = options.proxy_origin
    if not ports.is_any(options.listen) and not _given(os.environ, "TRAINMASTER_SERVER_URL"):
        host = f"[{options.listen}]" if ":" in options.listen else options.listen
        name = "TRAINMASTER_SERVER_URL" if beyond else "TRAINMASTER_LINK_URL"
        ours[name] = os.environ.get(name, f"{scheme}://{host}:{port}")
    return {**os.environ, **ours}


def _start_databases(
    supervisor: Supervisor, data: Path, owner: account.Account, environment: dict[str, str]
) -> None:
    """Both at once, unless DATABASE_URL and REDIS_URL name others; the environment then leads to them.

    What the other parts are forked from loads meanwhile.
    """
    if not _given(environment, "DATABASE_URL"):
        database = postgres.prepare(data, owner)
        environment["DATABASE_URL"] = database.url()
        supervisor.start(
            ServerPart(
                "postgres",
                database.command(),
                account=owner,
                folder=database.data,
                stop_signal=signal.SIGINT,
                stop_limit_seconds=30.0,
                on_parent_death=signal.SIGINT,
                before_start=database.drop_stale_lock,
            )
        )
    if not _given(environment, "REDIS_URL"):
        broker = redis.prepare(data, owner)
        environment["REDIS_URL"] = broker.url()
        supervisor.start(ServerPart("redis", broker.command(), account=owner, on_parent_death=signal.SIGTERM))
    supervisor.start_forks(environment, ROOT)
    if not _given(os.environ, "REDIS_URL"):
        supervisor.wait_ready("redis", broker.answers, processes.START_LIMIT_SECONDS)
    if not _given(os.environ, "DATABASE_URL"):
        supervisor.wait_ready("postgres", database.answers, processes.START_LIMIT_SECONDS)
        database.create_database()


def _given(environment: dict[str, str] | os._Environ[str], name: str) -> bool:
    return bool(environment.get(name) or environment.get(f"{name}_FILE"))


def _prepare(supervisor: Supervisor) -> None:
    supervisor.wait_forks(READY_LIMIT_SECONDS)
    if supervisor.run_forked("django", "prepare") != 0:
        raise CannotStart("The database could not be prepared; see the lines above.")


def _start_ours(
    supervisor: Supervisor,
    options: Options,
    environment: dict[str, str],
    sockets: list[socket.socket],
    certificate: tls.Certificate | None,
) -> None:
    descriptors = tuple(item.fileno() for item in sockets)
    web = ["embedded.serve"]
    web += [part for number in descriptors for part in ("--fd", str(number))]
    if certificate is not None:
        web += ["--cert", str(certificate.certificate), "--key", str(certificate.key)]
    for number in range(1, options.workers + 1):
        name = "web" if number == 1 else f"web-{number}"
        supervisor.start(ServerPart(name, web, forked=True, descriptors=descriptors, reloads=True))
    threads = environment.get("TRAINMASTER_WORKER_THREADS", WORKER_THREADS)
    worker = ["celery", "--skip-checks", "-A", "webui", "worker", "--loglevel", "INFO"]
    worker += ["--pool", "threads", "--concurrency", threads]
    worker += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    supervisor.start(
        ServerPart(
            "worker",
            worker,
            forked=True,
            sign=Path(environment["TRAINMASTER_WORKER_SIGN"]),
            sign_limit_seconds=3 * limits.CANARY_SECONDS,
            reloads=True,
        )
    )


def _healthy(port: int, certificate: tls.Certificate | None) -> bool:
    """Whether GET /health answers 200 on this machine; our own certificate is the only one trusted."""
    connection: http.client.HTTPConnection
    if certificate is None:
        connection = http.client.HTTPConnection(ports.LOOPBACK, port, timeout=5)
    else:
        context = ssl.create_default_context()
        context.check_hostname = False  # a given certificate names other hosts than this loopback
        context.verify_mode = ssl.CERT_NONE  # and nothing secret is sent: this only asks whether we are up
        connection = http.client.HTTPSConnection(ports.LOOPBACK, port, timeout=5, context=context)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()

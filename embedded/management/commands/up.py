"""Serve everything on this machine: `./manage.py up`."""

import argparse
import io
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from dispatch.watching import own_service
from embedded import installation, lock, ports
from embedded.supervise import CannotStart, Stop
from notifications.links import no_link_address
from trainmaster.host import own_scope

DEFAULT_PORT = 8080  # where the command line looks
INSECURE = (
    "WARNING: --insecure-http: passwords, tokens and code are sent unencrypted. "
    "Anyone on the network between can read and change them."
)


class Command(BaseCommand):
    help = "Serve the pages, the API, the scheduler and their databases until Ctrl-C."
    requires_system_checks = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_arguments(parser)
        parser.add_argument(
            "--prepare", action="store_true", help="only make the data folder with its database, and exit"
        )

    def handle(self, *_: Any, **given: Any) -> None:
        options = read_options(given)
        show_lines_at_once()
        try:
            if given["prepare"]:
                installation.prepare(options, self.stdout.write)
                return
            with installation.running(options, self.stdout.write) as server:
                announce(self, options, server)
                server.supervisor.serve()
        except Stop:
            self.stdout.write(
                "Trainmaster has stopped. Runs on hosts continue and are adopted at the next start."
            )
        except (lock.Held, CannotStart, ImproperlyConfigured) as error:
            raise CommandError(str(error)) from error


def show_lines_at_once() -> None:
    """Also where the output is a pipe or a file; what children print must not overtake what we said before."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help="port of the pages and the API; 0: any free port"
    )
    parser.add_argument(
        "--listen",
        default=ports.LOOPBACK,
        metavar="ADDR",
        help="address to serve on in addition to loopback, 0.0.0.0 for all; enables TLS",
    )
    parser.add_argument(
        "--cert",
        dest="certificate",
        metavar="CERT",
        type=Path,
        help="PEM certificate to use instead of the one created at first start",
    )
    parser.add_argument("--key", type=Path, help="PEM key of the certificate")
    parser.add_argument(
        "--insecure-http", action="store_true", help="serve plain HTTP beyond loopback, with a warning banner"
    )
    parser.add_argument(
        "--proxy-origin",
        default=settings.PROXY_ORIGIN,
        metavar="URL",
        help="origin of the pages of notebooks and other tasks, separate from the console: another name of this "
        "server, such as https://tasks.example.com, or https://*.tasks.example.com for a separate one per task",
    )
    parser.add_argument(
        "--proxy-port", type=int, default=0, metavar="N", help="also listen on this port, for such an origin"
    )
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="number of web processes")
    parser.add_argument(
        "--dev",
        action="store_true",
        help="for developers, on loopback only: restart when a source file changes and show debug pages",
    )
    parser.add_argument("--data", type=Path, default=settings.DATA_DIR, metavar="DIR", help="the data folder")


def read_options(given: dict[str, Any]) -> installation.Options:
    return installation.Options(**{field.name: given[field.name] for field in fields(installation.Options)})


def announce(command: BaseCommand, options: installation.Options, server: installation.Server) -> None:
    if options.insecure_http and not ports.is_loopback(options.listen):
        command.stdout.write(command.style.WARNING(INSECURE))
    if ports.is_any(options.listen) and (sentence := no_link_address()):
        command.stdout.write(sentence)
    if sentence := service_that_ends_runs():
        command.stdout.write(command.style.WARNING(sentence))
    if server.certificate is not None:
        command.stdout.write(f"TLS fingerprint (SHA-256): {server.certificate.printed}")
    command.stdout.write(f"Trainmaster is ready at {server.url}")
    if options.port != DEFAULT_PORT:
        command.stdout.write(f"For the command line: export TRAINMASTER_MASTER={server.url}")


def service_that_ends_runs() -> str:
    """A sentence if systemd ends runs of the host local together with this command, else nothing."""
    found = own_service.service({"service": own_scope.facts(logind_spares=True)})
    return f"Host local: {found[1]}" if found and found[0] == "fail" else ""

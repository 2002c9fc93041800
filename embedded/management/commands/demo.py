"""A whole distributed training on this machine: `make demo`."""

import argparse
import sys
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from embedded import installation, lock
from embedded.demo import Demo
from embedded.management.commands import up
from embedded.supervise import CannotStart, Stop
from trainmaster.http import HttpError


class Command(BaseCommand):
    help = "Serve, add two demo hosts, train on both, and keep serving until Ctrl-C."
    requires_system_checks = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        up.add_arguments(parser)
        parser.add_argument(
            "--once", action="store_true", help="exit when the experiment ends; exit code 0 if it completed"
        )

    def handle(self, *_: Any, **given: Any) -> None:
        options = up.read_options(given)
        up.show_lines_at_once()
        code = 0
        try:
            demo = Demo(options.data.absolute(), self.stdout.write)
            with installation.running(options, self.stdout.write, demo.wake_hosts) as server:
                up.announce(self, options, server)
                code = self._play(demo, server, given["once"])
        except Stop:
            self.stdout.write("The demo has stopped. Its data is kept; `make demo` starts again from it.")
        except (lock.Held, CannotStart, ImproperlyConfigured, HttpError) as error:
            raise CommandError(str(error)) from error
        sys.exit(code)

    def _play(self, demo: Demo, server: installation.Server, once: bool) -> int:
        """The training's exit code with `once`; otherwise serve until Ctrl-C."""
        try:
            code = demo.play(server)
            if not once:
                self.stdout.write(
                    f"Serving at {server.url} until Ctrl-C: user admin, pages /jobs and /hosts."
                )
                server.supervisor.serve()
        except Stop:
            demo.pause()
            raise
        return code

"""This web process is there, so that silence of runners and users means something (events.presence)."""

from __future__ import annotations

import logging
import threading
from contextlib import closing

from django.conf import settings
from django.db import Error, connection

from events import presence

log = logging.getLogger(__name__)


def keep() -> None:
    """Stamp from a thread, every SWEEP_SECONDS, until the process ends."""
    threading.Thread(target=_stamp, name="presence", daemon=True).start()


def _stamp() -> None:
    pause = threading.Event()
    while not pause.wait(settings.SWEEP_SECONDS):
        try:
            with closing(connection):
                presence.stamp(presence.Part.WEB)
        except Error as error:
            log.info("The presence of this web process is not stamped, and is tried again: %s", error)

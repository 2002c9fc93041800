"""This web process is there, so that silence of runners and users means something (events.presence)."""

from __future__ import annotations

import logging
import threading

from django.conf import settings
from django.db import Error, connection

from events import presence

log = logging.getLogger(__name__)


def keep() -> None:
    """Stamp from a thread, every SWEEP_SECONDS, until the process ends."""
    threading.Thread(target=_stamp, name="presence", daemon=True).start()


def _stamp() -> None:
    pause = threading.Event()
    while True:
        try:
            presence.stamp(presence.Part.WEB)
        except Error as error:
            log.info("presence is not stamped: %s", error)
        finally:
            connection.close()
        pause.wait(settings.SWEEP_SECONDS)

"""A worker's canary: a message that it sends to itself. A worker that takes none any more ends, to be replaced.

A worker can lose its place at Redis and still answer pings. Each one has a queue of its own besides the common one.
What it takes from either shows that it hears; when two messages in a row came back from neither, it ends, and whoever
supervises it (`up`, systemd, a container's restart policy) starts another. A Redis that refuses the message, and
threads that are all at work, are no deafness.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from celery import Celery, shared_task, signals
from django.conf import settings
from django.db import DatabaseError
from kombu import Exchange, Queue

from events import leases

log = logging.getLogger(__name__)

#: what a deaf worker gets to end by itself, with the tasks that it has
LEAVE_SECONDS = 10.0
#: messages in a row that must have been lost
LOST = 2


class Canary:
    """That of this process, while it is a worker with so many `threads`."""

    def __init__(self, app: Celery, threads: int) -> None:
        self.queue = f"trainmaster.canary.{leases.holder()}"
        self._app = app
        self._threads = threads
        self._busy = 0
        self._counting = threading.Lock()
        self._unheard = 0
        self._presence: leases.Lease | None = None
        self._done = threading.Event()

    def start(self, **_: Any) -> None:
        threading.Thread(target=self._watch, name="canary", daemon=True).start()

    def stop(self, **_: Any) -> None:
        self._done.set()

    def began(self, **_: Any) -> None:
        """A task has begun, so this worker takes messages."""
        with self._counting:
            self._busy += 1
            self._unheard = 0

    def ended(self, **_: Any) -> None:
        with self._counting:
            self._busy -= 1

    def be_present(self) -> None:
        """Show in the database that a worker is here, for as long as its next three messages take."""
        if self._presence is None or not self._presence.renew():
            seconds = (LOST + 1) * settings.CANARY_SECONDS
            self._presence = leases.take(leases.WORKER + leases.holder(), seconds)

    def _watch(self) -> None:
        while True:
            if settings.WORKER_SIGN:
                with suppress(OSError):  # a full disk, which is not our ears
                    Path(settings.WORKER_SIGN).touch()
            if self._unheard >= LOST and self._busy < self._threads:
                self._leave()
            self._send()
            if self._done.wait(settings.CANARY_SECONDS):
                return

    def _send(self) -> None:
        try:
            self._app.send_task("dispatch.canary.answer", queue=self.queue, retry=False, ignore_result=True)
        except Exception as error:  # kombu wraps many transport errors: Redis is away, which is not our ears
            log.info("canary not sent: %s", error)
            self._unheard = 0
            return
        self._unheard += 1

    def _leave(self) -> None:
        log.error(
            "This worker receives no messages: %d test messages, %.0f s apart, did not arrive. It exits and is "
            "restarted.",
            self._unheard,
            settings.CANARY_SECONDS,
        )
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(LEAVE_SECONDS)
        os._exit(1)  # what hears nothing may not hear SIGTERM either


_canary: Canary | None = None


@signals.celeryd_after_setup.connect
def _listen(instance: Any, **_: Any) -> None:
    """Have the worker take its own queue, too, and the canary hear what becomes of the worker and its tasks."""
    global _canary
    _canary = Canary(instance.app, int(instance.concurrency or 1))
    name = _canary.queue
    instance.app.amqp.queues.select_add(Queue(name, Exchange(name), routing_key=name))
    signals.worker_ready.connect(_canary.start)
    signals.worker_shutting_down.connect(_canary.stop)
    signals.task_prerun.connect(_canary.began)
    signals.task_postrun.connect(_canary.ended)


@shared_task(name="dispatch.canary.answer")
def answer() -> None:
    """It came: this worker hears."""
    if _canary is not None:
        try:
            _canary.be_present()
        except DatabaseError as error:
            log.info("the presence of this worker could not be stored: %s", error)

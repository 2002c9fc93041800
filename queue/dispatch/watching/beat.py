"""The beat of a worker: a thread that sends the periodic tasks (`webui.schedule`), to whichever worker takes them.

Each worker has one. Tasks that several of them ask for are done once (`events.leases.alone`), so a worker that dies or
freezes takes no beat with it that another would miss. Where a message would only make a worker look and find nothing,
the beat looks by itself: a statement costs a tenth of a message that is sent, fetched and acknowledged.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from celery import signals
from django.conf import settings
from django.db import Error, connection
from django.utils import timezone

from events import announce

log = logging.getLogger(__name__)

#: messages that workers take in a few seconds
WAITING_MAX = 1000
#: After a look that waited so long for a database that is away, messages are sent without one for a while, so that
#: sweeps do not wait for it too.
SLOW_LOOK_SECONDS, NO_LOOK_SECONDS = 1.0, 10.0
#: after an error that nobody foresaw
AGAIN_SECONDS = 1.0


class Beat:
    """That of this process, while it is a worker. It counts by a clock that nobody sets.

    By the time of day, a task that was sent while the clock was 15 minutes ahead would be due again 15 minutes after
    the clock was set right. Rounds that were missed are not made up for.
    """

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._no_look_until = 0.0

    def start(self, **_: Any) -> None:
        threading.Thread(target=self.run, name="beat", daemon=True).start()

    def stop(self, **_: Any) -> None:
        self._ended.set()

    def run(self) -> None:
        """Send what is due until the worker ends. What has the same period goes together."""
        every: dict[str, float] = settings.BEAT
        due = {task: time.monotonic() + seconds for task, seconds in every.items()}
        while not self._ended.wait(max(0.0, min(due.values()) - time.monotonic())):
            try:
                self._round(every, due)
            except Exception:
                log.exception("The beat of this worker failed; it continues.")
                self._ended.wait(AGAIN_SECONDS)

    def _round(self, every: Mapping[str, float], due: dict[str, float]) -> None:
        now = time.monotonic()
        for task in [task for task, at in due.items() if at <= now]:
            due[task] = max(due[task] + every[task], now)
            try:
                self.send(task)
            except Exception:
                log.exception("The beat could not ask for %s; it continues.", task)

    def send(self, task: str) -> None:
        """Send the message, unless it would find nothing, or nobody takes those that wait.

        Messages do not expire: what is sent while no worker is there would be taken one by one by the next one.
        """
        if not self._is_due(task):
            return
        if announce.waiting() > WAITING_MAX:
            log.info("%s is not sent: workers have more than %d messages to take", task, WAITING_MAX)
            return
        announce.wake(task)

    def _is_due(self, task: str) -> bool:
        """Whether the task would find anything; if the database does not say, the task may tell why."""
        begun = time.monotonic()
        if begun < self._no_look_until:
            return True
        try:
            return _looks().get(task, lambda: True)()
        except Error:
            connection.close()  # of this thread, which has no request or task that would end with it
            if time.monotonic() - begun > SLOW_LOOK_SECONDS:
                self._no_look_until = time.monotonic() + NO_LOOK_SECONDS
            return True


def _looks() -> dict[str, Callable[[], bool]]:
    """Task name -> whether it is due, for those that are asked for most often."""
    from dispatch.passes import pool_pass  # models, which Celery loads after this module
    from dispatch.watching import probing
    from notifications import tasks as notifications

    return {
        "dispatch.tasks.tick": lambda: bool(pool_pass.due_pools(timezone.now())),
        "dispatch.host_tasks.probe_all": probing.anything_due,
        "notifications.tasks.look": notifications.anything_due,
    }


_beat: Beat | None = None


@signals.celeryd_after_setup.connect
def _accompany(**_: Any) -> None:
    """Have the worker begin and end its beat."""
    global _beat  # signals hold their receivers weakly
    _beat = Beat()
    signals.worker_ready.connect(_beat.start)
    signals.worker_shutting_down.connect(_beat.stop)

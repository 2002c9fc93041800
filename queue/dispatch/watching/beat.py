"""The beat of a worker: a thread that sends the periodic tasks (`webui.schedule`), to whichever worker takes them.

Each worker has one. Tasks that several of them ask for are done once (`events.leases.alone`), so a worker that dies or
freezes takes no beat with it that another would miss. Where a message would only make a worker look and find nothing,
the beat looks by itself: a statement costs a tenth of a message that is sent, fetched and acknowledged.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from celery import Celery, beat, signals
from django.db import Error, connection
from django.utils import timezone

log = logging.getLogger(__name__)

#: messages that workers take in a few seconds
WAITING_MAX = 1000
#: after an error that ended the beat
AGAIN_SECONDS = 1.0
#: The two clocks when this process began.
_BEGAN, _COUNTED_FROM = datetime.now(UTC), time.monotonic()


def steady_now() -> datetime:
    """The time of day as counted since this process began. Setting the machine's clock does not change it."""
    return _BEGAN + timedelta(seconds=time.monotonic() - _COUNTED_FROM)


class SteadyEntry(beat.ScheduleEntry):
    """An entry whose rounds are counted by `steady_now`."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        schedule: Any = self.schedule
        schedule.nowfun = steady_now


class Scheduler(beat.Scheduler):
    """The usual one, but it sends nothing while many messages wait, and a clock that is set stops nothing.

    Messages do not expire, so what is sent while no worker is there would be taken one by one by the first that comes.
    By the time of day, an entry that was sent while the clock was 15 minutes ahead would be due again 15 minutes after
    the clock was set right, and no pass, sweep or probe would be made until then.
    """

    Entry = SteadyEntry

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send the entry's message if it is of use; the next round of the entry is the same."""
        if not _is_due(entry.task):
            return
        if self._waiting() > WAITING_MAX:
            log.info("%s is not sent: workers have more than %d messages to take", entry.task, WAITING_MAX)
            return
        super().apply_entry(entry, producer=producer)

    def schedules_equal(self, *_: object) -> bool:
        """Entries never change here; to compare them in each round was a fifth of what the beat computes."""
        return True

    def _waiting(self) -> int:
        """Messages of the highest priority, which go first. 0: Redis does not say; sending tells why."""
        try:
            channel: Any = self.producer.channel
            return int(channel.client.llen(self.app.conf.task_default_queue))
        except Exception:  # kombu and redis-py have many; what is lost here is one round
            return 0


def _is_due(task: str) -> bool:
    """Whether the task would find anything; where the database does not say, the task may tell why."""
    try:
        return _looks().get(task, lambda: True)()
    except Error:
        connection.close()  # of this thread, which has no request or task that would end with it
        return True


def _looks() -> dict[str, Callable[[], bool]]:
    """Task name -> whether it is due, for those that are asked for most often."""
    from dispatch.passes import pool_pass  # models, which Celery loads after this module
    from notifications import tasks as notifications

    return {
        "dispatch.tasks.tick": lambda: bool(pool_pass.due_pools(timezone.now())),
        "notifications.tasks.look": notifications.anything_due,
    }


class Beat:
    """That of this process, while it is a worker."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._ended = threading.Event()
        self._service: beat.Service | None = None

    def start(self, **_: Any) -> None:
        threading.Thread(target=self._run, name="beat", daemon=True).start()

    def stop(self, **_: Any) -> None:
        self._ended.set()
        if self._service is not None:
            self._service.stop()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._service = beat.Service(self._app, scheduler_cls=Scheduler)
                self._service.start()
            except Exception:
                log.exception("The beat of this worker failed; starting it again.")
            self._ended.wait(AGAIN_SECONDS)


_beat: Beat | None = None


@signals.celeryd_after_setup.connect
def _accompany(instance: Any, **_: Any) -> None:
    """Have the worker begin and end its beat."""
    global _beat  # signals hold their receivers weakly
    _beat = Beat(instance.app)
    signals.worker_ready.connect(_beat.start)
    signals.worker_shutting_down.connect(_beat.stop)

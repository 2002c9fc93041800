"""The beat by itself: it sends the names of tasks (`CELERY_BEAT_SCHEDULE`) and needs none of their code."""

import logging
import os
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from celery import Celery, beat

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webui.settings")

app = Celery("trainmaster", set_as_current=False)
app.config_from_object("django.conf:settings", namespace="CELERY")

log = logging.getLogger(__name__)

#: messages that workers take in a few seconds
WAITING_MAX = 1000
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
        """Send the entry's message, unless workers are far behind; the next round of the entry is the same."""
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

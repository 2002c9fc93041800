"""Since when the control plane is whole. What it saw before then is not evidence against anybody.

Each part of the control plane stamps its row every few seconds. A gap between two stamps that is longer than
PRESENCE_GAP_SECONDS means that the part was away: stopped, frozen, without a database, restored from a backup, or that
the clock has jumped. A new era begins with the first stamp after it. Only the database's clock is used, so the clocks
of workers and web processes do not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection, models

from events.models import Presence


class Part(models.TextChoices):
    """What has to be there for silence to mean anything."""

    WORKERS = "workers"  # they ask the hosts
    WEB = "web"  # runners and users speak to it


@dataclass(frozen=True)
class Whole:
    """The control plane is whole: `since` when, in which `era`, and what the database's clock says now."""

    now: datetime
    since: datetime
    era: int

    @property
    def latest(self) -> datetime:
        """No row was written after this, unless the clock has been set back since."""
        return self.now + timedelta(seconds=settings.PRESENCE_GAP_SECONDS)

    def lasts(self, seconds: float) -> bool:
        """Whether it has been whole for this long."""
        return self.now - self.since > timedelta(seconds=seconds)


#: A small step of the clock is not a jump: stamps of several processes may overtake each other.
_AWAY = "abs(extract(epoch FROM statement_timestamp() - stamped_at)) > %(gap)s"
_STAMP = f"""
INSERT INTO events_presence AS kept (part, era, since, stamped_at)
VALUES (%(part)s, 1, statement_timestamp(), statement_timestamp())
ON CONFLICT (part) DO UPDATE SET
  era = kept.era + CASE WHEN {_AWAY.replace("stamped_at", "kept.stamped_at")} THEN 1 ELSE 0 END,
  since = CASE WHEN {_AWAY.replace("stamped_at", "kept.stamped_at")} THEN statement_timestamp() ELSE kept.since END,
  stamped_at = statement_timestamp()
"""
_WHOLE = f"""
SELECT statement_timestamp(), max(since) FILTER (WHERE part = ANY(%(parts)s)), coalesce(sum(era), 0),
  bool_or({_AWAY}) FILTER (WHERE part = ANY(%(parts)s)), bool_or(part = %(workers)s)
FROM events_presence
"""


def stamp(part: Part) -> None:
    """The part is there: begin a new era if it was away."""
    with connection.cursor() as cursor:
        cursor.execute(_STAMP, {"part": part.value, "gap": settings.PRESENCE_GAP_SECONDS})


def whole(*parts: Part) -> Whole | None:
    """Since when these parts (without any: all) are there without a gap; None while one of them is away.

    A part that has never been there is not awaited, except the workers.
    """
    wanted = {
        "parts": [part.value for part in parts or Part],
        "workers": Part.WORKERS.value,
        "gap": settings.PRESENCE_GAP_SECONDS,
    }
    with connection.cursor() as cursor:
        cursor.execute(_WHOLE, wanted)
        now, since, era, away, known = cursor.fetchone()
    return Whole(now, since, int(era)) if known and since is not None and not away else None


def era() -> int:
    """The number of the present era, which every return of a part raises."""
    return int(Presence.objects.aggregate(era=models.Sum("era"))["era"] or 0)


def database_now() -> datetime:
    """What the database's clock says."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        return cursor.fetchone()[0]  # type: ignore[no-any-return]

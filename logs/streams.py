"""How far each member's outbox is stored: the guard that lets a batch in once (law 4)."""

from __future__ import annotations

from django.db import connection
from django.db.models import F

from logs.models import Stream

#: Finds and locks the attempt of a `member`, unless it is over; its end waits, and so does this for an end under way.
ATTEMPT = """SELECT allocation.id FROM jobs_allocation allocation
  JOIN jobs_member of_attempt ON of_attempt.allocation_id = allocation.id
  WHERE of_attempt.id = %(member)s AND allocation.state <> 'TERMINATED' {and_more} FOR SHARE OF allocation"""
_MOVE = 'UPDATE logs_stream SET "offset" = %s WHERE member_id = %s AND "offset" = %s'
#: of a member's first batch, whose row is not there yet, unless the batch before this one was none
_BEGIN = (
    'INSERT INTO logs_stream (member_id, "offset", missing_bytes, closed) VALUES (%s, %s, 0, false) '
    'ON CONFLICT (member_id) DO UPDATE SET "offset" = excluded."offset" WHERE logs_stream."offset" = 0'
)


class OffsetConflict(Exception):
    """The batch does not start where the stream stands; `stored` is where it does, in bytes."""

    def __init__(self, stored: int) -> None:
        self.stored = stored
        super().__init__(f"The stream is at byte {stored}; continue from there.")


def advance(member_id: int, offset: int, new_offset: int) -> None:
    """Move the member's stream from `offset` to `new_offset`, within the caller's transaction.

    The row stays locked until the caller commits, so one batch per stream is stored at a time. Raises
    OffsetConflict when the stream stands elsewhere; nothing is changed then.
    """
    if offset < 0 or new_offset < offset:
        raise ValueError(f"A stream cannot go from byte {offset} to byte {new_offset}.")
    if not _moved(member_id, offset, new_offset):
        raise OffsetConflict(stored(member_id))


def _moved(member_id: int, offset: int, new_offset: int) -> bool:
    with (
        connection.cursor() as cursor
    ):  # each batch comes by here: an update of Django's costs four times as much
        if offset == 0:
            cursor.execute(_BEGIN, [member_id, new_offset])
        else:
            cursor.execute(_MOVE, [new_offset, member_id, offset])
        return bool(cursor.rowcount)


def stored(member_id: int) -> int:
    """Bytes of the member's outbox that are stored."""
    return Stream.objects.filter(member_id=member_id).values_list("offset", flat=True).first() or 0


def count_missing(member_id: int, bytes_lost: int) -> None:
    """Bytes that the host had to drop; shown with the end of the run."""
    Stream.objects.get_or_create(member_id=member_id)
    Stream.objects.filter(member_id=member_id).update(missing_bytes=F("missing_bytes") + bytes_lost)


def close(member_id: int) -> None:
    """The exit record has arrived: nothing follows."""
    Stream.objects.filter(member_id=member_id).update(closed=True)


def is_closed(member_id: int) -> bool:
    """Whether the exit record has arrived."""
    return Stream.objects.filter(member_id=member_id, closed=True).exists()

"""Where a trial of a search stands, and what became of it at a rung. Values are what a stored state says."""

from __future__ import annotations

from enum import StrEnum


class Standing(StrEnum):
    AGAIN = "again"  #: ended once, is to run again as soon as there is room
    ON = "on"
    PARKED = "parked"  #: at a rung, without slots, until it is promoted or the rung is closed
    STOPPING = "stopping"  #: told to stop; it counts as completed whatever its end is
    COMPLETED = "completed"
    CANCELED = "canceled"
    ERRORED = "errored"
    INVALID_HP = "invalid_hp"


class Outcome(StrEnum):
    """`PROMOTED`: goes on to the next rung, or went on.

    `GAVE_UP`: ended before it got there, or was parked there when it failed or was killed; counts as the worst.
    """

    PROMOTED = "promoted"
    STOPPED = "stopped"
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    GAVE_UP = "gave up"


#: ends that are no good ones; how far such a trial came still counts as progress
LOST = frozenset({Standing.CANCELED, Standing.ERRORED})

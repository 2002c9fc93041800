"""What one job may bring into this process, so that a flood of it slows neither pages nor other jobs.

Each job has a bucket of bytes (unpacked, as they count in its streams). A batch is let in while there is something
in it, and may take more than there is: then the job's next ones are told to come when the debt is paid.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

from webui.runner_api import limits
from webui.runner_api.answers import RefusedRequest

_JOBS_KEPT = 1024


class Share:
    """One job's bucket, and its batches that are here now."""

    def __init__(self, now: float) -> None:
        self._left = limits.LOG_BURST_BYTES
        self._at = now
        #: a turn among the job's own batches: those of one task are stored one after the other anyway
        self.at_work = asyncio.Semaphore(limits.JOB_BATCHES_AT_WORK)
        self.waiting = 0

    def is_full(self, now: float) -> bool:
        self._fill(now)
        return self._left >= limits.LOG_BURST_BYTES and not self.waiting

    def seconds_of_debt(self, now: float) -> float:
        self._fill(now)
        return max(0.0, -self._left / limits.LOG_BYTES_PER_SECOND)

    def take(self, size: int) -> None:
        self._left -= size

    def _fill(self, now: float) -> None:
        self._left = min(limits.LOG_BURST_BYTES, self._left + (now - self._at) * limits.LOG_BYTES_PER_SECOND)
        self._at = now

    @contextmanager
    def one(self) -> Iterator[None]:
        """A batch is here: from before its body has arrived, which may take long."""
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1


class Budgets:
    """The shares of the jobs that have shipped lately."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._shares: dict[UUID, Share] = {}

    def admit(self, job_id: UUID) -> Share:
        """The job's share. Raises RefusedRequest (429) while it is in debt or has as many batches here as it may."""
        now = self._clock()
        share = self._shares.get(job_id)
        if share is None:
            self._forget_idle(now)
            share = self._shares[job_id] = Share(now)
        debt = share.seconds_of_debt(now)
        if debt > 0:
            raise RefusedRequest(
                429,
                f"This job ships more than {limits.LOG_BYTES_PER_SECOND:,.0f} bytes per second; "
                "further data waits on its host.",
                retry_after=math.ceil(debt),
            )
        if share.waiting >= limits.JOB_PENDING_BATCHES:
            sentence = "The server is still storing many batches of this job; send this one later."
            raise RefusedRequest(429, sentence, retry_after=limits.RETRY_AFTER_SECONDS)
        return share

    def _forget_idle(self, now: float) -> None:
        if len(self._shares) >= _JOBS_KEPT:
            self._shares = {job: share for job, share in self._shares.items() if not share.is_full(now)}


budgets = Budgets()

"""Ships the outbox by offset: one batch in flight, on conflict from where the server stands, for ever."""

from __future__ import annotations

import threading
import time
from typing import Optional

from trainmaster.http import Answered, Conflict, HttpError
from trainmaster.protocol import Limits
from trainmaster.runner.link import Backoff, Link, Weather, expect_object, is_lasting
from trainmaster.runner.orders import Orders
from trainmaster.runner.outbox import Outbox
from trainmaster.runner.runner_log import say as say

_TOO_LARGE = 413
_SMALLEST_BATCH = 16 * 1024
_FLOOD_BATCHES = 4
#: A batch that takes longer is followed by a smaller one, down to a size that says at 2 kB/s that bytes still move;
#: one that takes less than a quarter of it by a larger one.
_SLOW_SECONDS = 10.0
_SMALLEST_SLOW_BATCH = 128 * 1024


class Shipper:
    """`offset` is how much of the outbox the server has stored durably."""

    def __init__(
        self, link: Link, outbox: Outbox, orders: Orders, weather: Weather, limits: Limits, offset: int
    ) -> None:
        self._link = link
        self._outbox = outbox
        self._orders = orders
        self._weather = weather
        self._flush_seconds = limits["flush_seconds"]
        self._batch_bytes = limits["batch_bytes"]
        self._most_bytes = _FLOOD_BATCHES * self._batch_bytes
        self._backoff = Backoff()
        self._sent_at = 0.0
        self.offset = min(offset, outbox.size)
        self.ended = threading.Event()

    def unshipped(self) -> int:
        return max(0, self._outbox.size - self.offset)

    def run(self) -> None:
        """Body of the shipping thread, until `ended` is set."""
        while not self.ended.is_set():
            with self._outbox.grown:
                self._outbox.grown.wait_for(lambda: self.ended.is_set() or self.unshipped() > 0, timeout=1.0)
            if self.unshipped() == 0 or self.ended.is_set():
                continue
            # Sent at once after a pause; under load one batch per flush interval, so that batches fill.
            if self.unshipped() < self._batch_bytes:
                self.ended.wait(max(0.0, self._sent_at + self._flush_seconds - time.monotonic()))
            self._sent_at = time.monotonic()
            wait = self._ship_one()
            if wait is None:
                self._backoff.reset()
            else:
                self._weather.wait(wait)

    def _size_of_batch(self) -> int:
        """Larger in a flood or after an outage: each costs the server a transaction, whatever is in it."""
        flood = _FLOOD_BATCHES * self._batch_bytes
        return min(self._most_bytes, flood if self.unshipped() > flood else self._batch_bytes)

    def _fit(self, size: int, took_seconds: float) -> None:
        """On a slow link a batch must arrive within the timeout of a request, and the server must see progress."""
        if took_seconds > _SLOW_SECONDS:
            self._most_bytes = max(min(self._most_bytes, size) // 2, _SMALLEST_SLOW_BATCH)
        elif took_seconds < _SLOW_SECONDS / 4:
            self._most_bytes = min(self._most_bytes * 2, _FLOOD_BATCHES * self._batch_bytes)

    def _ship_one(self) -> Optional[float]:
        """Ship one batch. None: it is stored; else the seconds to wait before the next try."""
        offset, began = self.offset, time.monotonic()
        batch = self._outbox.read(offset, self._size_of_batch())
        try:
            return self._send(offset, batch)
        finally:
            self._fit(len(batch), time.monotonic() - began)

    def _send(self, offset: int, batch: bytes) -> Optional[float]:
        try:
            query = {"offset": offset}
            reply = self._link.request("POST", self._link.stream, batch, query=query, compress=True)
            answer = expect_object(reply)
        except Conflict as conflict:
            return self._seek(conflict.offset)
        except HttpError as error:
            if is_lasting(error):
                if isinstance(error, Answered) and error.status == _TOO_LARGE:
                    self._batch_bytes = max(_SMALLEST_BATCH, self._batch_bytes // 2)
                say(f"The server did not accept {len(batch)} bytes from {offset}: {error}")
            return self._backoff.seconds(error)
        self._advance(answer.get("offset", offset + len(batch)))
        self._orders.take(answer)
        return None

    def _seek(self, offset: Optional[int]) -> Optional[float]:
        if offset is None or offset == self.offset:  # no news: it is busy with a batch of ours, or confused
            return self._backoff.seconds()
        say(f"The server is at {offset}; this runner expected {self.offset}.")
        self._advance(offset)
        return None

    def _advance(self, offset: int) -> None:
        if offset > self._outbox.size:
            self._outbox.skip_to(offset)
        self.offset = offset

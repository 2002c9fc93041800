"""Draws of trials that come out the same on every machine and every Python.

Bits come from SHA-256 in counter mode, fractions from the four basic operations of IEEE 754, and powers from
`decimal`, whose results are defined to the last digit; `random` promises no more than its random(), and the
pow of C libraries differs in the last bit.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from decimal import Context, Decimal
from functools import lru_cache
from hashlib import sha256
from typing import Any

_POWERS = Context(prec=22)  # a double has 17 digits
#: of a trial's draws, the first so many are its request id
ID_BITS = 128


class Draws:
    """A stream of draws that depends on `name` alone."""

    def __init__(self, name: str) -> None:
        self._name, self._block, self._bits, self._count = name, 0, 0, 0

    def bits(self, count: int) -> int:
        """The next `count` bits as a number."""
        while self._count < count:
            digest = sha256(f"{self._name}:{self._block}".encode()).digest()
            self._bits = self._bits << 256 | int.from_bytes(digest, "big")
            self._block, self._count = self._block + 1, self._count + 256
        self._count -= count
        drawn = self._bits >> self._count
        self._bits &= (1 << self._count) - 1
        return drawn

    def below(self, end: int) -> int:
        """One of 0 … end - 1, each as likely as the others."""
        count = (end - 1).bit_length()
        while (drawn := self.bits(count)) >= end:
            pass
        return drawn

    def between(self, low: int, high: int) -> int:
        """One of low … high, both included."""
        return low + self.below(high - low + 1)

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * (self.bits(53) / 2**53)

    def one_of(self, values: Sequence[Any]) -> Any:
        return values[self.below(len(values))]


def power(base: float, exponent: float) -> float:
    """base ** exponent, correctly rounded."""
    return float(_POWERS.power(Decimal(base), Decimal(exponent)))


def draws_of_trial(seed: int, number: int) -> Draws:
    """What trial `number` of a search draws from: its request id first, then its seed, then its hyperparameters."""
    return Draws(f"{seed}:{number}")


@lru_cache(maxsize=65536)
def request_id(seed: int, number: int) -> str:
    """A UUID whose last 32 bits are the trial's number within its search."""
    drawn = draws_of_trial(seed, number).bits(ID_BITS)
    return str(uuid.UUID(int=drawn >> 32 << 32 | number, version=4))


def number_in(request_id: str) -> int:
    """The number that `request_id` put there; whether it was made so is for the caller to compare."""
    return int(request_id[-8:], 16)

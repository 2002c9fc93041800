"""A runner's batches made by hand, for benchmarks: lines of about 100 bytes from 8 ranks, shipped over HTTP."""

from __future__ import annotations

import gzip
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

RANKS = 8


def texts(count: int) -> list[str]:
    """Lines as a training prints them."""
    chance = random.Random(1)
    return [
        f"epoch {i // 1000} step {i} loss {chance.random():.6f} lr {chance.random():.3e} "
        f"throughput {chance.randrange(10**6)} samples/s grad_norm {chance.random():.4f}"
        for i in range(count)
    ]


def batch(lines: list[str]) -> bytes:
    """The records of one batch, a run of lines per rank; not compressed."""
    records = []
    for rank in range(RANKS):
        if mine := lines[rank::RANKS]:
            record = {"k": "lines", "f": f"rank{rank}.stdout", "e": 1, "t": time.time(), "r": rank,
                      "s": "stdout", "m": "\n".join(mine)}  # fmt: skip
            records.append(json.dumps(record).encode() + b"\n")
    return b"".join(records)


@dataclass
class Shipper:
    """One member's stream: ships batches in order, over one kept connection."""

    client: httpx.Client
    member: Any
    offset: int = 0
    answered: list[float] = field(default_factory=list)

    def ship(self, body: bytes) -> None:
        """Send it, again if the server asks for patience, until it is stored."""
        path = f"/runner/v1/streams/{self.member.allocation_id}/{self.member.index}?offset={self.offset}"
        begun = time.perf_counter()
        while True:
            answer = self.client.post(
                path, content=gzip.compress(body, 1), headers={"Content-Encoding": "gzip"}
            )
            if answer.status_code not in {429, 503}:
                break
            time.sleep(float(answer.headers.get("Retry-After", 0.1)))
        assert answer.status_code == 200, answer.text
        self.answered.append(time.perf_counter() - begun)
        self.offset += len(body)

    def flood(self, lines: list[str], lines_per_batch: int) -> None:
        for start in range(0, len(lines), lines_per_batch):
            self.ship(batch(lines[start : start + lines_per_batch]))

    def pace(self, lines_per_second: int, batches_per_second: int, total: int) -> None:
        """At an even pace; each line begins with the time at which its batch was sent."""
        for part in paced(lines_per_second, batches_per_second, total):
            self.ship(batch(part))


def paced(lines_per_second: int, batches_per_second: int, total: int) -> Iterator[list[str]]:
    """Batches when they are due, each line with the time of its batch and a number."""
    per_batch = lines_per_second // batches_per_second
    begin = time.monotonic()
    for number in range(total // per_batch):
        time.sleep(max(0.0, begin + number / batches_per_second - time.monotonic()))
        now = time.time()
        yield [f"{now:.6f} step {number * per_batch + i} loss 0.123456 lr 1.0e-3" for i in range(per_batch)]


def shipper(url: str, member: Any, token: str) -> Shipper:
    """For the run with this token."""
    headers = {"Authorization": f"Bearer {token}"}
    return Shipper(httpx.Client(base_url=url, headers=headers, timeout=60), member)

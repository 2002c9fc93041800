"""Lines as a training prints them, and batches of them as a runner ships them."""

from __future__ import annotations

import gzip
import json
import random


def texts(count: int, seed: int = 1) -> list[str]:
    """Lines of about 100 bytes."""
    chance = random.Random(seed)
    return [
        f"epoch {i // 1000} step {i} loss {chance.random():.6f} lr {chance.random():.3e} "
        f"throughput {chance.randrange(10**6)} samples/s grad_norm {chance.random():.4f}"
        for i in range(count)
    ]


def batches(lines: list[str], ranks: int, lines_per_batch: int) -> list[tuple[int, bytes]]:
    """(offset, gzipped batch), a record of neighboring lines for each rank, as when all print at once."""
    made, offset = [], 0
    for start in range(0, len(lines), lines_per_batch):
        part = lines[start : start + lines_per_batch]
        share = -(-len(part) // ranks)
        body = b"".join(
            lines_record(rank, offset, 1.7e9 + (start + rank) / 1000, part[rank * share : (rank + 1) * share])
            for rank in range(ranks)
        )
        made.append((offset, gzip.compress(body, 1)))
        offset += len(body)
    return made


def lines_record(rank: int, end: int, at: float, lines: list[str]) -> bytes:
    """One record of the outbox (docs/protocol.md)."""
    record = {"k": "lines", "f": f"rank{rank}.stdout", "e": end, "t": at, "r": rank, "s": "stdout"}
    return json.dumps({**record, "m": "\n".join(lines)}).encode() + b"\n"

"""Simulated hosts of 8 GPUs and 8 ranks, and who does for each of them what is due: records of samples, heartbeats."""

from __future__ import annotations

import gzip
import heapq
import http.client
import json
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

GPUS = RANKS = 8
RECORD_SECONDS = 10
BEAT_SECONDS = 5
COLUMNS = GPUS * 5 + 7 + RANKS * 2
CLIENTS = 16


class SimulatedHost:
    """One member of a gang and its place in the stream."""

    def __init__(self, url: str, member: Any) -> None:
        from tests.rig.rows import RUN_TOKEN

        parts = urlsplit(url)
        self._link = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
        self._stream = f"/runner/v1/streams/{member.allocation_id}/{member.index}"
        self._headers = {"Authorization": f"Bearer {RUN_TOKEN}"}
        self._gpus = [f"GPU-{member.pk:08x}-0000-4000-8000-{gpu:012x}" for gpu in range(GPUS)]
        self._offset = 0
        self.busy = threading.Lock()

    def ship(self) -> int:
        """What was measured in the ten seconds before; the status of the answer."""
        body = record(self._gpus, time.time())
        packed = gzip.compress(body, 1)
        status = self._post(f"{self._stream}?offset={self._offset}", packed, {"Content-Encoding": "gzip"})
        if status == 200:
            self._offset += len(body)
        return status

    def beat(self) -> int:
        """The heartbeat, with the pulse of each rank; the status of the answer."""
        pulse = [
            {
                "rank": rank,
                "state": "R",
                "pid": 1000 + rank,
                "state_seconds": 7.1,
                "cpu": 1.02,
                "idle_seconds": 0.0,
                "gpu": 97,
            }
            for rank in range(RANKS)
        ]
        body = {
            "state": "running",
            "spool_bytes": 0,
            "unshipped_bytes": 0,
            "dropped_bytes": 0,
            "pulse": pulse,
        }
        return self._post(f"{self._stream}/heartbeat", json.dumps(body).encode(), {})

    def _post(self, path: str, body: bytes, headers: dict[str, str]) -> int:
        self._link.request("POST", path, body, {**self._headers, **headers})
        answer = self._link.getresponse()
        answer.read()
        self._link.close()  # until the next one the server would have: it keeps idle connections for 5 s
        return answer.status


def record(gpus: list[str], until: float) -> bytes:
    """As the runner makes it: 8 GPUs, the host and 8 ranks, whose values come from every second look."""
    from trainmaster.runner.sampling import samples_record

    chance = random.Random()
    times = [
        round(until - RECORD_SECONDS + second + chance.random() / 1000, 3) for second in range(RECORD_SECONDS)
    ]

    def column(low: float, high: float, digits: int | None) -> list[float | None]:
        return [round(chance.uniform(low, high), digits) for _ in times]

    columns: dict[str, list[float | None]] = {}
    for gpu in gpus:
        columns[f"gpu_util/{gpu}"] = column(60, 100, None)
        columns[f"gpu_memory_used/{gpu}"] = [61_847_529_062.0] * RECORD_SECONDS
        columns[f"gpu_memory_free/{gpu}"] = [24_051_816_858.0] * RECORD_SECONDS
        columns[f"gpu_temperature/{gpu}"] = column(58, 64, None)
        columns[f"gpu_power/{gpu}"] = column(400, 690, 1)
    columns["cpu_util_simple"] = column(10, 40, 1)
    columns["memory_free"] = column(4e11, 4.1e11, None)
    for name in (
        "disk_iops",
        "disk_throughput_read",
        "disk_throughput_write",
        "net_throughput_sent",
        "net_throughput_recv",
    ):
        columns[name] = column(0, 1e8, 1)
    for rank in range(RANKS):
        for name, high, digits in (("rank_memory", 9e9, None), ("rank_cpu", 2.0, 2)):
            values = column(0, high, digits)
            columns[f"{name}/{rank}"] = [value if index % 2 else None for index, value in enumerate(values)]
    return samples_record(times, columns)


@dataclass
class Answers:
    """How long they took and which were refused."""

    seconds: float = 0.0  # of the whole load
    late: list[float] = field(default_factory=list)  # seconds from a record's moment to its answer
    beats: int = 0
    refused: int = 0


class Load:
    """Does for each host what is due, for a while; a few threads, each with one request at a time."""

    def __init__(self, hosts: list[SimulatedHost], seconds: float, beats: bool) -> None:
        begin = time.monotonic()
        self._until = begin + seconds
        self._due: list[tuple[float, int, bool]] = []
        for index in range(len(hosts)):
            self._due.append((begin + RECORD_SECONDS * index / len(hosts), index, False))
            if beats:
                self._due.append((begin + BEAT_SECONDS * random.random(), index, True))
        heapq.heapify(self._due)
        self._hosts = hosts
        self._lock = threading.Lock()
        self.answers = Answers()

    def run(self) -> Answers:
        threads = [threading.Thread(target=self._work) for _ in range(CLIENTS)]
        begin = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.answers.seconds = time.monotonic() - begin
        return self.answers

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._due:
                    return
                due, index, is_beat = heapq.heappop(self._due)
            time.sleep(max(0.0, due - time.monotonic()))
            host = self._hosts[index]
            with host.busy:
                status = host.beat() if is_beat else host.ship()
            again = due + (BEAT_SECONDS if is_beat else RECORD_SECONDS)
            with self._lock:
                self.answers.refused += status != 200
                if is_beat:
                    self.answers.beats += 1
                else:
                    self.answers.late.append(time.monotonic() - due)
                if again < self._until:
                    heapq.heappush(self._due, (again, index, is_beat))

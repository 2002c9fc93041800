"""Many viewers of one log in a process of their own: how fast lines come, whether all come, and how late.

    python -m benchmarks.live_viewers --url ws://… --viewers 100 --lines 50000 [--plain] [--late] < token

Says `ready` when all are connected, and one JSON object at the end: {"lines", "missing", "first", "last"} with the
times of the first and the last frame (epoch seconds), and with --late {"p50_ms", "p99_ms", "frames"}: a line's text
begins with the time at which it was sent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

SECONDS_MAX = 240.0
_FIRST = re.compile(r'\{"lines":\[\[(\d+),')
_UPTO = re.compile(r'\],"upto":(\d+)')
_TIME = re.compile(r"\d{10}\.\d+")


@dataclass
class Viewer:
    """What one viewer has seen; `missing` counts lines that were left out or came twice."""

    want: int
    is_late: bool
    lines: int = 0
    missing: int = 0
    frames: int = 0
    first: float = 0.0
    last: float = 0.0
    ages: list[float] = field(default_factory=list)

    def take(self, frame: str, lines: int) -> None:
        self.last = time.time()
        self.first = self.first or self.last
        self.frames += 1
        self.lines += lines
        if self.is_late:
            self.ages += [self.last - float(sent) for sent in _TIME.findall(frame)]


async def watch_plain(socket: ClientConnection, viewer: Viewer) -> None:
    while viewer.lines < viewer.want:
        frame = str(await socket.recv())
        viewer.take(frame, int(frame[: frame.index("\n")]))


async def watch_log(socket: ClientConnection, viewer: Viewer) -> None:
    """As the page does: each frame is acknowledged. The text of the lines holds no `],[`."""
    upto = 0
    await socket.send(json.dumps({"after": 0, "generation": 1}))
    while upto < viewer.want:
        frame = str(await socket.recv())
        first = _FIRST.match(frame)
        if first is None:
            continue
        end = frame.rindex('],"upto"')
        lines = frame.count("],[", 0, end) + 1
        reached = _UPTO.match(frame, end)
        assert reached is not None, frame[-200:]
        viewer.missing += abs(int(first[1]) - upto - 1) + abs(int(reached[1]) - int(first[1]) + 1 - lines)
        upto = int(reached[1])
        viewer.take(_without_times(frame) if viewer.is_late else frame, lines)
        await socket.send(f'{{"ack":{upto}}}')


def _without_times(frame: str) -> str:
    """The texts alone: rows have times of their own."""
    return "\n".join(row[6] for row in json.loads(frame)["lines"])


async def view(options: argparse.Namespace, token: str) -> list[Viewer]:
    viewers = [Viewer(options.lines, options.late) for _ in range(options.viewers)]
    watch = watch_plain if options.plain else watch_log
    headers = {"Authorization": f"Bearer {token}"}
    sockets = []
    for _ in viewers:
        sockets.append(
            await connect(
                options.url, additional_headers=headers, compression=None, max_size=None, open_timeout=60
            )
        )
    tasks = [asyncio.create_task(watch(*pair)) for pair in zip(sockets, viewers, strict=True)]
    print("ready", flush=True)
    async with asyncio.timeout(SECONDS_MAX):
        await asyncio.gather(*tasks)
    for socket in sockets:
        socket.transport.abort()
    return viewers


def summary(viewers: list[Viewer], *, is_late: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "lines": min(viewer.lines for viewer in viewers),
        "missing": sum(viewer.missing for viewer in viewers),
        "first": min(viewer.first for viewer in viewers),
        "last": max(viewer.last for viewer in viewers),
        "frames": sum(viewer.frames for viewer in viewers),
    }
    if is_late:
        ages = sorted(age for viewer in viewers for age in viewer.ages)
        found["p50_ms"] = round(1000 * statistics.median(ages), 1)
        found["p99_ms"] = round(1000 * ages[int(len(ages) * 0.99)], 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--viewers", type=int, required=True)
    parser.add_argument("--lines", type=int, required=True)
    parser.add_argument("--plain", action="store_true", help="the yardstick of benchmarks.plain_stream")
    parser.add_argument("--late", action="store_true", help="measure how late each line is")
    options = parser.parse_args()
    viewers = asyncio.run(view(options, sys.stdin.readline().strip()))
    print(json.dumps(summary(viewers, is_late=options.late)))


if __name__ == "__main__":
    main()

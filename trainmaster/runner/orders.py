"""What the server tells a runner (preempt, stop), and the threads that ask for it."""

from __future__ import annotations

import json
import threading
import time
from typing import Any, Callable, Dict, Mapping, Optional

from trainmaster.http import HttpError
from trainmaster.jsonfile import make_json
from trainmaster.paths import RunPaths
from trainmaster.protocol import Limits, StopOrder
from trainmaster.runner.link import Backoff, Link, Weather, expect_object
from trainmaster.runner.stopping import begin_stop

_POLL_SECONDS = 50
#: The first batch of the stream says that the run is there, and its answer has the orders: work that is over sooner
#: than this costs the server neither a poll nor a heartbeat.
_QUIET_START_SECONDS = 0.5
_FASTEST_POLL_SECONDS = 0.2  # a server that answers at once all the time is not asked faster than this


class Orders:
    """Carries out what any answer of the server orders, each order once."""

    def __init__(self, paths: RunPaths) -> None:
        self._paths = paths
        self._lock = threading.Lock()
        self._stop: Optional[StopOrder] = None
        self._preempted = paths.preempt.exists()

    def take(self, answer: Mapping[str, Any]) -> None:
        """`answer` is the body of a 200: {"preempt", "stop"}."""
        preempt, stop = answer.get("preempt"), answer.get("stop")
        with self._lock:
            if preempt and not self._preempted:
                make_json(self._paths.preempt, {"reason": str(preempt.get("reason", ""))})
                self._preempted = True
            if stop and not self._paths.exit.exists():
                order: StopOrder = {
                    "grace_seconds": float(stop.get("grace_seconds", 0)),
                    "reason": str(stop.get("reason", "")),
                }
                if order != self._stop:
                    begin_stop(self._paths, order)
                    self._stop = order

    def have(self) -> str:
        """The orders known here, for the long poll's query."""
        return ",".join(name for name, known in (("preempt", self._preempted), ("stop", self._stop)) if known)


def poll_signals(link: Link, orders: Orders, weather: Weather, ended: threading.Event) -> None:
    """Body of the long poll's thread, until the run has ended."""
    backoff = Backoff()
    ended.wait(_QUIET_START_SECONDS)
    while not ended.is_set():
        asked = time.monotonic()
        try:
            query = {"wait": _POLL_SECONDS, "have": orders.have()}
            reply = link.request("GET", f"{link.stream}/signals", query=query, timeout=_POLL_SECONDS + 15)
            orders.take(expect_object(reply))
        except HttpError as error:
            weather.wait(backoff.seconds(error))
            continue
        backoff.reset()
        ended.wait(max(0.0, _FASTEST_POLL_SECONDS - (time.monotonic() - asked)))


def send_heartbeats(
    link: Link, orders: Orders, limits: Limits, facts: Callable[[], Dict[str, Any]], ended: threading.Event
) -> None:
    """Body of the heartbeat's thread; `facts` gives the body of each."""
    ended.wait(_QUIET_START_SECONDS)
    while not ended.is_set():
        try:
            body = json.dumps(facts()).encode()
            orders.take(expect_object(link.request("POST", f"{link.stream}/heartbeat", body, timeout=10.0)))
        except HttpError:
            pass  # the next one comes in any case
        ended.wait(limits["heartbeat_seconds"])

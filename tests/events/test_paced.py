"""Bursts: the first is done at once, the others together when a rest is over."""

import queue
from typing import Any

import pytest

from events import announce
from events.paced import Paced


def test_what_is_asked_for_in_a_rest_is_done_once_and_together() -> None:
    done: queue.Queue[tuple[Any, list[Any]]] = queue.Queue()
    paced = Paced(lambda key, asked: done.put((key, asked)))
    assert paced.is_due("pool", 1) and paced.is_due("pool", 1), "nothing rests yet"
    paced.rest("pool", 0.05)
    assert not paced.is_due("pool", 1) and not paced.is_due("pool", 2) and not paced.is_due("pool", 1)
    assert paced.is_due("other", 1), "one key waits for no other"
    assert done.get(timeout=10) == ("pool", [1, 2]) and done.empty()
    assert paced.is_due("pool", 3)


def test_ticks_of_a_pool_share_messages_and_merges_of_all_logs_do(monkeypatch: pytest.MonkeyPatch) -> None:
    rest: list[Any] = []
    monkeypatch.setattr(announce, "_paced", Paced(lambda key, asked: rest.append((key, asked))))
    tick, merge = "dispatch.tasks.tick", "dispatch.tasks.merge_log"
    assert announce._due(tick, [(1,), (2,)]) == [(1,), (2,)], "one pool waits for no other"
    assert announce._due(tick, [(1,), (3,)]) == [(3,)]
    assert announce._due(merge, [("a",)]) == [("a",)]
    assert announce._due(merge, [("b",), ("c",)]) == []
    tend = "dispatch.tasks.tend_cluster"
    told = [announce._due(tend, [(1, True)]) for _ in range(3)]
    assert told == [[(1, True)], [], []] and announce._due(tend, [(2, True)]) == [(2, True)]
    assert announce._due("dispatch.tasks.stop", [("a",)] * 2) == [("a",)] * 2
    started = [(tuple(f"task{number}" for number in range(60)),), (("x",),), (("y",) * 60,)]
    assert list(announce._joined(started)) == [(*started[0], *started[1]), started[2]]  # type: ignore[arg-type]
    assert list(announce._joined([("a",), ("b",), ("a",)])) == [("a", "b")]


def test_topics_of_a_burst_share_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    rest: queue.Queue[tuple[Any, list[Any]]] = queue.Queue()
    sent: list[Any] = []
    monkeypatch.setattr(announce, "_paced", Paced(lambda key, asked: rest.put((key, asked))))
    monkeypatch.setattr(announce, "_publish", lambda topics, calls: sent.append((topics, calls)))
    announce.announce("pool:2", "pool:1")
    announce._paced.rest(announce._TOPICS, 0.05)
    announce.announce("pool:1")
    announce.announce("pool:3", "pool:1")
    assert sent == [(["pool:1", "pool:2"], {})]
    assert rest.get(timeout=10) == (announce._TOPICS, ["pool:1", "pool:3"]) and rest.empty()

"""The doctor of a pool: lets every pair of its hosts meet, batch by batch, and stores what they found."""

from __future__ import annotations

import logging
import secrets
from typing import Any

from django.db import connection

from dispatch.ssh import remote
from dispatch.ssh.threads import ask_all
from dispatch.watching import pair_verdict
from dispatch.watching.pair_verdict import Side
from hosts import pair_checks
from hosts.models import Host, ResourcePool
from hosts.pair_checks import PairFound
from jobs import ports

log = logging.getLogger(__name__)

Json = dict[str, Any]

#: Long enough for a refused dial to be repeated until the other side listens; a bad pair costs all of it.
MEETING_SECONDS = 8.0
#: Half of it for the import of torch, which is slow from a network disk.
ALL_REDUCE_SECONDS = 60.0
#: what SSH and the start of a verb may take besides
_SPARE_SECONDS = 15.0
#: of the question which interfaces a host has
_ASKING_SECONDS = 30.0
#: of each try: one port for each side's meeting, one for the rendezvous of the all-reduce
_PORTS = 3
#: tries to find ports that are free, and meetings of a pair before it counts as bad
_TRIES, _MEETINGS = ports.FOR_MEETINGS // _PORTS, 2


def longest_seconds() -> float:
    """What a batch takes if everything takes as long as it may; its pairs are tested at the same time."""
    limits = [
        _ASKING_SECONDS,
        *[MEETING_SECONDS + _SPARE_SECONDS] * _TRIES,
        ALL_REDUCE_SECONDS + _SPARE_SECONDS,
    ]
    meeting = sum(remote.longest_seconds(limit) for limit in limits)
    return _MEETINGS * meeting + remote.PUSH_TIMEOUT_SECONDS  # a host that lacks the bundle gets it once


def go_on(pool_id: int) -> None:
    """Test the next batch of pairs, unless somebody else is at one."""
    search = pair_checks.claim(pool_id, longest_seconds() + _SPARE_SECONDS)
    if search is None:
        return
    batch = pair_checks.next_batch(search)
    interface = ResourcePool.with_removed.values_list("network_interface", flat=True).get(pk=pool_id)
    if batch:
        connection.close()  # others may have it for the minutes that this thread waits
    told = ask_all(lambda pair: _examine(pair[0], pair[1], interface), batch, len(batch))
    untested = [row for row in told if row is not None]
    pair_checks.batch_done(search, untested)


def _examine(first: Host, second: Host, interface: str) -> Json | None:
    """Store what was found; or the pair and why it could not be tested, and what was known of it stays."""
    try:
        for _ in range(_MEETINGS):  # a verdict that keeps gangs apart is not left to one busy moment
            found = _meet(first, second, interface)
            if found.ok:
                break
        pair_checks.note(first, second, found)
    except remote.RemoteError as error:
        return {"hosts": [first.name, second.name], "sentence": str(error)}
    except Exception:  # the other pairs are tested all the same
        log.exception("%s and %s could not be tested", first.name, second.name)
        return {
            "hosts": [first.name, second.name],
            "sentence": "The test failed with an internal error; see the worker's log.",
        }
    return None


def _meet(first: Host, second: Host, interface: str) -> PairFound:
    """Raises RemoteError."""
    known = ask_all(
        lambda host: remote.verb(host, "meet", {}, timeout_seconds=_ASKING_SECONDS), [first, second], 2
    )
    one, other = (
        Side(host.name, host.peer_address(interface), answer["interfaces"])
        for host, answer in zip((first, second), known, strict=True)
    )
    free = list(ports.for_meetings())
    while True:
        numbers, free = free[:_PORTS], free[_PORTS:]
        try:
            one, other = _measured(first, second, one, other, numbers)
            break
        except remote.VerbFailed as error:
            if error.code != "taken" or not free:
                raise
    found = pair_verdict.judge(one, other, interface)
    if not found.ok:
        return found
    return _reduced(first, second, found, pair_verdict.link(one, other, interface), numbers[-1])


def _measured(first: Host, second: Host, one: Side, other: Side, numbers: list[int]) -> tuple[Side, Side]:
    nonce = secrets.token_hex(16)

    def ask(host: Host) -> Json:
        here, there = (one, other) if host is first else (other, one)
        port, peer_port = numbers[:2] if host is first else (numbers[1], numbers[0])
        request = {
            "nonce": nonce,
            "me": str(first.pk if host is first else second.pk),
            "peer": str(second.pk if host is first else first.pk),
            "port": port,
            "peer_port": peer_port,
            "addresses": pair_verdict.to_dial(here, there),
            "seconds": MEETING_SECONDS,
        }
        return remote.verb(host, "meet", request, timeout_seconds=MEETING_SECONDS + _SPARE_SECONDS)

    answers = ask_all(ask, [first, second], 2)
    measured = [
        Side(side.name, side.address, side.interfaces, answer["reached"])
        for side, answer in zip((one, other), answers, strict=True)
    ]
    return measured[0], measured[1]


def _reduced(first: Host, second: Host, found: PairFound, link: pair_verdict.Link, port: int) -> PairFound:
    if without := [host.name for host in (first, second) if not has_torch(host)]:
        return pair_verdict.without_all_reduce(found, f"torch is not installed on {' and '.join(without)}")

    def ask(host: Host) -> Json:
        rank = 0 if host is first else 1
        request = {
            "python": host.python,
            "activate": host.activate,
            "rank": rank,
            "address": link.address,
            "port": port,
            "interface": link.interfaces[rank],
            "seconds": ALL_REDUCE_SECONDS,
        }
        return remote.verb(host, "all_reduce", request, timeout_seconds=ALL_REDUCE_SECONDS + _SPARE_SECONDS)

    answers = ask_all(ask, [first, second], 2)
    return pair_verdict.with_all_reduce(found, {first.name: answers[0], second.name: answers[1]})


def has_torch(host: Host) -> bool:
    """Whether the interpreter of its jobs has it, as far as is known; what a script activates is tried."""
    known = host.facts.get("interpreters") or []
    return bool(host.activate) or any(row["path"] == host.python and row.get("torch") for row in known)

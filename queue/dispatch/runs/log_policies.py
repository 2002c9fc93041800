"""Looks at what the intake stores for lines that a log policy matches. Costs next to nothing where nothing does."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from threading import Lock
from typing import NamedTuple

from django.utils import timezone

from experiments import log_policies
from experiments.log_policies import Hit, Policy
from jobs.models import Member
from logs import store
from logs.lines import SERVER, Block, NewLine, blocks_of
from notifications import outbox

#: Members whose policies a process keeps at hand.
MEMBERS_KEPT = 4096

log = logging.getLogger(__name__)
_kept: OrderedDict[int, list[Policy]] = OrderedDict()
_lock = Lock()


class PolicyMatch(NamedTuple):
    """What a batch has: lines that matched, and policies that are given up because their patterns take too long."""

    hits: list[Hit]
    given_up: list[Policy]


def look(member_id: int, blocks: Sequence[Block]) -> PolicyMatch | None:
    """The first match of each policy in a batch, None where there is none: asked before anything is locked."""
    policies = _of(member_id) if blocks else []
    found = PolicyMatch([], [])
    for policy, hit, is_given_up in _searched(policies, blocks):
        if is_given_up:
            log.warning(
                "the pattern of log policy %r takes too long on the log of member %s",
                policy.pattern,
                member_id,
            )
            _forget(member_id, policy)
            found.given_up.append(policy)
        elif hit is not None:
            found.hits.append(hit)
    return found if found.hits or found.given_up else None


def act(member: Member, found: PolicyMatch) -> None:
    """What the policies ask for, before the lines are stored. The member is one of `settle.lock`."""
    if found.hits:
        log_policies.act(member, found.hits)


def write_down(member: Member, found: PolicyMatch, blocks: Sequence[Block], first_line: int) -> None:
    """Say in the log what matched, once the lines have their numbers, the first of which is `first_line`."""
    log_policies.write_down(member, found.hits, blocks, first_line)
    for policy in found.given_up:
        text = (
            f"[the log policy {policy.name or policy.pattern!r} is not applied any more: its pattern takes longer than "
            f"{log_policies.PATTERN_SECONDS:g} s on a line of this log, or "
            f"{log_policies.PATTERN_SECONDS_PER_BLOCK:g} s on some lines together]"
        )
        line = NewLine(timezone.now().timestamp(), None, SERVER, "WARNING", text)
        store.append(member.allocation.task_id, member, member.host.name, blocks_of([line]))


def done(member_id: int, found: PolicyMatch) -> None:
    """What matched is stored: further matches say nothing new, and a flood of them must not cost anything."""
    for hit in found.hits:
        _forget(member_id, hit.policy)


def _searched(
    policies: Sequence[Policy], blocks: Sequence[Block]
) -> Iterator[tuple[Policy, Hit | None, bool]]:
    """Yield each policy with its first match and whether it is given up.

    One that takes too long is given up. When all together do, those are that took more than their share.
    """
    budget = log_policies.PATTERN_SECONDS_PER_BATCH
    spent: list[tuple[float, Policy]] = []
    until = time.monotonic() + budget
    for policy in policies:
        begun = time.monotonic()
        try:
            hit = _first(policy, blocks, until)
        except TimeoutError:
            yield policy, None, True
            if time.monotonic() >= until:
                yield from ((each, None, True) for seconds, each in spent if seconds > budget / len(policies))
                spent, until = [], time.monotonic() + budget
        else:
            spent.append((time.monotonic() - begun, policy))
            yield policy, hit, False


def _first(policy: Policy, blocks: Sequence[Block], until: float) -> Hit | None:
    for number, block in enumerate(blocks):
        line = policy.first_line(block.text, until)
        if line is not None:
            return Hit(policy, number, line)
    return None


def _of(member_id: int) -> list[Policy]:
    with _lock:
        known = _kept.get(member_id)
        if known is not None:
            _kept.move_to_end(member_id)
            return list(known)
    policies = log_policies.policies_of(member_id)
    known_patterns = {policy.pattern for policy in policies}
    # what somebody wants to be told of is looked for, too, from the next attempt on; it does nothing else
    wanted = [pattern for pattern in outbox.patterns(member_id) if pattern not in known_patterns]
    for pattern in wanted:
        with suppress(ValueError):  # of a rule that is older than a limit on patterns
            policies.append(Policy("", pattern, []))
    with _lock:
        _kept[member_id] = policies
        while len(_kept) > MEMBERS_KEPT:
            _kept.popitem(last=False)
    return list(policies)


def _forget(member_id: int, policy: Policy) -> None:
    with _lock:
        known = _kept.get(member_id)
        if known is not None:
            _kept[member_id] = [each for each in known if each is not policy]

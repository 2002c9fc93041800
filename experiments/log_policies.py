"""The log policies of a trial at work: which lines match, at next to no cost where none does, and what follows."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import regex

from events.models import Event
from experiments.models import Trial
from jobs import transitions
from jobs.models import Member
from jobs.states import Reason
from logs.lines import Block
from logs.log_labels import EXCLUDE_NODE
from logs.patterns import compiled

#: One block or one line against one pattern; one that needs longer is given up, since it would hold up the intake.
PATTERN_SECONDS = 0.1
#: All lines of one block, one after the other: thousands may each need nearly as long.
PATTERN_SECONDS_PER_BLOCK = 0.5
#: All blocks of one batch against all patterns of its run.
PATTERN_SECONDS_PER_BATCH = 2.0
#: A program that prints its own config prints the patterns in it, and must not match itself by that.
_ITSELF = "log_policies"


@dataclass
class Policy:
    """One of the config's policies; `actions` as there, `name` empty for one that labels nothing."""

    name: str
    pattern: str
    actions: list[str]
    _compiled: Any = field(init=False, repr=False)
    #: a pattern that is nothing but this text is found twice as fast without the regular expression
    _literal: str = field(init=False, repr=False)
    #: what it says of a line can depend on the lines beside it: every line is looked at by itself
    _by_line: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._compiled = compiled(self.pattern, regex.V0 | regex.MULTILINE)
        plain = self.pattern.removeprefix(".*").removesuffix(".*")
        self._literal = plain if _PLAIN.fullmatch(plain) else ""
        self._by_line = _SEES_ITS_ENDS.search(self.pattern) is not None

    def first_line(self, text: str, until: float = math.inf) -> int | None:
        """The index of the first of the joined lines that matches. Raises TimeoutError for a pattern that explodes,
        or when the monotonic clock reaches `until`.

        A look at the whole text comes first: the pattern's literal parts are found there at memory speed.
        """
        if not self._by_line and not self._found(text, min(PATTERN_SECONDS, until - time.monotonic())):
            return None
        until = min(until, time.monotonic() + PATTERN_SECONDS_PER_BLOCK)
        for index, line in enumerate(text.split("\n")):
            if self._found(line, min(PATTERN_SECONDS, until - time.monotonic())) and _ITSELF not in line:
                return index
        return None

    def _found(self, text: str, seconds: float) -> bool:
        if self._literal:
            return self._literal in text
        if seconds <= 0:
            raise TimeoutError
        return self._compiled.search(text, timeout=seconds, concurrent=True) is not None


_PLAIN = regex.compile(r"[\w \-:,;/='\"%@<>!]+")
#: negative looks around, and anchors and flags that mean the whole text
_SEES_ITS_ENDS = regex.compile(r"\(\?<?!|\\[AZzG]|\(\?[a-zA-Z]*s")


class Hit(NamedTuple):
    """A line that matched: the block's index in its batch, the line's in the block."""

    policy: Policy
    block: int
    line: int


def of_config(config: dict[str, Any]) -> list[Policy]:
    """Return the policies that can do anything."""
    found = []
    for each in config.get("log_policies") or []:
        with suppress(ValueError):  # of a config that is older than a limit on patterns
            if each.get("pattern"):
                found.append(
                    Policy(str(each.get("name") or ""), str(each["pattern"]), _words(each.get("action")))
                )
    return found


def _words(action: object) -> list[str]:
    """Return the words of an action in an effective config: one word, a list, or nothing; older rows have one word."""
    return [str(word) for word in action] if isinstance(action, list) else [str(action)] if action else []


def policies_of(member_id: int) -> list[Policy]:
    """Return the log policies of the experiment that a member's run belongs to; none for other kinds of work."""
    config = (
        Trial.objects.filter(task__allocations__members=member_id)
        .values_list("experiment__config", flat=True)
        .first()
    )
    return of_config(config or {})


def act(member: Member, hits: Sequence[Hit]) -> None:
    """What the policies ask for. The experiment is locked, the log not yet: tasks are locked before it."""
    for hit in hits:
        if EXCLUDE_NODE in hit.policy.actions:
            transitions.avoid_host(member.allocation.task_id, member.host.name)
    names = [hit.policy.name for hit in hits if hit.policy.name]
    trial = Trial.objects.get(task_id=member.allocation.task_id)
    labels = list(dict.fromkeys([*trial.log_labels, *names]))
    if labels != trial.log_labels:
        Trial.objects.filter(pk=trial.pk).update(log_labels=labels)


def write_down(member: Member, hits: Sequence[Hit], blocks: Sequence[Block], first_line: int) -> None:
    """Record each match once per attempt, and once per host where the host is excluded. The log is locked."""
    for hit in hits:
        policy, block = hit.policy, blocks[hit.block]
        same = Event.objects.filter(
            kind=Event.Kind.ALLOCATION,
            subject=member.allocation_id,
            reason=Reason.LOG_POLICY,
            detail__policy=policy.name,
            detail__pattern=policy.pattern,
        )
        if EXCLUDE_NODE in policy.actions:
            same = same.filter(detail__host=member.host.name)
        if same.exists():
            continue
        before = sum(each.text.count("\n") + 1 for each in blocks[: hit.block])
        detail = {
            "policy": policy.name,
            "pattern": policy.pattern,
            "actions": policy.actions,
            "line": first_line + before + hit.line,
            "rank": block.rank,
            "host": member.host.name,
        }
        transitions.tell(member.allocation, Reason.LOG_POLICY, detail)

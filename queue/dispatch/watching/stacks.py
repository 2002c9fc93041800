"""Asks hosts what ranks of a task are doing, for those who wait for the answer in front of a page or a terminal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from dispatch.ssh import remote
from dispatch.ssh.threads import ask_all
from jobs.models import Member
from jobs.states import AllocationState, MemberState
from logs import pulse, stacks

#: The verb ends by itself after about 14 s at most (trainmaster/host/stacks.py).
_TIMEOUT_SECONDS = 18.0
_HOSTS_AT_ONCE = 8

Answers = dict[int, tuple[bool, str]]


def collect(task_id: str, ranks: Sequence[int]) -> None:
    """Ask the hosts of these ranks and keep what they say, a sentence for each rank that nobody can tell of."""
    members = list(
        Member.objects.filter(allocation__task_id=task_id)
        .exclude(allocation__state=AllocationState.TERMINATED)
        .exclude(state=MemberState.ENDED)
        .select_related("host", "allocation")
    )
    if not members:
        stacks.answer(
            task_id,
            dict.fromkeys(ranks, (False, f"Task {task_id} is not running, so it has no stacks to show.")),
        )
        return
    asked = _by_member(members, ranks)
    found: Answers = {}
    for part in ask_all(lambda pair: _ask(*pair), asked, _HOSTS_AT_ONCE):
        for rank, said in part.items():
            # who has a rank says more than a host on which it does not run
            if rank not in found or said[0]:
                found[rank] = said
    stacks.answer(task_id, {rank: found[rank] for rank in ranks if rank in found})


def _by_member(members: Sequence[Member], ranks: Sequence[int]) -> list[tuple[Member, list[int]]]:
    """Who is asked for which ranks: where their pulse comes from, else everybody."""
    places = pulse.places(members[0].allocation.task_id)
    known = {member.pk for member in members}
    asked: dict[int, list[int]] = defaultdict(list)
    for rank in ranks:
        place = places.get(rank)
        for member_id in [place] if place in known and place is not None else known:
            asked[member_id].append(rank)
    return [(member, asked[member.pk]) for member in members if member.pk in asked]


def _ask(member: Member, ranks: list[int]) -> Answers:
    host = member.host
    try:
        question = {"runs": {member.run_key: {"ranks": ranks}}}
        said = remote.verb(host, "stack", question, timeout_seconds=_TIMEOUT_SECONDS)
        run: dict[str, Any] = said.get("runs", {}).get(member.run_key, {})
    except remote.RemoteError as error:
        run = {"message": f"{host.name} cannot be asked: {error}"}
    if "ranks" not in run:
        sentence = str(run.get("message") or f"{host.name} did not answer.")
        return dict.fromkeys(ranks, (False, sentence))
    return {
        rank: _words(rank, host.name, run["ranks"][str(rank)]) for rank in ranks if str(rank) in run["ranks"]
    }


def _words(rank: int, host: str, said: dict[str, Any]) -> tuple[bool, str]:
    """The answer with a head that says what it is about."""
    if "text" not in said:
        return False, str(said.get("message") or f"{host} does not know rank {rank}.")
    place = f", waiting in {said['waits_in']}" if said.get("waits_in") else ""
    others = int(said.get("others") or 0)
    more = f"; {others} more of its processes are not shown" if others else ""
    head = f"rank {rank} on {host}: process {said.get('pid')}, state {said.get('state')}{place}{more}"
    return True, f"{head}\n\n{said['text']}\n"

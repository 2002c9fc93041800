"""The rank pulse of a gang of which only the chief prints: who is stopped is marked, nobody else is, and it says what
it is doing when it is asked."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.rig.hosts import HostRig
from tests.rig.light_gang import LightGang, light_gang
from tests.rig.stack import Stack, running_stack

pytestmark = pytest.mark.hosts

RANKS = 8
MARKED_WITHIN_SECONDS = 60
CALM_SECONDS = 5


@pytest.fixture(scope="module")
def stack(host_rig: HostRig) -> Iterator[Stack]:
    with running_stack(host_rig) as stack:
        stack.add_hosts(slots=RANKS // 2)
        yield stack


@pytest.fixture(scope="module")
def gang(stack: Stack) -> Iterator[LightGang]:
    """Four ranks on each of two hosts."""
    with light_gang(stack, RANKS) as gang:
        yield gang


@pytest.mark.parametrize("rank", [5, pytest.param(0, marks=pytest.mark.chaos)])
def test_only_the_stopped_rank_is_marked_and_in_time(gang: LightGang, rank: int) -> None:
    gang.keeps(set(), CALM_SECONDS)
    with gang.stopped(rank):
        gang.wait_marks({rank}, MARKED_WITHIN_SECONDS)
        assert "is stopped (state T)" in gang.marks()[rank]
        gang.keeps({rank}, CALM_SECONDS)
    gang.wait_marks(set(), MARKED_WITHIN_SECONDS)


@pytest.mark.chaos  # most of a minute
def test_a_rank_that_hangs_in_its_own_code_is_told_from_those_that_wait_for_it(gang: LightGang) -> None:
    gang.hang(3)
    gang.wait_marks({3}, 60)
    assert "its peers" in gang.marks()[3] and "sleeps" in gang.marks()[3]
    assert "in hangs" in ask(gang, 3)["text"]
    assert "in wait_for_the_others" in ask(gang, 4)["text"]
    gang.wait_marks(set(), 150)


def ask(gang: LightGang, rank: int) -> dict[str, Any]:
    return gang.stack.post(f"/api/v1/tasks/{gang.task_id}/ranks/{rank}/stack")


def test_a_rank_says_what_it_is_doing_and_goes_on(gang: LightGang) -> None:
    answer = ask(gang, 5)
    assert answer["text"].startswith("rank 5 on ") and "worker.py" in answer["text"], answer
    all_of_them = gang.stack.post(f"/api/v1/tasks/{gang.task_id}/stacks", {"ranks": list(range(RANKS))})[
        "stacks"
    ]
    assert [one["rank"] for one in all_of_them if "worker.py" in one.get("text", "")] == list(range(RANKS))
    before = {one["rank"]: one.get("step") for one in gang.pulse()}
    assert sorted(before) == list(range(RANKS))
    gang.keeps(set(), CALM_SECONDS)


def test_a_stopped_rank_and_one_that_is_not_there_get_a_sentence(gang: LightGang) -> None:
    with gang.stopped(6):
        answer = ask(gang, 6)
        assert "is stopped (state T)" in answer.get("message", "") or "py-spy" in answer.get("text", ""), (
            answer
        )
    status, sentence = gang.stack.refused("POST", f"/api/v1/tasks/{gang.task_id}/ranks/500/stack")
    assert status == 404 and "has no rank 500; it has 0-7." in sentence

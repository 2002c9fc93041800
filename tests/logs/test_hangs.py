"""What the evidence of a gang that stands still says: recorded from twelve real hangs, healthy gangs, and garbage."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logs.hangs import collectives, evidence, places, standing, verdict
from logs.hangs.evidence import ENDED, Call, Group, Told
from logs.pulse_marks import Seen

#: `python -m benchmarks.hangs --keep FOLDER` on torch 2.13.0 with gloo, the newest calls of each group
SAMPLES: dict[str, Any] = json.loads(
    gzip.decompress((Path(__file__).parent / "twelve_hangs.json.gz").read_bytes())
)
#: name -> the collective that the others wait in, and whether two looks prove that it never continues
TWELVE = {
    "stopped": ("all_reduce", True),
    "left_out": ("all_reduce", True),
    "sizes": ("all_reduce", True),
    "loader": ("all_reduce", False),
    "lock": ("all_reduce", False),
    "pipe": ("all_reduce", False),
    "dead_peer": ("new_group", False),
    "endless_loop": ("all_reduce", False),
    "barrier_left_out": ("barrier", False),
    "order": ("all_reduce", True),
    "socket": ("all_reduce", False),
    "long_call": ("all_reduce", False),
}
PLACES = {
    "stopped": "is stopped (process ",
    "loader": "waits for its data loader, at train.py line ",
    "lock": "waits for a lock or another thread, at train.py line ",
    "pipe": "/code/fifo, at train.py line ",
    "dead_peer": "It has ended.",
    "endless_loop": "computes, at train.py line ",
    "barrier_left_out": "waits for a lock or another thread, at train.py line ",
    "socket": "waits for an answer from the network, at train.py line ",
    "long_call": "sleeps, at train.py line ",
}
VICTIM = 2


def looks(name: str) -> list[list[Told]]:
    return [
        [evidence.told(rank, "gpu1", look.get(str(rank), {"state": ENDED})) for rank in range(4)]
        for look in SAMPLES[name]["looks"]
    ]


@pytest.mark.parametrize("name", TWELVE)
def test_a_recorded_hang_names_its_rank_and_collective(name: str) -> None:
    before, now = looks(name)
    found = verdict.judge(now)
    assert found is not None and found.ranks == (VICTIM,)
    collective, is_proved = TWELVE[name]
    assert found.collective.split()[0] == collective
    assert PLACES.get(name, "Such a collective cannot end.") in found.sentence
    assert verdict.confirmed(verdict.judge(before), found)
    assert verdict.may_be_ended(found, before, now, SAMPLES[name]["apart_seconds"]) == is_proved
    assert not verdict.may_be_ended(found, before, now, 5.0), "looks right after each other prove nothing"


@pytest.mark.parametrize("name", TWELVE)
def test_a_recorded_hang_is_kept_and_read_again(name: str) -> None:
    _, now = looks(name)
    again = evidence.of_kept(json.loads(json.dumps(evidence.kept(now))))
    assert verdict.judge(again) == verdict.judge(now)


@pytest.mark.parametrize("name", TWELVE)
def test_a_rank_that_moves_between_the_looks_is_not_ended(name: str) -> None:
    before, now = looks(name)
    found = verdict.judge(now)
    assert found is not None
    works = [
        replace(told, cpu_seconds=(told.cpu_seconds or 0) + 3, text=told.text + "\n", pid=9) for told in now
    ]
    assert not verdict.may_be_ended(found, before, works, SAMPLES[name]["apart_seconds"])
    for number in range(4):  # any of them, whoever is named
        one = [works[told.rank] if told.rank == number else told for told in now]
        assert now[number].state == ENDED or not verdict.may_be_ended(found, before, one, 25.0)


def calls(*names: str, open_from: int = 99) -> tuple[Call, ...]:
    return tuple(Call(number, name, done=number < open_from) for number, name in enumerate(names, 1))


def rank(number: int, groups: dict[str, Group] | None = None, **more: Any) -> Told:
    known = {"state": "S", "cpu_seconds": 1.0, "moved_bytes": 4096, "moved_bytes_after": 4096, **more}
    return Told(number, "gpu1", pid=number + 100, groups=groups, **known)


def test_ranks_that_have_all_entered_a_slow_collective_hang_in_nothing() -> None:
    whole = {"0": Group((0, 1), calls("all_reduce", "all_reduce", open_from=2))}
    assert collectives.find([rank(0, whole), rank(1, whole)]) is None
    assert verdict.judge([rank(0, whole), rank(1, whole)]) is None


def test_the_rank_at_the_root_is_named_not_one_that_waits_for_it_in_another_group() -> None:
    """Rank 0 waits for 1 in one group, and 1 for 2 in another."""
    pair, all_three = (
        Group((0, 1), calls("all_reduce", open_from=1)),
        Group((0, 1, 2), calls("barrier", open_from=1)),
    )
    gang = [rank(0, {"p": pair}), rank(1, {"p": Group((0, 1), ()), "w": all_three}), rank(2, {})]
    stuck = collectives.find(gang)
    assert stuck is not None and stuck.ranks == (2,) and stuck.call.name == "barrier"


def test_ranks_that_wait_for_each_other_are_both_named() -> None:
    def waits(name: str, other: str) -> dict[str, Group]:
        return {name: Group((0, 1), calls("all_reduce", open_from=1)), other: Group((0, 1), ())}

    stuck = collectives.find([rank(0, waits("a", "b")), rank(1, waits("b", "a"))])
    assert stuck is not None and stuck.kind == collectives.Kind.CYCLE and stuck.ranks == (0, 1)


def test_lists_of_unequal_sizes_may_differ_between_ranks() -> None:
    sizes = [(Call(1, "all_to_all", size),) for size in ("[[3]]", "[[5]]")]
    assert collectives.find([rank(n, {"0": Group((0, 1), each)}) for n, each in enumerate(sizes)]) is None


def test_a_rank_on_a_host_that_does_not_answer_is_not_a_proof() -> None:
    waiting = {"0": Group((0, 1), calls("all_reduce", open_from=1))}
    gang = [rank(0, waiting), Told(1, "gpu2")]
    found = verdict.judge(gang)
    assert found is not None and found.ranks == (1,)
    assert not verdict.may_be_ended(found, gang, gang, 600.0)


def test_a_long_validation_of_the_chief_is_told_and_never_ended() -> None:
    """The others wait in a barrier; it computes, or waits for a store, a debugger or a program that it has started."""
    waiting = {"0": Group((0, 1), calls("barrier", open_from=1))}
    own = '  File "train.py", line 8 in validate'
    for state, call, top in (
        ("R", "", own),
        ("S", "recvfrom", '  File "/usr/lib/python3.11/socket.py", line 700 in readinto'),
        ("S", "clock_nanosleep", own),
        ("S", "wait4", '  File "/usr/lib/python3.11/subprocess.py", line 1 in wait'),
        ("S", "read", '  File "/usr/lib/python3.11/bdb.py", line 90 in trace_dispatch'),
        ("t", "", own),
        ("S", "futex", '  File "/usr/lib/python3.11/queue.py", line 171 in get'),
        ("S", "poll", '  File "/site-packages/torch/utils/data/dataloader.py", line 1 in _try_get_data'),
    ):
        text = f"Current thread 0x1 (most recent call first):\n{top}\n{own}"
        chief = rank(0, {"0": Group((0, 1), ())}, text=text, call=call, state=state)
        gang = [chief, rank(1, waiting)]
        found = verdict.judge(gang)
        assert found is not None and found.ranks == (0,), call
        assert not verdict.may_be_ended(found, gang, gang, 3600.0), (state, call)


def test_a_rank_in_the_kernel_or_a_mount_is_its_hosts_fault_and_is_ended_if_it_moves_nothing() -> None:
    waiting = {"0": Group((0, 1), calls("barrier", open_from=1))}
    for state, waits_in, file in (
        ("D", "nfs_wait_bit_killable", "/data/x"),
        ("S", "request_wait_answer", ""),
    ):
        stuck = rank(
            0, {"0": Group((0, 1), ())}, waits_in=waits_in, file=file, call="read", text="Thread 0x1:"
        )
        before, peer = replace(stuck, state=state), rank(1, waiting)
        found = verdict.judge([before, peer])
        assert found is not None and found.is_of_the_host and waits_in in found.sentence
        assert found.needs_the_kernels_word
        assert verdict.may_be_ended(found, [before, peer], [before, peer], 60.0)
        for now in (
            replace(before, moved_bytes=8192),
            replace(before, cpu_seconds=2.0),
            replace(before, text=""),
            replace(before, moved_bytes=None),
            replace(before, pid=7),
        ):
            assert not verdict.may_be_ended(found, [before, peer], [now, peer], 60.0)
    pipe = verdict.judge(looks("pipe")[1])
    assert pipe is not None and not pipe.is_of_the_host


@pytest.mark.parametrize(
    ("call", "waits_in"),
    [
        ("fsync", "folio_wait_writeback"), ("fsync", "nfs_wait_bit_killable"), ("close", "request_wait_answer"),
        ("read", "balance_dirty_pages"), ("write", "pipe_write"), ("", "folio_wait_bit_common"), ("", ""),
    ],
)  # fmt: skip
def test_a_rank_that_may_be_writing_is_told_and_never_ended(call: str, waits_in: str) -> None:
    """The `fsync` of a large checkpoint takes as long as its disk does, and nothing is seen to move."""
    gang = [
        rank(0, {"0": Group((0, 1), ())}, state="D", call=call, waits_in=waits_in, file="/checkpoints/x"),
        rank(1, {"0": Group((0, 1), calls("barrier", open_from=1))}),
    ]
    found = verdict.judge(gang)
    assert found is not None and found.ranks == (0,)
    assert not verdict.may_be_ended(found, gang, gang, 3600.0)


IN_COLLECTIVE = (
    'Thread 0x1 (most recent call first):\n  File "/site-packages/torch/distributed/distributed_c10d.py", line 3 in '
    '{}\n  File "train.py", line 9 in step'
)


def test_ranks_that_have_finished_early_are_no_hang_while_another_works() -> None:
    groups = {"0": Group((0, 1, 2, 3), calls("barrier"))}
    ended = [Told(number, "gpu1", state=ENDED) for number in (1, 2, 3)]
    for chief in (rank(0, groups, state="R"), rank(0, groups, call="poll"), rank(0, groups)):
        found = verdict.judge([chief, *ended])
        assert found is None or not verdict.may_be_ended(found, [chief, *ended], [chief, *ended], 60.0)


def test_a_rank_that_has_ended_is_a_proof_only_of_a_collective_in_which_all_others_wait() -> None:
    groups = {"0": Group((0, 1, 2), calls("barrier", open_from=1))}
    waiting = [rank(number, groups, text=IN_COLLECTIVE.format("barrier")) for number in (0, 1)]
    gang = [*waiting, Told(2, "gpu1", state=ENDED)]
    found = verdict.judge(gang)
    assert found is not None and found.ranks == (2,)
    assert verdict.may_be_ended(found, gang, gang, 60.0)
    for other in (replace(waiting[0], text='Thread 0x1:\n  File "train.py", line 3 in export'),
                  replace(waiting[0], cpu_seconds=3.0), replace(waiting[0], moved_bytes=5000)):  # fmt: skip
        now = [other, *gang[1:]]
        assert not verdict.may_be_ended(found, gang, now, 60.0)
        assert other.cpu_seconds == 3.0 or not verdict.may_be_ended(found, now, now, 60.0)


@pytest.mark.parametrize(
    "others",
    [
        'Thread 0x2:\n  File "/usr/lib/python3.11/ssl.py", line 3 in write\n\n',
        'Thread 0x2:\n  File "up.py", line 3 in upload\n\n',
        'Thread 0x2:\n  File "/site-packages/torch/distributed/distributed_c10d.py", line 3 in gather\n\n',
    ],
)
def test_groups_that_wait_for_each_other_are_a_proof_only_if_no_thread_is_at_work(others: str) -> None:
    """As with a checkpoint that is saved beside the training, in a thread with a group of its own."""

    def waits(number: int, name: str, other: str, text: str = "", **more: Any) -> Told:
        groups = {name: Group((0, 1), calls("all_reduce", open_from=1)), other: Group((0, 1), ())}
        return rank(number, groups, text=text + IN_COLLECTIVE.format("all_reduce"), **more)

    gang = [waits(0, "a", "b"), waits(1, "b", "a")]
    found = verdict.judge(gang)
    assert found is not None and found.kind == collectives.Kind.CYCLE
    assert verdict.may_be_ended(found, gang, gang, 60.0)
    idle = 'Thread 0x2:\n  File "/usr/lib/python3.11/threading.py", line 327 in wait\n\n'
    also = [gang[0], waits(1, "b", "a", idle)]
    assert verdict.may_be_ended(found, also, also, 60.0)
    for busy in (
        waits(1, "b", "a", others),
        replace(waits(1, "b", "a"), moved_bytes=None),
        replace(waits(1, "b", "a"), text=idle),
    ):
        now = [gang[0], busy]
        assert not verdict.may_be_ended(found, now, now, 60.0)


def test_a_rank_that_is_done_with_another_call_of_that_number_is_no_proof() -> None:
    """The numbers of a group that was destroyed and made again may be those of the one before."""
    waiting = Group((0, 1, 2), (Call(5, "all_reduce"),))
    gang = [rank(number, {"0": waiting}, text=IN_COLLECTIVE.format("all_reduce")) for number in (0, 1)]
    gang.append(rank(2, {"0": Group((0, 1, 2), (Call(5, "broadcast", done=True),))}))
    found = verdict.judge(gang)
    assert found is not None and not verdict.may_be_ended(found, gang, gang, 60.0)


def test_a_rank_outside_a_group_says_nothing_of_its_collectives() -> None:
    mine = {"1": Group((0, 1), calls("all_reduce", open_from=1))}
    stranger = rank(2, {"1": Group((), (Call(1, "broadcast"),))})
    assert collectives.find([rank(0, mine), rank(1, mine), stranger]) is None


def test_without_collectives_a_rank_is_named_only_if_it_stands_still() -> None:
    def loads(step: int) -> list[Told]:
        frame = f'  File "/site-packages/torch/utils/data/dataloader.py", line {step} in _try_get_data'
        return [rank(0, text=f"Thread 0x1:\n{frame}")]

    before, later = loads(1), loads(2)
    found = verdict.judge(later)
    assert found is not None and found.kind == "place"
    assert verdict.is_worth_telling(found, before, before, 30.0)
    assert not verdict.is_worth_telling(found, before, later, 30.0)
    assert not verdict.is_worth_telling(found, before, [replace(before[0], cpu_seconds=9.0)], 30.0)


def test_the_evidence_of_a_large_gang_is_kept_small() -> None:
    """1024 ranks in four groups, and one that names members without bounds."""
    text = "Thread 0x1:\n" + '  File "train.py", line 3 in step\n' * 60
    groups = {str(name): Group(tuple(range(1024)), calls(*["all_reduce"] * 12)) for name in range(4)}
    kept = json.dumps(evidence.kept([rank(number, groups, text=text) for number in range(1024)]))
    assert len(kept) < 4_500_000
    members = [10**300 + number for number in range(4096)]
    said = {"collectives": {"groups": {str(name): {"members": members, "calls": []} for name in range(32)}}}
    assert len(json.dumps(evidence.kept([evidence.told(0, "gpu1", said)]))) < 4000


# --- when it is worth looking -------------------------------------------------------------------------


def seen(number: int = 0, **more: Any) -> Seen:
    return Seen(number, "gpu1", state="S", **more)


@pytest.mark.parametrize(
    ("gang", "stood"),
    [
        ([seen(quiet=1000.0), seen(1, quiet=950.0)], 950.0),
        ([seen(quiet=1000.0), seen(1, wrote=20.0)], None),  # it writes lines
        ([seen(quiet=1000.0, wrote=3000.0)], 1000.0),
        ([seen(quiet=1000.0, gap=400.0)], None),  # its usual steps take that long
        ([seen(quiet=590.0, doing="saves a checkpoint")], None),
        ([seen(quiet=5000.0, doing="saves a checkpoint")], 5000.0),
        ([seen(cpu=1.0)], None),  # it never gives a sign
        ([seen(quiet=1000.0), replace(seen(1, quiet=1.0), state=ENDED)], 1000.0),
        ([seen(quiet=1000.0, doing="has left")], None),
        ([], None),
    ],
)
def test_a_gang_stands_once_none_of_its_ranks_gives_a_sign(gang: list[Seen], stood: float | None) -> None:
    assert standing.stood_for(gang, 500.0) == stood


# --- what a job may write -----------------------------------------------------------------------------

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=4,
)
_CALLS = st.lists(
    st.fixed_dictionaries({"number": _JSON | st.integers(0, 4), "name": _JSON, "done": _JSON}), max_size=4
)
_TOLD = st.fixed_dictionaries(
    {
        "state": _JSON | st.sampled_from(["S", "T", "t", "D", "R", ENDED]),
        "text": _JSON | st.text(max_size=200),
        "cpu_seconds": _JSON,
        "collectives": _JSON
        | st.fixed_dictionaries(
            {
                "groups": st.dictionaries(
                    st.sampled_from(["0", "1"]), st.fixed_dictionaries({"members": _JSON, "calls": _CALLS})
                )
            }
        ),
    }
)


@settings(max_examples=60)
@given(st.lists(_JSON | _TOLD, max_size=4), st.lists(_JSON | _TOLD, max_size=4))
def test_whatever_hosts_tell_of_ranks_is_judged(first: list[Any], second: list[Any]) -> None:
    before, now = (
        [evidence.told(n, "gpu1", said) for n, said in enumerate(each)] for each in (first, second)
    )
    found = verdict.judge(now)
    if found is not None:
        verdict.may_be_ended(found, before, now, 60.0)
        assert all(place in set(places.Kind) for place in found.places)
        json.dumps(found.sentence).encode("ascii")
        found.sentence.encode()
    assert verdict.judge(evidence.of_kept(json.loads(json.dumps(evidence.kept(now))))) == found


_PLACES = st.sampled_from([
    IN_COLLECTIVE.format("all_reduce"), IN_COLLECTIVE.format("barrier"),
    'Thread 0x1:\n  File "train.py", line 9 in step',
    'Thread 0x1:\n  File "/usr/lib/python3.11/threading.py", line 327 in wait\n  File "train.py", line 9 in step',
])  # fmt: skip
_GROUP = st.lists(st.tuples(st.sampled_from(["all_reduce", "barrier"]), st.booleans()), max_size=4)
#: a rank as one look sees it, and the sign that it gives of its work until the next
_RANK = st.fixed_dictionaries(
    {
        "state": st.sampled_from(["S", "S", "R", "D", ENDED]),
        "call": st.sampled_from(["", "futex", "read", "fsync"]),
        "waits_in": st.sampled_from(["", "futex_do_wait", "nfs_wait_bit_killable", "folio_wait_writeback"]),
        "text": _PLACES,
        "groups": st.none() | st.dictionaries(st.sampled_from(["0", "1", "2"]), _GROUP, max_size=3),
        "sign": st.sampled_from(["cpu", "bytes", "text"]),
    }
)


@settings(max_examples=200)
@given(st.lists(_RANK, min_size=2, max_size=4), st.integers(0, 3))
def test_no_gang_whose_ranks_all_work_is_ever_ended(ranks: list[dict[str, Any]], alone: int) -> None:
    """Some may have finished. Whatever else their evidence says, of groups and places: those that are left have
    computed, or moved bytes, or come to another line. It is enough that one of them has."""
    members = tuple(range(len(ranks)))
    if all(each["state"] == ENDED for each in ranks):
        ranks = [{**ranks[0], "state": "S"}, *ranks[1:]]
    left = [number for number in members if ranks[number]["state"] != ENDED]
    before = []
    for number, each in enumerate(ranks):
        if each["state"] == ENDED:
            before.append(Told(number, "gpu1", state=ENDED))
            continue
        groups = None if each["groups"] is None else {
            name: Group(members, tuple(Call(n, called, done=done) for n, (called, done) in enumerate(made, 1)))
            for name, made in each["groups"].items()
        }  # fmt: skip
        more = {name: each[name] for name in ("state", "call", "waits_in", "text")}
        before.append(rank(number, groups, **more))
    moved = {
        number: replace(before[number], **{
            "cpu": {"cpu_seconds": 4.0}, "bytes": {"moved_bytes": 8192},
            "text": {"text": before[number].text.replace("line 9", "line 10")},
        }[ranks[number]["sign"]])
        for number in left
    }  # fmt: skip
    one = left[alone % len(left)]
    for now in (
        [moved.get(told.rank, told) for told in before],
        [moved[one] if told.rank == one else told for told in before],
    ):
        found = verdict.judge(now)
        assert found is None or not verdict.may_be_ended(found, before, now, 60.0)


@given(st.lists(_RANK, min_size=2, max_size=4))
def test_what_is_kept_of_a_gang_is_judged_as_the_gang_is(ranks: list[dict[str, Any]]) -> None:
    gang = [
        rank(number, {
            name: Group((0, 1), tuple(Call(n, called, done=done) for n, (called, done) in enumerate(made * 3, 1)))
            for name, made in (each["groups"] or {}).items()
        }, state=each["state"], text=each["text"])
        for number, each in enumerate(ranks)
    ]  # fmt: skip
    again = evidence.of_kept(json.loads(json.dumps(evidence.kept(gang))))
    found = verdict.judge(gang)
    assert verdict.judge(again) == found
    if found is not None:
        proofs = [verdict.may_be_ended(found, each, each, 60.0) for each in (gang, again)]
        assert proofs[0] == proofs[1]

"""Which rank the others wait for: the cause is marked, and nobody else."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logs.pulse_marks import Seen, marks

SIZE = 8


def gang(size: int = SIZE, **same: object) -> list[Seen]:
    """Ranks that all look the same: by default in step, each with a sign of life half a second ago."""
    looks = {"state": "S", "calls": 120, "beats": 240, "quiet": 0.5, "gap": 1.0, "cpu": 0.3, **same}
    return [Seen(rank, f"gpu-{rank // 4}", **looks) for rank in range(size)]  # type: ignore[arg-type]


def but(ranks: list[Seen], rank: int, **change: object) -> list[Seen]:
    """The same gang with one rank that differs."""
    return [replace(seen, **change) if seen.rank == rank else seen for seen in ranks]  # type: ignore[arg-type]


def waiting(size: int = SIZE, seconds: float = 14.0, **same: object) -> list[Seen]:
    """All of them asleep in a collective since so many seconds, as when one of them does not come."""
    asleep = {"waits": True, "quiet": seconds, "idle_seconds": seconds, "cpu": 0.0}
    return gang(size, **{**asleep, "waits_in": "do_poll", **same})


def test_a_gang_in_step_has_no_mark() -> None:
    assert marks(gang()) == {} and marks([]) == {} and marks(gang(1)) == {}


def test_a_rank_that_is_stopped_is_marked_alone_although_all_stand_still() -> None:
    stopped = but(waiting(), 3, state="T", pid=4711, state_seconds=12.0, waits=False)
    assert marks(stopped) == {
        3: "rank 3 on gpu-0 has made no progress for 12 s: its process 4711 is stopped (state T)."
    }


def test_the_moment_in_which_a_debugger_looks_into_a_rank_is_no_mark() -> None:
    assert marks(but(gang(), 3, state="t", state_seconds=0.0)) == {}
    assert "debugger" in marks(but(gang(), 3, state="t", state_seconds=30.0))[3]


def test_a_gang_that_is_stopped_as_a_whole_is_not_marked() -> None:
    assert marks(waiting(state="T", state_seconds=60.0, waits=False)) == {}


def test_a_rank_in_the_kernel_is_marked_and_one_that_reads_a_lot_is_not() -> None:
    hangs = {"state": "D", "state_seconds": 24.0, "waits_in": "nfs_wait_bit_killable", "waits": False}
    found = marks(but(waiting(seconds=24.0), 3, pid=9, **hangs))
    assert list(found) == [3] and "nfs_wait_bit_killable" in found[3]
    assert marks(but(waiting(seconds=24.0), 3, **hangs, cpu=0.05)) == {}
    assert marks(but(waiting(seconds=24.0), 3, **hangs, doing="saves a checkpoint")) == {}


def test_the_rank_that_did_not_enter_the_collective_is_marked() -> None:
    found = marks(but(waiting(), 3, calls=119, waits=False, waits_in="hrtimer_nanosleep"))
    assert found == {
        3: "rank 3 on gpu-0 has been behind for 14 s: it has entered 119 collective calls, its peers 120, "
        "and they are waiting for it; its process sleeps in hrtimer_nanosleep."
    }


def test_steps_are_named_where_both_report_them() -> None:
    found = marks(but(waiting(step=121), 3, calls=119, step=120, waits=False))
    assert found[3].startswith(
        "rank 3 on gpu-0 has been behind for 14 s: it is at step 120, its peers are at 121"
    )


@pytest.mark.parametrize(("seconds", "marked"), [(200.0, False), (310.0, True)])
def test_a_chief_that_evaluates_while_the_others_wait_is_given_time(seconds: float, marked: bool) -> None:
    evaluates = but(waiting(seconds=seconds), 0, calls=119, waits=False, idle_seconds=0.0, cpu=1.0)
    assert bool(marks(evaluates)) is marked


def test_a_chief_that_saves_a_checkpoint_is_given_more() -> None:
    saves = {"calls": 119, "waits": False, "doing": "saves a checkpoint"}
    assert marks(but(waiting(seconds=300.0), 0, **saves)) == {}
    assert "it saves a checkpoint" in marks(but(waiting(seconds=700.0), 0, **saves))[0]


def test_a_chief_that_alone_reports_raises_no_mark() -> None:
    """The others entered one collective at their start; their signs ended there, and they train."""
    others = gang(calls=1, beats=2, quiet=300.0, gap=0.0)
    assert marks(but(others, 0, step=900, beats=900, quiet=0.2)) == {}
    assert marks(but(others[:2], 0, step=900, beats=900, quiet=0.2)) == {}


def test_a_rank_whose_signs_end_while_the_others_go_on_is_marked() -> None:
    asleep = {"quiet": 14.0, "idle_seconds": 14.0, "cpu": 0.0, "calls": None}
    assert list(marks(but(gang(calls=None), 5, **asleep))) == [5]
    assert list(marks(but(gang(2, calls=None), 1, **asleep))) == [1]
    # one whose signs come in long pauses anyway is given three of them
    assert marks(but(gang(calls=None), 5, **{**asleep, "gap": 10.0})) == {}


def test_a_rank_that_has_left_is_not_waited_for() -> None:
    assert marks(but(gang(), 5, quiet=500.0, idle_seconds=500.0, doing="has left", calls=10)) == {}


def test_without_the_sdk_an_idle_rank_among_busy_ones_is_marked() -> None:
    busy = gang(calls=None, beats=0, quiet=None, cpu=1.0)
    found = marks(but(busy, 6, cpu=0.0, idle_seconds=25.0))
    assert list(found) == [6] and "has used no CPU for 25 s while its 7 peers use 1.0 CPUs each" in found[6]


def test_without_the_sdk_ranks_that_sleep_while_the_chief_works_are_not_marked() -> None:
    asleep = gang(calls=None, beats=0, quiet=None, cpu=0.0, idle_seconds=300.0, waits_in="do_poll")
    assert marks(but(asleep, 0, cpu=1.0, idle_seconds=0.0, waits_in="")) == {}


def test_the_one_that_sleeps_elsewhere_is_marked_when_all_stand_still() -> None:
    asleep = gang(calls=None, beats=0, quiet=None, cpu=0.0, idle_seconds=35.0, waits_in="do_poll")
    assert list(marks(but(asleep, 2, waits_in="hrtimer_nanosleep"))) == [2]
    assert marks(asleep) == {}
    assert marks(but(but(asleep, 2, waits_in="hrtimer_nanosleep"), 3, waits_in="pipe_read")) == {}


def ended_but(ranks: set[int], size: int = 24, seconds: float = 40.0, **look: object) -> list[Seen]:
    """A gang without the SDK of which all but these have ended so long ago; these sleep, or look otherwise."""
    looks = {"state": "S", "idle_seconds": 50.0, "waits_in": "hrtimer_nanosleep", **look}
    return [
        Seen(rank, "gpu-1", **looks)  # type: ignore[arg-type]
        if rank in ranks
        else Seen(rank, "gpu-1", state="ended", state_seconds=seconds + rank)
        for rank in range(size)
    ]


def test_the_rank_that_goes_on_when_all_others_have_ended_is_marked() -> None:
    assert marks(ended_but({9})) == {
        9: "rank 9 on gpu-1 is still running 40 s after 23 of 24 ranks ended; "
        "its process sleeps in hrtimer_nanosleep."
    }
    assert sorted(marks(ended_but({3, 9}))) == [3, 9]
    assert "after 1 of 2 ranks ended" in marks(ended_but({1}, size=2))[1]
    assert "is stopped" in marks(ended_but({9}, state="T", pid=4, quiet=0.5))[9]


def test_who_goes_on_is_not_marked_at_once_nor_with_many_nor_while_it_makes_progress() -> None:
    assert marks(ended_but({9}, seconds=12.0)) == {}
    assert marks(ended_but(set(range(12)))) == {}
    assert marks(ended_but(set())) == {}
    assert marks(ended_but({9}, quiet=3.0, gap=2.0, step=70)) == {}
    assert marks(ended_but({9}, quiet=25.0, gap=12.0, step=70)) == {}
    assert marks(ended_but({0}, seconds=200.0, idle_seconds=0.0)) == {}
    assert marks(ended_but({0}, seconds=200.0, quiet=60.0, doing="saves a checkpoint")) == {}


def test_of_ranks_that_have_ended_none_is_evidence_against_the_others() -> None:
    ended = [Seen(rank, "gpu-0", state="ended", state_seconds=60.0) for rank in range(SIZE, 12)]
    assert marks(gang() + ended) == {}
    stopped = but(waiting(), 3, state="T", pid=4711, state_seconds=12.0, waits=False)
    assert list(marks(stopped + ended)) == [3]


_seen = st.builds(
    Seen,
    rank=st.just(0),
    host=st.sampled_from(["a", "b"]),
    state=st.sampled_from(["S", "R", "D", "T", "t", "", "ended"]),
    state_seconds=st.floats(0, 1000),
    step=st.none() | st.integers(0, 5),
    calls=st.none() | st.integers(0, 5),
    waits=st.booleans(),
    beats=st.integers(0, 10),
    quiet=st.none() | st.floats(0, 1000),
    gap=st.floats(0, 10),
    doing=st.sampled_from(["", "has left", "saves a checkpoint"]),
    cpu=st.floats(0, 8),
    gpu=st.none() | st.integers(0, 100),
    idle_seconds=st.floats(0, 1000),
    waits_in=st.sampled_from(["", "a", "b"]),
)


@given(st.lists(_seen, max_size=12))
def test_whatever_is_seen_some_rank_stays_unmarked_and_every_mark_names_its_rank(seen: list[Seen]) -> None:
    ranks = [replace(one, rank=number) for number, one in enumerate(seen)]
    found = marks(ranks)
    assert not found or len(found) < len(ranks)
    assert all(
        sentence.startswith(f"rank {rank} on ") and sentence.endswith(".") for rank, sentence in found.items()
    )

"""What status frames say of ranks: their lines, and how their training stands."""

import time

import pytest

from jobs.models import Member
from logs import pulse, store
from logs.lines import NewLine, blocks_of
from logs.rank_status import ranks_of
from tests.rig.rows import make_gang


@pytest.fixture
def member(db: None) -> Member:
    return make_gang()[0]


def test_a_rank_that_has_written_nothing_yet_stands_in_the_frames_too(member: Member) -> None:
    task_id = member.allocation.task_id
    lines = [NewLine(time.time() - 5, 0, "stdout", None, "only the chief prints")]
    store.append(task_id, member, member.host.name, blocks_of(lines))
    sign = {"calls": 3, "waits": True, "beats": 9, "beat_seconds": 2.0, "gap_seconds": 1.0}
    looks = {"state": "S", "cpu": 0.0, "state_seconds": 5.0, "idle_seconds": 1.0}
    stopped = {"state": "T", "pid": 12, "state_seconds": 9.0}
    pulse.keep(member.pk, [{"rank": 0, **looks, **sign, "step": 41}, {"rank": 1, **looks, **stopped}])
    chief, other = (rank.entry(time.time()) for rank in ranks_of(task_id))
    assert chief["lines"] == 1 and chief["step"] == 41 and 1 <= chief["stepAge"] <= 4 and chief["active"]
    assert "mark" not in chief
    assert other["lines"] == 0 and other["age"] is None and other["host"] == member.host.name
    assert "step" not in other and not other["active"] and "is stopped" in other["mark"]


def test_a_rank_that_has_ended_says_so(member: Member) -> None:
    pulse.keep(
        member.pk,
        [{"rank": 0, "state": "ended", "state_seconds": 3.0}, {"rank": 1, "state": "R", "cpu": 1.0}],
    )
    ended, other = (rank.entry(time.time()) for rank in ranks_of(member.allocation.task_id))
    assert ended["ended"] is True and ended["active"] is False
    assert "ended" not in other and other["active"]


def test_without_a_pulse_the_frames_are_as_they_were(member: Member) -> None:
    task_id = member.allocation.task_id
    lines = [NewLine(time.time(), 0, "stdout", None, "a line")]
    store.append(task_id, member, member.host.name, blocks_of(lines))
    (entry,) = (rank.entry(time.time()) for rank in ranks_of(task_id))
    assert set(entry) == {"rank", "age", "host", "lines"}


def test_equal_pulses_are_no_news(member: Member) -> None:
    pulse.keep(member.pk, [{"rank": 0, "state": "S", "cpu": 1.0}])
    assert ranks_of(member.allocation.task_id) == ranks_of(member.allocation.task_id)

"""The Standard Workload Format, read, written and generated."""

import pytest

from scheduling.traces import TraceError, TraceJob, generated, parse, written

TEXT = """; Version: 2.2
; Computer: a cluster
  1      0   10  3600   8  -1  -1   8  7200 -1  1  3  1 -1  2 -1 -1 -1
  2    60    -1    -1  -1  -1  -1   4  7200 -1  5  3  1 -1  2 -1 -1 -1   ; cancelled
  3    30     0   100   4  -1  -1  -1    50 -1  1  7  1 -1  0 -1 -1 -1
"""


def test_a_trace_is_read_oldest_first_without_what_never_ran() -> None:
    assert parse(TEXT) == [
        TraceJob(1, 0, 3600, 8, asks_time=7200, user=3, group="1"),
        TraceJob(3, 30, 100, 4, asks_time=100, user=7, group="1"),
    ]


def test_a_generated_trace_is_the_same_for_a_seed_and_survives_writing() -> None:
    jobs = generated(300, 128, seed=5)
    assert jobs == generated(300, 128, seed=5) != generated(300, 128, seed=6)
    assert parse(written(jobs)) == jobs


def test_a_generated_trace_asks_for_the_load_and_estimates_too_much() -> None:
    jobs = generated(2000, 128, seed=1, load=0.8)
    span = jobs[-1].submitted_at - jobs[0].submitted_at
    assert sum(job.runs * job.slots for job in jobs) / (span * 128) == pytest.approx(0.8, rel=0.1)
    assert all(job.asks_time is not None and job.asks_time >= job.runs for job in jobs)
    ratios = sorted((job.asks_time or 0) / job.runs for job in jobs)
    assert ratios[len(ratios) // 2] > 2
    assert {job.slots for job in jobs} == {1, 2, 4, 8, 16}
    assert all(1 <= job.priority <= 99 for job in jobs)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("1 2 3", "line 1 has 3 fields"),
        ("1 0 10 x 8 -1 -1 8 7200 -1 1 3 1 -1 2 -1 -1 -1", "every field must be a number"),
    ],
)
def test_a_line_of_another_form_is_refused_with_its_number(line: str, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        parse(line)


def test_queue_numbers_are_priorities_only_where_the_header_says_so() -> None:
    line = "1 0 10 3600 8 -1 -1 8 7200 -1 1 3 1 -1 0 -1 -1 -1"
    assert parse(line)[0].priority == 42
    with pytest.raises(TraceError, match="queue number 0"):
        parse("; Note: queue numbers are priorities, 1 goes first\n" + line)

"""The Standard Workload Format, read, written and generated."""

import pytest

from scheduling.traces import TraceError, TraceJob, between, generated, hosts_for, parse, read, written

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


CSV = """submitted,duration_s,gpus,group,user
2017-09-24 14:01:56,79.0,1,vision,ada
2017-09-24 14:01:50,82.5,8,speech,bob
2017-09-25 14:01:56,5,2,vision,ada
2017-09-24 15:00:00,0,1,vision,ada
"""


def test_a_trace_in_csv_is_read_by_its_columns() -> None:
    start = 1506261710.0
    assert read(CSV) == [
        TraceJob(2, start, 82.5, 8, user=1, group="speech"),
        TraceJob(1, start + 6, 79.0, 1, user=0, group="vision"),
        TraceJob(3, start + 6 + 86400, 5.0, 2, user=0, group="vision"),
    ]
    assert read(TEXT) == parse(TEXT), "and the other format as before"
    assert [job.number for job in between(read(CSV), 1, 2)] == [3]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("submitted,gpus\n1,2", "line 1 names no column duration_s"),
        ("submitted,duration_s,gpus\nyesterday,1,2", "line 2: Invalid isoformat string: 'yesterday'"),
        ("submitted,duration_s,gpus\n1,1,2\n1,2,x", "line 3.* gpus a whole number"),
    ],
)
def test_a_row_in_csv_of_another_form_is_refused_with_its_line(text: str, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        read(text)


def test_a_cluster_is_cut_to_the_four_busiest_weeks_and_holds_the_largest_job() -> None:
    day = 86400.0
    quiet = [TraceJob(n, n * day, day, 1) for n in range(100)]
    busy = [TraceJob(100 + n, (40 + n) * day, day, 15) for n in range(28)]
    jobs = sorted([*quiet, *busy], key=lambda job: job.submitted_at)
    assert hosts_for(jobs, 8, 1.0) == 2
    assert hosts_for(jobs, 8, 0.5) == 4
    assert hosts_for([TraceJob(1, 0, 1, 64)], 8, 1.0) == 8

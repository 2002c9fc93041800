"""A trace in virtual time: the numbers add up, and forecasts hold what they promise."""

from pathlib import Path

import pytest

from scheduling import replay
from scheduling.plain_queues import PlainQueue
from scheduling.slot_use import Run, used
from scheduling.traces import TraceJob, generated, written
from scheduling.virtual_time import Habits, Outcome, VirtualPool
from scheduling.world import PoolView

CERTAIN = Habits(preemptible=1.0, saving=1.0, stopping=30.0)


def lived(
    jobs: list[TraceJob], hosts: int = 1, slots: int = 2, habits: Habits = CERTAIN, **pool: object
) -> Outcome:
    return VirtualPool(hosts, slots, PoolView(**pool), habits).live(jobs)  # type: ignore[arg-type]


def test_waits_follow_from_the_order_and_the_run_times() -> None:
    jobs = [TraceJob(n, float(n), 100.0, 2) for n in (1, 2, 3)]
    found = lived(jobs)
    assert [job.first_start for job in found.jobs.values()] == [1.0, 101.0, 201.0]
    assert [job.ended_at for job in found.jobs.values()] == [101.0, 201.0, 301.0]
    assert found.busy == 2 * 2 and found.seconds == 2
    assert found.idle_while_fits == 0


@pytest.mark.parametrize(("saving", "redone"), [(1.0, 0.0), (0.0, 449.0)])
def test_what_is_stopped_unsaved_is_done_again(saving: float, redone: float) -> None:
    """It runs from 0 s, is asked to stop at 1,000 s and is gone 30 s later; every 600 s it saves."""
    habits = Habits(preemptible=1.0, saving=saving, save_every=581.0, stopping=30.0)
    jobs = [TraceJob(1, 0.0, 5000.0, 2, priority=50), TraceJob(2, 1000.0, 100.0, 2, priority=10)]
    low, high = lived(jobs, habits=habits).jobs.values()
    assert high.first_start == 1030.0
    assert low.stops == 1 and low.redone == redone
    assert low.ended_at == 1130.0 + 5000.0 - (1030.0 - redone)


def test_slots_kept_for_a_gang_stand_idle_only_where_nothing_is_stopped() -> None:
    jobs = [
        TraceJob(1, 0.0, 1000.0, 1),
        TraceJob(2, 1.0, 100.0, 2),
        TraceJob(3, 2.0, 100.0, 1),
        TraceJob(4, 500.0, 1.0, 1),
    ]
    assert lived(jobs).idle_while_fits == 0
    assert lived(jobs, preemption=False).idle_while_fits == 498.0


def test_what_never_fits_is_counted_and_holds_nobody_up() -> None:
    found = lived([TraceJob(1, 0.0, 10.0, 3), TraceJob(2, 1.0, 10.0, 2)])
    assert [job.never for job in found.jobs.values()] == [True, False]
    assert found.jobs["job 2"].first_start == 1.0


def test_the_same_trace_gives_the_same_outcome_and_every_job_ends() -> None:
    jobs = generated(80, 32, seed=3)
    found = VirtualPool(4, 8, PoolView(), Habits(), forecast_every=10).live(jobs)
    again = VirtualPool(4, 8, PoolView(), Habits(), forecast_every=10).live(jobs)
    assert found == again
    for job in found.jobs.values():
        assert job.never or (
            job.ended_at is not None and job.ended_at >= job.trace.submitted_at + job.trace.runs
        )


def test_ranges_of_80_percent_hold_about_80_percent_of_the_starts() -> None:
    """The goal of 75 to 85 % is measured on 2,000 jobs; with so few, chance allows more."""
    kept = 0
    given = 0
    for seed in (1, 2):
        found = VirtualPool(4, 8, PoolView(), Habits(), forecast_every=5).live(generated(250, 32, seed))
        seen = set[str]()
        for promise in found.promises:
            start = found.jobs[promise.task_id].first_start
            assert start is not None
            if promise.task_id not in seen:
                seen.add(promise.task_id)
                given += 1
                kept += promise.span[0] <= start <= promise.span[1]
    assert given > 80
    assert 0.65 <= kept / given <= 0.93


def test_the_command_reads_a_trace_and_prints_the_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, report = tmp_path / "trace.swf", tmp_path / "report.md"
    trace.write_text(written(generated(60, 16, seed=1)))
    assert replay.main([str(trace), "--hosts", "2", "--slots", "8", "--report", str(report)]) == 0
    text = capsys.readouterr().out
    assert report.read_text() == text
    assert "60 jobs" in text and "slot-hours idle while waiting work would fit" in text
    assert "| the first of each job that waited |" in text


def test_a_trace_that_cannot_be_read_is_refused_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.swf"
    trace.write_text("1 2 3\n")
    assert replay.main([str(trace)]) == 2
    assert "line 1 has 3 fields" in capsys.readouterr().err
    assert replay.main([str(tmp_path / "none.swf")]) == 2


def test_a_trace_in_csv_is_shown_beside_other_schedulers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, slurm = tmp_path / "trace.csv", tmp_path / "slurm.csv"
    trace.write_text("submitted,duration_s,gpus\n0,100,1\n10,100,2\n20,50,1\n30,1,1\n")
    slurm.write_text("job,start,end,hosts\n1,0,100,0:1\n2,100,200,0:2\n3,200,250,0:1\n4,200,201,0:1\n")
    options = ["--hosts", "1", "--slots", "2", "--slurm", str(slurm), "--no-preemption"]
    assert replay.main([str(trace), *options]) == 0
    text = capsys.readouterr().out
    assert "| first come, first served | 110 s" in text
    assert "| the same with EASY backfilling | 32 s" in text, (
        "the third runs beside the first, and then the fourth"
    )
    assert "| Slurm | 110 s" in text
    assert replay.main([str(trace), "--slurm", str(tmp_path / "none.csv")]) == 2


def test_easy_delays_nobody_who_comes_first() -> None:
    """The second waits for both slots until 100 s: what would run longer beside the first may not start."""
    jobs = [TraceJob(1, 0, 100, 1), TraceJob(2, 1, 10, 2), TraceJob(3, 2, 200, 1), TraceJob(4, 3, 97, 1)]
    starts = {run.job: run.start for run in PlainQueue(1, 2, backfills=True).live(jobs)}
    assert starts == {1: 0, 2: 100, 3: 110, 4: 3}
    assert {run.job: run.start for run in PlainQueue(1, 2).live(jobs)} == {1: 0, 2: 100, 3: 110, 4: 110}


def test_slots_are_idle_while_work_fits_only_if_its_hosts_are_free() -> None:
    """The gang of two whole hosts waits from 10 s to 100 s while one host is free; a single slot would fit there."""
    jobs = [TraceJob(1, 0, 100, 1), TraceJob(2, 10, 50, 4), TraceJob(3, 50, 10, 1), TraceJob(4, 200, 1, 1)]
    runs = [
        Run(1, 0, 100, {0: 1}),
        Run(2, 100, 150, {0: 2, 1: 2}),
        Run(3, 150, 160, {0: 1}),
        Run(4, 200, 201, {1: 1}),
    ]
    use = used(jobs, runs, 2, 2)
    assert use.seconds == 200
    assert use.busy == 100 + 4 * 50 + 10
    assert use.idle_while_fits == 50, "of the third job, from 50 s to 100 s"


def test_many_sizes_are_shown_by_powers_of_two() -> None:
    jobs = [TraceJob(n, float(n), 10.0, n) for n in range(1, 13)]
    text = replay.report(lived(jobs, slots=16), "Sizes.")
    assert "| 1 | 1 |" in text and "| 3 to 4 | 2 |" in text and "| 9 to 16 | 4 |" in text
    assert "| all | 12 |" in text

"""What held slots went to, from rows as they are recorded: told once, in sums that agree with those of usage."""

import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.refusals import Refusal
from dispatch.keeping import goodput, goodput_facts, slot_days, usage
from dispatch.runs import settle
from dispatch.watching import idle_gpus
from experiments import runs
from experiments.models import Checkpoint, Trial
from experiments.states import CheckpointState
from hosts.models import Slot
from hosts.pools import default_pool
from jobs.models import Allocation, Member, SlotTimeOfDay, SlotTimeTotal, UsageRecord
from jobs.states import Reason
from metrics import ingest, step_times, timing_store
from metrics.ingest import Report
from metrics.models import Group, TimingChunk
from tests.rig.world import assigned, make_host, make_user, submit_experiment, trial_of

pytestmark = pytest.mark.django_db

DAY = datetime(2026, 3, 10, tzinfo=UTC)
MARCH = usage.between("day", "2026-03-09", "2026-03-12", most=31)


def minutes(number: float) -> datetime:
    return DAY + timedelta(minutes=number)


@pytest.fixture
def trial(db: None) -> Trial:
    make_host("gpu1", 2)
    return trial_of(submit_experiment(slots=2, owner=make_user("ada")))


def attempt(
    trial: Trial, began: float, end: float, reason: Reason, reports: dict[float, int], saved: dict[float, int]
) -> Allocation:
    """Slots from `began` on, in minutes after DAY; its entrypoint starts a minute later, and it reports and saves."""
    trial.refresh_from_db()
    slots = list(Slot.objects.values_list("host_id", "pk"))
    placement = [(slots[0][0], [pk for _, pk in slots])]
    allocation = assigned(task_id=trial.task_id, placement=placement, on_sufferance=False, actor="test")
    Allocation.objects.filter(pk=allocation.pk).update(assigned_at=minutes(began))
    runs.begin_all([allocation])
    member = allocation.members.get()
    Member.objects.filter(pk=member.pk).update(started_at=minutes(began + 1), state="RUNNING")
    batch = [
        Report(allocation.number, "training", step, minutes(at).timestamp(), {"loss": 1.0})
        for at, step in reports.items()
    ]
    ingest.store(trial.pk, batch)
    for at, step in saved.items():
        Checkpoint.objects.create(
            uuid=uuid.uuid4(), trial=trial, allocation_id=allocation.pk, state=CheckpointState.COMPLETED,
            steps_completed=step, reported_at=minutes(at), save_seconds=30.0,
        )  # fmt: skip
    if saved:
        newest = trial.checkpoints.order_by("-steps_completed").first()
        Trial.objects.filter(pk=trial.pk).update(latest_checkpoint=newest)
    settle.member_over(member.pk, reason=reason, exited=True, at=minutes(end))
    Member.objects.filter(pk=member.pk).update(ended_at=minutes(end))
    UsageRecord.objects.filter(pk=member.run_key).update(ended_at=minutes(end))
    return allocation


def killed_and_resumed(trial: Trial) -> None:
    """It saves at step 20 of 40, its host is lost, and it starts again from there."""
    attempt(trial, 0, 50, Reason.HOST_RESTARTED, {12: 10, 22: 20, 32: 30, 42: 40}, {22.5: 20})
    attempt(trial, 60, 120, Reason.COMPLETED, {72: 30, 82: 40, 92: 50, 102: 60}, {})


WANTED = {
    "start": 2 * (2 + 2), "progress": 2 * (40 - 0.5 + 20), "checkpoint": 2 * 0.5, "again:host_restarted": 2 * 20,
    "end": 2 * (8 + 18),
}  # fmt: skip


def in_minutes(parts: Counter[str]) -> dict[str, float]:
    return {part: seconds / 60 for part, seconds in parts.items()}


def test_steps_of_a_restarted_host_are_told_as_done_again(trial: Trial) -> None:
    killed_and_resumed(trial)
    assert goodput.tell_due(timezone.now()) == 2
    (found,) = goodput.sums(MARCH)
    assert in_minutes(found.parts) == WANTED
    assert found.seconds == sum(each.seconds for each in usage.sums(MARCH)) == 2 * 110 * 60
    assert in_minutes(goodput.of_task(trial.task_id, MARCH).parts) == WANTED


def test_what_is_told_is_told_once_and_outlives_its_experiment(trial: Trial) -> None:
    killed_and_resumed(trial)
    before = goodput.sums(MARCH, "user")
    assert [one.name for one in before] == ["ada"] and set(before[0].parts) == {"not_told"}
    now = minutes(120) + timedelta(hours=1)
    assert goodput.tell_due(now) == 2 and goodput.tell_due(now) == 0
    totals = {row.part: float(row.slot_microseconds) / 60e6 for row in SlotTimeTotal.objects.all()}
    assert totals == WANTED
    told = [(one.name, one.parts) for one in goodput.sums(MARCH, "experiment")]
    assert [name for name, _ in told] == [str(trial.experiment_id)]
    Allocation.objects.all().delete()
    assert [(one.name, one.parts) for one in goodput.sums(MARCH, "experiment")] == told


def test_the_sums_of_each_day_agree_with_the_records_and_can_be_made_again(trial: Trial) -> None:
    attempt(trial, 0, 50, Reason.HOST_RESTARTED, {12: 10, 22: 20, 32: 30, 42: 40}, {22.5: 20})
    attempt(trial, 23 * 60, 25 * 60, Reason.COMPLETED, {23 * 60 + at: at + 20 for at in range(2, 118)}, {})
    assert goodput.tell_due(timezone.now()) == 2 and slot_days.differences() == []
    whole = [(one.name, one.parts, one.by_period) for one in goodput.sums(MARCH, "experiment")]
    assert whole[0][1].total() == sum(each.seconds for each in usage.sums(MARCH)) == 2 * 170 * 60
    assert set(whole[0][2]) == {"2026-03-10", "2026-03-11"}
    page = goodput.largest(MARCH, "experiment", each_period=False)
    assert [(page.lines[0].name, page.lines[0].parts, page.total.by_period)] == whole
    none_shown = goodput.largest(MARCH, "user", 0)
    assert (none_shown.lines, none_shown.more, none_shown.total.parts) == ([], 1, whole[0][1])
    assert none_shown.rest is not None and none_shown.rest.by_period == whole[0][2]
    call_command("goodput_sums", stdout=StringIO())
    wrong = SlotTimeOfDay.objects.filter(part="progress").update(slot_microseconds=1)
    wrong += SlotTimeOfDay.objects.filter(part="end").delete()[0]
    told = StringIO()
    with pytest.raises(CommandError, match=f"{wrong} sums do not agree"):
        call_command("goodput_sums", stdout=told)
    assert "2026-03-11, pool" in told.getvalue() and "the sums 1 slot-microseconds" in told.getvalue()
    call_command("goodput_sums", rebuild=True, stdout=told)
    assert told.getvalue().endswith("The sums agree with the records.\n")
    assert [(one.name, one.parts, one.by_period) for one in goodput.sums(MARCH, "experiment")] == whole


def test_what_an_older_server_told_is_read_at_once_and_added_to_the_sums_in_the_next_round(
    trial: Trial,
) -> None:
    killed_and_resumed(trial)
    now = timezone.now()
    assert goodput.tell_due(now) == 2 and not UsageRecord.objects.filter(in_sums=False).exists()
    kept = sorted(SlotTimeOfDay.objects.values_list("day", "part", "slot_microseconds"))
    whole = goodput.sums(MARCH)
    SlotTimeOfDay.objects.all().delete()
    UsageRecord.objects.update(in_sums=False)
    slot_days.add_rest(1)
    assert UsageRecord.objects.get(in_sums=False) and slot_days.differences() == []
    assert goodput.sums(MARCH) == whole
    for _ in range(2):
        assert goodput.tell_due(now) == 0 and goodput.sums(MARCH) == whole
    assert sorted(SlotTimeOfDay.objects.values_list("day", "part", "slot_microseconds")) == kept


def test_what_held_slots_for_no_time_has_no_line() -> None:
    now = timezone.now()
    UsageRecord.objects.create(
        run_key="t.1.0", kind="TRIAL", owner=make_user("ada"), pool=default_pool(), slots=1,
        started_at=now, ended_at=now,
    )  # fmt: skip
    assert goodput.sums(usage.latest("day", 2, now), "user") == []


def test_an_attempt_that_was_deleted_before_it_was_told_is_not_told(trial: Trial) -> None:
    killed_and_resumed(trial)
    Allocation.objects.all().delete()
    goodput.tell_due(timezone.now())
    (found,) = goodput.sums(MARCH)
    assert in_minutes(found.parts) == {"not_told": 220.0}


def test_days_and_weeks_add_up_to_the_same(trial: Trial) -> None:
    attempt(trial, -60, 60, Reason.COMPLETED, {-40: 10, -20: 20, 0: 30, 20: 40, 40: 50}, {})
    goodput.tell_due(timezone.now())
    (found,) = goodput.sums(MARCH)
    by_day = {day: in_minutes(parts) for day, parts in found.by_period.items()}
    assert {day: sum(parts.values()) for day, parts in by_day.items()} == {
        "2026-03-09": 120,
        "2026-03-10": 120,
    }
    assert by_day["2026-03-10"] == {"progress": 80.0, "end": 40.0}
    weeks = usage.between("week", "2026-03-11", "2026-03-18", most=8)
    assert weeks.names == ["2026-03-09", "2026-03-16"]
    (whole,) = goodput.sums(weeks, "pool")
    assert whole.name == "default" and whole.parts == found.parts
    assert set(whole.by_period) == {"2026-03-09"}


def test_what_runs_now_is_told_up_to_now(trial: Trial) -> None:
    slots = list(Slot.objects.values_list("host_id", "pk"))
    placement = [(slots[0][0], [pk for _, pk in slots])]
    allocation = assigned(task_id=trial.task_id, placement=placement, on_sufferance=False, actor="test")
    now = timezone.now()
    began = now - timedelta(seconds=100)
    Allocation.objects.filter(pk=allocation.pk).update(assigned_at=began)
    member = allocation.members.get()
    Member.objects.filter(pk=member.pk).update(started_at=began + timedelta(seconds=10), state="RUNNING")
    runs.begin_all([allocation])
    start = began.timestamp()
    ingest.store(
        trial.pk, [Report(1, "training", step, start + 20 + step, {"loss": 1.0}) for step in (20, 40, 60)]
    )
    Slot.objects.filter(pk=slots[0][1]).update(idle_since=began + timedelta(seconds=50))
    today = usage.latest("day", 2, now)
    parts = goodput.of_task(trial.task_id, today).parts
    assert parts["start"] == pytest.approx(40) and parts["idle"] == pytest.approx(50, abs=3)
    assert parts["progress"] == pytest.approx(110, abs=3)


def test_a_mark_of_the_next_run_keeps_the_one_before(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    allocation = attempt(trial, 0, 50, Reason.HOST_RESTARTED, {12: 10, 22: 20, 32: 30, 42: 40}, {})
    (slot, _) = Slot.objects.order_by("pk")
    Slot.objects.filter(pk=slot.pk).update(idle_since=minutes(20))
    attempt(trial, 60, 120, Reason.COMPLETED, {72: 30}, {})
    monkeypatch.setattr(idle_gpus, "_idle", lambda now: {slot.pk: minutes(70)})
    idle_gpus.look(minutes(100))
    assert allocation.members.get().idle == [[slot.pk, minutes(20).timestamp(), minutes(50).timestamp()]]


def test_when_a_gpu_stood_idle_is_kept_with_the_run_that_held_it(trial: Trial) -> None:
    allocation = attempt(trial, 0, 50, Reason.COMPLETED, {12: 10, 22: 20, 32: 30, 42: 40}, {})
    (slot, _) = Slot.objects.order_by("pk")
    Slot.objects.filter(pk=slot.pk).update(idle_since=minutes(20))
    assert idle_gpus.look(minutes(60)) == 1
    assert allocation.members.get().idle == [[slot.pk, minutes(20).timestamp(), minutes(50).timestamp()]]
    goodput.tell_due(timezone.now())
    assert in_minutes(goodput.of_task(trial.task_id, MARCH).parts)["idle"] == 30


def test_no_report_of_a_job_makes_others_of_it(trial: Trial) -> None:
    hostile = {-(10**6): 2**62, 12: 10, 10**9: 5, 30: 1}
    attempt(trial, 0, 50, Reason.COMPLETED, hostile, {})
    goodput.tell_due(timezone.now())
    (found,) = goodput.sums(MARCH)
    assert found.seconds == 2 * 50 * 60 and min(found.parts.values()) >= 0


def long_runs(trial: Trial) -> None:
    """7,000 reports, then 7,000 more of which the first 2,000 are about steps that were done before."""
    times = {2 + i * 0.05: i for i in range(1, 7001)}
    attempt(trial, 0, 400, Reason.HOST_RESTARTED, times, {300: 5000})
    ingest.archive_after(trial.pk, 5000)
    attempt(trial, 410, 810, Reason.COMPLETED, {at + 410: step + 5000 for at, step in times.items()}, {})


def test_an_attempt_is_told_the_same_whoever_else_is(trial: Trial) -> None:
    long_runs(trial)
    others = {10**9 + i: step_times.Size(10**9 + i, 1) for i in range(199)}
    own = step_times.sizes([trial.pk, *others])
    assert own.keys() == {trial.pk}
    ((_, alone),) = step_times.heads(own)
    ((_, among),) = step_times.heads({**others, **own})
    assert sorted(alone) == sorted(among) and sum(count for count, _ in alone) == 14_000
    goodput.tell_due(timezone.now())
    found = in_minutes(goodput.of_task(trial.task_id, MARCH).parts)
    assert found["again:host_restarted"] == pytest.approx(2 * 2000 * 0.05)
    assert found["progress"] == pytest.approx(2 * (7000 + 5000) * 0.05 - 2 * 0.5)


def test_steps_of_other_groups_are_no_steps(trial: Trial) -> None:
    killed_and_resumed(trial)
    others = [
        Report(1, group, step, minutes(41).timestamp(), {"loss": 1.0})
        for group, step in (("samples", 25_600), ("validation", 9_000))
    ]
    ingest.store(trial.pk, others)
    goodput.tell_due(timezone.now())
    assert in_minutes(goodput.of_task(trial.task_id, MARCH).parts) == WANTED
    Group.objects.filter(trial_id=trial.pk, name="training").update(name="mine")
    assert step_times.sizes([trial.pk])[trial.pk].reports == 1  # those of the validation


def test_checkpoints_that_were_shipped_late_lie_where_they_were_saved(trial: Trial) -> None:
    reports = {12.0: 10, 22.0: 20, 32.0: 30, 42.0: 40}
    attempt(trial, 0, 50, Reason.COMPLETED, reports, {15: 11, 25: 21, 35: 31})
    for row in trial.checkpoints.all():
        Checkpoint.objects.filter(pk=row.pk).update(saved_at=row.reported_at, reported_at=minutes(55))
    goodput.tell_due(timezone.now())
    assert in_minutes(goodput.of_task(trial.task_id, MARCH).parts)["checkpoint"] == 2 * 3 * 0.5


def test_what_is_told_while_a_page_is_read_counts_once(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    killed_and_resumed(trial)
    now = timezone.now()
    times = {"started_at": now - timedelta(minutes=40), "ended_at": now - timedelta(minutes=10)}
    UsageRecord.objects.update(**times)
    today = usage.latest("day", 2, now)
    read = goodput_facts.of

    def told_meanwhile(*asked: Any) -> Any:
        monkeypatch.setattr(goodput_facts, "of", read)
        found = read(*asked)
        assert goodput.tell_due(timezone.now()) == 2
        return found

    monkeypatch.setattr(goodput_facts, "of", told_meanwhile)
    (found,) = goodput.sums(today)
    assert found.seconds == sum(each.seconds for each in usage.sums(today)) == 2 * 2 * 30 * 60


def test_what_ended_long_ago_is_no_increase(trial: Trial) -> None:
    attempt(trial, 0, 50, Reason.COMPLETED, {12: 10, 22: 20, 32: 30, 42: 40}, {})
    assert goodput.tell_due(minutes(50) + timedelta(days=2)) == 1
    assert not SlotTimeTotal.objects.exists()


def test_a_round_ends_when_its_time_is_over(trial: Trial) -> None:
    killed_and_resumed(trial)
    assert goodput.tell_due(timezone.now(), seconds=-1) == 0
    assert goodput.tell_due(timezone.now()) == 2


def test_an_attempt_that_the_database_refuses_is_not_told(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_and_resumed(trial)
    read = goodput_facts.of

    def refusing(allocation_ids: set[str], *more: Any) -> Any:
        if allocation_ids == {f"{trial.task_id}.1"}:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 / 0")
        return read(allocation_ids, *more)

    monkeypatch.setattr(goodput_facts, "of", refusing)
    goodput.tell_all_of(trial.experiment_id, timezone.now())
    assert in_minutes(goodput.of_task(trial.task_id, MARCH).parts)["not_told"] == 100


def test_nobody_looks_for_a_slow_rank_in_too_many_timings(trial: Trial) -> None:
    killed_and_resumed(trial)
    TimingChunk.objects.create(
        task_id=trial.task_id, rank=1, slot=0, host="gpu1", first_step=1, last_step=60, last_time=0.0,
        frames=300_001, data=b"cannot be read",
    )  # fmt: skip
    goodput.tell_due(timezone.now())
    assert in_minutes(goodput.of_task(trial.task_id, MARCH).parts) == WANTED


def test_the_pace_of_each_host_is_kept_with_its_member(trial: Trial) -> None:
    own = attempt(trial, 0, 50, Reason.COMPLETED, {12: 10, 42: 40}, {})
    for rank, host, seconds in ((1, "gpu1", 0.5), (2, "gpu2", 0.25)):
        timed = {"n": 40, "sum": 40 * seconds, **dict.fromkeys(("min", "max", "p50", "p95"), seconds)}
        times = [minutes(12).timestamp(), minutes(42).timestamp()]
        record = {"k": "timings", "f": f"core.rank{rank}.jsonl", "e": 1, "r": rank, "t": times, "s": [1, 40]}
        timing_store.store(
            trial.task_id, host, [{**record, "v": {"step": timed, "step.work": timed}, "c": {}}]
        )
    assert goodput.tell_due(timezone.now()) == 1
    assert own.members.get().pace == pytest.approx(2.0)


def test_a_statement_that_takes_too_long_is_refused(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goodput, "_STATEMENT_SECONDS", 0.01)
    with pytest.raises(Refusal, match="ask for fewer days"):
        goodput._rows("SELECT pg_sleep(1)", {})


def test_live_attempts_with_too_many_reports_are_told_when_they_end(trial: Trial) -> None:
    killed_and_resumed(trial)
    keys = [f"{trial.task_id}.{number}" for number in (1, 2)]
    assert goodput_facts.of(keys, timezone.now(), 8).keys() == set(keys)
    assert goodput_facts.of(keys, timezone.now(), 7) == {}


def test_facts_that_cannot_be_read_spoil_only_their_own_attempt(
    trial: Trial, caplog: pytest.LogCaptureFixture
) -> None:
    killed_and_resumed(trial)
    Member.objects.filter(allocation__number=1).update(idle=[["not", "a span"]])
    keys = [f"{trial.task_id}.{number}" for number in (1, 2)]
    with CaptureQueriesContext(connection) as asked, caplog.at_level("WARNING"):
        assert goodput_facts.of(keys, timezone.now()).keys() == {keys[1]}
    assert len(asked) < 12 and f"attempt {keys[0]} " in caplog.text
    assert goodput.tell_due(timezone.now()) == 2
    (found,) = goodput.sums(MARCH)
    minutes_of = in_minutes(found.parts)
    assert minutes_of["not_told"] == 100 and minutes_of["again:host_restarted"] == 40
    assert goodput.tell_due(timezone.now()) == 0

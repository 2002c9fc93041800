"""Windows of a pool from the rule to the pass: what is refused, who is stopped in time, what the page and REST say."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts import user_groups
from accounts.models import User
from accounts.refusals import FieldRefusals, Refusal
from dispatch.passes import forecast_outcomes, last_plan, pool_pass, preview, survey
from events.models import Event
from experiments.models import Checkpoint
from hosts import pool_windows
from hosts.models import PoolChange
from hosts.pools import default_pool, mark_dirty
from jobs import queue_history
from jobs.queue_edits import Update
from jobs.states import Reason, StopKind
from scheduling.promises import Promise
from shown import pool_windows as shown
from tests.rig.world import attempt_of, make_host, make_user, submit_experiment, trial_of

pytestmark = pytest.mark.django_db
ROOT = "user:root"


def local(hours: float) -> str:
    return (timezone.now() + timedelta(hours=hours)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M")


def add(**values: Any) -> None:
    given = {"name": "drivers", "starts": local(0.5), "ends": local(2), "hosts": ["gpu1"], **values}
    pool_windows.save("default", given, actor=ROOT)


def run_pass() -> None:
    pool_pass.run(default_pool().pk)


def faults(**values: Any) -> dict[str, str]:
    with pytest.raises(FieldRefusals) as refused:
        add(**values)
    return refused.value.errors


def test_a_window_stops_what_has_saved_and_tells_what_is_in_the_way() -> None:
    make_host("gpu1", 4)
    submit_experiment(name="never", slots=1)
    asks = submit_experiment(name="asks", slots=1)
    run_pass()
    attempt = attempt_of(asks)
    type(attempt).objects.filter(pk=attempt.pk).update(asked_preempt_at=timezone.now())
    add()
    [row] = shown.of_pool(default_pool(), timezone.now())
    assert [met.label for met in row.stops] == [f"exp {asks.pk}"]
    assert [met.why for met in row.in_the_way] == ["has not saved yet, nor asked whether to stop"]
    PoolChange.objects.all().delete()  # only the window is left that would stop the run
    update = Update(str(submit_experiment(name="edited", slots=1).job_id), priority=90)
    assert preview.of([update], actor=ROOT, role="admin", now=timezone.now()).stops == []
    mark_dirty(default_pool().pk)
    run_pass()
    attempt.refresh_from_db()
    assert (attempt.stop_kind, attempt.stop_reason) == (StopKind.PREEMPT, Reason.WINDOW)
    later = submit_experiment(name="later", slots=1)
    run_pass()
    [[reason]] = [each[:1] for each in preview.blockers(later.job, timezone.now()).values()]
    assert reason.sentence.startswith("starts after maintenance drivers, ")
    assert last_plan.of(default_pool()).waits[trial_of(later).task_id]["code"] == "window"
    assert "Maintenance drivers: gpu1" in shown.coming(default_pool(), timezone.now())


def test_a_reservation_is_for_its_group_follows_its_name_and_keeps_it_from_being_deleted() -> None:
    make_host("gpu1", 4)
    user_groups.create("vision", parent="", add=[make_user("ada")], actor=ROOT)
    add(group="vision", starts=local(-1), hosts=[], slots=3)
    ours = submit_experiment(slots=1, owner=make_user("ada"))
    submit_experiment(slots=1, owner=make_user("bob"))
    run_pass()
    assert attempt_of(ours).stop_kind == ""
    assert len(last_plan.of(default_pool()).waits) == 1
    with pytest.raises(Refusal, match="has a reservation for it"):
        user_groups.delete(user_groups.named("vision"), actor=ROOT)
    user_groups.change(user_groups.named("vision"), name="sight", actor=ROOT)
    assert default_pool().windows[0]["group"] == "sight"


def test_what_makes_no_sense_is_refused_with_a_sentence() -> None:
    make_host("gpu1", 4)
    make_host("gpu2", 4)
    assert faults(ends=local(-2), starts=local(-3))["ends"].startswith("The window is over")
    assert "not after its start" in faults(ends=local(0.1))["ends"]
    assert "no host gpu9; it has gpu1, gpu2" in faults(hosts=["gpu9"])["hosts"]
    assert faults(hosts=[], slots=9)["slots"] == "Windows take 9 slots; pool default has 8."
    assert faults(slots=4)["hosts"] == "Name either hosts or a number of slots."
    assert "Europe/Berlin" in faults(time_zone="Mars")["time_zone"]
    assert "date and time" in faults(starts="soon")["starts"]
    assert faults(starts=None)["starts"].startswith("Start time is required")
    assert "date and time" in faults(starts="0001-01-01T00:00+14:00")["starts"]
    assert "at most 5 years ahead" in faults(ends="9999-12-31T23:59")["ends"]
    assert faults(starts=local(6 * 365 * 24), ends=local(6 * 365 * 24 + 1))["starts"]
    spring = {"starts": "2027-03-28T02:30", "ends": "2027-03-28T03:10", "time_zone": "Europe/Berlin"}
    assert "skips this time" in faults(**spring)["ends"]
    assert faults(group="nobody")["group"] == "There is no group nobody."
    assert faults(weekly=True, ends=local(8 * 24))["ends"] == "A weekly window must be shorter than a week."
    assert faults(wide=1)["wide"].startswith("Unknown window field")
    add()
    assert "already" in faults()["name"]
    assert faults(name="second", starts=local(1))["hosts"].startswith(
        "Window drivers takes gpu1 at the same time"
    )
    assert faults(name="second", hosts=[], slots=5)["slots"] == (
        "Windows take 5 slots; pool default has 4 beside drivers."
    )
    add(name="after", starts=local(3), ends=local(4))


def test_edits_of_windows_count_as_edits_of_the_queue() -> None:
    make_host("gpu1", 4)
    begun = timezone.now()
    add()
    pool_windows.save("default", {"hosts": ["gpu1"]}, actor=ROOT, replaces="drivers")
    pool_windows.remove("default", "drivers", actor=ROOT)
    pool = default_pool().pk
    assert len(queue_history.edits_since(pool, begun)) == 3
    assert forecast_outcomes.windows_edited(pool, {"t": Promise(begun.timestamp(), (0.0, 1.0))}) > 0
    assert queue_history.edits_since(pool, timezone.now()) == []


@pytest.mark.parametrize("state, has_saved", [("COMPLETED", True), ("PARTIAL", True), ("ERROR", False)])
def test_only_a_checkpoint_that_a_trial_resumes_from_counts_as_saved(state: str, has_saved: bool) -> None:
    make_host("gpu1", 4)
    trial = trial_of(submit_experiment(slots=1))
    run_pass()
    now = timezone.now()
    Checkpoint.objects.create(trial=trial, state=state, steps_completed=1, reported_at=now, resources={})
    [request] = survey.take(default_pool(), now).requests
    assert request.running is not None and (request.running.last_saved_at is not None) is has_saved


def test_hosts_that_are_chosen_for_a_near_window_stay_chosen() -> None:
    hosts = {name: make_host(name, 4) for name in ("gpu1", "gpu2", "gpu3")}
    add(hosts=[], slots=4, weekly=True)
    run_pass()
    hosts["gpu1"].draining = True
    hosts["gpu1"].save()
    [row] = shown.of_pool(default_pool(), timezone.now())
    assert row.takes == ["gpu1"]
    [later] = shown.of_pool(default_pool(), timezone.now() + timedelta(hours=3))
    assert later.takes == ["gpu2"]
    add(name="second", hosts=["gpu1"])
    run_pass()
    assert [row.takes for row in shown.of_pool(default_pool(), timezone.now())] == [["gpu2"], ["gpu1"]]
    pool_windows.save("default", {"slots": 5}, actor=ROOT, replaces="drivers")
    assert [each.chosen for each in pool_windows.of_pool(default_pool())] == [None, None]


def test_a_window_is_changed_and_removed_and_each_leaves_an_event() -> None:
    make_host("gpu1", 4)
    add()
    pool_windows.save(
        "default", {"weekly": True, "time_zone": "Europe/Berlin"}, actor=ROOT, replaces="drivers"
    )
    [window] = pool_windows.of_pool(default_pool())
    assert (window.weekly, window.time_zone, window.hosts) == (True, "Europe/Berlin", ("gpu1",))
    pool_windows.remove("default", "drivers", actor=ROOT)
    with pytest.raises(Refusal, match="has no window drivers"):
        pool_windows.remove("default", "drivers", actor=ROOT)
    reasons = (
        Event.objects.filter(kind=Event.Kind.POOL, actor=ROOT).order_by("pk").values_list("reason", flat=True)
    )
    assert list(reasons)[-3:] == ["window_added", "window_changed", "window_removed"]


def test_a_time_with_an_offset_is_kept_by_the_clock_of_the_zone() -> None:
    make_host("gpu1", 4)
    add(starts="2030-07-01T06:00:00Z", ends="2030-07-01T08:00:00+00:00", time_zone="Europe/Berlin")
    [window] = pool_windows.of_pool(default_pool())
    assert (window.starts, window.ends) == ("2030-07-01T08:00", "2030-07-01T10:00")
    assert window.times.at(0)[0] == datetime(2030, 7, 1, 6, tzinfo=UTC).timestamp()


def test_the_page_of_a_pool_lists_adds_edits_and_removes_windows() -> None:
    make_host("gpu1", 4)
    client = Client()
    client.force_login(make_user("the-admin", User.Role.ADMIN))
    submit_experiment(name="never", slots=1)
    run_pass()
    default_pool()
    form = {"name": "drivers", "starts": local(1), "ends": local(2), "time_zone": "UTC", "hosts": "gpu1"}
    wrong = client.post("/pools/default/windows/+new", {**form, "hosts": "gpu9"})
    assert wrong.status_code == 400 and "has no host gpu9" in wrong.content.decode()
    assert client.post("/pools/default/windows/+new", form).headers["Location"] == "/pools/default"
    page = re.sub(r"\s+", " ", client.get("/pools/default").content.decode())
    assert "is in the way: has not saved yet" in page and "drivers" in page
    assert 'value="gpu1"' in client.get("/pools/default/windows/drivers").content.decode()
    client.post("/pools/default/windows/drivers", {**form, "weekly": "on"})
    assert pool_windows.of_pool(default_pool())[0].weekly
    assert "Maintenance drivers" in client.get("/jobs/default").content.decode()
    client.post("/pools/default/windows/drivers/remove")
    assert default_pool().windows == []
    viewer = Client()
    viewer.force_login(make_user("the-viewer", User.Role.VIEWER))
    viewer.post("/pools/default/windows/+new", form)
    assert default_pool().windows == []

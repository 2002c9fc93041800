"""Manage Job and the edits of the queue as plain pages: no script runs here, so each of them is a form or a link."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import User
from commands import submit
from commands.config import check
from dispatch.passes import pool_pass
from experiments import transitions
from experiments.models import Checkpoint, Experiment, Trial
from hosts.models import ResourcePool
from hosts.pools import default_pool
from jobs.models import Allocation, Job
from jobs.states import AllocationState
from submissions import contexts
from tests.rig.html import Html
from tests.rig.world import attempt_of, keep_plan, make_host, make_user, submit_experiment, trial_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> User:
    return make_user("ada")


@pytest.fixture
def page(ada: User) -> Client:
    client = Client()
    client.force_login(ada)
    return client


def text(answer: Any) -> str:
    words = re.sub(r"<[^>]+>", " ", Html(answer.content)).replace("&#x27;", "'")
    return re.sub(r"\s+", " ", words)


def hidden(answer: Any, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', Html(answer.content))
    assert found, f"no field {name}"
    return found[1]


def running(slots: int = 2, owner: User | None = None, **fields: Any) -> Experiment:
    """An experiment that holds its slots."""
    experiment = submit_experiment(slots=slots, owner=owner, **fields)
    pool_pass.run(default_pool().pk)
    Allocation.objects.filter(pk=attempt_of(experiment).pk).update(
        state=AllocationState.RUNNING, started_at=timezone.now()
    )
    return experiment


def make(page: Client, do: str, *jobs: Experiment, **more: str) -> str:
    """What stands on the page that the edit leads back to."""
    sent = {"do": do, "job": [str(each.job_id) for each in jobs], "back": "/experiments", **more}
    return text(page.post("/jobs/edits/make", sent, follow=True))


def manage(experiment: Experiment) -> str:
    return f"/jobs/manage/{experiment.job_id}"


def fields(experiment: Experiment, **changed: object) -> dict[str, object]:
    """What the form sends: the values as shown, some of them changed."""
    job = Job.objects.get(pk=experiment.job_id)
    was = {
        "was-priority": job.priority,
        "was-pool": job.pool.name,
        "priority": job.priority,
        "pool": job.pool.name,
    }
    return was | changed


@pytest.mark.parametrize("found", ["0", "100", "1.5", "x"])
def test_a_priority_that_is_none_is_refused_beside_its_field(page: Client, found: str) -> None:
    waiting = submit_experiment()
    answer = page.post(manage(waiting), fields(waiting, priority=found))
    assert answer.status_code == 400
    sentence = f"priority must be between 1 and 99; 1 is the highest. Found: {found}."
    assert f'id="error-priority">{sentence}<' in Html(answer.content)
    assert Job.objects.get(pk=waiting.job_id).priority == 42


@pytest.mark.parametrize("found", ["0", "-1", "x", "nan"])
def test_a_weight_that_is_none_is_refused_beside_its_field(page: Client, found: str) -> None:
    ResourcePool.objects.filter(pk=default_pool().pk).update(scheduler="fair_share")
    waiting = submit_experiment()
    shown = Html(page.get(manage(waiting)).content)
    assert 'name="weight"' in shown and 'name="priority"' not in shown and 'name="position"' not in shown
    answer = page.post(manage(waiting), {"was-weight": "1", "weight": found})
    assert "weight must be greater than 0" in text(answer)


def test_all_changed_fields_take_effect_in_one_step_and_can_be_undone(page: Client) -> None:
    waiting = submit_experiment()
    ResourcePool.objects.create(name="other")
    there = page.post(manage(waiting), fields(waiting, priority="7", pool="other"))
    assert there.status_code == 302 and there["Location"] == "/jobs"
    job = Job.objects.select_related("pool").get(pk=waiting.job_id)
    assert (job.priority, job.pool.name) == (7, "other")
    said = text(page.get("/experiments"))
    assert "it gets priority 7" in said and "resource pool other" in said and "Undo" in said
    assert "it gets priority 7" in text(page.get("/jobs/edits/undo"))
    page.post("/jobs/edits/undo")
    job.refresh_from_db()
    assert (job.priority, job.pool) == (42, default_pool())
    assert "no recent edit of the queue" in text(page.get("/jobs/edits/undo"))


def test_an_undo_that_would_stop_a_run_says_so_first(page: Client) -> None:
    urgent = submit_experiment(slots=2, name="urgent", priority=10)
    page.post(manage(urgent), fields(urgent, priority="60"))
    make_host("gpu1", 2)
    running(2, make_user("jun"), name="asr-base")
    asked = page.post("/jobs/edits/undo")
    assert "Stops asr-base of jun" in text(asked) and "Undo: stop 1 job" in text(asked)
    assert Job.objects.get(pk=urgent.job_id).priority == 60
    page.post("/jobs/edits/undo", {"seen": hidden(asked, "seen")})
    assert Job.objects.get(pk=urgent.job_id).priority == 10


def test_a_position_moves_the_job_among_the_others(page: Client) -> None:
    jobs = [submit_experiment(name=name) for name in "abc"]
    page.post(manage(jobs[2]), fields(jobs[2], **{"was-position": "3", "position": "2"}))
    order = Job.objects.order_by("priority", "position").values_list("name", flat=True)
    assert list(order) == ["a", "c", "b"]


def test_one_wrong_field_keeps_all_of_them_from_being_applied(page: Client) -> None:
    waiting = submit_experiment()
    answer = page.post(
        manage(waiting), fields(waiting, priority="7", **{"was-position": "1", "position": "9"})
    )
    assert "position must be a whole number between 1 and 1; 1 is the first. Found: 9." in text(answer)
    assert Job.objects.get(pk=waiting.job_id).priority == 42


def test_a_field_that_was_not_touched_does_not_set_back_what_others_changed(page: Client) -> None:
    waiting = submit_experiment()
    sent = fields(waiting) | {"was-position": "1", "position": "1"}
    Job.objects.filter(pk=waiting.job_id).update(priority=13)
    page.post(manage(waiting), sent)
    assert Job.objects.get(pk=waiting.job_id).priority == 13


def test_who_would_be_stopped_is_said_before_anything_is_saved(page: Client) -> None:
    make_host("gpu1", 2)
    running(2, make_user("jun"), name="asr-base")
    waiting = submit_experiment(slots=2, name="clip-finetune")
    first = page.post(manage(waiting), fields(waiting, priority="10"))
    assert "Stops asr-base of jun: it has never saved and loses" in text(first)
    assert "Steps redone Resumes asr-base jun not known never all" in text(first)
    assert "OK: stop 1 job" in text(first)
    assert Job.objects.get(pk=waiting.job_id).priority == 42
    page.post(manage(waiting), fields(waiting, priority="10") | {"seen": hidden(first, "seen")})
    assert Job.objects.get(pk=waiting.job_id).priority == 10


def test_a_lowered_limit_of_slots_says_first_whose_runs_save_and_stop(page: Client, ada: User) -> None:
    make_host("gpu1", 2)
    mine = running(2, ada, name="asr-base")
    now = timezone.now()
    checkpoint = Checkpoint.objects.create(
        trial=trial_of(mine), allocation_id=attempt_of(mine).pk, state="COMPLETED", steps_completed=900,
        reported_at=now - timedelta(minutes=5),
    )  # fmt: skip
    Trial.objects.filter(experiment=mine).update(
        progress=0.95, steps_completed=950, latest_checkpoint=checkpoint
    )
    assert "may hold at once" in text(page.get(manage(mine)))
    wrong = page.post(manage(mine), fields(mine, **{"was-max_slots": "none", "max_slots": "x"}))
    assert "max_slots must be a whole number" in text(wrong)
    limited = fields(mine, **{"was-max_slots": "none", "max_slots": "0"})
    first = page.post(manage(mine), limited)
    said = text(first)
    then = "then it waits: needs 2 slots; max_slots of its job is 0"
    assert f"Stops asr-base (yours): it saves first; {then}. Nearly done: asr-base (95 %)." in said
    assert "asr-base you 95 % 5 min ago 50" in said
    assert "It may hold 0 slots; it holds 2, and 1 run (2 slots) is asked to save" in said
    assert Job.objects.get(pk=mine.job_id).max_slots is None
    page.post(manage(mine), limited | {"seen": hidden(first, "seen")})
    assert Job.objects.get(pk=mine.job_id).max_slots == 0
    page.post(manage(mine), fields(mine, **{"was-max_slots": "0", "max_slots": ""}))
    assert Job.objects.get(pk=mine.job_id).max_slots is None


def test_the_gain_is_said_beside_what_was_foreseen_without_the_edit(page: Client) -> None:
    make_host("gpu1", 2)
    waiting = submit_experiment(slots=2)
    task = trial_of(waiting).task_id
    noon = timezone.now().replace(hour=12, minute=0).timestamp()
    keep_plan(waiting.job.pool, forecast={task: [noon, noon + 600]})
    answer = page.post(manage(waiting), fields(waiting, priority="10") | {"preview": "1"})
    assert "This job starts immediately instead of 12:00 to 12:10." in text(answer)
    assert Job.objects.get(pk=waiting.job_id).priority == 42


def test_a_deadline_of_which_nothing_is_known_has_a_whole_sentence(page: Client) -> None:
    make_host("gpu1", 2)
    running(2, make_user("jun"), name="asr-base")
    waiting = submit_experiment(slots=2)
    answer = page.post(manage(waiting), fields(waiting, deadline="8h") | {"preview": "1"})
    said = re.search(
        r"This job waits.*?\. Forecast: whether it meets its deadline, .*? is not known", text(answer)
    )
    assert said is not None


def test_a_queue_that_changed_meanwhile_is_shown_again_and_not_saved(page: Client) -> None:
    make_host("gpu1", 2)
    running(2, make_user("jun"), name="asr-base")
    waiting = submit_experiment(slots=2, name="clip-finetune")
    answer = page.post(manage(waiting), fields(waiting, priority="10") | {"seen": ""})
    assert "The queue has changed since you looked, so nothing was saved." in text(answer)
    assert Job.objects.get(pk=waiting.job_id).priority == 42


def test_the_dialog_says_what_determined_said_of_a_job(page: Client) -> None:
    submit_experiment(name="before")
    waiting = submit_experiment(slots=2, name="clip-finetune")
    said = text(page.get(manage(waiting)))
    assert f"Manage Job {str(waiting.job_id)[:6]}" in said and "1 job ahead" in said
    for words in (
        "Type Experiment", "Name clip-finetune", f"UUID {waiting.job_id}", "State Queued", "Progress 0.0 %",
        "Slots 0 held / 2 needed", "Preemptible Yes", "Jobs Ahead 1", "User ada", "out of 99", "out of 2",
    ):  # fmt: skip
        assert words in said, words


def test_move_to_top_keeps_the_order_of_several(page: Client) -> None:
    jobs = [submit_experiment(name=name) for name in "abcd"]
    make(page, "top", jobs[3], jobs[1])
    order = Job.objects.order_by("priority", "position").values_list("name", flat=True)
    assert list(order) == ["b", "d", "a", "c"]


def test_an_edit_of_many_that_is_refused_for_one_changes_none(page: Client) -> None:
    mine, foreign = submit_experiment(name="mine"), submit_experiment(name="foreign", owner=make_user("jun"))
    ResourcePool.objects.filter(pk=default_pool().pk).update(strict=True)
    assert "only its owner or an admin can change it" in make(page, "priority", mine, foreign, priority="5")
    assert set(Job.objects.values_list("priority", flat=True)) == {42}


def test_a_cancel_asks_with_the_name_and_many_are_summed_up(page: Client) -> None:
    mine, foreign = submit_experiment(name="mine"), submit_experiment(name="foreign", owner=make_user("jun"))
    assert "Are you sure you want to cancel job mine?" in make(page, "cancel", mine)
    assert Experiment.objects.get(pk=mine.pk).state == "ACTIVE"
    assert "1 killed, 1 refused: foreign belongs to jun" in make(page, "kill", mine, foreign, sure="1")
    assert Experiment.objects.get(pk=mine.pk).state == "CANCELED"
    assert Experiment.objects.get(pk=foreign.pk).state == "ACTIVE"


def test_a_viewer_sees_everything_and_changes_nothing() -> None:
    waiting = submit_experiment()
    client = Client()
    client.force_login(make_user("vera", User.Role.VIEWER))
    said = "vera is a viewer and cannot change anything."
    shown = client.get(manage(waiting))
    assert said in text(shown) and 'name="priority"' in Html(shown.content)
    assert said in text(client.post(manage(waiting), fields(waiting, priority="7")))
    for do in ("top", "pause", "kill"):
        assert said in make(client, do, waiting, sure="1"), do
    assert said in text(client.post("/jobs/edits/undo", {"back": "/experiments"}, follow=True))
    assert Job.objects.get(pk=waiting.job_id).priority == 42


def test_the_menu_is_a_page_with_the_entries_that_the_job_allows(page: Client) -> None:
    first, second = submit_experiment(name="first"), submit_experiment(name="second")
    top, below = (text(page.get(f"/jobs/menu/{each.job_id}")) for each in (first, second))
    assert Html(page.get(f"/jobs/menu/{first.job_id}").content).count("<h1>") == 1
    assert f"first exp {first.pk} Manage Job" in top
    assert "Manage Job" in top and "Move to Top" not in top and "Move Down" in top
    assert "Move to Top" in below and "Pause" in below and "Cancel" in below and "Kill" in below
    transitions.pause(second.pk, actor="user:ada")
    assert "Activate" in text(page.get(f"/jobs/menu/{second.job_id}"))


def test_a_command_keeps_its_pool_and_can_only_be_killed(page: Client, ada: User) -> None:
    ResourcePool.objects.create(name="other")
    command = submit.create(
        owner=ada,
        config=check({"entrypoint": "true", "resources": {"slots": 1}}),
        context=contexts.empty(),
        workspace_number=1,
        idempotency_key=None,
        actor="user:ada",
    )
    where = f"/jobs/manage/{command.job_id}"
    shown = text(page.get(where))
    assert "Type Command" in shown and "Preemptible No" in shown
    assert "cannot be changed: cancel it and submit it again in the other pool." in shown
    refused = page.post(where, {"was-pool": "default", "pool": "other"})
    assert refused.status_code == 400 and "submit it again" in text(refused)
    entries = text(page.get(f"/jobs/menu/{command.job_id}"))
    assert "View Logs" in entries and "Kill" in entries and "Cancel" not in entries
    sent = {"do": "cancel", "sure": "1", "job": str(command.job_id), "back": "/experiments"}
    assert "it cannot be canceled, only killed" in text(page.post("/jobs/edits/make", sent, follow=True))
    page.post("/jobs/edits/make", {**sent, "do": "kill"})
    command.refresh_from_db()
    assert command.has_ended


def test_a_pool_that_keeps_no_order_offers_no_place(page: Client) -> None:
    ResourcePool.objects.filter(pk=default_pool().pk).update(scheduler="fair_share")
    submit_experiment(name="first")
    second = submit_experiment(name="second")
    assert "Move" not in text(page.get(f"/jobs/menu/{second.job_id}")).replace("Remove", "")
    assert "its jobs have no positions" in make(page, "top", second)


def test_unknown_jobs_and_foreign_addresses_are_refused(page: Client) -> None:
    unknown = "00000000-0000-0000-0000-000000000000"
    assert page.get(f"/jobs/manage/{unknown}").status_code == 404
    answer = page.post("/jobs/edits/make", {"do": "top", "job": unknown, "back": "https://evil.example/"})
    assert answer["Location"] == "/jobs"
    assert f"Job {unknown} not found." in text(page.get("/experiments"))

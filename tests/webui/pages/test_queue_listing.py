"""Which jobs a view of the queue lists: their places, what folds, filters, chips, and what the page opens on."""

import re
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client
from django.utils import timezone

from accounts.models import User
from hosts.models import ResourcePool
from jobs.models import Allocation, Job, Task
from shown.queue import board, job_facts, listing, standing, times
from shown.queue.listing import PER_PAGE, Listing
from shown.queue.standing import FOLD_FROM
from tests.rig.html import Html
from tests.rig.world import keep_plan
from webui.pages.queue import board as queue_page

pytestmark = pytest.mark.django_db


@pytest.fixture
def pool() -> ResourcePool:
    return ResourcePool.objects.create(name=f"pool-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def mira() -> User:
    return User.objects.create_user("mira")


@pytest.fixture
def jun() -> User:
    return User.objects.create_user("jun")


def job(pool: ResourcePool, owner: User, name: str, *, slots: int = 1, runs: str = "", **fields: Any) -> Job:
    """A job with one task that waits; `runs`: scheduled, backfilled or stopping instead."""
    number = Job.objects.count()
    entity = str(1000 + number)
    values = {"kind": "EXPERIMENT", "position": float(number), "entity_id": entity} | fields
    made = Job.objects.create(name=name, owner=owner, pool=pool, **values)
    task = Task.objects.create(id=f"{entity}.t", job=made, kind="TRIAL", name=name, slots=slots)
    if runs:
        Task.objects.filter(pk=task.pk).update(state="RUNNING")
        Allocation.objects.create(
            id=f"{task.pk}.1",
            task=task,
            number=1,
            pool=pool,
            state="RUNNING",
            slots=slots,
            on_sufferance=runs == "backfilled",
            stop_kind="PREEMPT" if runs == "stopping" else "",
        )
    return made


def listed(pool: ResourcePool, query: str = "", me: int = 0) -> Listing:
    return listing.of(pool, queue_page.read(QueryDict(query)), me)


def names(pool: ResourcePool, query: str = "", me: int = 0) -> list[str]:
    return [row.name for row in board.rows_of(pool, listed(pool, query, me))]


def reason(code: str, **data: Any) -> dict[str, Any]:
    return {"code": code, "sentence": f"because {code}", "data": data}


def test_jobs_stand_by_priority_and_position_and_keep_their_place_in_any_filter(
    pool: ResourcePool, mira: User, jun: User
) -> None:
    job(pool, mira, "low", priority=60)
    job(pool, jun, "second", priority=20)
    job(pool, mira, "moved", priority=20, position=-1.0)
    paused = job(pool, mira, "paused", state="PAUSED")
    job(pool, mira, "ended", state="ENDED")
    Task.objects.filter(job=paused).update(state="PAUSED")

    assert names(pool) == ["moved", "second", "low"]
    assert [line.place for line in listed(pool, "show=mine", mira.pk).lines] == [0, 2]
    assert names(pool, "sort=-place") == ["low", "second", "moved"]
    assert names(pool, "sort=name") == ["low", "moved", "second"]
    assert names(pool, "sort=user")[0] == "second"


def test_jobs_alike_in_a_row_fold_into_one_line_that_its_link_unfolds(pool: ResourcePool, mira: User) -> None:
    job(pool, mira, "first")
    sweep = [job(pool, mira, "sweep", slots=2) for _ in range(FOLD_FROM)]
    job(pool, mira, "sweep", slots=4)
    few = [job(pool, mira, "few") for _ in range(FOLD_FROM - 1)]

    found = listed(pool)
    folded = found.lines[1]
    assert (folded.job_id, folded.alike, folded.needed) == (sweep[0].pk, FOLD_FROM, 2 * FOLD_FROM)
    assert (found.length, found.jobs) == (3 + len(few), 2 + FOLD_FROM + len(few))
    unfolded = listed(pool, f"like={sweep[0].pk}")
    assert [line.job_id for line in unfolded.lines][:FOLD_FROM] == [each.pk for each in sweep]
    assert {line.alike for line in unfolded.lines} == {1}


def test_one_that_runs_ends_the_fold(pool: ResourcePool, mira: User) -> None:
    for _ in range(FOLD_FROM):
        job(pool, mira, "sweep")
    job(pool, mira, "sweep", runs="scheduled")
    for _ in range(FOLD_FROM):
        job(pool, mira, "sweep")
    assert [line.alike for line in listed(pool).lines] == [FOLD_FROM, 1, FOLD_FROM]


def test_chips_count_the_whole_queue_and_filter_it(pool: ResourcePool, mira: User, jun: User) -> None:
    job(pool, mira, "runs", runs="scheduled")
    job(pool, mira, "waits")
    job(pool, jun, "filler", runs="backfilled")
    job(pool, jun, "leaves", runs="stopping")
    too_large = job(pool, jun, "too-large", slots=99)
    keep_plan(pool, waits={f"{too_large.entity_id}.t": reason("never_fits")})

    counts = listed(pool, "show=mine", mira.pk).counts
    assert counts == {
        "all": 5,
        "mine": 2,
        "mine-waiting": 1,
        "never-fits": 1,
        "being-stopped": 1,
        "queued": 2,
        "scheduled": 3,
        "backfilled": 1,
    }
    assert names(pool, "show=mine-waiting", mira.pk) == ["waits"]
    assert names(pool, "show=never-fits") == ["too-large"]
    assert names(pool, "show=being-stopped") == ["leaves"]
    assert names(pool, "state=backfilled") == ["filler"]
    assert names(pool, "user=jun&state=queued") == ["too-large"]


def test_the_search_takes_names_users_beginnings_of_ids_and_numbers(
    pool: ResourcePool, mira: User, jun: User
) -> None:
    first = job(pool, mira, "llama-7b")
    job(pool, jun, "100%_odd\\name")
    assert names(pool, "q=LLAMA") == ["llama-7b"]
    assert names(pool, "q=jun") == ["100%_odd\\name"]
    assert names(pool, f"q={str(first.pk)[:9]}") == ["llama-7b"]
    assert names(pool, f"q={first.entity_id}") == ["llama-7b"]
    assert names(pool, "q=%25_odd\\") == ["100%_odd\\name"]
    assert names(pool, "q=___") == []


def test_pages_are_cut_from_the_list_and_a_page_behind_its_end_is_empty(
    pool: ResourcePool, mira: User
) -> None:
    for number in range(PER_PAGE + 3):
        job(pool, mira, f"job-{number}")
    assert len(listed(pool).lines) == PER_PAGE
    assert names(pool, "page=2") == [f"job-{PER_PAGE + n}" for n in range(3)]
    assert len(listed(pool, "pages=1,2").lines) == PER_PAGE + 3
    behind = listed(pool, "page=9")
    assert (behind.lines, behind.pages) == ([], 2)


def test_the_page_opens_on_mine_the_next_departures_and_what_mine_wait_for(
    pool: ResourcePool, mira: User, jun: User
) -> None:
    blocker = job(pool, jun, "blocker", runs="scheduled")
    mine = job(pool, mira, "mine")
    late, soon = job(pool, jun, "late"), job(pool, jun, "soon")
    job(pool, jun, "unrelated", runs="scheduled")
    never = job(pool, jun, "never")
    now = timezone.now().timestamp()
    keep_plan(
        pool,
        waits={
            f"{mine.entity_id}.t": reason("held", by=[f"exp {blocker.entity_id}"]),
            f"{never.entity_id}.t": reason("never_fits"),
        },
        forecast={f"{late.entity_id}.t": [now + 900, now + 990], f"{soon.entity_id}.t": [now + 60, now + 90]},
    )
    departures = board.next_departures(pool, mira.pk)
    assert departures == [soon.pk, late.pk]
    blockers = board.blocking_jobs(pool, standing.of(pool), mira.pk)
    assert blockers == [blocker.pk]
    found = listing.opening(standing.of(pool), mira.pk, departures, blockers)
    assert [(line.group, line.job_id) for line in found.lines] == [
        (0, mine.pk),
        (1, soon.pk),
        (1, late.pk),
        (2, blocker.pk),
    ]
    _, parts, _ = board.of(pool, listing.QueueView(), mira.pk)
    assert [part.title for part in parts] == ["Yours", "Starting next", "What yours wait for"]


def test_a_run_that_is_asked_to_save_and_leave_says_when_it_is_forced(pool: ResourcePool, jun: User) -> None:
    job(pool, jun, "leaves", runs="stopping")
    deadline = timezone.now() + timedelta(hours=1)
    Allocation.objects.update(stop_deadline_at=deadline)
    (row,) = board.rows_of(pool, listed(pool))
    assert row.why == f"forced at {times.clock(deadline)} if it has not saved by then"
    Allocation.objects.update(stop_kind="STOP")
    (row,) = board.rows_of(pool, listed(pool))
    assert row.why == ""


def test_a_fair_share_pool_lists_in_the_order_of_its_last_pass_and_shows_shares(
    pool: ResourcePool, mira: User
) -> None:
    first, second, new = (job(pool, mira, name) for name in ("first", "second", "new"))
    ResourcePool.objects.filter(pk=pool.pk).update(scheduler="fair_share")
    keep_plan(pool, order=[str(second.pk), str(first.pk)], shares={str(second.pk): 3})
    assert names(pool) == ["second", "first", "new"]
    rows = board.rows_of(pool, listed(pool))
    assert [(row.place, row.share) for row in rows] == [(None, 3), (None, None), (None, None)]
    assert new.pk == rows[2].id


def test_a_row_says_when_it_starts_as_a_range_or_why_that_is_not_known(
    pool: ResourcePool, mira: User
) -> None:
    known, unknown, never = (job(pool, mira, name) for name in ("known", "unknown", "never"))
    now = timezone.now().timestamp()
    keep_plan(
        pool,
        waits={f"{never.entity_id}.t": reason("never_fits")},
        forecast={f"{known.entity_id}.t": [now + 3600, now + 3600]},
        unknown={f"{unknown.entity_id}.t": "exp 7 has no time limit"},
    )
    rows = {row.name: row for row in board.rows_of(pool, listed(pool))}
    assert rows["known"].start.startswith("Starts ")
    assert " to " in rows["known"].start
    assert rows["known"].start_alone == rows["known"].start
    assert rows["unknown"].start_alone == "start not known"
    assert (rows["unknown"].start, rows["unknown"].start_title) == ("not known", "exp 7 has no time limit")
    assert (rows["never"].start, rows["never"].why) == ("Never", "because never_fits")


def test_a_job_never_starts_only_if_none_of_its_tasks_can(pool: ResourcePool, mira: User) -> None:
    array = job(pool, mira, "array")
    tasks = [f"{array.entity_id}.{name}" for name in ("t", "u", "v")]
    for task in tasks[1:]:
        Task.objects.create(id=task, job=array, kind="COMMAND", name="array", slots=1)
    lost, waits, starts = reason("never_met"), reason("depends"), reason("no_room")
    now = timezone.now().timestamp()
    for known, forecast, why in (
        ([lost, waits, starts], {}, "because depends"),
        ([lost, waits, starts], {tasks[2]: [now + 60, now + 60]}, "because no_room"),
        ([lost, lost], {}, "considered in the next scheduler pass"),
        ([lost, lost, lost], {}, "because never_met"),
    ):
        keep_plan(pool, waits=dict(zip(tasks, known, strict=False)), forecast=forecast)
        (row,) = board.rows_of(pool, listed(pool))
        never = why == "because never_met"
        assert (row.why, row.never, row.start == "Never") == (why, never, never)
        assert standing.of(pool).never == (never,)
        assert job_facts.wait_of(array) == ("" if known == [lost, lost] else why)


def test_the_version_of_a_row_changes_with_what_it_shows_and_only_then(
    pool: ResourcePool, mira: User
) -> None:
    made = job(pool, mira, "job")
    first = board.rows_of(pool, listed(pool))[0].version
    assert board.rows_of(pool, listed(pool))[0].version == first
    Job.objects.filter(pk=made.pk).update(priority=7)
    assert board.rows_of(pool, listed(pool))[0].version != first


def test_more_slots_than_lamps_are_a_bar(pool: ResourcePool, mira: User) -> None:
    job(pool, mira, "small", slots=8)
    job(pool, mira, "large", slots=9)
    small, large = board.rows_of(pool, listed(pool))
    assert len(small.lamps) == 8
    assert large.lamps == []


@pytest.mark.parametrize(
    ("scheduler", "titles"),
    [("priority", ["#", "State", "Job", "Slots", "Priority", "User", "Submitted", "Start", "Why"]),
     ("fair_share", ["State", "Job", "Slots", "Weight", "Share held / entitled", "User", "Submitted",
                     "Start", "Why"])],
)  # fmt: skip
def test_every_row_of_the_board_has_a_cell_for_each_head(
    pool: ResourcePool, mira: User, jun: User, scheduler: str, titles: list[str]
) -> None:
    ResourcePool.objects.filter(pk=pool.pk).update(scheduler=scheduler)
    job(pool, mira, "<b>mine</b>")
    job(pool, jun, "theirs", slots=2, runs="backfilled")
    client = Client()
    client.force_login(mira)
    for view in ("", "?show=all&sort=-name"):
        page = Html(client.get(f"/jobs/{pool.name}{view}").content)
        heads = re.findall(r'<th class="col-[a-z]+[^>]*>(?:<a [^>]*>)?([^<]*?)(?: [↑↓])?<', page)
        rows = re.findall(r"<tr id=\"job-.*?</tr>", page, re.DOTALL)
        assert heads == titles
        assert {row.count("<td") for row in rows} == {len(titles) + 2}, "beside them a box and a menu"
        assert "&lt;b&gt;mine" in page and "<b>mine" not in page
        ids = re.findall(r' id="([^"]+)"', page)
        assert sorted(ids) == sorted(set(ids))
        for span in re.findall(r'colspan="(\d+)"', page):
            assert int(span) == len(titles) + 2


def test_the_rows_come_without_what_stands_around_them(pool: ResourcePool, mira: User) -> None:
    client = Client()
    client.force_login(mira)
    made = job(pool, mira, "first")
    both = [client.get(f"/jobs/{pool.name}?show=all&part={part}").content.decode() for part in ("", "rows")]
    for part in both:
        assert f'id="job-{made.pk}"' in part and 'id="queue-none"' in part and 'id="queue-pages"' in part
    assert ["queue-numbers" in part for part in both] == [True, False]


def test_a_kept_row_is_right_for_each_viewer_each_address_and_each_time(
    pool: ResourcePool, mira: User, jun: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    job(pool, mira, "alone")
    sweep = [job(pool, mira, "sweep") for _ in range(FOLD_FROM)]
    clients = {viewer.username: Client() for viewer in (mira, jun)}
    clients["mira"].force_login(mira)
    clients["jun"].force_login(jun)

    def rows(viewer: str, query: str = "") -> list[str]:
        page = clients[viewer].get(f"/jobs/{pool.name}?show=all{query}").content.decode()
        return re.findall(r"<tr id=\"(?:job|alike)-.*?</tr>", page, re.DOTALL)

    first, *others = [rows(viewer) for viewer in ("mira", "jun", "mira")]
    assert [[" data-mine" in row for row in each] for each in others] == [[False, False], [True, True]]
    for query in ("", "&user=mira", ""):
        link = f'href="?show=all{query}&like={sweep[0].pk}"'.replace("&", "&amp;")
        assert link in rows("mira", query)[1]

    now = timezone.now() + timedelta(hours=2)
    monkeypatch.setattr(timezone, "now", lambda: now)
    later = rows("mira")[0]
    assert " s ago<" in first[0] and "2 h ago<" in later
    versions = [re.findall(r'data-version="([^"]+)"', row) for row in (first[0], later)]
    assert versions[0] == versions[1]

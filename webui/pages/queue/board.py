"""The job queue as a departures board: order, state, slots held and needed, priority, start, why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from django.core.paginator import Paginator
from django.db.models.functions import Lower
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from accounts.models import User
from dispatch.passes import last_plan
from hosts.models import ResourcePool
from jobs.models import Job
from jobs.states import JobState
from shown import pools as shown_pools
from shown.queue import opening
from webui.pages.frame import page, show, user_of
from webui.pages.queue import columns as queue_columns
from webui.pages.queue import listing as queue_listing
from webui.pages.queue import rows as queue_rows
from webui.pages.queue import view as queue_view
from webui.pages.queue.columns import PLACE
from webui.pages.queue.listing import Listing
from webui.pages.queue.rows import Row
from webui.pages.queue.view import CHIPS, PER_PAGE, View
from webui.pages.table_columns import Sort

#: more pools than this are a list that can be searched
MOST_PILLS = 6
#: names under the table; more are a number
MOST_PAUSED = 50
GROUPS = ("Yours", "Starting next", "Ahead of yours")


@dataclass
class Part:
    """A body of the table: a page of the list, or one of the groups that the page opens on."""

    key: str
    rows: list[Row]
    title: str = ""
    #: lines of the group that are not shown
    more: int = 0


@page
def board(request: HttpRequest, pool_name: str = "") -> HttpResponse:
    """The queue of one pool."""
    if wanted := request.GET.get("pool"):
        return redirect(f"/jobs/{wanted}")
    pools = shown_pools.every()
    pool = next((p for p in pools if p.name == pool_name), None) if pool_name else pools[0]
    if pool is None:
        raise Http404(f"There is no resource pool {pool_name}; there are {', '.join(p.name for p in pools)}.")
    view = queue_view.read(request.GET)
    if not pool.policy.order and view.sort == PLACE and view.descending:
        view = replace(view, descending=False)
    me = user_of(request)
    listing, parts, view = _parts(pool, view, me)
    context = {
        "pool": pool,
        "view": view,
        "listing": listing,
        "parts": parts,
        "seen": set(request.headers.get("X-Seen-Rows", "").split()),
        **_head(pool, pools, listing, view),
        **_paused(pool),
        **_pages(listing, view),
    }
    return show(request, "queue", context, room="Job Queue", fragment="queue")


def _parts(pool: ResourcePool, view: View, me: User) -> tuple[Listing, list[Part], View]:
    """What is listed. With nothing asked, a person's own jobs first, where there are others' beside them."""
    if view.show == queue_view.MINE_FIRST or (view.is_plain and view.pages == (1,) and _has_jobs(pool, me)):
        departures, blockers = opening.departures(pool, me.pk), opening.blockers(pool, me.pk)
        listing = queue_listing.opening(pool, me.pk, departures, blockers)
        if 0 < listing.counts["mine"] < listing.counts["all"] or view.show:
            return listing, _groups(pool, listing), replace(view, show=queue_view.MINE_FIRST)
    listing = queue_listing.of(pool, view, me.pk)
    last = listing.pages
    if not listing.lines and listing.length and min(view.pages) > last:  # it has grown shorter meanwhile
        view = replace(view, pages=(last,))
        listing = queue_listing.of(pool, view, me.pk)
    page_of = {line.job_id: line.number // PER_PAGE + 1 for line in listing.lines}
    rows = queue_rows.of(pool, listing)
    parts = [Part(str(number), [row for row in rows if page_of[row.id] == number]) for number in view.pages]
    return listing, parts, replace(view, show=view.show or queue_view.ALL)


def _has_jobs(pool: ResourcePool, me: User) -> bool:
    return Job.objects.filter(pool=pool, owner=me).exclude(state=JobState.ENDED).exists()


def _groups(pool: ResourcePool, listing: Listing) -> list[Part]:
    rows = queue_rows.of(pool, listing)
    group = {line.job_id: line.group for line in listing.lines}
    parts = [
        Part(f"group-{number}", [row for row in rows if group[row.id] == number], title)
        for number, title in enumerate(GROUPS)
    ]
    parts[0].more = listing.counts["mine"] - sum(row.alike for row in parts[0].rows)
    return [part for part in parts if part.rows]


def _head(pool: ResourcePool, pools: list[ResourcePool], listing: Listing, view: View) -> dict[str, Any]:
    """What stands above the table, and the sentence that is read out when it changes."""
    counts = listing.counts
    here = (counts.get("scheduled", 0), counts.get("queued", 0))
    numbers = shown_pools.numbers(pools, {pool.pk: here})
    columns, sort = queue_columns.of(pool).values(), Sort(view.sort, None, view.descending, plain=PLACE)
    chips = [
        (name, word, counts.get(name))
        for name, word in CHIPS.items()
        if counts.get(name) or name in {queue_view.ALL, view.show} or _offers_mine_first(name, counts)
    ]
    names = dict(User.objects.filter(pk__in=listing.owners).values_list("pk", "username"))
    owners = sorted((names.get(owner, "?"), jobs) for owner, jobs in listing.owners.items())
    return {
        "switch": numbers.values(),
        "columns": columns,
        "heads": [sort.head(column) for column in columns],
        "is_sortable": view.show != queue_view.MINE_FIRST,
        "many_pools": len(pools) > MOST_PILLS,
        "numbers": numbers[pool.pk],
        "backfilled": counts["backfilled"],
        "chips": chips,
        "owners": owners,
        "took_ms": last_plan.of(pool).took_ms,
        "filtered": bool(view.text or view.user or view.state or view.like),
    }


def _pages(listing: Listing, view: View) -> dict[str, Any]:
    """The pager: it counts lines, and says how many jobs they stand for."""
    if view.show == queue_view.MINE_FIRST:
        return {}
    page = Paginator(range(listing.length), PER_PAGE).get_page(view.pages[0])
    jobs = f"{listing.jobs} job{'' if listing.jobs == 1 else 's'}"
    return {"page": page, "said": f"page {page.number} of {page.paginator.num_pages}, {jobs}"}


def _offers_mine_first(name: str, counts: dict[str, int]) -> bool:
    return name == queue_view.MINE_FIRST and 0 < counts["mine"] < counts["all"]


def _paused(pool: ResourcePool) -> dict[str, Any]:
    paused = Job.objects.filter(pool=pool, state=JobState.PAUSED).select_related("owner")
    found = list(paused.order_by("priority", "position", Lower("name"))[: MOST_PAUSED + 1])
    count = len(found) if len(found) <= MOST_PAUSED else paused.count()
    return {
        "paused": found[:MOST_PAUSED],
        "paused_count": count,
        "paused_more": count - len(found[:MOST_PAUSED]),
    }

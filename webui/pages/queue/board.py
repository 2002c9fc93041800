"""The job queue as a departures board: order, state, slots held and needed, priority, start, why.

Filters, sort and place in the list are all in the address.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.utils import timezone

from accounts.models import User
from dispatch.passes import last_plan
from hosts.models import ResourcePool
from shown import pool_windows
from shown import pools as shown_pools
from shown.queue import board as queue_board
from shown.queue.listing import CHIPS, MINE_FIRST, PER_PAGE, PLACE, SORTED, STATES, Listing, QueueView
from webui.pages.frame import page, show, user_of
from webui.pages.queue import columns as queue_columns
from webui.pages.table_columns import Sort
from webui.query import as_ids, as_uuid, choices

#: more pools than this are a list that can be searched
MOST_PILLS = 6
#: pages that one request may ask for
MOST_PAGES = 6


@page
def board(request: HttpRequest, pool_name: str = "") -> HttpResponse:
    """The queue of one pool; `?part=rows` is its table alone, which takes half of what the part with its head takes."""
    if wanted := request.GET.get("pool"):
        return redirect(f"/jobs/{wanted}")
    pools = shown_pools.every()
    pool = next((p for p in pools if p.name == pool_name), None) if pool_name else pools[0]
    if pool is None:
        raise Http404(f"There is no resource pool {pool_name}; there are {', '.join(p.name for p in pools)}.")
    view = read(request.GET)
    if not pool.policy.order and view.sort == PLACE and view.descending:
        view = replace(view, descending=False)
    listing, parts, view = queue_board.of(pool, view, user_of(request).pk)
    context = {
        "pool": pool,
        "view": view,
        "listing": listing,
        "parts": parts,
        "seen": set(request.headers.get("X-Seen-Rows", "").split()),
        **_columns(pool, view),
        **_pages(listing, view),
    }
    if request.GET.get("part") == "rows":
        return show(request, "queue", context, room="Job Queue", fragment="queue_table")
    context |= _head(pool, pools, listing, view)
    return show(request, "queue", context, room="Job Queue", fragment="queue")


def read(query: QueryDict) -> QueueView:
    """The view that an address names."""
    chosen, wrong = choices(query, {"show": CHIPS, "state": STATES})
    sort = query.get("sort", "")
    return QueueView(
        show=chosen.get("show", ""),
        text=query.get("q", "").strip()[:200],
        user=query.get("user", "").strip(),
        state=chosen.get("state", ""),
        like=as_uuid(query.get("like", "")),
        sort=sort.removeprefix("-") if sort.removeprefix("-") in SORTED else PLACE,
        descending=sort.startswith("-") and sort[1:] in SORTED,
        pages=_page_numbers(query),
        wrong=tuple(wrong),
    )


def _page_numbers(query: QueryDict) -> tuple[int, ...]:
    """`page=3`, or `pages=2,3` of a browser that shows several."""
    words = (query.get("pages") or query.get("page") or "1").split(",")
    numbers = [number for number in as_ids(words) if 0 < number < 100_000]
    return tuple(sorted(numbers)[:MOST_PAGES]) or (1,)


def _columns(pool: ResourcePool, view: QueueView) -> dict[str, Any]:
    """The columns of the table and their heads."""
    columns, sort = queue_columns.of(pool).values(), Sort(view.sort, None, view.descending, plain=PLACE)
    return {
        "columns": columns,
        "heads": [sort.head(column) for column in columns],
        "is_sortable": view.show != MINE_FIRST,
    }


def _head(pool: ResourcePool, pools: list[ResourcePool], listing: Listing, view: QueueView) -> dict[str, Any]:
    """What stands around the table, and the sentence that is read out when it changes."""
    counts = listing.counts
    here = (counts.get("scheduled", 0), counts.get("queued", 0))
    numbers = shown_pools.numbers(pools, {pool.pk: here})
    found, paused = queue_board.paused(pool)
    names = dict(User.objects.filter(pk__in=listing.owners).values_list("pk", "username"))
    owners = sorted((names.get(owner, "?"), jobs) for owner, jobs in listing.owners.items())
    return {
        "window": pool_windows.coming(pool, timezone.now()),
        "switch": numbers.values(),
        "many_pools": len(pools) > MOST_PILLS,
        "numbers": numbers[pool.pk],
        "backfilled": counts["backfilled"],
        "chips": listing.chips(view.show),
        "owners": owners,
        "took_ms": last_plan.of(pool).took_ms,
        "filtered": bool(view.text or view.user or view.state or view.like),
        "paused": found,
        "paused_count": paused,
        "paused_more": paused - len(found),
    }


def _pages(listing: Listing, view: QueueView) -> dict[str, Any]:
    """The pager: it counts lines, and says how many jobs they stand for."""
    if view.show == MINE_FIRST:
        return {}
    page = Paginator(range(listing.length), PER_PAGE).get_page(view.pages[0])
    jobs = f"{listing.jobs} job{'' if listing.jobs == 1 else 's'}"
    return {"page": page, "said": f"page {page.number} of {page.paginator.num_pages}, {jobs}"}

"""What a person asked the queue page for: filters, sort and place in the list, all of it in the address."""

from __future__ import annotations

import uuid

from django.http import QueryDict

from shown.queue.listing import CHIPS, PLACE, SORTED, STATES, QueueView
from webui.query import as_ids, choices

#: pages that one request may ask for
MOST_PAGES = 6


def read(query: QueryDict) -> QueueView:
    """The view that an address names."""
    chosen, wrong = choices(query, {"show": CHIPS, "state": STATES})
    sort = query.get("sort", "")
    return QueueView(
        show=chosen.get("show", ""),
        text=query.get("q", "").strip()[:200],
        user=query.get("user", "").strip(),
        state=chosen.get("state", ""),
        like=_id(query.get("like", "")),
        sort=sort.removeprefix("-") if sort.removeprefix("-") in SORTED else PLACE,
        descending=sort.startswith("-") and sort[1:] in SORTED,
        pages=_pages(query),
        wrong=tuple(wrong),
    )


def _id(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def _pages(query: QueryDict) -> tuple[int, ...]:
    """`page=3`, or `pages=2,3` of a browser that shows several."""
    words = (query.get("pages") or query.get("page") or "1").split(",")
    numbers = [number for number in as_ids(words) if 0 < number < 100_000]
    return tuple(sorted(numbers)[:MOST_PAGES]) or (1,)

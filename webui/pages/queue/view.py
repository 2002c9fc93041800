"""What a person asked the queue page for: filters, sort and place in the list, all of it in the address."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django.http import QueryDict

from webui.pages.queue.columns import PLACE, SORTED
from webui.query import as_ids, choices

#: rows of one page of the list; the browser fetches further ones while a person scrolls
PER_PAGE = 40
#: pages that one request may ask for
MOST_PAGES = 6
#: `?show=`: the chips above the table, in their order
MINE_FIRST, ALL, MINE, MINE_WAITING, NEVER, STOPPING = (
    "for-you",
    "all",
    "mine",
    "mine-waiting",
    "never-fits",
    "being-stopped",
)
CHIPS = {
    MINE_FIRST: "for you",
    ALL: "all",
    MINE: "mine",
    MINE_WAITING: "mine, waiting",
    NEVER: "never fits",
    STOPPING: "being stopped",
}
STATES = ("queued", "scheduled", "backfilled")


@dataclass(frozen=True)
class View:
    """One view of one queue. Values that are none of the allowed ones count as absent: links grow old.

    `wrong` has a sentence for each filter of that kind.
    """

    show: str = ""
    text: str = ""
    user: str = ""
    state: str = ""
    like: uuid.UUID | None = None
    #: a column by whose values lines are sorted
    sort: str = PLACE
    descending: bool = False
    pages: tuple[int, ...] = (1,)
    wrong: tuple[str, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Nothing is narrowed or sorted: the page may choose what to open on."""
        filtered = self.text or self.user or self.state or self.like
        return not (self.show or filtered or self.sort != PLACE or self.descending)


def read(query: QueryDict) -> View:
    """The view that an address names."""
    chosen, wrong = choices(query, {"show": CHIPS, "state": STATES})
    sort = query.get("sort", "")
    return View(
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

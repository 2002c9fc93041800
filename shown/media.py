"""Images, histograms, texts and tables of one trial, or of several side by side, as they stood at a step."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import Count, Exists, Max, OuterRef, Q

from experiments import media
from experiments.models import Experiment, Media, Trial
from shown import trials as shown_trials

#: kind -> the word over all of it, in the order of the page
KINDS = {"image": "Images", "table": "Tables", "text": "Text", "histogram": "Histograms"}
#: names that one page shows
PER_PAGE = 12
#: trials that stand side by side, and those that can be chosen
MOST_TRIALS, MOST_CHOICES, FIRST_TRIALS = 6, 60, 3
#: of a text and of a table on the page; whoever wants all of it opens it
SHOWN_CHARACTERS, SHOWN_ROWS = 10_000, 100
#: what is larger is only linked, and so is what one page would have beyond so much
SHOWN_BYTES, PAGE_BYTES = 64_000, 500_000
#: smaller images are magnified by a whole factor up to this width in pixels
_SMALL = 112
_WIDTH, _HEIGHT = 320.0, 96.0


@dataclass(frozen=True)
class Bars:
    """A histogram as the path of an SVG of 320 by 96, and what it says in numbers."""

    path: str
    low: float
    high: float
    count: int
    not_finite: int


@dataclass(frozen=True)
class Item:
    """`row`: without its content if it is too large for the page (`is_cut`)."""

    row: Media
    address: str
    alt: str
    is_cut: bool
    bars: Bars | None = None

    @property
    def zoom(self) -> int:
        """How many times an image is magnified."""
        return max(1, _SMALL // max(1, self.row.width))

    @property
    def width(self) -> int:
        return self.row.width * self.zoom

    @property
    def height(self) -> int:
        return self.row.height * self.zoom

    @property
    def text(self) -> str:
        return str(self.row.content.get("text", ""))[:SHOWN_CHARACTERS]

    @property
    def columns(self) -> list[Any]:
        return list(self.row.content.get("columns", []))

    @property
    def rows(self) -> list[Any]:
        return list(self.row.content.get("rows", []))[:SHOWN_ROWS]

    @property
    def left_out(self) -> int:
        """Rows of a table, or characters of a text, that the page does not show."""
        text, rows = self.row.content.get("text", ""), self.row.content.get("rows", [])
        return max(0, len(text) - SHOWN_CHARACTERS) + max(0, len(rows) - SHOWN_ROWS)


@dataclass(frozen=True)
class Cell:
    """What one trial has of a name: of the chosen step, or of the nearest one before it."""

    trial_id: int
    items: list[Item]

    @property
    def step(self) -> int | None:
        return self.items[0].row.step if self.items else None


@dataclass(frozen=True)
class Group:
    kind: str
    name: str
    cells: list[Cell]


@dataclass(frozen=True)
class Choice:
    """A trial that can be shown; `with_it`: the ids of all that are shown after its link was followed."""

    trial_id: int
    is_shown: bool
    with_it: str


@dataclass(frozen=True)
class Board:
    """One page: the trials side by side at a step, `at`. `steps`: all that there are, None if the asker knows them."""

    steps: list[int] | None
    is_empty: bool
    at: int
    kinds: list[tuple[str, str, int]]  # kind, its word, how many names
    kind: str
    names: Page[tuple[str, str]]
    groups: list[Group]
    refused: list[Trial]  # those that have reported more than is kept


def board(trial_ids: Sequence[int], step: int | None, kind: str, page: str | None, known: str = "") -> Board:
    """What these trials have of a kind (all kinds if it is none) at a step (the latest if it is None).

    `known`: how many steps the asker knows, and the last of them, as "3-70".
    """
    rows = Media.objects.filter(trial_id__in=trial_ids)
    count, last = rows.aggregate(count=Count("step", distinct=True), last=Max("step")).values()
    every = names_of(trial_ids)
    chosen = kind if kind in KINDS else ""
    names = Paginator([each for each in every if chosen in ("", each[0])], PER_PAGE).get_page(page)
    at = step if step is not None else last or 0
    kinds = Counter(name for name, _ in every)
    return Board(
        steps=None if known == f"{count}-{last}" else steps_of(trial_ids),
        is_empty=not count,
        at=at,
        kinds=[(name, KINDS[name], kinds[name]) for name in KINDS if kinds[name]],
        kind=chosen,
        names=names,
        groups=groups(trial_ids, names, at),
        refused=list(Trial.objects.filter(pk__in=trial_ids).exclude(media_refused="")),
    )


def steps_of(trial_ids: Collection[int]) -> list[int]:
    """All steps at which any of them has something."""
    rows = Media.objects.filter(trial_id__in=trial_ids).order_by("step")
    return list(rows.values_list("step", flat=True).distinct())


def names_of(trial_ids: Collection[int]) -> list[tuple[str, str]]:
    """(kind, name) of all that they have."""
    rows = Media.objects.filter(trial_id__in=trial_ids).order_by()
    order = list(KINDS)
    found = rows.values_list("kind", "name").distinct()
    return sorted(found, key=lambda pair: (order.index(pair[0]), pair[1]))


def groups(trial_ids: Sequence[int], names: Iterable[tuple[str, str]], step: int) -> list[Group]:
    """What the trials have of these names at the step, or at the nearest one before it."""
    asked = list(names)
    found: dict[tuple[int, str, str], list[Item]] = {}
    rows = list(_nearest(trial_ids, asked, step))
    contents = dict(Media.objects.filter(pk__in=_that_fit(rows)).order_by().values_list("pk", "content"))
    for row in rows:
        row.content = contents.get(row.pk, {})
        is_cut = row.kind != Media.Kind.IMAGE and row.pk not in contents
        found.setdefault((row.trial_id, row.kind, row.name), []).append(_item(row, is_cut))
    return [
        Group(kind, name, [Cell(pk, found.get((pk, kind, name), [])) for pk in trial_ids])
        for kind, name in asked
    ]


def _nearest(trial_ids: Sequence[int], names: Sequence[tuple[str, str]], step: int) -> Iterable[Media]:
    """The rows, without their contents. Each step is one look into the index: a trial may have thousands before it."""
    looks = [
        Media.objects.filter(trial_id=pk, kind=kind, name=name, step__lte=step)
        .order_by("-step")
        .values_list("trial_id", "kind", "name", "step")[:1]
        for pk in trial_ids
        for kind, name in names
    ]
    if not looks:
        return []
    found = looks[0].union(*looks[1:], all=True) if len(looks) > 1 else looks[0]
    these = [Q(trial_id=pk, kind=kind, name=name, step=at) for pk, kind, name, at in found]
    return Media.objects.filter(reduce(or_, these)).defer("content") if these else []


def _that_fit(rows: Iterable[Media]) -> list[int]:
    """Ids of those whose contents the page shows."""
    found, left = [], PAGE_BYTES
    for row in rows:
        if row.kind != Media.Kind.IMAGE and row.size <= min(SHOWN_BYTES, left):
            found.append(row.pk)
            left -= row.size
    return found


def _item(row: Media, is_cut: bool) -> Item:
    which = f", image {row.place + 1}" if row.kind == Media.Kind.IMAGE else ""
    alt = f"{row.name} of trial {row.trial_id} at step {row.step}{which}"
    bars = bars_of(row.content) if row.kind == Media.Kind.HISTOGRAM and not is_cut else None
    address = f"/api/v1/trials/{row.trial_id}/media/{row.pk}"
    return Item(row, address, f"{alt}: {row.caption}" if row.caption else alt, is_cut, bars)


def bars_of(content: dict[str, Any]) -> Bars:
    """Bars as wide as their bins; where these differ in width, areas are counts."""
    counts, edges = content["counts"], content["edges"]
    low, high = edges[0], edges[-1]
    span = min((high - low) or 1.0, sys.float_info.max)  # older rows may have any numbers
    counts = [min(count, media.MOST_COUNTED) for count in counts]
    widths = [(after - before) / span for before, after in pairwise(edges)]
    usual = 1.0 / len(counts)
    heights = [count / max(width, usual / 100) for count, width in zip(counts, widths, strict=True)]
    top = max(heights) or 1.0
    parts = []
    for edge, width, height in zip(edges, widths, heights, strict=False):
        if height > 0:
            x, tall = (edge - low) / span * _WIDTH, max(1.0, height / top * _HEIGHT)
            parts.append(f"M{x:.1f} {_HEIGHT:.0f}v-{tall:.1f}h{max(width * _WIDTH, 0.5):.1f}v{tall:.1f}z")
    return Bars("".join(parts), low, high, round(sum(counts)), content.get("not_finite") or 0)


def choices(experiment: Experiment, asked: Sequence[int]) -> tuple[list[int], list[Choice]]:
    """(the trials to show, what can be chosen): the best ones that have anything, unless the address names others."""
    having = Trial.objects.filter(Exists(Media.objects.filter(trial=OuterRef("pk"))), experiment=experiment)
    known = set(having.values_list("pk", flat=True))
    ordered = [pk for pk, _ in shown_trials.best_first(experiment.pk) if pk in known]
    chosen = [pk for pk in asked if pk in known][:MOST_TRIALS] or ordered[:FIRST_TRIALS]
    offered = list(dict.fromkeys([*chosen, *ordered]))[:MOST_CHOICES]
    found = []
    for pk in offered:
        others = [each for each in chosen if each != pk] if pk in chosen else [*chosen, pk][-MOST_TRIALS:]
        found.append(Choice(pk, pk in chosen, ",".join(map(str, others))))
    return chosen, found

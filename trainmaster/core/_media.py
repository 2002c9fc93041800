"""Images, histograms, texts and tables that training code reports, as records of the rank's spool.

What cannot be shown is left out, and an error in the log names it once: a picture must not end a training.
"""

from __future__ import annotations

import base64
import json
import logging
import math
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from trainmaster import media
from trainmaster.core import _images
from trainmaster.core._images import NotAnImage
from trainmaster.core._records import storable_text

logger = logging.getLogger("trainmaster.core")

_COMPLAINTS = 1000

#: `append(type, **fields)`, as that of Records
Append = Callable[..., None]


class MediaReports:
    """Makes records of what is reported at a step; `append` None: off the cluster nothing is kept."""

    def __init__(self, append: Optional[Append]) -> None:
        self._append = append
        self._complained: Set[Tuple[str, str]] = set()

    def images(self, step: int, images: Mapping[str, Any], captions: Optional[Mapping[str, Any]]) -> None:
        for name, value in self._named(images):
            each = _images.each_of(value)
            if len(each) > media.IMAGES_PER_NAME:
                self._left_out(
                    name, "images", f"has {len(each)} images, of which {media.IMAGES_PER_NAME} are kept"
                )
            told = (captions or {}).get(name)
            words = [told] if isinstance(told, str) else list(told or [])
            for place, image in enumerate(each[: media.IMAGES_PER_NAME]):
                try:
                    data = _images.encoded(image)
                except NotAnImage as error:
                    self._left_out(name, "image", f"{error}; it is skipped")
                    continue
                caption = storable_text(str(words[place]) if place < len(words) else "")
                encoded = base64.b64encode(data).decode("ascii")
                self._report(
                    "image",
                    name,
                    step,
                    place=place,
                    caption=caption[: media.CAPTION_CHARACTERS],
                    image=encoded,
                )

    def histograms(self, step: int, values: Mapping[str, Any]) -> None:
        for name, value in self._named(values):
            try:
                counted = _counted(value)
            except Exception as error:  # of whatever library the values come from
                self._left_out(name, "values", f"is not a list or array of numbers ({error}) and is skipped")
                continue
            if counted is None:
                self._left_out(name, "no values", "has no finite value and is skipped")
            else:
                self._report("histogram", name, step, **counted)

    def texts(self, step: int, texts: Mapping[str, str]) -> None:
        for name, value in self._named(texts):
            text = str(value)
            if len(text) > media.TEXT_CHARACTERS:
                self._left_out(
                    name, "text", f"has {len(text):,} characters, of which {media.TEXT_CHARACTERS:,} are kept"
                )
            self._report("text", name, step, text=storable_text(text[: media.TEXT_CHARACTERS]))

    def table(self, step: int, name: str, columns: Sequence[Any], rows: Sequence[Sequence[Any]]) -> None:
        """ValueError for a row that has not as many cells as there are columns."""
        for known, (heads, body) in self._named({name: (list(columns), list(rows))}):
            for at, row in enumerate(body):
                if len(row) != len(heads):
                    raise ValueError(
                        f"Row {at} of the table {known!r} has {len(row)} cells; there are {len(heads)} columns."
                    )
            if len(heads) > media.COLUMNS or len(body) > media.ROWS:
                self._left_out(
                    known,
                    "cells",
                    f"has {len(heads)} columns and {len(body):,} rows, of which {media.COLUMNS} and "
                    f"{media.ROWS:,} are kept",
                )
            names = [_cell(head) for head in heads[: media.COLUMNS]]
            cells = [[_cell(cell) for cell in row[: media.COLUMNS]] for row in body[: media.ROWS]]
            if len(json.dumps([names, cells])) > media.TABLE_BYTES:
                self._left_out(
                    known, "bytes", f"has more than {media.TABLE_BYTES:,} bytes as JSON and is skipped"
                )
            else:
                self._report("table", known, step, columns=names, rows=cells)

    def _report(self, kind: str, name: str, step: int, **fields: Any) -> None:
        if self._append is None:
            logger.info(
                "%s %r at step %d: shown on the trial's page on a cluster.", kind.capitalize(), name, step
            )
        else:
            self._append("media", kind=kind, name=name, step=step, **fields)

    def _named(self, values: Mapping[str, Any]) -> List[Tuple[str, Any]]:
        """(name, value). ValueError for a name that is no text; one that is too long is left out."""
        found = []
        for name, value in values.items():
            if not isinstance(name, str) or not name:
                raise ValueError(f"The name {name!r} must be text.")
            if len(name) > media.NAME_CHARACTERS:
                why = f"is a name of {len(name)} characters (at most {media.NAME_CHARACTERS}) and is skipped"
                self._left_out(name[:40], "name", why)
                continue
            found.append((storable_text(name), value))
        return found

    def _left_out(self, name: str, cause: str, why: str) -> None:
        """Say so once for each cause: it may be reported at every step, and `why` may have another number each time."""
        if len(self._complained) < _COMPLAINTS and (name, cause) not in self._complained:
            self._complained.add((name, cause))
            logger.error("%r %s. Further cases like this are not logged.", name, why)


def _cell(value: Any) -> Any:
    """As JSON: a number, true, false or null as it is, anything else as text."""
    if (
        callable(getattr(value, "item", None)) and getattr(value, "shape", None) == ()
    ):  # a scalar of numpy or torch
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < 2**53:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    return storable_text(str(value)[: media.CELL_CHARACTERS])


def _counted(values: Any) -> Optional[Dict[str, Any]]:
    """Counts in equal bins from the least to the largest finite value; None without any."""
    if hasattr(values, "shape"):
        import numpy

        flat = _images.array_of(values).astype(numpy.float64).ravel()
        finite = flat[numpy.isfinite(flat)]
        if not finite.size:
            return None
        counts, edges = numpy.histogram(finite, bins=media.BINS, range=_range(finite.min(), finite.max()))
        return _histogram(counts.tolist(), edges.tolist(), int(flat.size - finite.size))
    numbers = [float(value) for value in values]
    known = [value for value in numbers if math.isfinite(value)]
    if not known:
        return None
    low, high = _range(min(known), max(known))
    bins = [0] * media.BINS
    for value in known:
        bins[min(media.BINS - 1, int((value - low) / (high - low) * media.BINS))] += 1
    steps = [low + (high - low) * at / media.BINS for at in range(media.BINS + 1)]
    return _histogram(bins, steps, len(numbers) - len(known))


def _range(low: float, high: float) -> Tuple[float, float]:
    """Not empty: equal values are in the middle."""
    low, high = float(low), float(high)
    if math.isinf(high - low):
        raise ValueError("they span more than a float can hold")
    room = 0.5 if high - low < abs(low) * 1e-12 or low == high else 0.0
    room *= max(1.0, abs(low) * 1e-6)
    return low - room, high + room


def _histogram(counts: List[int], edges: List[float], odd: int) -> Dict[str, Any]:
    return {"counts": counts, "edges": edges, **({"not_finite": odd} if odd else {})}

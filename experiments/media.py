"""Images, histograms, texts and tables that training code reports by step: checked, stored, set back, removed.

A job writes the records, so nothing in them is believed: an image counts as what its own first bytes say, and is never
SVG or HTML. Its bytes lie in `media/experiment/<id>/trial/<id>/<attempt>/<SHA-256>` of the data folder.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from accounts.refusals import Refusal
from experiments import arriving_files
from experiments.models import Media, Trial
from jobs.models import Member
from logs import store as log_store
from logs.lines import SERVER, NewLine, blocks_of
from metrics.columns import MOST_STEPS
from metrics.values import text
from trainmaster import image_headers
from trainmaster import media as bounds
from trainmaster.quantities import size

#: type of an image -> its media type
TYPES = {name: f"image/{name}" for name in ("png", "jpeg", "gif", "webp")}
_LARGEST = 2**53  # what JavaScript and floats still count exactly
MOST_COUNTED = 10**15  # in one bin of a histogram: all bins together stay far below what a float can hold
#: removes files, so that neither a runner's report nor the start of an attempt waits for it
_remover = ThreadPoolExecutor(1, "remove-media")


def reported(trial: Trial, member: Member, data: Mapping[str, Any]) -> None:
    """Store one record of the SDK (docs/protocol.md); the experiment is locked. ValueError for one that is none.

    Of reports of one place at one step the first stands, unless it is of an earlier attempt. What is beyond the trial's
    limits is not stored, which its log says once.
    """
    if int(data.get("run_id") or trial.run_id) < trial.run_id:
        return  # its steps were set back when the present attempt began
    found, image = _read(trial, data)
    same = {"kind": found.kind, "name": found.name, "step": found.step, "place": found.place}
    standing = Media.objects.filter(trial=trial, **same).first()
    if standing and standing.run_id >= found.run_id:
        return
    if sentence := _no_space(image) or _beyond(trial.pk, found, standing):
        if Trial.objects.filter(pk=trial.pk, media_refused="").update(media_refused=sentence):
            line = NewLine(timezone.now().timestamp(), None, SERVER, "WARNING", f"[{sentence}]")
            log_store.append(trial.task_id, member, member.host.name, blocks_of([line]))
        return
    if image:
        _keep(path_of(trial.experiment_id, found), image)
    if standing:
        _remove(trial.experiment_id, [standing])
    found.save()


def _no_space(image: bytes) -> str:
    """Why this image is not stored: pictures leave the server's disk to what cannot be done without."""
    try:
        if image:
            arriving_files.require_space(len(image) + settings.DISK_NEARLY_FULL_BYTES)
    except Refusal:
        return "The server's disk is nearly full, so some images of this trial were not kept."
    return ""


def _beyond(trial_id: int, found: Media, standing: Media | None) -> str:
    """Why it is not stored beside the others, or in place of `standing`; if it is, the trial's counts say so now."""
    most, most_bytes = settings.MEDIA_ITEMS_PER_TRIAL, settings.MEDIA_BYTES_PER_TRIAL
    count, more = (0, found.size - standing.size) if standing else (1, found.size)
    room = Trial.objects.filter(
        pk=trial_id, media_count__lte=most - count, media_bytes__lte=most_bytes - more
    )
    if room.update(media_count=F("media_count") + count, media_bytes=F("media_bytes") + more):
        return ""
    return (
        f"This trial has reached its limit of {most:,} items or {size(most_bytes)}. Later ones are not kept."
    )


def _read(trial: Trial, data: Mapping[str, Any]) -> tuple[Media, bytes]:
    """The row, and the file of an image. ValueError, TypeError or OverflowError for what is none."""
    kind, name = data.get("kind"), data.get("name")
    if kind not in bounds.KINDS or not isinstance(name, str) or not 0 < len(name) <= bounds.NAME_CHARACTERS:
        raise ValueError(f"it is {str(kind)[:40]!r} named {str(name)[:40]!r}")
    step, place = int(data.get("step") or 0), int(data.get("place") or 0)
    if not 0 <= step <= MOST_STEPS or not 0 <= place < bounds.IMAGES_PER_NAME:
        raise ValueError(f"step is {step} and place is {place}")
    found = Media(
        trial=trial,
        kind=kind,
        name=text(name),
        step=step,
        place=place,
        run_id=trial.run_id,
        reported_at=_time(data.get("t")),
        caption=text(str(data.get("caption") or ""))[: bounds.CAPTION_CHARACTERS],
    )
    image = b""
    if kind == Media.Kind.IMAGE:
        image = _image(found, data.get("image"))
    else:
        found.content = _CONTENT[kind](data)
        found.size = len(json.dumps(found.content))
    return found, image


def _time(seconds: object) -> datetime:
    try:
        return datetime.fromtimestamp(float(seconds), UTC)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, OSError):
        return timezone.now()


def _image(found: Media, encoded: object) -> bytes:
    if not isinstance(encoded, str) or len(encoded) > bounds.IMAGE_BYTES * 4 // 3 + 4:
        raise ValueError(f"an image is at most {bounds.IMAGE_BYTES:,} bytes in base64")
    data = base64.b64decode(encoded, validate=True)
    header = image_headers.read(data)
    if header is None or header.width * header.height > bounds.IMAGE_PIXELS:
        allowed = f"PNG, JPEG, GIF and WebP of at most {bounds.IMAGE_PIXELS:,} pixels"
        raise ValueError(f"the image {found.name!r} is of none of the allowed kinds: {allowed}")
    found.type, found.width, found.height = header
    found.size, found.sha256 = len(data), hashlib.sha256(data).hexdigest()
    return data


def _histogram(data: Mapping[str, Any]) -> dict[str, Any]:
    counts, edges = data.get("counts"), data.get("edges")
    if not isinstance(counts, list) or not isinstance(edges, list) or len(edges) != len(counts) + 1:
        raise ValueError("a histogram is a list of counts, and one edge more than these")
    if not 0 < len(counts) <= bounds.MOST_BINS:
        raise ValueError(f"a histogram has {len(counts):,} bins, allowed: 1 to {bounds.MOST_BINS}")
    numbers = [_number(each) for each in edges]
    if any(low > high for low, high in pairwise(numbers)):
        raise ValueError("the edges of a histogram ascend")
    if not math.isfinite(numbers[-1] - numbers[0]):
        raise ValueError("the edges of a histogram span more than a float can hold")
    return {
        "counts": [_count(each) for each in counts],
        "edges": numbers,
        "not_finite": int(_count(data.get("not_finite") or 0)),
    }


def _count(value: object) -> float:
    if (count := _number(value)) > MOST_COUNTED:
        raise ValueError(f"a bin of a histogram counts at most {MOST_COUNTED:,}; found: {count:g}")
    return max(0.0, count)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{str(value)[:40]!r} is not a finite number")
    return float(value)


def _text(data: Mapping[str, Any]) -> dict[str, Any]:
    return {"text": text(str(data.get("text") or ""))[: bounds.TEXT_CHARACTERS]}


def _table(data: Mapping[str, Any]) -> dict[str, Any]:
    columns, rows = data.get("columns"), data.get("rows")
    if not isinstance(columns, list) or not isinstance(rows, list):
        raise ValueError("a table is a list of columns and a list of rows")
    if len(columns) > bounds.COLUMNS or len(rows) > bounds.ROWS:
        raise ValueError(f"a table has at most {bounds.COLUMNS} columns and {bounds.ROWS:,} rows")
    if any(not isinstance(row, list) or len(row) != len(columns) for row in rows):
        raise ValueError("each row of a table has a cell for each column")
    found = {
        "columns": [_cell(each) for each in columns],
        "rows": [[_cell(each) for each in row] for row in rows],
    }
    if len(json.dumps(found)) > bounds.TABLE_BYTES:
        raise ValueError(f"a table has at most {bounds.TABLE_BYTES:,} bytes as JSON")
    return found


def _cell(value: object) -> object:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)) and abs(value) < _LARGEST:
        return value
    return text(str(value)[: bounds.CELL_CHARACTERS])


_CONTENT = {Media.Kind.HISTOGRAM: _histogram, Media.Kind.TEXT: _text, Media.Kind.TABLE: _table}


def _folder(experiment_id: int) -> Path:
    return Path(settings.DATA_DIR) / "media" / "experiment" / str(experiment_id)


def path_of(experiment_id: int, row: Media) -> Path:
    """Where the file of an image lies. Each attempt has its own, so that those of former ones can go at any time."""
    return _folder(experiment_id) / "trial" / str(row.trial_id) / str(row.run_id) / row.sha256


def content(trial_id: int, media_id: int) -> tuple[str, bytes] | None:
    """(media type, bytes): the file of an image, else JSON; None where there is none, or not all of it."""
    row = Media.objects.select_related("trial").filter(pk=media_id, trial_id=trial_id).first()
    if row is None:
        return None
    if row.kind != Media.Kind.IMAGE:
        return "application/json", json.dumps(row.content).encode()
    try:
        data = path_of(row.trial.experiment_id, row).read_bytes()
    except FileNotFoundError:
        return None
    return (TYPES[row.type], data) if len(data) == row.size else None


def _keep(target: Path, image: bytes) -> None:
    """Write the file unless it is there; it is durable then."""
    if target.exists():
        return
    file = arriving_files.Incoming()
    try:
        file.write(image)
        file.keep(target)
    except OSError:
        file.discard()
        raise


def set_back(trial_id: int, steps_completed: int) -> None:
    """A new attempt begins from this step: what was reported beyond it is removed."""
    beyond = Media.objects.filter(trial_id=trial_id, step__gt=steps_completed)
    rows = list(beyond.defer("content").select_related("trial"))
    if rows:
        _remove(rows[0].trial.experiment_id, rows)
        Trial.objects.filter(pk=trial_id).update(
            media_refused="",
            media_count=F("media_count") - len(rows),
            media_bytes=F("media_bytes") - sum(row.size for row in rows),
        )


def _remove(experiment_id: int, rows: Sequence[Media]) -> None:
    """Remove rows of one trial, and after the transaction the files that no other row needs.

    They are of former attempts, of which nothing is stored any more, so no file is needed again.
    """
    gone = {(row.run_id, row.sha256): path_of(experiment_id, row) for row in rows if row.sha256}
    Media.objects.filter(pk__in=[row.pk for row in rows]).delete()
    if gone:
        same = Media.objects.filter(trial_id=rows[0].trial_id, sha256__in={sha256 for _, sha256 in gone})
        for still in same.values_list("run_id", "sha256").distinct().order_by():
            gone.pop(still, None)
        transaction.on_commit(partial(_remover.submit, _unlink, list(gone.values())))


def _unlink(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def delete(experiment_id: int) -> None:
    """Remove the files of all its trials; nothing there is fine. OSError when something cannot be removed."""
    if (found := _folder(experiment_id)).exists():
        shutil.rmtree(found)

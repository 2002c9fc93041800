"""What training code reports to be looked at: checked, kept within bounds, set back with its attempt, deleted."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest

from dispatch.runs import batches
from experiments import media
from experiments.models import Media, Trial
from jobs.models import Member
from logs import read as log_read
from logs.filters import Filters
from shown import media as shown
from tests.rig.rows import make_gang
from tests.trainmaster.core.test_media import GIF
from tests.webui.runner_api.test_checkpoints import make_trial
from trainmaster import media as bounds

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("folder")]


@pytest.fixture
def folder(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path
    return tmp_path / "media"


@pytest.fixture
def member() -> Member:
    return make_gang()[0]


@pytest.fixture
def trial(member: Member) -> Trial:
    return make_trial(member)


def image(step: int, data: bytes = GIF, **more: Any) -> dict[str, Any]:
    encoded = base64.b64encode(data).decode()
    return {
        "type": "media",
        "kind": "image",
        "name": "digits",
        "step": step,
        "image": encoded,
        "t": 1.0,
    } | more


def report(trial: Trial, member: Member, *records: dict[str, Any]) -> None:
    """As they come in one batch of a runner."""
    trial.refresh_from_db()
    core = [{"k": "core", "d": record} for record in records]
    reporting = batches.Reporting(trial, member, core)
    for place in range(len(core)):
        reporting.apply(place)


def log_of(trial: Trial) -> list[str]:
    return [line.text for line in log_read.tail(trial.task_id, Filters(), 100)]


def files(folder: Path) -> list[str]:
    """Those that are left when all that was to be removed is."""
    media._remover.submit(int).result()
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_an_image_is_a_row_and_a_file_that_is_served_as_what_it_is(
    trial: Trial, member: Member, folder: Path
) -> None:
    report(trial, member, image(5, caption="a\0 7"), image(5, place=1), image(5, data=GIF + b"later"))
    first, second = Media.objects.filter(trial=trial)
    assert (first.type, first.width, first.height, first.size) == ("gif", 7, 5, len(GIF))
    assert (first.caption, first.step, first.run_id, second.place) == ("a\ufffd 7", 5, 1, 1)
    assert files(folder) == [hashlib.sha256(GIF).hexdigest()]
    assert media.content(trial.pk, first.pk) == ("image/gif", GIF)
    assert media.content(trial.pk + 1, first.pk) is None
    media.path_of(trial.experiment_id, first).write_bytes(GIF[:3])  # a power cut
    assert media.content(trial.pk, first.pk) is None


#: what training code may also write
WRONG = [
    image(1, b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"),
    image(1, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + b"\xff" * 8),
    image(1, name="n" * 129),
    image(1, place=64),
    image(2**63),
    image(1) | {"image": "!!"},
    image(1) | {"image": "A" * 8_000_000},
    image(1) | {"kind": "html"},
    {"type": "media", "kind": "histogram", "name": "w", "step": 1, "counts": [1, 2], "edges": [0, 1]},
    {"type": "media", "kind": "histogram", "name": "w", "step": 1, "counts": [1], "edges": [1, 0]},
    {"type": "media", "kind": "histogram", "name": "w", "step": 1, "counts": ["1"], "edges": [0, 1]},
    {"type": "media", "kind": "histogram", "name": "w", "step": 1, "counts": [1e308], "edges": [0, 1]},
    {"type": "media", "kind": "histogram", "name": "w", "step": 1, "counts": [1], "edges": [-1e308, 1e308]},
    {"type": "media", "kind": "table", "name": "t", "step": 1, "columns": ["a"], "rows": [[1, 2]]},
    {"type": "media", "kind": "table", "name": "t", "step": 1, "columns": ["a"] * 51, "rows": []},
    {"type": "media", "kind": "table", "name": "t", "step": 1, "columns": [], "rows": [[]] * 1001},
]


def test_a_record_of_another_form_is_a_line_of_the_log(trial: Trial, member: Member, folder: Path) -> None:
    report(trial, member, *WRONG)
    lines = log_of(trial)
    assert len(lines) == len(WRONG)
    for line in lines:
        assert line.startswith("[a report of type 'media' could not be stored") and len(line) < 500
    assert not Media.objects.exists() and files(folder) == []


def test_beyond_the_limits_the_first_ones_stay_and_the_log_says_so_once(
    trial: Trial, member: Member, folder: Path, settings: Any
) -> None:
    settings.MEDIA_ITEMS_PER_TRIAL = 2
    report(trial, member, *[image(step) for step in range(1, 6)])
    assert [row.step for row in Media.objects.all()] == [1, 2]
    (line,) = log_of(trial)
    assert line == "[This trial has reached its limit of 2 items or 1.0 GiB. Later ones are not kept.]"
    settings.MEDIA_ITEMS_PER_TRIAL, settings.MEDIA_BYTES_PER_TRIAL = 100, 3 * len(GIF)
    report(trial, member, image(6), image(7))
    assert Media.objects.count() == 3 and len(log_of(trial)) == 1
    trial.refresh_from_db()
    assert trial.media_refused == line.strip("[]")


def test_an_item_of_an_earlier_attempt_is_replaced_at_the_limit(
    trial: Trial, member: Member, settings: Any
) -> None:
    settings.MEDIA_ITEMS_PER_TRIAL, settings.MEDIA_BYTES_PER_TRIAL = 2, 2 * len(GIF) + 1
    report(trial, member, image(0), image(1))
    media.set_back(trial.pk, 0)
    Trial.objects.filter(pk=trial.pk).update(run_id=2)
    report(trial, member, image(1), image(0, GIF + b"x"))
    assert list(Media.objects.values_list("step", "run_id", "size")) == [
        (0, 2, len(GIF) + 1),
        (1, 2, len(GIF)),
    ]
    trial.refresh_from_db()
    assert (trial.media_count, trial.media_bytes, trial.media_refused) == (2, 2 * len(GIF) + 1, "")


def test_images_leave_a_reserve_on_the_disk_and_the_log_says_so_once(
    trial: Trial, member: Member, folder: Path, settings: Any
) -> None:
    settings.DISK_NEARLY_FULL_BYTES = 2**62
    text = {"type": "media", "kind": "text", "name": "answer", "step": 1, "text": "a"}
    report(trial, member, image(1), image(2), text)
    assert [row.kind for row in Media.objects.all()] == ["text"] and files(folder) == []
    assert log_of(trial) == [
        "[The server's disk is nearly full, so some images of this trial were not kept.]"
    ]


def test_what_a_new_attempt_removes_is_looked_up_at_once(
    trial: Trial, member: Member, folder: Path, django_assert_max_num_queries: Any
) -> None:
    report(trial, member, *[image(step, GIF + bytes([step])) for step in range(1, 30)])
    with django_assert_max_num_queries(6):
        media.set_back(trial.pk, 0)
    assert not Media.objects.exists()


def test_a_page_keeps_to_its_bytes_and_survives_any_histogram(
    trial: Trial, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [Media(trial=trial, kind="text", name=f"t{at}", step=1, run_id=1, size=40) for at in range(3)]
    for row in rows:
        row.reported_at, row.content = trial.started_at, {"text": "x"}
    Media.objects.bulk_create(rows)
    monkeypatch.setattr(shown, "PAGE_BYTES", 100)
    found = shown.board([trial.pk], None, "", None)
    assert [group.cells[0].items[0].is_cut for group in found.groups] == [False, False, True]
    assert shown.board([trial.pk], None, "", None, "1-1").steps is None
    assert shown.board([trial.pk], None, "", None, "2-1").steps == [1]
    bars = shown.bars_of({"counts": [1e308, 1e308], "edges": [-1e308, 0, 1e308]})
    assert bars.count == 2 * 10**15 and "nan" not in bars.path


def test_a_new_attempt_removes_what_lies_beyond_its_checkpoint(
    trial: Trial, member: Member, folder: Path, django_capture_on_commit_callbacks: Any
) -> None:
    other = GIF + b"other"
    report(trial, member, image(1), image(2), image(3, other), {**image(3), "place": 1})
    with django_capture_on_commit_callbacks(execute=True):
        media.set_back(trial.pk, 2)
    assert [row.step for row in Media.objects.all()] == [1, 2]
    assert files(folder) == [hashlib.sha256(GIF).hexdigest()]  # which the steps before still need
    Trial.objects.filter(pk=trial.pk).update(run_id=2)
    with django_capture_on_commit_callbacks(execute=True):
        report(trial, member, image(2, other, run_id=1), image(3, other), image(1, other), image(2, other))
    assert {(row.step, row.run_id) for row in Media.objects.all()} == {(1, 2), (2, 2), (3, 2)}
    assert files(folder) == [hashlib.sha256(other).hexdigest()]
    media.delete(trial.experiment_id)
    assert files(folder) == []
    media.delete(trial.experiment_id)


def test_a_page_shows_the_chosen_step_or_the_nearest_before_it(trial: Trial, member: Member) -> None:
    histogram = {"kind": "histogram", "name": "w", "counts": [1, 0, 3], "edges": [-1, 0, 1, 2]}
    text = {"kind": "text", "name": "answer", "text": "<b>x</b>" * 5000}
    table = {"kind": "table", "name": "errors", "columns": ["a"], "rows": [[each] for each in range(150)]}
    more = [{"type": "media", "step": 4, **each} for each in (histogram, text, table)]
    report(trial, member, image(1), image(5, place=1), image(5), image(9), *more)
    assert shown.steps_of([trial.pk]) == [1, 4, 5, 9]
    names = shown.names_of([trial.pk])
    assert names == [("image", "digits"), ("table", "errors"), ("text", "answer"), ("histogram", "w")]
    images, tables, texts, bars = (group.cells[0] for group in shown.groups([trial.pk], names, 7))
    assert images.step == 5 and [item.row.place for item in images.items] == [0, 1]
    assert (images.items[0].width, images.items[0].height) == (7 * 16, 5 * 16)
    assert (len(tables.items[0].rows), tables.items[0].left_out) == (100, 50)
    assert texts.items[0].left_out == 40_000 - shown.SHOWN_CHARACTERS
    found = bars.items[0].bars
    assert found and (found.low, found.high, found.count) == (-1.0, 2.0, 4)
    assert found.path == "M0.0 96v-32.0h106.7v32.0zM213.3 96v-96.0h106.7v96.0z"
    assert [group.cells[0].step for group in shown.groups([trial.pk], names, 3)] == [1, None, None, None]
    board = shown.board([trial.pk], None, "text", None)
    assert [(kind, count) for kind, _, count in board.kinds] == [(kind, 1) for kind in shown.KINDS]
    assert (board.at, board.steps, len(board.names)) == (9, [1, 4, 5, 9], 1)
    assert len(bounds.KINDS) == len(shown.KINDS)

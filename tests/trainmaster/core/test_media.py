"""Images, histograms, texts and tables of training code become records; what cannot be shown is left out by name."""

from __future__ import annotations

import base64
import json
import logging
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainmaster.made_run import make_run, records
from trainmaster import core, image_headers, media
from trainmaster.core import _images
from trainmaster.image_headers import ImageHeader

GIF = b"GIF89a" + bytes([7, 0, 5, 0]) + bytes(4)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[core.Context, Path]]:
    folder = make_run(tmp_path / "run")
    monkeypatch.setenv("TRAINMASTER_RUN_DIR", str(folder))
    with core.init() as context:
        yield context, folder


def said(folder: Path) -> list[dict[str, Any]]:
    return [each for each in records(folder) if each["type"] == "media"]


def pixels(png: bytes) -> list[int]:
    """The bytes of all lines, each behind its filter, of a PNG with one IDAT."""
    at = png.index(b"IDAT")
    size = int.from_bytes(png[at - 4 : at], "big")
    return list(zlib.decompress(png[at + 4 : at + 4 + size]))


@pytest.mark.parametrize(
    ("image", "header", "lines"),
    [
        (np.array([[0.0, 1.0], [0.5, np.nan]]), ("png", 2, 2), [0, 0, 255, 0, 128, 0]),
        (np.array([[True, False]]), ("png", 2, 1), [0, 255, 0]),
        (np.array([[[1, 2, 3]], [[300, -5, 6]]]), ("png", 1, 2), [0, 1, 2, 3, 0, 255, 0, 6]),
        (np.arange(6, dtype=np.uint8).reshape(3, 1, 2), ("png", 2, 1), [0, 0, 2, 4, 1, 3, 5]),
        (np.arange(8, dtype=np.uint8).reshape(2, 1, 4), ("png", 1, 2), [0, 0, 1, 2, 3, 0, 4, 5, 6, 7]),
    ],
)
def test_arrays_become_png_whichever_way_their_axes_stand(
    image: Any, header: tuple[str, int, int], lines: list[int]
) -> None:
    data = _images.encoded(image)
    assert image_headers.read(data) == ImageHeader(*header)
    assert pixels(data) == lines


def test_a_list_or_a_batch_is_several_images_with_captions(run: tuple[core.Context, Path]) -> None:
    context, folder = run
    batch = np.zeros((2, 3, 4, 4), np.float32)
    context.train.report_images(
        7, {"digits": batch, "one": GIF}, captions={"digits": ["a 7", "a 9"], "one": "x"}
    )
    found = said(folder)
    assert [(each["name"], each["step"], each["place"], each["caption"]) for each in found] == [
        ("digits", 7, 0, "a 7"), ("digits", 7, 1, "a 9"), ("one", 7, 0, "x"),
    ]  # fmt: skip
    assert base64.b64decode(found[2]["image"]) == GIF
    assert all(each["run_id"] == 3 and each["kind"] == "image" for each in found)


def test_what_is_no_image_is_left_out_and_named_once(
    run: tuple[core.Context, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context, folder = run
    (tmp_path / "page.png").write_bytes(b"<svg xmlns='http://www.w3.org/2000/svg'/>")
    (tmp_path / "large.png").write_bytes(bytes(media.IMAGE_BYTES + 1))
    wrong = {
        "svg": tmp_path / "page.png", "none": tmp_path / "none.png", "flat": np.zeros(3), "words": np.array([["a"]]),
        "many": np.zeros((2, 2, 7)), "wide": np.zeros((5001, 5001), np.uint8),
    }  # fmt: skip
    for step in (1, 2):
        context.train.report_images(step, wrong)
    assert said(folder) == []
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == len(wrong), errors
    assert "'svg' is not a PNG, JPEG, GIF or WebP file" in errors[0] and "25,000,000" in errors[-1]


def test_a_histogram_counts_the_finite_values_in_64_bins(run: tuple[core.Context, Path]) -> None:
    context, folder = run
    context.train.report_histograms(
        3, {"array": np.linspace(-1, 1, 129), "list": [0.0, 1.0, 1.0, float("nan")]}
    )
    context.train.report_histograms(3, {"same": [2.0, 2.0], "empty": []})
    array, listed, same = said(folder)
    assert len(array["counts"]) == media.BINS and sum(array["counts"]) == 129
    assert (array["edges"][0], array["edges"][-1]) == (-1.0, 1.0)
    assert (listed["counts"][0], listed["counts"][-1], listed["not_finite"]) == (1, 2, 1)
    assert (listed["edges"][0], listed["edges"][-1]) == (0.0, 1.0)
    assert sum(same["counts"]) == 2 and same["edges"][0] < 2.0 < same["edges"][-1]


def test_texts_and_tables_keep_to_their_bounds(run: tuple[core.Context, Path]) -> None:
    context, folder = run
    context.train.report_text(4, {"long": "x" * (media.TEXT_CHARACTERS + 1), "odd": "a\0b\ud800"})
    rows = [[1, 2.5, None, True, float("inf"), np.float32(0.5), Path("/x")]] * (media.ROWS + 1)
    context.train.report_table(4, "errors", list("abcdefg"), rows)
    long, odd, table = said(folder)
    assert len(long["text"]) == media.TEXT_CHARACTERS and odd["text"] == "a\ufffdb\ufffd"
    assert len(table["rows"]) == media.ROWS and table["rows"][0] == [1, 2.5, None, True, "inf", 0.5, "/x"]
    with pytest.raises(ValueError, match="Row 1 of the table 'errors' has 1 cells; there are 2 columns"):
        context.train.report_table(4, "errors", ["a", "b"], [[1, 2], [3]])
    with pytest.raises(ValueError, match="steps_completed is -1"):
        context.train.report_text(-1, {"a": "b"})
    json.dumps(said(folder), allow_nan=False)


def test_what_is_cut_is_named_once_however_long_it_is(
    run: tuple[core.Context, Path], caplog: pytest.LogCaptureFixture
) -> None:
    for more in (1, 2, 3):
        run[0].train.report_text(more, {"answer": "x" * (media.TEXT_CHARACTERS + more)})
    (error,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert "'answer' has 100,001 characters" in error


def test_files_are_known_by_their_own_first_bytes() -> None:
    jpeg = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08\x00\x05\x00\x07" + bytes(9)
    assert image_headers.read(jpeg) == ImageHeader("jpeg", 7, 5)
    webp = b"RIFF\x00\x00\x00\x00WEBPVP8X" + bytes(8) + b"\x06\x00\x00\x04\x00\x00"
    assert image_headers.read(webp) == ImageHeader("webp", 7, 5)
    for cut in range(len(jpeg)):
        assert image_headers.read(jpeg[:cut]) in (None, ImageHeader("jpeg", 7, 5))
    assert image_headers.read(b"\xff\xd8\xff" + b"\xe0\x00\x02\xff" * 10**6) is None
    assert image_headers.read(b"<html>") is None and image_headers.read(b"") is None

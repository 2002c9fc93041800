"""A Jupyter notebook (nbformat 4) as cells to show: Markdown, code, text and images."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from accounts.refusals import Refusal
from logs.lines import plain

MOST_BYTES = 8 * 1024 * 1024
#: of all sources and outputs without images: coloring as much code takes about two seconds
MOST_CHARACTERS = 512 * 1024
#: Markdown takes so many times as long
_MARKDOWN = 4
#: a longer cell is shown as it is written
MOST_OF_MARKDOWN = 100_000
#: what each cell and each output takes of a page beside its characters
_EACH = 256
#: kinds of images that are shown -> what their bytes begin with
_IMAGES = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}


@dataclass(frozen=True)
class Output:
    """One of `text`, `image` (a data URL) and `left_out` (a sentence). `is_error`: a traceback."""

    text: str = ""
    image: str = ""
    left_out: str = ""
    is_error: bool = False


@dataclass(frozen=True)
class Cell:
    """`kind`: markdown, code or raw; `ran`: the execution count of code, None if it was not run or has none."""

    kind: str
    source: str
    ran: int | None = None
    outputs: list[Output] = field(default_factory=list)


@dataclass(frozen=True)
class Notebook:
    """`left_out`: cells behind the last that is shown; `language`: of its code."""

    cells: list[Cell]
    language: str
    left_out: int = 0


@dataclass
class _Budget:
    """What a page may still take."""

    characters: int = MOST_CHARACTERS

    @property
    def is_spent(self) -> bool:
        return self.characters <= 0

    def take(self, text: str) -> str:
        """As much of the text as the page still takes."""
        shown = text[: max(0, self.characters)]
        self.characters -= len(text) + _EACH
        return shown


def read(content: bytes) -> Notebook:
    """The cells of a notebook's file. Raises Refusal."""
    if len(content) > MOST_BYTES:
        raise Refusal(f"This notebook has {len(content):,} bytes; up to {MOST_BYTES:,} are shown as cells.")
    whole = _loaded(content)
    found = whole.get("cells")
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise Refusal("This file has no list of cells, which notebooks of format 4 have.")
    left, cells = _Budget(), []
    for each in found:
        if left.is_spent:
            break
        cells.append(_cell(each, left))
    return Notebook(cells, _language(whole.get("metadata")), len(found) - len(cells))


def _loaded(content: bytes) -> dict[str, Any]:
    try:
        whole = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise Refusal(f"This notebook cannot be read as JSON: {error}.") from error
    if not isinstance(whole, dict):
        raise Refusal("This file is JSON but not a notebook: a notebook is a map.")
    told = whole.get("nbformat")
    if told != 4:
        form = f"of format {told}" if isinstance(told, int) else "of an unknown format (it has no nbformat)"
        raise Refusal(f"This notebook is {form}; only those of format 4 are shown as cells.")
    return whole


def _language(metadata: Any) -> str:
    for section, name in (("language_info", "name"), ("kernelspec", "language")):
        told = metadata.get(section) if isinstance(metadata, dict) else None
        if isinstance(told, dict) and isinstance(told.get(name), str):
            return _sound(told[name])
    return "python"


def _cell(cell: dict[str, Any], left: _Budget) -> Cell:
    text = _text(cell.get("source"))
    source = left.take(text)
    if source != text:
        told = "The rest of this cell is left out because the page would be too long."
        return Cell("raw", source, outputs=[Output(left_out=told)])
    if cell.get("cell_type") == "markdown" and len(source) <= MOST_OF_MARKDOWN:
        left.characters -= (_MARKDOWN - 1) * len(source)
        return Cell("markdown", source)
    if cell.get("cell_type") != "code":
        return Cell("raw", source)
    ran = cell.get("execution_count")
    outputs = list(_outputs(cell.get("outputs"), left))
    return Cell("code", source, ran if isinstance(ran, int) else None, outputs)


def _outputs(found: Any, left: _Budget) -> Iterator[Output]:
    outputs = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    for place, each in enumerate(outputs):
        if left.is_spent:
            count = len(outputs) - place
            yield Output(
                left_out=f"{count:,} output{'s are' if count > 1 else ' is'} left out because the page would "
                "be too long."
            )
            return
        yield from _of_output(each, left)


def _of_output(output: dict[str, Any], left: _Budget) -> Iterator[Output]:
    kind, data = output.get("output_type"), output.get("data")
    if kind == "stream":
        yield from _of_text(_overwritten(_text(output.get("text"))), left)
    elif kind == "error":
        told = f"{_text(output.get('ename'))}: {_text(output.get('evalue'))}"
        trace = output.get("traceback")
        lines = [each for each in trace if isinstance(each, str)] if isinstance(trace, list) else []
        yield from _of_text(_sound("\n".join(lines)) or told, left, is_error=True)
    elif isinstance(data, dict):
        yield from _of_data(data, left)


def _of_data(data: dict[str, Any], left: _Budget) -> Iterator[Output]:
    """Yield one output of several forms: an image before text; for any other kind, only that it is there."""
    image = next((kind for kind in _IMAGES if kind in data), None)
    if image is not None:
        yield _image(image, data[image], left)
    elif "text/plain" in data:
        yield from _of_text(_text(data["text/plain"]), left)
    elif data:
        left.take("")
        kinds = ", ".join(_sound(str(kind))[:60] for kind in list(data)[:3])
        yield Output(left_out=f"An output is left out because its type ({kinds}) is not shown here.")


def _image(kind: str, data: Any, left: _Budget) -> Output:
    left.take("")
    try:
        content = base64.b64decode("".join(_text(data).split()), validate=True)
    except (binascii.Error, ValueError):
        content = b""
    if not content.startswith(_IMAGES[kind]):
        return Output(left_out=f"An image is left out because it is not valid {kind}.")
    return Output(image=f"data:{kind};base64,{base64.b64encode(content).decode()}")


def _of_text(text: str, left: _Budget, *, is_error: bool = False) -> Iterator[Output]:
    if text := plain(text).rstrip("\n"):
        shown = left.take(text)
        cut = "" if shown == text else "\n… the rest is left out because the page would be too long."
        yield Output(text=shown + cut, is_error=is_error)


def _overwritten(text: str) -> str:
    """Return what was last on each line that was overwritten, as progress bars are."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in lines)


def _text(value: Any) -> str:
    """A text, which notebooks also write as a list of lines."""
    if isinstance(value, list):
        value = "".join(each for each in value if isinstance(each, str))
    return _sound(value) if isinstance(value, str) else ""


def _sound(text: str) -> str:
    """Without halves of characters, which JSON can write and no page."""
    return text.encode("utf-8", "replace").decode()

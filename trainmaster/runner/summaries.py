"""Images, histograms and texts in TensorBoard's event files, as records of the SDK. Pure; the standard library alone.

A file is a row of records (length, its checksum, an Event message of protobuf, its checksum). What torch's
SummaryWriter and TensorFlow 2 write is understood, anything else is passed over. UNREADABLE is raised for what is no
message.
"""

from __future__ import annotations

import base64
import math
import struct
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from trainmaster import image_headers, media

#: of a record, before its message and behind it
HEAD_BYTES, TAIL_BYTES = 12, 4
#: a longer message is passed over: the largest image, and what stands around it
MESSAGE_BYTES = media.IMAGE_BYTES + 65_536
#: what reading of a message can raise, which a job may have written
UNREADABLE = (ValueError, TypeError, AttributeError, OverflowError, struct.error)
_BUCKETS = 20_000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE, _FLOAT = 2, 1  # of TensorFlow's types


def length_of(head: bytes) -> int:
    """The length of the message behind this head of a record."""
    return int(struct.unpack_from("<Q", head)[0])


def of_event(message: bytes) -> List[Dict[str, Any]]:
    """What one Event shows: `kind`, `name`, `step`, `t` and the content, as the SDK's records have them."""
    step, at, found = 0, 0.0, []
    for number, value in _fields(message):
        if number == 1 and len(value) == 8:
            at = struct.unpack("<d", value)[0]
            at = at if math.isfinite(at) else 0.0
        elif number == 2 and isinstance(value, int):
            step = value if value < 1 << 63 else 0
        elif number == 5:
            found += [each for _, part in _fields(value) for each in _of_value(part)]
    return [{"step": step, "t": at, **each} for each in found]


def _of_value(data: Any) -> Iterator[Dict[str, Any]]:
    """What a Summary.Value shows: nothing if it is a scalar, as nearly all are."""
    tag, plugin, tensor, image, histogram = "", "", None, None, None
    for number, value in _fields(data):
        if number == 1:
            tag = _text(value)
        elif number == 4:
            image = dict(_fields(value)).get(4)
        elif number == 5:
            histogram = value
        elif number == 8:
            tensor = value
        elif number == 9:
            plugin = _text(dict(_fields(dict(_fields(value)).get(1, b""))).get(1, b""))
    name = {"name": tag[: media.NAME_CHARACTERS] or "untitled"}
    if image is not None:
        yield from _image(name, image, 0)
    elif histogram is not None:
        yield from _histogram(name, _of_histogram(histogram))
    elif tensor is not None and plugin == "images":
        for place, data in enumerate(
            _strings(tensor)[2 : 2 + media.IMAGES_PER_NAME]
        ):  # behind width and height
            yield from _image(name, data, place)
    elif tensor is not None and plugin == "text":
        text = "\n".join(map(_text, _strings(tensor)[:1000]))
        short = tag[: -len("/text_summary")] if tag.endswith("/text_summary") else tag
        name["name"] = short[: media.NAME_CHARACTERS] or "untitled"
        yield {"kind": "text", **name, "text": text[: media.TEXT_CHARACTERS]}
    elif tensor is not None and plugin == "histograms":
        yield from _histogram(name, _of_tensor(tensor))


def _image(name: Dict[str, str], data: Any, place: int) -> Iterator[Dict[str, Any]]:
    content = _bytes(data)
    if len(content) <= media.IMAGE_BYTES and image_headers.read(content):
        encoded = base64.b64encode(content).decode("ascii")
        yield {"kind": "image", **name, "place": place, "image": encoded}


def _of_histogram(data: Any) -> List[Tuple[float, float, float]]:
    """(begin, end, count) of the buckets of a HistogramProto, whose outer limits may be the largest floats."""
    low = high = 0.0
    limits: List[float] = []
    counts: List[float] = []
    for number, value in _fields(data):
        if number in (1, 2) and len(value) == 8:
            bound = struct.unpack("<d", value)[0]
            low, high = (bound, high) if number == 1 else (low, bound)
        elif number in (6, 7):
            (limits if number == 6 else counts).extend(_doubles(value))
    begins = [-math.inf, *limits[:-1]]
    return [
        (min(max(begin, low), high), max(min(end, high), low), count)
        for begin, end, count in zip(begins, limits, counts)  # noqa: B905 (Python 3.8)
    ]


def _of_tensor(data: Any) -> List[Tuple[float, float, float]]:
    """Of a tensor with rows of begin, end and count."""
    kind, numbers = 0, []
    for number, value in _fields(data):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 4:
            numbers = list(_doubles(value) if kind == _DOUBLE else _floats(value) if kind == _FLOAT else [])
        elif number == 6:
            numbers.extend(_doubles(value))
    rows = iter(numbers[: 3 * _BUCKETS])
    return list(zip(rows, rows, rows))  # noqa: B905 (Python 3.8)


def _histogram(
    name: Dict[str, str], buckets: Sequence[Tuple[float, float, float]]
) -> Iterator[Dict[str, Any]]:
    """Spread over equal bins, as those of the SDK are: buckets of TensorBoard differ in width by many powers of ten."""
    sound = [
        each
        for each in buckets[:_BUCKETS]
        if all(map(math.isfinite, each)) and each[1] >= each[0] and each[2] > 0
    ]
    if not sound:
        return
    low, high = min(begin for begin, _, _ in sound), max(end for _, end, _ in sound)
    if not math.isfinite(high - low):
        return
    if low == high:
        low, high = low - 0.5, high + 0.5
    width = (high - low) / media.BINS
    if width <= 0 or low + width == low:
        return
    counts = [0.0] * media.BINS
    for begin, end, count in sound:
        first, last = (max(0, min(media.BINS - 1, int((edge - low) / width))) for edge in (begin, end))
        for at in range(first, last + 1):
            inside = min(end, low + (at + 1) * width) - max(begin, low + at * width)
            share = 1.0 if first == last else max(0.0, inside) / (end - begin)
            counts[at] += count * share
    edges = [low + at * width for at in range(media.BINS)] + [high]
    yield {"kind": "histogram", **name, "counts": [round(each, 3) for each in counts], "edges": edges}


def _bytes(value: Any) -> bytes:
    """ValueError for a number in its place: `bytes` would make as many zeros, of which a job may ask for too many."""
    if isinstance(value, int):
        raise ValueError("it has a number where text or an image belongs")
    return bytes(value)


def _text(value: Any) -> str:
    return _bytes(value).decode("utf-8", "replace")


def _strings(tensor: Any) -> List[Any]:
    return [value for number, value in _fields(tensor) if number == 8 and not isinstance(value, int)]


def _doubles(data: Any) -> Sequence[float]:
    count = min(_BUCKETS * 3, len(data) // 8)
    return struct.unpack_from(f"<{count}d", data)


def _floats(data: Any) -> Sequence[float]:
    count = min(_BUCKETS * 3, len(data) // 4)
    return struct.unpack_from(f"<{count}f", data)


def _fields(data: Any) -> Iterator[Tuple[int, Any]]:
    """(number, value) of a message: whole numbers as int, all else as bytes. ValueError where it breaks off."""
    view, at = memoryview(data), 0
    while at < len(view):
        key, at = _varint(view, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(view, at)
            yield number, value
            continue
        size: Optional[int] = {_FIXED64: 8, _FIXED32: 4}.get(wire)
        if wire == _BYTES:
            size, at = _varint(view, at)
        if size is None or at + size > len(view):
            raise ValueError("it is not a message of protobuf")
        yield number, view[at : at + size]
        at += size


def _varint(view: memoryview, at: int) -> Tuple[int, int]:
    value = shift = 0
    while at < len(view) and shift < 64:
        byte = view[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("it is not a message of protobuf")

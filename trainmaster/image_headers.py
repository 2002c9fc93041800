"""What the first bytes of an image file say: its type and its size. Pure, for files of any origin."""

from __future__ import annotations

import struct
from typing import NamedTuple, Optional

#: a JPEG states its size behind some segments; a file with more of them is no picture of anybody
_JPEG_SEGMENTS = 1000
#: SOF0 to SOF15 without DHT, JPG and DAC: the segments that hold the size
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_BARE = frozenset([0x01, *range(0xD0, 0xD8)])  # markers without a length


class ImageHeader(NamedTuple):
    """`type` is png, jpeg, gif or webp."""

    type: str
    width: int
    height: int


def read(data: bytes) -> Optional[ImageHeader]:
    """None for what is no PNG, JPEG, GIF or WebP, or states no size."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
            found: Optional[ImageHeader] = ImageHeader("png", *struct.unpack_from(">II", data, 16))
        elif data[:6] in (b"GIF87a", b"GIF89a"):
            found = ImageHeader("gif", *struct.unpack_from("<HH", data, 6))
        elif data.startswith(b"\xff\xd8\xff"):
            found = _jpeg(data)
        elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            found = _webp(data)
        else:
            return None
    except (struct.error, IndexError):
        return None
    return found if found and found.width and found.height else None


def _jpeg(data: bytes) -> Optional[ImageHeader]:
    at = 2
    for _ in range(_JPEG_SEGMENTS):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
        elif marker in _JPEG_BARE:
            at += 2
        elif marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return ImageHeader("jpeg", width, height)
        else:
            at += 2 + int(struct.unpack_from(">H", data, at + 2)[0])
    return None


def _webp(data: bytes) -> Optional[ImageHeader]:
    chunk = data[12:16]
    if chunk == b"VP8X":
        width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
    elif chunk == b"VP8L":
        bits = struct.unpack_from("<I", data, 21)[0]
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif chunk == b"VP8 ":
        width, height = (size & 0x3FFF for size in struct.unpack_from("<HH", data, 26))
    else:
        return None
    return ImageHeader("webp", width, height)

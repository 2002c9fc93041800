"""Whatever training code holds as an image, as the bytes of a file. Arrays become PNG by the standard library alone."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path
from typing import Any, List

from trainmaster import image_headers, media, quantities

#: channels -> the color type of a PNG
_COLOR_TYPES = {1: 0, 3: 2, 4: 6}
_LEVEL = 4  # of zlib: within a few percent of the usual 6, in half the time


class NotAnImage(ValueError):
    """The text is the end of a sentence that begins with the image."""


def each_of(value: Any) -> List[Any]:
    """The images of one name: those of a list, or of an array with four dimensions; else the one that it is."""
    is_batch = isinstance(value, (list, tuple)) or len(getattr(value, "shape", ())) == 4
    return list(value) if is_batch else [value]


def encoded(image: Any) -> bytes:
    """The file. Raises NotAnImage for what is none, or too large."""
    try:
        data = _file(image)
    except NotAnImage:
        raise
    except Exception as error:  # of whatever library the image comes from
        raise NotAnImage(f"cannot be read ({type(error).__name__}: {error})") from error
    header = image_headers.read(data)
    if header is None:
        raise NotAnImage("is not a PNG, JPEG, GIF or WebP file")
    if len(data) > media.IMAGE_BYTES:
        raise NotAnImage(
            f"has {quantities.size(len(data))}, allowed: at most {quantities.size(media.IMAGE_BYTES)}; "
            "report it smaller"
        )
    if header.width * header.height > media.IMAGE_PIXELS:
        raise NotAnImage(
            f"has {header.width} by {header.height} pixels, allowed: at most {media.IMAGE_PIXELS:,} in all"
        )
    return data


def _file(image: Any) -> bytes:
    if isinstance(image, (bytes, bytearray)):
        return bytes(image)
    if isinstance(image, (str, os.PathLike)):
        with Path(image).open("rb") as file:
            return file.read(media.IMAGE_BYTES + 1)
    if hasattr(image, "savefig"):  # a figure of matplotlib
        written = io.BytesIO()
        image.savefig(written, format="png")
        return written.getvalue()
    if hasattr(image, "getbands") and hasattr(image, "save"):  # PIL's
        written = io.BytesIO()
        image.save(written, format="PNG")
        return written.getvalue()
    return _png(image)


def array_of(value: Any) -> Any:
    """The value as an array of numpy, which whoever holds arrays or tensors has."""
    import numpy

    if hasattr(value, "detach"):  # a tensor, maybe on a GPU, maybe of a type that numpy lacks
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()
        value = value.numpy()
    return numpy.asarray(value)


def _png(image: Any) -> bytes:
    """Of an array HW, HWC or CHW (height, width, channels); a tensor that could be either is CHW, others HWC."""
    import numpy

    pixels = array_of(image)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.ndim != 3 or 0 in pixels.shape:
        raise NotAnImage(
            f"has the shape {pixels.shape}; it must be height by width, with or without channels"
        )
    last, first = pixels.shape[2] in _COLOR_TYPES, pixels.shape[0] in _COLOR_TYPES
    if first and (not last or hasattr(image, "detach")):
        pixels = pixels.transpose(1, 2, 0)
    elif not last:
        raise NotAnImage(f"has the shape {pixels.shape}; its channels, first or last, must be 1, 3 or 4")
    if pixels.dtype.kind == "f":
        pixels = (numpy.nan_to_num(pixels, nan=0.0).clip(0.0, 1.0) * 255.0).round()
    elif pixels.dtype.kind == "b":
        pixels = pixels * numpy.uint8(255)
    elif pixels.dtype.kind not in "iu":
        raise NotAnImage(f"has values of type {pixels.dtype}; it must be uint8, or floats from 0 to 1")
    height, width, channels = pixels.shape
    if height * width > media.IMAGE_PIXELS:
        raise NotAnImage(f"has {width} by {height} pixels, allowed: at most {media.IMAGE_PIXELS:,} in all")
    rows = pixels.clip(0, 255).astype(numpy.uint8).reshape(height, width * channels)
    plain = numpy.zeros((height, 1), numpy.uint8)  # each line begins with its filter: none
    head = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    data = zlib.compress(numpy.concatenate([plain, rows], axis=1).tobytes(), _LEVEL)
    parts = [_chunk(b"IHDR", head), _chunk(b"IDAT", data), _chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

"""Stored metrics as TensorBoard's event files, made when they are asked for: of old trials as of running ones.

A file is a row of records (length, its checksum, an Event message, its checksum; checksums are masked CRC-32C), as
TensorFlow's TFRecord format has it. TensorBoard keeps values as 32-bit floats. Records of one metric that have the
same length are put together as columns of bytes, so that a point costs a microsecond.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from metrics import series
from metrics.packing import Integers
from metrics.series import Series

Bytes = npt.NDArray[np.uint8]

POINTS_PER_BLOCK = 20_000
_ALL = 10**12
_VERSION = b"brain.Event:2"
_CASTAGNOLI = 0x82F63B78
_MASK = 0xA282EAD8


def event_file(trial_id: int, group: str, begin: float, after: int | None = None) -> Iterator[bytes]:
    """The event file of one group, in blocks: a scalar for each metric that holds numbers, over steps completed.

    `begin`, in epoch seconds, is when the file says that it begins. With `after` only what follows this step, to be
    appended to what was made before.
    """
    if after is None:
        head = b"\x09" + struct.pack("<d", begin) + b"\x1a" + _sized(_VERSION)
        yield _records(np.frombuffer(head, np.uint8)[None, :])
    first = None if after is None else after + 1
    for name in series.names(trial_id).get(group, []):
        for each in series.read(trial_id, group, [name], first_step=first, points=_ALL):
            yield from _scalars(each)


def _scalars(each: Series) -> Iterator[bytes]:
    steps = each.steps.astype(np.int64)
    # steps ascend, so those whose number takes as many bytes stand together
    ends = np.searchsorted(steps, [1 << 7 * size for size in range(1, 9)]).tolist()
    begin = 0
    for size, end in enumerate([*ends, len(steps)], start=1):
        for first in range(begin, end, POINTS_PER_BLOCK):
            rows = slice(first, min(first + POINTS_PER_BLOCK, end))
            yield _records(_events(each, steps[rows], rows, size))
        begin = end


def _events(each: Series, steps: Integers, rows: slice, step_bytes: int) -> Bytes:
    """A row of bytes for each point: Event {1: wall time, 2: step, 5: Summary {1: Value {1: tag, 2: float}}}."""
    tag = each.name.encode()
    value_size = len(b"\x0a" + _sized(tag)) + 5
    value = b"\x0a" + _varint(value_size) + b"\x0a" + _sized(tag) + b"\x15"
    with np.errstate(over="ignore"):  # beyond 3.4e38 a 32-bit float is infinite
        floats = each.values[rows].astype("<f4")
    columns = [
        _constant(b"\x09", len(steps)),
        _bytes_of(each.times[rows].astype("<f8")),
        _constant(b"\x10", len(steps)),
        _varints(steps, step_bytes),
        _constant(b"\x2a" + _varint(len(value) + 4) + value, len(steps)),
        _bytes_of(floats),
    ]
    return np.concatenate(columns, axis=1)


def _records(data: Bytes) -> bytes:
    """The rows as records of a file."""
    count, size = data.shape
    length = _bytes_of(np.full(count, size, "<u8"))
    parts = [length, _bytes_of(_masked(length[:1]).repeat(count)), data, _bytes_of(_masked(data))]
    return np.concatenate(parts, axis=1).tobytes()


def _table() -> npt.NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_CASTAGNOLI), table >> 1).astype(np.uint32)
    return table


_TABLE = _table()


def _masked(rows: Bytes) -> npt.NDArray[np.uint32]:
    """The masked CRC-32C of each row."""
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in np.ascontiguousarray(rows.T):
        crc = _TABLE[(crc ^ column) & 0xFF] ^ (crc >> 8)
    crc = ~crc
    rotated = (crc >> 15) | (crc << 17)
    return (rotated + np.uint32(_MASK)).astype(np.uint32)  # modulo 2^32, as numpy's integers are


def _bytes_of(numbers: npt.NDArray[np.generic]) -> Bytes:
    """A row of the little-endian bytes of each number."""
    little = numbers.astype(numbers.dtype.newbyteorder("<"))
    return little.view(np.uint8).reshape(len(numbers), little.itemsize)


def _constant(data: bytes, count: int) -> Bytes:
    return np.broadcast_to(np.frombuffer(data, np.uint8), (count, len(data)))


def _varints(numbers: Integers, size: int) -> Bytes:
    """Numbers that take `size` bytes each in protobuf's form: 7 bits a byte, the lowest first."""
    shifts = 7 * np.arange(size)
    more = np.where(np.arange(size) < size - 1, 0x80, 0)
    return ((numbers[:, None] >> shifts & 0x7F) | more).astype(np.uint8)


def _varint(number: int) -> bytes:
    return _varints(np.array([number]), max(1, -(-number.bit_length() // 7))).tobytes()


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data

"""Stored metrics as TensorBoard's event files, read back by hand; `-m compat` reads them with TensorBoard itself."""

import math
import struct
from collections.abc import Iterator

import pytest

from metrics import ingest, series, tensorboard
from shown.tensorboard_archive import folders
from tests.rig.world import make_host, submit_experiment, trial_of

pytestmark = pytest.mark.django_db
AT = 1_790_000_000.25


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(file: bytes) -> Iterator[bytes]:
    """The records, with their checksums checked."""
    while file:
        (size, of_size) = struct.unpack("<QI", file[:12])
        data = file[12 : 12 + size]
        (of_data,) = struct.unpack("<I", file[12 + size : 16 + size])
        assert masked(file[:8]) == of_size and masked(data) == of_data
        yield data
        file = file[16 + size :]


def varint(data: bytes) -> tuple[int, bytes]:
    number = 0
    for place, byte in enumerate(data):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, data[place + 1 :]
    raise AssertionError("the number has no end")


def fields(data: bytes) -> dict[int, object]:
    found: dict[int, object] = {}
    while data:
        key, data = varint(data)
        size = {1: 8, 5: 4}.get(key & 7, 0)
        if key & 7 == 0:
            found[key >> 3], data = varint(data)
            continue
        if key & 7 == 2:
            size, data = varint(data)
        found[key >> 3], data = data[:size], data[size:]
    return found


def scalar(record: bytes) -> tuple[str, int, float, float]:
    """tag, step, wall time, value"""
    event = fields(record)
    value = fields(fields(event[5])[1])  # type: ignore[arg-type]
    (at,) = struct.unpack("<d", event[1])  # type: ignore[arg-type]
    (number,) = struct.unpack("<f", value[2])  # type: ignore[arg-type]
    return value[1].decode(), event[2], at, number  # type: ignore[attr-defined, return-value]


def test_checksums_are_those_of_the_standard() -> None:
    assert crc32c(b"123456789") == 0xE3069283, "RFC 3720, B.4 uses the same polynomial"


def test_each_group_has_a_folder_of_its_own_whatever_it_is_called() -> None:
    found = folders(["val/x", "val_x", "VAL_X", "..", "training", "\u5b57" * 128])
    assert [found["val/x"], found["val_x"], found["VAL_X"]] == ["val_x", "val_x~2", "VAL_X~3"]
    assert found[".."] == "_" and found["training"] == "training"
    assert max(len(name.encode()) for name in found.values()) < 255


def test_an_event_file_has_every_point_of_its_group_in_order() -> None:
    make_host("gpu1", slots=2)
    trial = trial_of(submit_experiment(name="digits"))
    steps = [1, 127, 128, 300, 16_383, 16_384, 2_097_152, 2**40]
    long = "accuracy/" + "é" * 100  # its length takes two bytes
    rows = [
        ingest.Report(1, "training", step, AT + n, {"loss": 1 / step, "text": "no"})
        for n, step in enumerate(steps)
    ]
    rows += [ingest.Report(1, "validation", 5, AT, {"loss": math.nan, long: 1e300, "inf": -math.inf})]
    ingest.store(trial.pk, rows)
    assert series.groups(trial.pk) == ["training", "validation"]
    first, *rest = records(b"".join(tensorboard.event_file(trial.pk, "training", AT)))
    assert fields(first) == {1: struct.pack("<d", AT), 3: b"brain.Event:2"}
    found = [scalar(each) for each in rest]
    assert [each[:3] for each in found] == [("loss", step, AT + n) for n, step in enumerate(steps)]
    assert [each[3] for each in found] == pytest.approx([1 / step for step in steps])
    _, *rest = records(b"".join(tensorboard.event_file(trial.pk, "validation", AT)))
    values = {tag: value for tag, _, _, value in map(scalar, rest)}
    assert values[long] == math.inf and values["inf"] == -math.inf and math.isnan(values["loss"])

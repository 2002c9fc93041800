"""Images, histograms and texts in TensorBoard's files become records of the outbox, each once."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster import image_headers, media
from trainmaster.paths import RunPaths
from trainmaster.protocol import DEFAULT_LIMITS
from trainmaster.runner import event_media, summaries
from trainmaster.runner.collecting import Collector
from trainmaster.runner.event_media import EventMedia
from trainmaster.runner.outbox import Outbox

#: what torch's SummaryWriter has written at step 3: a scalar, an image of 2 by 1 pixels, a histogram of 1, 1.5, 2 and
#: 2, and the text "a <b>"
WRITTEN = zlib.decompress(base64.b85decode(
    "c-r$|fPjCKJmzxFI+?LA<<KohDc+=_#LPTB*Rs^S5-X!1JuaP+)V$*SqNM!9q7=R2(%js{qDsB;qRf)iBE3|Qs`#|boYZ)T$gD|+"
    "s-&Ri3eCQu%lV@;6Kt*kvlcHGHy2AzesQrVP|{vt=4P%8m<#4qUE!P^kPlNC%@xVTnv$8GS)vrc!6?8a!K~!b8Q|y6%O%AHRL<+^"
    ";SvO-nShv)14LFkytoUb_&r@5Ln`JZCnO~N`2XLYfsK*rAJZnwbs#%DUHx3vIVCg&+~!n&2etS3^56ZOwt59Hdmk`z-DTurFHg-("
    "&nPL@y2!{0QTM@K5URsL5<&|&C_)%g4w_)PLCwJ^fMaH+q-fMzdu@?lXZNXmuut|pCdzu~qy4UcUc>nvpY4t9U&ySl`D)+ldS?EC"
    "Mc?f!eSST<{QswYaJ!pu=FC6#ccz@x>n;6n|3L5~Pl+$1gH-?n3ix2pKor2K&LJkL#@rUlN$~vmhLgtt?t23+Jubn#{E}4tlGKWl"
    "cxY5R@pG^Xu?R77Fgmd&D%d31d2w*Daj}4uaGu%u0{|<4p0o"
))  # fmt: skip
NAME = "tensorboard/run/events.out.tfevents.1.gpu1"


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    run = RunPaths(tmp_path / "x.1.0")
    for folder in (run.spool, (run.root / NAME).parent):
        folder.mkdir(parents=True)
    return run


def looked(paths: RunPaths, outbox: Outbox, unshipped: int = 0) -> None:
    spec: Any = {"trial": {"run_id": 4}, "limits": DEFAULT_LIMITS}
    looking = EventMedia(paths, spec, outbox, lambda: unshipped)
    while looking.look():
        pass


def said(paths: RunPaths) -> list[dict[str, Any]]:
    return [json.loads(line)["d"] for line in paths.outbox.read_bytes().splitlines()]


def test_a_file_that_grows_is_covered_once_by_whichever_runner(paths: RunPaths) -> None:
    file, outbox = paths.root / NAME, Outbox(paths)
    for end in range(0, len(WRITTEN) + 1, 50):  # torn anywhere
        file.write_bytes(WRITTEN[:end])
        looked(paths, outbox)
    file.write_bytes(WRITTEN)
    looked(paths, Outbox(paths))
    looked(paths, Outbox(paths))
    image, histogram, text = said(paths)
    assert all((each["type"], each["step"], each["run_id"]) == ("media", 3, 4) for each in said(paths))
    assert (image["kind"], image["name"], image["place"]) == ("image", "digit", 0)
    assert image_headers.read(base64.b64decode(image["image"])) == ("png", 2, 1)
    assert (text["kind"], text["name"], text["text"]) == ("text", "note", "a <b>")
    assert (histogram["kind"], histogram["name"]) == ("histogram", "weights")
    assert len(histogram["counts"]) == media.BINS and round(sum(histogram["counts"])) == 4
    assert (histogram["edges"][0], histogram["edges"][-1]) == (pytest.approx(0.9, abs=0.11), 2.0)


def test_files_wait_while_the_spool_is_full_and_others_are_passed_over(paths: RunPaths) -> None:
    (paths.root / NAME).write_bytes(WRITTEN)
    outside = paths.root / "outside.tfevents"
    outside.write_bytes(WRITTEN)
    (paths.root / NAME).with_name("linked.tfevents").symlink_to(outside)
    (paths.root / NAME).with_name("notes.txt").write_bytes(WRITTEN)
    (paths.root / NAME).with_name("garbage.tfevents").write_bytes(os.urandom(5000))
    huge = (1 << 63).to_bytes(8, "little") + bytes(5000)
    (paths.root / NAME).with_name("huge.tfevents").write_bytes(huge)
    outbox = Outbox(paths)
    looked(paths, outbox, unshipped=DEFAULT_LIMITS["spool_bytes"])
    assert said(paths) == []
    looked(paths, outbox)
    assert len(said(paths)) == 3


def test_media_leave_half_of_the_spool_to_the_rest(paths: RunPaths) -> None:
    lines = ['{"type":"media","kind":"text"}', '{"type":"metrics"}']
    paths.core_records(0).write_text("".join(f"{line}\n" for line in lines))
    outbox, half = Outbox(paths), DEFAULT_LIMITS["spool_bytes"] // 2
    collecting = Collector(paths, outbox, DEFAULT_LIMITS, lambda: half + 1, lambda record: None)
    while collecting.poll():
        pass
    told = [json.loads(line) for line in paths.outbox.read_bytes().splitlines()]
    assert [record["k"] for record in told] == ["gap", "core"]
    assert (told[0]["bytes"], told[1]["d"]) == (len(lines[0]), {"type": "metrics"})


def test_a_number_in_place_of_text_is_unreadable_and_takes_no_memory() -> None:
    many = b"\x80\x80\x80\x80\x80\x02"  # 2^36 as a varint
    for number in (1, 4, 9):
        value = bytes([number << 3]) + many
        with pytest.raises(summaries.UNREADABLE):
            summaries.of_event(b"\x2a" + bytes([len(value) + 2, 0x0A, len(value)]) + value)
    image = b"\x22\x07\x20" + many
    plugin = b"\x4a\x09\x0a\x07\x08" + many
    for value in (image, plugin):
        with pytest.raises(summaries.UNREADABLE):
            summaries.of_event(b"\x2a" + bytes([len(value) + 2, 0x0A, len(value)]) + value)


def test_one_reading_of_a_file_is_bounded_whatever_its_lengths(paths: RunPaths) -> None:
    file = paths.root / NAME
    file.write_bytes(b"")
    os.truncate(file, 1 << 30)  # a row of empty records
    assert event_media._messages(file, 0) == ([], 1 << 20)
    skipped = (summaries.MESSAGE_BYTES + 1).to_bytes(8, "little") + bytes(4)
    file.write_bytes(skipped)
    os.truncate(file, 1 << 30)
    messages, end = event_media._messages(file, 0)
    assert messages == [] and end == len(skipped) + summaries.MESSAGE_BYTES + 1 + summaries.TAIL_BYTES


def test_a_message_is_covered_when_its_last_record_is(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [{"kind": "text", "name": "a", "text": str(at)} for at in range(3)]
    monkeypatch.setattr(summaries, "of_event", lambda message: list(records))
    message = (4).to_bytes(8, "little") + bytes(4) + b"abcd" + bytes(4)
    (paths.root / NAME).write_bytes(message)

    class Ends(Outbox):
        """The runner ends after its first record."""

        def append(self, records: bytes) -> None:
            if self.size:
                raise SystemExit
            super().append(records)

    with pytest.raises(SystemExit):
        looked(paths, Ends(paths))
    looked(paths, Outbox(paths))
    looked(paths, Outbox(paths))
    assert [each["text"] for each in said(paths)] == ["0", "0", "1", "2"]


@given(st.binary(max_size=200) | st.tuples(st.integers(0, len(WRITTEN)), st.binary(min_size=1, max_size=9)))
def test_no_bytes_break_the_reader(odd: Any) -> None:
    at, found = 0, []
    while at < len(WRITTEN):
        end = at + summaries.HEAD_BYTES + summaries.length_of(WRITTEN[at:])
        found.append(WRITTEN[at + summaries.HEAD_BYTES : end])
        at = end + summaries.TAIL_BYTES
    for message in found if isinstance(odd, tuple) else [odd]:
        if isinstance(odd, tuple):
            message = message[: odd[0]] + odd[1] + message[odd[0] + len(odd[1]) :]
        with contextlib.suppress(summaries.UNREADABLE):
            json.dumps(summaries.of_event(message), allow_nan=False)

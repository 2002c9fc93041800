"""What the log says of uploads."""

from tests.trainmaster.conftest import TestHost
from tests.trainmaster.stream_server import StreamServer
from trainmaster.http import Later, Unreachable
from trainmaster.runner import uploads
from trainmaster.runner.uploads import Progress, amount, part_of
from trainmaster.signed import StorageUnreachable

UUID = "6e4f4d1e-0c58-4a2d-9f0b-3d4a7b1f2c3d"


def test_an_upload_that_takes_long_says_how_far_it_is_every_ten_seconds() -> None:
    said: list[str] = []
    clock = [100.0]
    progress = Progress(UUID, 4_000_000_000, said.append, lambda: clock[0])
    for _ in range(20):
        clock[0] += 1.0
        progress.moved(100_000_000)
    assert said == [
        "checkpoint 6e4f4d1e: 0.5 of 4.0 GB, 100 MB/s",
        "checkpoint 6e4f4d1e: 1.5 of 4.0 GB, 100 MB/s",
    ]
    progress.done()
    assert said[-1] == "checkpoint 6e4f4d1e: uploaded, 4.0 GB in 20 s, 200 MB/s"
    brief = Progress(UUID, 10, said.append, lambda: clock[0])
    brief.moved(10)
    brief.done()
    assert len(said) == 3


def test_amounts_are_in_the_unit_of_the_whole() -> None:
    assert part_of(120e6, 4e9) == "0.1 of 4.0 GB"
    assert part_of(5, 900) == "5 of 900 bytes"
    assert [amount(each) for each in (0, 85e6, 1.25e9, 123_456_789)] == [
        "0 bytes",
        "85 MB",
        "1.2 GB",
        "123 MB",
    ]


def test_a_file_that_arrives_otherwise_is_sent_again_and_named_in_the_log(
    host: TestHost, stream_server: StreamServer
) -> None:
    stream_server.spoils = 5
    host.run_script(_stores({"w": 1000}))
    stream_server.wait_for(stream_server.exit)
    own = [line["m"] for line in stream_server.lines() if line["f"] is None]
    assert own == ["checkpoint 6e4f4d1e is not uploaded yet: The digest differs."]
    assert stream_server.completed == {UUID: {"w": 1000}} and stream_server.spoils == 0


def test_the_log_hears_of_storage_that_is_away_and_not_of_a_server_that_is() -> None:
    assert uploads._is_news(StorageUnreachable("http://s3 cannot be reached: refused."))
    assert uploads._is_news(
        Later(503, {"message": "The S3 bucket 'b' does not answer.", "of_storage": True}, "")
    )
    assert not uploads._is_news(Unreachable("http://server cannot be reached: refused."))
    assert not uploads._is_news(Later(503, {"message": "The database is away."}, ""))


def _stores(resources: dict[str, int]) -> str:
    """A training that stores the file `w`, and ends when that has been uploaded."""
    return f"""
import json, os, pathlib, time
run = pathlib.Path(os.environ["TRAINMASTER_RUN_DIR"])
folder = run / "checkpoints" / {UUID!r}
folder.mkdir(parents=True)
(folder / "w").write_bytes(b"w" * 1000)
record = {{"type": "checkpoint", "uuid": {UUID!r}, "resources": {resources}, "storage": {{"type": "server"}}}}
(run / "spool").mkdir(exist_ok=True)
(run / "spool" / "core.rank0.jsonl").write_text(json.dumps(record) + "\\n")
while folder.exists():
    time.sleep(0.02)
"""


def test_a_host_that_has_brought_its_part_of_a_checkpoint_waits_for_no_other(
    host: TestHost, stream_server: StreamServer
) -> None:
    host.run_script(_stores({"w": 1000, "of another host": 5}), members=2)
    stream_server.wait_for(stream_server.exit)
    assert list(stream_server.files) == [f"{UUID}/w"] and stream_server.completed == {}

"""What runs write: odd bytes, full spools and full disks, with real processes and a real server."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainmaster.conftest import TestHost, code_archive, wait_until
from tests.trainmaster.counting_ranks import finish
from tests.trainmaster.stream_server import StreamServer
from trainmaster.paths import RunPaths
from trainmaster.processes import of_run


@pytest.mark.survive(5, 29)
def test_bytes_that_are_not_utf8_and_progress_bars_survive(
    host: TestHost, stream_server: StreamServer
) -> None:
    script = r"""
import os, sys, time
write = lambda data: os.write(1, data)
write(b"odd \xff\xfe \x00 bytes\n")
for percent in range(0, 101):
    write(b"\r%d%%" % percent)
    time.sleep(0.005)
write(b"\n")
write(b"INFO: [rank=9] not first\n[rank=4] ERROR: broken\nx" + "ä".encode() * 50 + b"\nno newline")
"""
    paths = host.run_script(script, limits={"line_bytes": 64})
    finish(stream_server, paths)
    records = stream_server.lines()
    texts = [record["m"] for record in records]
    assert texts[0].encode("utf-8", "surrogateescape") == b"odd \xff\xfe \x00 bytes"
    states = [text for text in texts if text.endswith("%")]
    assert states[-1] == "100%" and len(states) < 50  # one a second, however slow the machine is
    assert [(r["r"], r["l"], r["m"]) for r in records if "not first" in r["m"]] == [
        (None, "INFO", "INFO: [rank=9] not first")
    ]
    assert [(r["r"], r["l"]) for r in records if "broken" in r["m"]] == [(4, "ERROR")]
    pieces = [r for r in records if "ä" in r["m"]]
    assert [r["c"] for r in pieces] == [True, False]
    assert "".join(r["m"] for r in pieces) == "x" + "ä" * 50
    assert texts[-1] == "no newline"


def test_a_full_spool_is_cut_counted_and_never_blocks_the_job(
    host: TestHost, stream_server: StreamServer
) -> None:
    stream_server.down()
    script = (
        "import json, os\nspool = os.environ['TRAINMASTER_RUN_DIR'] + '/spool'\n"
        "for i in range(200000): print('line', i)\n"
        "open(spool + '/core.rank0.jsonl', 'a').write(json.dumps({'type': 'status', 'text': 'kept'}) + '\\n')\n"
    )
    paths = host.run_script(script, limits={"spool_bytes": 200_000})
    wait_until(paths.exit.exists)
    wait_until(lambda: b'"k": "exit"' in paths.outbox.read_bytes()[-400:])
    assert paths.outbox.stat().st_size < 300_000
    stream_server.up()
    finish(stream_server, paths)
    records = stream_server.records()
    texts = [line["m"] for line in stream_server.lines()]
    dropped = sum(record["bytes"] for record in records if record["k"] == "gap")
    total = sum(len(f"line {i}") for i in range(200_000))
    # a backlog that was skipped unread is counted with its line ends
    assert 0 <= dropped + sum(map(len, texts)) - total <= 200_000 - len(texts) and dropped > 0
    assert texts[:3] == ["line 0", "line 1", "line 2"]
    assert [record["d"]["text"] for record in records if record["k"] == "core"] == ["kept"]


def test_what_is_shipped_is_given_back_to_the_disk(host: TestHost, stream_server: StreamServer) -> None:
    script = (
        "import time\ntext = 'x' * 1000\n"
        "for i in range(40000):\n    print(i, text)\n    if i % 4000 == 0: time.sleep(0.3)\ntime.sleep(2)\n"
    )
    paths = host.run_script(script)
    finish(stream_server, paths, 60)
    assert len(stream_server.texts("launcher.stdout")) == 40000
    status = host.status(paths)
    assert paths.outbox.stat().st_size > 40_000_000
    if freeing_works(paths):
        assert status["spool_bytes"] < 25_000_000


def test_what_is_collected_is_given_back_while_the_server_is_away(
    host: TestHost, stream_server: StreamServer
) -> None:
    stream_server.down()
    script = (
        "import os, time\ntext = b'x' * 1000 + b'\\n'\nfor i in range(40000): os.write(1, text)\n"
        "while not os.path.exists('go'): time.sleep(0.05)\n"
    )
    paths = host.run_script(script)
    stdout = paths.launcher_stream("stdout")
    if freeing_works(paths):
        wait_until(lambda: stdout.stat().st_size > 40_000_000 > 10_000_000 > stdout.stat().st_blocks * 512)
    (paths.code / "go").touch()
    stream_server.up()
    finish(stream_server, paths, 60)
    assert len(stream_server.texts("launcher.stdout")) == 40000


@pytest.fixture
def small_disk(host: TestHost) -> Iterator[Path]:
    """The runs of `host` on a disk of 1 MB."""
    runs = host.workdir.runs
    runs.mkdir(mode=0o711, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "small", str(runs)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk is not allowed here")
    yield runs
    host.end_everything()
    subprocess.run(["umount", "-l", str(runs)], check=True)


@pytest.mark.survive(9)
@pytest.mark.parametrize("account", [None, "nobody"])
def test_a_launch_on_a_full_disk_names_it_and_leaves_nothing(
    account: str | None, small_disk: Path, host: TestHost
) -> None:
    code = code_archive({"big": os.urandom(2_000_000).hex()})
    answer = host.launch_spec(host.spec(["true"], unix_user=account), code)
    assert answer["error"] == "disk"
    assert f"The disk is full at gpu1:{small_disk}." in answer["message"]
    assert not list(small_disk.iterdir())


@pytest.mark.survive(9)
def test_a_full_disk_is_named_in_the_log_and_the_run_goes_on(
    small_disk: Path, host: TestHost, stream_server: StreamServer
) -> None:
    script = (
        "import os, time\nos.write(1, b'before\\n')\n"
        "while not os.path.exists('../control/fill'): time.sleep(0.05)\n"
        "fill = os.open('fill', os.O_WRONLY | os.O_CREAT)\n"
        "while not os.path.exists('../control/go'):\n"
        "    try: os.write(fill, b'x' * 4096)\n"
        "    except OSError: time.sleep(0.05)\n"
        "os.truncate(fill, 0)\nos.write(1, b'after\\n')\n"
    )
    paths = host.run_script(script)
    stream_server.wait_for(lambda: stream_server.texts("launcher.stdout"))
    (paths.control / "fill").touch()
    stream_server.wait_for(lambda: [b for b in stream_server.heartbeats if "disk_full" in b])
    assert {b["disk_full"] for b in stream_server.heartbeats if "disk_full" in b} == {f"gpu1:{small_disk}"}
    free = paths.code / "fill"
    os.truncate(free, 0)
    (paths.control / "go").touch()
    assert finish(stream_server, paths)["code"] == 0
    assert stream_server.texts("launcher.stdout") == ["before", "after"]
    [line] = [line for line in stream_server.lines() if line["f"] is None]
    assert line["l"] == "ERROR" and f"the disk was full at gpu1:{small_disk} for" in line["m"]


@pytest.mark.survive(9)
def test_the_exit_code_outlasts_a_full_disk(
    small_disk: Path, host: TestHost, stream_server: StreamServer
) -> None:
    script = (
        "import os, sys, time\nos.write(1, b'before\\n')\n"
        "while not os.path.exists('../control/fill'): time.sleep(0.05)\n"
        "fill = os.open('fill', os.O_WRONLY | os.O_CREAT)\n"
        "try:\n    while True: os.write(fill, b'x' * 4096)\n"
        "except OSError: os._exit(3)\n"
    )
    paths = host.run_script(script)
    stream_server.wait_for(lambda: stream_server.texts("launcher.stdout"))
    (paths.control / "fill").touch()
    wait_until(lambda: of_run(paths.key) == [])
    stream_server.wait_for(lambda: [b for b in stream_server.heartbeats if "disk_full" in b])
    assert not paths.exit.exists()
    os.truncate(paths.code / "fill", 0)
    record = finish(stream_server, paths)
    assert record["code"] == 3
    [line] = [line for line in stream_server.lines() if line["f"] is None]
    assert f"the disk was full at gpu1:{small_disk} for" in line["m"]


def freeing_works(paths: RunPaths) -> bool:
    from trainmaster.runner.outbox import punch

    probe = paths.spool / "probe"
    probe.write_bytes(b"x" * 1_000_000)
    descriptor = os.open(probe, os.O_RDWR)
    punch(descriptor, 1_000_000)
    os.close(descriptor)
    return probe.stat().st_blocks * 512 < 100_000

"""The journal: what a runner finds when it starts anew, whatever the last one left."""

import json
import os
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainmaster.conftest import wait_until
from tests.trainmaster.stream_server import TOKEN, StreamServer, lines_of
from trainmaster.jsonfile import write_json
from trainmaster.paths import RunPaths
from trainmaster.protocol import DEFAULT_LIMITS, Limits
from trainmaster.runner import shipping
from trainmaster.runner.collecting import Collector
from trainmaster.runner.lines import shown
from trainmaster.runner.link import Link, Weather
from trainmaster.runner.orders import Orders
from trainmaster.runner.outbox import Outbox
from trainmaster.runner.records import core_record, earlier, filler, lines_record, parse_core, state_record
from trainmaster.runner.shipping import Shipper


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    run = RunPaths(tmp_path / "x.1.0")
    for folder in (run.spool, run.control, run.checkpoints):
        folder.mkdir(parents=True)
    return run


def collector(paths: RunPaths, outbox: Outbox, shipped: int = 0, **limits: Any) -> Collector:
    all_limits: Limits = {**DEFAULT_LIMITS, **limits}  # type: ignore[typeddict-item]
    return Collector(paths, outbox, all_limits, lambda: outbox.size - shipped, lambda record: None)


def drain(paths: RunPaths, outbox: Outbox, **limits: Any) -> None:
    collecting = collector(paths, outbox, **limits)
    while collecting.poll():
        pass


def records(paths: RunPaths) -> list[dict[str, Any]]:
    return [json.loads(line) for line in paths.outbox.read_bytes().splitlines()]


def lines(paths: RunPaths) -> list[dict[str, Any]]:
    return lines_of([record for record in records(paths) if record["k"] == "lines"])


def bytes_of(lines: list[dict[str, Any]]) -> bytes:
    """What the lines say of their file: each with its newline, but for those that the next one continues."""
    return b"".join(
        line["m"].encode("utf-8", "surrogateescape") + (b"" if line["c"] else b"\n") for line in lines
    )


@pytest.mark.parametrize("order", [("stdout", "stderr"), ("stderr", "stdout")])
def test_of_two_streams_that_a_look_finds_the_one_written_last_comes_last(
    paths: RunPaths, order: tuple[str, str]
) -> None:
    for moment, stream in enumerate(order):
        paths.rank_stream(0, stream).write_text(f"{stream}\n")
        os.utime(paths.rank_stream(0, stream), (1000 + moment, 1000 + moment))
    with_launcher = paths.launcher_stream("stdout")
    with_launcher.write_text("launched\n")
    drain(paths, Outbox(paths))
    assert [line["m"] for line in lines(paths) if line["m"] != "launched"] == list(order)


def test_a_torn_last_record_is_cut_and_its_source_read_again(paths: RunPaths) -> None:
    stdout = paths.rank_stream(0, "stdout")
    outbox = Outbox(paths)
    for text in (b"one\n", b"two\nthree\n", b"four\n"):
        stdout.open("ab").write(text)
        drain(paths, outbox)
    whole = paths.outbox.read_bytes()
    for size in range(0, len(whole), 7):
        paths.outbox.write_bytes(whole[:size])
        drain(paths, Outbox(paths))
        assert [line["m"] for line in lines(paths)] == ["one", "two", "three", "four"]
        assert {(r["r"], r["s"]) for r in records(paths)} == {(0, "stdout")}
        assert records(paths)[-1]["e"] == 19


#: what is written to which rank, whether the runner then starts anew, how much of its journal is torn off, and whether
#: the index was saved
STEPS = st.tuples(
    st.sampled_from([0, 1]),
    st.binary(max_size=40) | st.sampled_from([b"\n", b"\r", b"\r\n", b"\xff\x00\n", b"\xed\xa0\x80", b"ab" * 40]),
    st.booleans(),
    st.integers(0, 300),
    st.booleans(),
)  # fmt: skip


def written_and_collected(
    run: RunPaths,
    steps: list[tuple[int, bytes, bool, int, bool]],
    clean: Callable[[bytes], bytes],
    line_bytes: int,
) -> list[bytes]:
    """Carry the steps out; what each rank has written."""
    run.spool.mkdir()
    outbox = Outbox(run)
    collecting = collector(run, outbox, line_bytes=line_bytes)
    written, indexed = [b"", b""], 0
    for rank, data, restart, torn, index in steps:
        written[rank] += clean(data)
        with run.rank_stream(rank, "stdout").open("ab") as file:
            file.write(clean(data))
        collecting.poll()
        if index:
            outbox.save_index()
            indexed = outbox.size
        if restart:
            os.truncate(run.outbox, max(indexed, outbox.size - torn))
            outbox = Outbox(run)
            collecting = collector(run, outbox, line_bytes=line_bytes)
    while collecting.poll():
        pass
    collecting.finish()
    return written


@given(steps=st.lists(STEPS, max_size=20))
def test_any_bytes_with_restarts_at_any_time_come_out_once(
    steps: list[tuple[int, bytes, bool, int, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = RunPaths(tmp_path_factory.mktemp("run"))
    written = written_and_collected(run, steps, lambda data: data.replace(b"\r", b"."), 16)
    for rank in (0, 1):
        joined = bytes_of([line for line in lines(run) if line["r"] == rank])
        assert joined in (written[rank], written[rank] + b"\n")


@given(steps=st.lists(STEPS, max_size=20))
def test_of_bars_all_that_nothing_overwrites_comes_out_in_order(
    steps: list[tuple[int, bytes, bool, int, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = RunPaths(tmp_path_factory.mktemp("run"))
    written = written_and_collected(run, steps, bytes, line_bytes=4096)
    for rank in (0, 1):
        texts = [line["m"].encode("utf-8", "surrogateescape") for line in lines(run) if line["r"] == rank]
        states = [state for line in written[rank].split(b"\n") for state in line.split(b"\r")]
        assert is_part([text for text in texts if text], states), "each is a state, once and in order"
        assert is_part(list(filter(None, map(shown, written[rank].split(b"\n")))), texts)


def is_part(of: list[bytes], whole: list[bytes]) -> bool:
    """True if `of` is `whole` without some of its elements."""
    rest = iter(whole)
    return all(any(element == other for other in rest) for element in of)


def test_a_new_runner_knows_what_the_freed_part_said(paths: RunPaths) -> None:
    paths.core_records(1).write_text(
        json.dumps({"type": "rank_failed", "rank": 1, "code": 3, "signal": None, "t": 5.0}) + "\n"
    )
    stdout = paths.launcher_stream("stdout")
    stdout.write_bytes(b"".join(b"line %d\n" % number for number in range(3000)))
    outbox = Outbox(paths)
    outbox.append(state_record(1.0, "running"))
    outbox.running = True
    drain(paths, outbox)
    shipped = outbox.read(0, 100_000)
    outbox.free(len(shipped))
    stdout.open("ab").write(b"one more\n")
    again = Outbox(paths)
    assert (again.running, again.exited, again.size, again.freed) == (True, False, outbox.size, len(shipped))
    assert again.first_failure == {"rank": 1, "code": 3, "signal": None, "t": 5.0}
    drain(paths, again)
    rest = again.read(len(shipped), 10_000_000).splitlines()
    assert json.loads(rest[-1])["m"] == "one more"
    found = [json.loads(record) for record in [*shipped.splitlines(), *rest]]
    assert len(lines_of([record for record in found if record["k"] == "lines"])) == 3001


def test_freed_bytes_that_a_server_asks_for_again_become_a_counted_gap(paths: RunPaths) -> None:
    outbox = Outbox(paths)
    for number in range(1000):
        outbox.append(lines_record("launcher.stdout", number, 1.0, None, "stdout", [], False, b"x" * 90))
    shipped = len(outbox.read(0, 80_000))
    outbox.free(shipped)
    first = outbox.read(500, 30_000)
    assert len(first) == 30_000 and json.loads(first) == {"k": "gap", "f": None, "e": None, "bytes": 30_000}
    offset, after = 500, b""
    while offset < outbox.size:
        batch = outbox.read(offset, 30_000)
        offset, after = offset + len(batch), after + batch
    kinds = [json.loads(line)["k"] for line in after.splitlines()]
    assert kinds.count("gap") == 3 and kinds.count("lines") > 100


@given(st.integers(1, 200))
def test_a_filler_has_exactly_the_size_asked_for(size: int) -> None:
    line = filler(size)
    assert len(line) == size and line.endswith(b"\n")
    assert not line.strip() or json.loads(line)["bytes"] == size


def test_a_batch_holds_whole_records_and_one_long_record_goes_alone(paths: RunPaths) -> None:
    outbox = Outbox(paths)
    for size in (10, 5000, 10):
        outbox.append(
            core_record("core.rank0.jsonl", 1, json.dumps({"type": "status", "text": "x" * size}).encode())
        )
    offset, sizes = 0, []
    while batch := outbox.read(offset, 300):
        assert batch.endswith(b"\n")
        sizes.append(len(batch.splitlines()))
        offset += len(batch)
    assert sizes == [1, 1, 1] and offset == outbox.size


@pytest.mark.survive(42)
def test_on_a_slow_link_batches_shrink_until_they_are_in_time(
    paths: RunPaths, stream_server: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths.rank_stream(0, "stdout").write_bytes(b"x" * 999 + b"\n" + (b"y" * 999 + b"\n") * 8000)
    outbox = Outbox(paths)
    drain(paths, outbox)
    write_json(paths.server, stream_server.address)
    spec: Any = {"token": TOKEN, "allocation_id": "x.1", "member": 0, "cluster": {"id": "c"}}
    weather = Weather()
    shipper = Shipper(Link(paths, spec, weather), outbox, Orders(paths), weather, DEFAULT_LIMITS, 0)
    monkeypatch.setattr(shipping, "_SLOW_SECONDS", 0.0)  # every batch takes too long
    shipping_thread = threading.Thread(target=shipper.run)
    shipping_thread.start()
    wait_until(lambda: shipper.unshipped() == 0, 60)
    shipper.ended.set()
    shipping_thread.join()
    ends = [0, *(end for _, end in stream_server.arrivals)]
    sizes = [end - start for start, end in pairwise(ends)]
    assert sizes[0] > 3_900_000, "a backlog goes in large batches"
    assert min(sizes[:-1]) < 128 * 1024 and stream_server.data == paths.outbox.read_bytes()


def test_a_server_ahead_of_a_journal_that_lost_its_end_is_followed(paths: RunPaths) -> None:
    outbox = Outbox(paths)
    outbox.append(state_record(1.0, "running"))
    outbox.skip_to(10_000)
    outbox.append(state_record(2.0, "running"))
    assert json.loads(outbox.read(10_000, 1000))["t"] == 2.0
    outbox.save_index()
    assert Outbox(paths).size == outbox.size


def test_a_journal_that_lost_its_shipped_end_with_the_hosts_memory_repeats_nothing(paths: RunPaths) -> None:
    stdout = paths.rank_stream(0, "stdout")
    stdout.write_bytes(b"one\ntwo\n")
    outbox = Outbox(paths)
    drain(paths, outbox)
    outbox.free(outbox.size)
    os.truncate(paths.outbox, 10)
    stdout.open("ab").write(b"three\n")
    again = Outbox(paths)
    assert again.size == outbox.size
    drain(paths, again)
    assert json.loads(again.read(outbox.size, 1000))["m"] == "three"


@pytest.mark.survive(9)
def test_a_full_disk_leaves_the_journal_whole_and_the_lines_come_later(
    paths: RunPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    outbox = Outbox(paths)
    collecting = collector(paths, outbox)
    paths.rank_stream(0, "stdout").write_bytes(b"".join(b"%d\n" % number for number in range(2000)))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, hard))  # the kernel's own "no more": EFBIG at this size
    try:
        with pytest.raises(OSError):
            collecting.poll()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert paths.outbox.stat().st_size == outbox.size == 0
    while collecting.poll():
        pass
    assert [line["m"] for line in lines(paths)] == [str(number) for number in range(2000)]


@pytest.mark.survive(43)
def test_what_is_no_sdk_record_is_counted_as_a_gap(paths: RunPaths) -> None:
    paths.core_records(0).write_bytes(
        b'not json\n{"type": "status", "text": "a\xc3\xa4"}\n[1]\n{"v": NaN, "w": -Infinity}\n'
    )
    outbox = Outbox(paths)
    collecting = collector(paths, outbox)
    while collecting.poll():
        pass
    collecting.finish()
    found = records(paths)
    assert [r["d"] for r in found if r["k"] == "core"] == [
        {"type": "status", "text": "aä"},
        {"v": "NaN", "w": "-Infinity"},
    ]
    assert sum(r["bytes"] for r in found if r["k"] == "gap") == len("not json") + len("[1]")
    assert outbox.dropped == len("not json") + len("[1]")


def test_reports_that_were_read_together_are_one_record_and_none_is_lost_with_a_torn_one(
    paths: RunPaths,
) -> None:
    def line(step: int) -> bytes:
        fields = {
            "group": "training",
            "steps_completed": step,
            "metrics": {"loss": 0.5},
            "run_id": 1,
            "t": 1.5,
        }
        return json.dumps({"type": "metrics", **fields}).encode() + b"\n"

    def steps() -> list[Any]:
        found = [record for record in records(paths) if record["k"] in ("core", "reports")]
        return [
            step
            for each in found
            for step in (each["d"][0]["steps"] if each["k"] == "reports" else [each["d"]])
        ]

    parts = [
        *map(line, range(5)),
        b"not json\n",
        *map(line, range(5, 9)),
        b'{"type": "x"}\n',
        line(9),
        line(10),
    ]
    paths.core_records(0).write_bytes(b"".join(parts))
    drain(paths, Outbox(paths), reports_per_record=1000)
    assert [record["k"] for record in records(paths) if record["f"]] == [
        "reports", "gap", "reports", "core", "reports",
    ]  # fmt: skip
    whole = paths.outbox.read_bytes()
    for size in range(0, len(whole), 7):
        paths.outbox.write_bytes(whole[:size])
        outbox = Outbox(paths)
        drain(paths, outbox, reports_per_record=1000)
        assert steps() == [*range(9), {"type": "x"}, 9, 10]
        assert outbox.ends == {paths.core_records(0).name: len(b"".join(parts))}


@pytest.mark.survive(31)
def test_a_stream_that_is_cut_short_or_replaced_is_read_from_its_new_start(paths: RunPaths) -> None:
    stdout, stderr = paths.rank_stream(0, "stdout"), paths.rank_stream(0, "stderr")
    stdout.write_bytes(b"one\ntwo\n")
    stderr.write_bytes(b"old 1\nold 2")
    outbox = Outbox(paths)
    drain(paths, outbox)
    collecting = collector(paths, outbox)
    collecting.poll()
    stdout.write_bytes(b"three\n")  # what `>` and copytruncate do
    stderr.rename(paths.spool / "rank0.stderr.1")
    stderr.write_bytes(b"a new file\n")
    wait_until(lambda: not collecting.poll() and len(lines(paths)) == 6, 60)
    assert [line["m"] for line in lines(paths) if line["s"] == "stdout"] == ["one", "two", "three"]
    assert [line["m"] for line in lines(paths) if line["s"] == "stderr"] == ["old 1", "old 2", "a new file"]
    stdout.open("ab").write(b"four\n")
    drain(paths, Outbox(paths))
    assert lines(paths)[-1]["m"] == "four"


def test_freeing_leaves_alone_what_stands_where_a_covered_part_was(paths: RunPaths) -> None:
    stdout = paths.rank_stream(0, "stdout")
    stdout.write_bytes(b"x" * 9999 + b"\n")
    outbox = Outbox(paths)
    drain(paths, outbox)
    stdout.write_bytes(b"y" * 8999 + b"\n")
    outbox.free(outbox.size)
    assert stdout.read_bytes() == b"y" * 8999 + b"\n"


@pytest.mark.survive(28)
def test_of_a_flood_that_nobody_can_read_the_end_is_kept_and_the_rest_counted(paths: RunPaths) -> None:
    count, limit = 200_000, 1_000_000
    stdout = paths.rank_stream(0, "stdout")
    stdout.write_bytes(b"".join(b"%06d\n" % number for number in range(count)))
    outbox = Outbox(paths)
    collecting = collector(paths, outbox, shipped=2**40, spool_bytes=limit)
    collecting.poll()
    with stdout.open("ab") as file:
        file.write(b"".join(b"%06d\n" % number for number in range(count, 2 * count)))
    wait_until(lambda: not collecting.poll() and lines(paths)[-1]["m"] == f"{2 * count - 1}", 60)
    texts = [line["m"] for line in lines(paths)]
    assert texts == sorted(texts) and texts[0] == "000000" and len(texts) >= limit // 2 // 7
    [gap] = [record for record in records(paths) if record["k"] == "gap"]
    assert gap["bytes"] + 7 * len(texts) == stdout.stat().st_size
    assert outbox.dropped == gap["bytes"]


def test_a_record_fills_less_than_half_a_batch_whatever_the_bytes(paths: RunPaths) -> None:
    paths.rank_stream(0, "stdout").write_bytes(
        b"\xff" * 5_000_000 + b"\n" + b"\0\n" * 100_000 + "ä\n".encode() * 50_000 + b"x\n" * 50_000
    )
    drain(paths, Outbox(paths))
    sizes = [len(record) for record in paths.outbox.read_bytes().splitlines()]
    assert max(sizes) < DEFAULT_LIMITS["batch_bytes"] // 2 and len(sizes) > 70
    assert bytes_of(lines(paths)) == paths.rank_stream(0, "stdout").read_bytes()


def test_a_later_piece_of_a_cut_line_has_the_rank_and_level_of_its_first(paths: RunPaths) -> None:
    paths.launcher_stream("stdout").write_bytes(b"x\n[rank=3] ERROR: " + b"y" * 100 + b"\n[rank=2] INFO: z\n")
    drain(paths, Outbox(paths), line_bytes=64)
    assert [(line["r"], line["l"], line["c"]) for line in lines(paths)] == [
        (None, None, False),
        (3, "ERROR", True),
        (3, "ERROR", False),
        (2, "INFO", False),
    ]


@pytest.mark.survive(43)
def test_links_and_odd_names_in_the_spool_are_left_alone(paths: RunPaths, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    paths.rank_stream(0, "stdout").symlink_to(secret)
    (paths.spool / "other.txt").write_text("x\n")
    os.mkfifo(paths.rank_stream(1, "stdout"))
    outbox = Outbox(paths)
    assert not collector(paths, outbox).poll()
    assert outbox.size == 0


def test_readers_see_only_whole_records_while_it_grows(paths: RunPaths) -> None:
    outbox = Outbox(paths)
    done = threading.Event()
    seen: list[bytes] = []

    def follow() -> None:
        offset = 0
        while not done.is_set() or offset < outbox.size:
            batch = outbox.read(offset, 700)
            offset += len(batch)
            seen.append(batch)

    reader = threading.Thread(target=follow)
    reader.start()
    for number in range(3000):
        outbox.append(lines_record("rank0.stdout", number, 1.0, 0, "stdout", [], False, b"%d" % number))
    done.set()
    reader.join(60)
    assert [json.loads(line)["m"] for line in b"".join(seen).splitlines()] == [str(n) for n in range(3000)]


def test_the_earliest_failure_is_kept_and_odd_records_are_ignored() -> None:
    late = earlier(None, {"rank": 1, "code": 143, "signal": 15, "t": 9.0})
    first = earlier(late, {"rank": 2, "code": 3, "t": 8.0})
    assert first == {"rank": 2, "code": 3, "signal": None, "t": 8.0}
    assert earlier(first, {"rank": 0, "code": 1, "t": 8.5}) == first
    assert earlier(first, {"rank": "?", "t": 1}) == first
    assert earlier(first, {"rank": float("inf"), "t": 1}) == first


def test_core_records_pass_unchanged() -> None:
    text = b'{"type":"metrics","metrics":{"loss":0.1}}'
    assert parse_core(text) == (json.loads(text), text)
    with pytest.raises(ValueError):
        parse_core(b"\xff{}")


@pytest.mark.survive(43)
def test_what_is_nested_too_deep_is_left_out_with_a_sentence_and_the_rest_goes_on(paths: RunPaths) -> None:
    deep = b"[" * 1500 + b"]" * 1500
    paths.core_records(0).write_bytes(
        b'{"type": "metadata", "metadata": {"a": %s}}\n' % deep * 3 + b'{"type": "status", "text": "on"}\n'
    )
    drain(paths, Outbox(paths))
    assert [r["d"] for r in records(paths) if r["k"] == "core"] == [{"type": "status", "text": "on"}]
    (said,) = [line["m"] for line in lines(paths)]
    assert "core.rank0.jsonl" in said and "nested deeper than 100 levels" in said
    Outbox(paths)  # a runner that is started again reads its own journal

"""Checkpoints: stored whole or not at all, by one rank or by all of them."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.trainmaster.made_run import Ranks, make_run, records, said
from trainmaster import core
from trainmaster._info import ClusterInfo
from trainmaster.core import _server_storage
from trainmaster.http import ServerClient


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = make_run(tmp_path / "run")
    monkeypatch.setenv("TRAINMASTER_RUN_DIR", str(folder))
    yield folder


def test_a_stored_checkpoint_lies_in_the_run_folder_and_is_recorded_once_complete(run: Path) -> None:
    with (
        core.init() as context,
        context.checkpoint.store_path({"steps_completed": 4, "by": "me"}) as (path, uuid),
    ):
        (path / "sub").mkdir()
        (path / "sub" / "weights").write_bytes(b"12345")
        assert records(run) == []
    assert path == run / "checkpoints" / uuid
    [record] = records(run)
    assert record.pop("t") > 0 and record.pop("seconds") >= 0
    assert record == {
        "type": "checkpoint",
        "uuid": uuid,
        "steps_completed": 4,
        "resources": {"sub/weights": 5, "metadata.json": (path / "metadata.json").stat().st_size},
        "metadata": {"steps_completed": 4, "by": "me"},
        "storage": {"type": "server"},
    }
    assert json.loads((path / "metadata.json").read_text()) == {"steps_completed": 4, "by": "me"}


def test_each_checkpoint_has_its_own_time_and_one_in_the_background_held_up_nothing(run: Path) -> None:
    with core.init() as context, context.checkpoint.store_path({"steps_completed": 1}):
        with context.checkpoint.store_path({"steps_completed": 2}):
            time.sleep(0.05)
        upload = context.checkpoint.store_path({"steps_completed": 3})

        def store() -> None:
            with upload:
                pass

        thread = threading.Thread(target=store)
        thread.start()
        thread.join()
    seconds = {each["steps_completed"]: each["seconds"] for each in records(run)}
    assert seconds[3] is None and seconds[1] >= seconds[2] >= 0.05


def test_nothing_is_stored_when_the_block_raises(run: Path) -> None:
    with core.init() as context:
        with pytest.raises(KeyError), context.checkpoint.store_path({"steps_completed": 4}) as (path, _uuid):
            (path / "weights").write_bytes(b"12345")
            raise KeyError("broken")
        assert not path.exists()
    assert records(run) == []


def test_metadata_must_say_how_far_the_training_is(run: Path) -> None:
    wanted = pytest.raises(ValueError, match="steps_completed")
    with core.init() as context, wanted, context.checkpoint.store_path({"epoch": 1}):
        pass
    assert not (run / "checkpoints").exists()


def test_a_folder_all_hosts_share_is_written_directly(run: Path, tmp_path: Path) -> None:
    storage = {"type": "shared_fs", "host_path": str(tmp_path / "nfs"), "storage_path": "team"}
    with core.init(checkpoint_storage=storage) as context:
        source = tmp_path / "made"
        source.mkdir()
        (source / "keep.pt").write_text("k")
        (source / "leave.tmp").write_text("l")
        uuid = context.checkpoint.upload(
            source, {"steps_completed": 2}, selector=lambda path: path.endswith(".pt")
        )
        stored = tmp_path / "nfs" / "team" / uuid
        assert sorted(path.name for path in stored.iterdir()) == ["keep.pt", "metadata.json"]
        assert context.checkpoint.get_metadata(uuid) == {"steps_completed": 2}
        context.checkpoint.download(uuid, tmp_path / "copy")
        assert (tmp_path / "copy" / "keep.pt").read_text() == "k"
        with context.checkpoint.restore_path(uuid) as path:
            assert path == stored
        context.checkpoint.delete(uuid)
        assert records(run)[-1] == {"type": "checkpoint_deleted", "uuid": uuid}
        assert not stored.exists()
        with pytest.raises(FileNotFoundError, match="no checkpoint"):
            context.checkpoint.download(uuid, tmp_path / "copy")
    assert records(run)[0]["storage"] == storage


def test_an_unknown_storage_is_refused_with_the_known_ones(run: Path) -> None:
    with pytest.raises(ValueError, match="server, shared_fs, directory, s3, gcs and azure"):
        core.init(checkpoint_storage={"type": "tape"})


def test_all_ranks_of_two_hosts_store_one_sharded_checkpoint(tmp_path: Path) -> None:
    runs = _two_hosts(tmp_path)
    program = """
        with det.core.init(distributed=distributed()) as context:
            metadata = {"steps_completed": 9, f"rank_{rank}": "ok"}
            with context.checkpoint.store_path(metadata, shard=True) as (path, uuid):
                (path / f"state_{rank}").write_text(str(rank))
            say([str(path), uuid])
    """
    with Ranks(program, runs, 4) as ranks:
        answers = [answer for [answer] in said(ranks)]
    assert len({uuid for _, uuid in answers}) == 1
    uuid = answers[0][1]
    assert {path for path, _ in answers[:2]} == {str(runs[0] / "checkpoints" / uuid)}
    assert {path for path, _ in answers[2:]} == {str(runs[1] / "checkpoints" / uuid)}
    chief, other = records(runs[0])[0], records(runs[1], 2)[0]
    assert sorted(chief["resources"]) == ["metadata.json", "state_0", "state_1", "state_2", "state_3"]
    assert chief["metadata"] == {"steps_completed": 9, **{f"rank_{rank}": "ok" for rank in range(4)}}
    assert {**chief, "t": 0, "seconds": 0} == {**other, "t": 0, "seconds": 0}
    assert records(runs[0], 1) == records(runs[1], 3) == []


def test_equal_files_are_stored_once_and_different_ones_are_a_conflict(tmp_path: Path) -> None:
    runs = _two_hosts(tmp_path)
    program = f"""
        import pathlib
        with det.core.init(distributed=distributed()) as context:
            folder = pathlib.Path({str(tmp_path)!r}, f"shard{{rank}}")
            folder.mkdir()
            (folder / "same").write_text("s")
            (folder / f"own{{rank}}").write_text("o")
            uuid = context.checkpoint.upload(folder, {{"steps_completed": 1}}, shard=True)
            say(uuid)
            (folder / "same").write_text(str(rank))
            try: context.checkpoint.upload(folder, {{"steps_completed": 1}}, shard=True)
            except RuntimeError as error: say(str(error))
            (folder / "same").write_text("s")
            try: context.checkpoint.upload(folder, {{"steps_completed": rank // 3}}, shard=True)
            except RuntimeError as error: say(str(error))
            say(context.checkpoint.upload(folder if rank == 3 else None, {{"steps_completed": 2}}, shard=True))
    """
    with Ranks(program, runs, 4) as ranks:
        answers = said(ranks)
    uuid, files, metadata, last = answers[0]
    assert all(answer == answers[0] for answer in answers)
    assert "files conflicts" in files
    assert "same (ranks 0, 1, 2, 3)" in files
    assert "Metadata conflict" in metadata
    assert "steps_completed is 0 and, on rank 3, 1" in metadata
    first, second = records(runs[0])
    assert sorted(first["resources"]) == ["metadata.json", "own0", "own1", "own2", "own3", "same"]
    assert (runs[0] / "checkpoints" / uuid / "same").exists()
    assert not (runs[1] / "checkpoints" / uuid / "same").exists()
    assert sorted(second["resources"]) == ["metadata.json", "own3", "same"]
    assert sorted(path.name for path in (runs[1] / "checkpoints" / last).iterdir()) == ["own3", "same"]
    assert len(list((runs[0] / "checkpoints").iterdir())) == 2


def test_only_the_chief_stores_an_unsharded_checkpoint(tmp_path: Path) -> None:
    program = """
        with det.core.init(distributed=distributed()) as context:
            if rank == 1:
                try: context.checkpoint.upload(".", {"steps_completed": 1})
                except RuntimeError as error: say(str(error))
    """
    with Ranks(program, [make_run(tmp_path / "run", slots=2)], 2) as ranks:
        [_, [message]] = said(ranks)
    assert "only the chief" in message


def test_a_restore_downloads_from_the_server_and_is_shared_by_the_ranks_of_a_host(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", slots=2)
    files = {"state.pt": b"w" * 100_000, "sub/a b.txt": b"text"}
    with _checkpoint_server(files) as (url, asked):
        (run / "server.json").write_text(json.dumps({"urls": [url], "cert_sha256": None}))
        program = """
            import os
            with det.core.init(distributed=distributed()) as context:
                with context.checkpoint.restore_path("abc") as path:
                    say([str(path), (path / "state.pt").stat().st_size, (path / "sub" / "a b.txt").read_text()])
                context.distributed.allgather(None)
                say([path.exists(), context.checkpoint.get_metadata("abc")])
        """
        with Ranks(program, [run], 2) as ranks:
            answers = said(ranks)
    assert answers[0] == answers[1]
    assert answers[0][0][1:] == [100_000, "text"]
    assert answers[0][1] == [False, {"steps_completed": 3}]
    assert sum(path.endswith("state.pt") for path, _ in asked) == 1
    assert {token for _, token in asked} == {"Bearer run-token"}


def _two_hosts(folder: Path) -> list[Path]:
    first = make_run(folder / "host0", slots=2, member=0, members=2)
    port = json.loads((first / "spec.json").read_text())["gang"]["ports"]["comm"]
    return [first, make_run(folder / "host1", slots=2, member=1, members=2, comm=port)]


class _checkpoint_server:
    """The two requests of docs/protocol.md that a restore makes, answered over HTTP; `unknown` times with 404."""

    def __init__(self, files: dict[str, bytes], unknown: int = 0) -> None:
        asked: list[tuple[str, str | None]] = []
        record = {"resources": {name: str(len(data)) for name, data in files.items()}}
        answers: dict[str, Any] = {
            "/api/v1/checkpoints/abc": json.dumps(
                {"checkpoint": {**record, "metadata": {"steps_completed": 3}}}
            ).encode(),
            **{
                f"/runner/v1/checkpoints/abc/files/{n.replace(' ', '%20')}": data for n, data in files.items()
            },
        }

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                asked.append((self.path, self.headers.get("Authorization")))
                known = len(asked) > unknown
                body = answers[self.path] if known else b""
                self.send_response(200 if known else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._asked = asked
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> tuple[str, list[tuple[str, str | None]]]:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_address[1]}", self._asked

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_another_hosts_checkpoint_is_restored_although_the_server_has_yet_to_hear_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {"state.pt": b"weights"}
    with _checkpoint_server(content, unknown=2) as (url, asked):
        alone = _storage(make_run(tmp_path / "alone"), url)
        with pytest.raises(FileNotFoundError, match="no checkpoint abc that this run may read"):
            alone.fetch("abc", tmp_path / "copy", None)
        second = _storage(make_run(tmp_path / "second", member=1, members=2), url)
        second.fetch("abc", tmp_path / "copy", None)
        assert (tmp_path / "copy" / "state.pt").read_bytes() == b"weights"
        assert [path.rpartition("/")[2] for path, _ in asked] == ["abc", "abc", "abc", "state.pt"]
    with _checkpoint_server(content, unknown=1) as (url, asked):
        second = _storage(tmp_path / "second", url)
        second.stored("abc", {"state.pt": 7})
        monkeypatch.setattr(_server_storage, "_NEWS_SECONDS", 0.0)
        second.fetch("abc", tmp_path / "again", None)
        assert [path.rpartition("/")[2] for path, _ in asked] == ["abc", "abc", "state.pt"]
        with (
            pytest.raises(OSError, match="No space left"),
            ServerClient(url).stream("GET", asked[-1][0]) as answer,
            Path("/dev/full").open("wb", buffering=0) as full,
        ):
            full.write(answer.read())


def _storage(run: Path, url: str) -> _server_storage.ServerStorage:
    (run / "server.json").write_text(json.dumps({"urls": [url], "cert_sha256": None}))
    spec = json.loads((run / "spec.json").read_text())
    return _server_storage.ServerStorage(ClusterInfo(spec, {"urls": [url], "cert_sha256": None}, str(run)))


def test_a_checkpoint_of_this_very_run_is_restored_before_the_server_knows_it(
    run: Path, tmp_path: Path
) -> None:
    with core.init() as context:
        with context.checkpoint.store_path({"steps_completed": 1}) as (path, uuid):
            (path / "state").write_text("s")
        with context.checkpoint.restore_path(uuid) as copy:
            assert sorted(file.name for file in copy.iterdir()) == ["metadata.json", "state"]

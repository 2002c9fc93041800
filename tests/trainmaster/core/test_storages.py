"""Kinds of checkpoint storage: what they store comes back, and their faults name them."""

import errno
import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.rig.s3 import KEYS, Bucket, s3_server
from tests.trainmaster.made_run import Ranks, make_run, records, said
from trainmaster import core
from trainmaster.core import _server_storage
from trainmaster.core._object_storage import FsspecBucket, ObjectStorage, object_storage
from trainmaster.host.discarding import discard
from trainmaster.host.errors import VerbError
from trainmaster.http import ServerClient, Unreachable
from trainmaster.paths import Workdir
from trainmaster.storage_faults import StorageFault

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = make_run(tmp_path / "run")
    monkeypatch.setenv("TRAINMASTER_RUN_DIR", str(folder))
    return folder


def a_checkpoint(folder: Path) -> None:
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "weights").write_bytes(b"12345")
    (folder / "small").write_bytes(b"")


@pytest.mark.parametrize("protocol", ["memory", "file"])
def test_a_file_system_of_fsspec_keeps_checkpoints(protocol: str, tmp_path: Path) -> None:
    root = str(tmp_path / "bucket") if protocol == "file" else "/bucket"
    section = {"type": "gcs", "bucket": "b", "prefix": "team/a", "credential": "hidden"}
    storage = ObjectStorage(section, FsspecBucket(protocol, root), tmp_path / "leaving", "gpu1")
    assert storage.section == {"type": "gcs", "bucket": "b", "prefix": "team/a"}
    storage.check("a-run")
    a_checkpoint(storage.path("one"))
    storage.carry("one")
    assert not storage.path("one").exists()
    storage.fetch("one", tmp_path / "copy", lambda path: path != "small")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["deep"]
    with storage.opened("one", None) as folder:
        assert (folder / "deep" / "weights").read_bytes() == b"12345" and (folder / "small").exists()
    storage.delete("one")
    with pytest.raises(FileNotFoundError, match="no checkpoint one in gcs b"):
        storage.fetch("one", tmp_path / "copy", None)


def test_a_package_that_is_not_installed_is_named_with_the_host(tmp_path: Path) -> None:
    for kind, package in (("gcs", "gcsfs"), ("azure", "adlfs")):
        with pytest.raises(StorageFault, match=f"needs the Python package {package} .* on host gpu1"):
            object_storage({"type": kind, "bucket": "b", "container": "c"}, tmp_path, "gpu1")


@pytest.mark.compat
def test_ranks_of_two_hosts_bring_one_checkpoint_to_s3_with_the_hosts_own_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEYS["access_key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEYS["secret_key"])
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with s3_server() as bucket:
        runs = _two_hosts(tmp_path, bucket.section())
        program = """
            with det.core.init(distributed=distributed()) as context:
                with context.checkpoint.store_path({"steps_completed": 9}, shard=True) as (path, uuid):
                    (path / f"state_{rank}").write_text(str(rank))
                with context.checkpoint.restore_path(uuid) as there:
                    say([uuid, sorted(file.name for file in there.iterdir()), path.exists()])
        """
        with Ranks(program, runs, 2) as ranks:
            answers = [answer for [answer] in said(ranks)]
        uuid = answers[0][0]
        stored = ["metadata.json", "state_0", "state_1"]
        assert answers == [[uuid, stored, False]] * 2
        assert bucket.names() == [f"team/a/{uuid}/{name}" for name in stored]
        [record] = records(runs[0])
        assert record["storage"] == bucket.section() and sorted(record["resources"]) == stored
        assert records(runs[1], 1) == []
        _discarded_by_a_host(bucket, uuid, stored)
        _faults_of_s3(bucket, tmp_path)


def _discarded_by_a_host(bucket: Bucket, uuid: str, stored: list[str]) -> None:
    """As the server asks a host to, in the job's Python and with its environment."""
    role = {"AWS_ACCESS_KEY_ID": KEYS["access_key"], "AWS_SECRET_ACCESS_KEY": KEYS["secret_key"]}
    request = {"storage": bucket.section(), "uuid": uuid, "python": sys.executable, "environment": role}
    discard({**request, "paths": ["state_0", "never there"]}, Workdir(Path()))
    assert bucket.names() == [f"team/a/{uuid}/{name}" for name in stored if name != "state_0"]
    discard({**request, "paths": None}, Workdir(Path()))
    assert bucket.names() == []


def _two_hosts(folder: Path, section: dict[str, Any]) -> list[Path]:
    import json

    first = make_run(folder / "host0", member=0, members=2, checkpoint_storage=section)
    port = json.loads((first / "spec.json").read_text())["gang"]["ports"]["comm"]
    return [first, make_run(folder / "host1", member=1, members=2, comm=port, checkpoint_storage=section)]


def _faults_of_s3(bucket: Bucket, folder: Path) -> None:
    storage = object_storage(bucket.section(bucket="absent", **KEYS), folder, "gpu1")
    with pytest.raises(StorageFault, match=r"s3 absent cannot be used from host gpu1: .*bucket") as found:
        storage.check("a-run")
    assert KEYS["secret_key"] not in str(found.value)


def test_a_read_only_or_full_folder_is_named_and_the_run_goes_on(run: Path, tmp_path: Path) -> None:
    source = tmp_path / "made"
    a_checkpoint(source)
    refused = pytest.raises(
        OSError, match=r"checkpoint storage /proc/trainmaster on host .* change checkpoint_storage"
    )
    away = {"type": "shared_fs", "host_path": "/proc/trainmaster"}
    with core.init(checkpoint_storage=away) as context, refused:
        context.checkpoint.upload(source, {"steps_completed": 2})
    full = {"type": "directory", "container_path": str(tmp_path / "full")}
    with core.init(checkpoint_storage=full) as context:
        with (
            pytest.raises(OSError, match=r"full on host .* is full .*: free some space there") as found,
            context.checkpoint.store_path({"steps_completed": 3}),
            Path("/dev/full").open("w") as file,
        ):
            file.write("x")
        assert found.value.errno == errno.ENOSPC
        with (
            pytest.raises(ConnectionResetError, match="a peer"),
            context.checkpoint.store_path({"steps_completed": 3}),
        ):
            raise ConnectionResetError("a peer")
        context.checkpoint.upload(source, {"steps_completed": 4})
    assert [record["steps_completed"] for record in records(run)] == [4]


def test_a_host_discards_files_of_one_checkpoint_alone(tmp_path: Path) -> None:
    uuid = "6e4f4d1e-0c58-4a2d-9f0b-3d4a7b1f2c3d"
    a_checkpoint(tmp_path / uuid)
    (tmp_path / "other").mkdir()
    section = {"type": "shared_fs", "host_path": str(tmp_path)}
    request = {"storage": section, "uuid": uuid, "host": "gpu1"}
    discard({**request, "paths": ["small", "deep/weights", "deep/", "gone"]}, Workdir(tmp_path))
    assert list((tmp_path / uuid).iterdir()) == []
    discard({**request, "paths": None}, Workdir(tmp_path))
    discard({**request, "paths": None}, Workdir(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
    for wrong in ("../other", "/etc/x"):
        with pytest.raises(VerbError, match="is not inside"):
            discard({**request, "paths": [wrong]}, Workdir(tmp_path))
    away = {**request, "storage": {"type": "shared_fs", "host_path": "/mnt/nobody-has-mounted-this"}}
    with pytest.raises(VerbError, match=r"mounted-this on host gpu1 does not exist"):
        discard({**away, "paths": None}, Workdir(tmp_path))


class _Cutting:
    """Answers each GET with what follows the range's start, and breaks off the first after 3 bytes."""

    def __init__(self, content: bytes, sha256: str) -> None:
        self.asked: list[str] = []
        self._content, self._sha256 = content, sha256

    def __enter__(self) -> str:
        import threading
        from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                wanted = self.headers.get("Range", "")
                server.asked.append(wanted)
                start = int(wanted.removeprefix("bytes=").rstrip("-") or 0)
                body = server._content[start:]
                self.send_response(206 if wanted else 200)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("X-Trainmaster-Sha256", server._sha256)
                self.end_headers()
                self.wfile.write(body[:3] if len(server.asked) == 1 else body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_a_download_goes_on_where_it_was_cut_and_is_checked(tmp_path: Path) -> None:
    content = os.urandom(1000)
    target = tmp_path / "coming"
    server = _Cutting(content, hashlib.sha256(content).hexdigest())
    with server as url, ServerClient(url, "token") as client:
        with pytest.raises(Unreachable):
            _server_storage._download(client, "/x", target, len(content))
        assert _server_storage._download(client, "/x", target, len(content)) is None
        assert target.read_bytes() == content and server.asked == ["", "bytes=3-"]
        target.write_bytes(b"?" * 1000)
        assert "expected " in str(_server_storage._download(client, "/x", target, len(content)))

"""Uploads of checkpoints in parts, against a real web process and a real S3 server."""

import hashlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import httpx
import pytest

from experiments import stored_files
from experiments.models import Checkpoint, Experiment
from experiments.states import CheckpointState
from jobs.models import Member
from tests.rig.rows import RUN_TOKEN, make_gang
from tests.rig.s3 import KEYS, Bucket, s3_server
from tests.rig.web import Web
from tests.webui.runner_api.test_checkpoints import make_checkpoint, make_trial
from trainmaster.jsonfile import write_json
from trainmaster.paths import RunPaths
from trainmaster.protocol import Spec
from trainmaster.runner import file_uploads
from trainmaster.runner import uploads as uploads_of_runner
from trainmaster.runner.file_uploads import FileUpload
from trainmaster.runner.link import Link, Weather
from trainmaster.runner.uploads import Uploads

pytestmark = pytest.mark.django_db(transaction=True)

MODEL = os.urandom(4_000_000)
SHA256 = hashlib.sha256(MODEL).hexdigest()


@pytest.fixture(autouse=True)
def same_data_dir(web: Web, settings: object) -> None:
    settings.DATA_DIR = web.data_dir  # type: ignore[attr-defined]


@pytest.fixture
def runner(web: Web) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {RUN_TOKEN}"}
    with httpx.Client(base_url=f"{web.url}/runner/v1", headers=headers, timeout=60) as client:
        yield client


@pytest.fixture
def checkpoint(db: None) -> Checkpoint:
    member = make_gang()[0]
    return make_checkpoint(make_trial(member), member, {"model.pt": MODEL})


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with s3_server() as found:
        yield found


def put_part(
    runner: httpx.Client, checkpoint: Checkpoint, offset: int, end: int, sha256: str = ""
) -> httpx.Response:
    query = {"offset": offset, "size": len(MODEL), **({"sha256": sha256} if sha256 else {})}
    return runner.put(f"/checkpoints/{checkpoint.pk}/parts/model.pt", params=query, content=MODEL[offset:end])


def test_a_file_that_comes_in_parts_goes_on_where_it_stopped(
    web: Web, runner: httpx.Client, checkpoint: Checkpoint
) -> None:
    parts = f"/checkpoints/{checkpoint.pk}/parts/model.pt"
    assert runner.get(parts).json() == {"offset": 0}
    assert put_part(runner, checkpoint, 0, 100_000).json() == {"offset": 100_000}
    # the link is cut in the middle of a part: what came of it stays
    with socket.create_connection(("127.0.0.1", urlsplit(web.url).port)) as connection:
        connection.sendall(
            f"PUT /runner/v1{parts}?offset=100000&size={len(MODEL)} HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {RUN_TOKEN}\r\nContent-Length: 3000000\r\n\r\n".encode()
            + MODEL[100_000:2_100_000]
        )
        when(lambda: runner.get(parts).json()["offset"] > 1_000_000)
        assert put_part(runner, checkpoint, 0, 10).status_code == 503
    when(lambda: put_part(runner, checkpoint, 0, 10).status_code == 409)
    standing = runner.get(parts).json()["offset"]
    assert 1_000_000 < standing <= 2_100_000
    answer = put_part(runner, checkpoint, 3_000_000, 3_000_001)
    assert answer.status_code == 409 and answer.json()["offset"] == standing
    assert put_part(runner, checkpoint, standing, len(MODEL)).status_code == 400  # the last has no digest
    wrong = put_part(runner, checkpoint, standing, len(MODEL), "0" * 64)
    assert wrong.status_code == 422 and wrong.json()["sha256"] == SHA256 and "send it again" in wrong.text
    assert runner.get(parts).json() == {"offset": 0}
    assert put_part(runner, checkpoint, 0, len(MODEL), SHA256).json() == {"offset": len(MODEL)}
    assert put_part(runner, checkpoint, 0, len(MODEL), SHA256).json() == {"offset": len(MODEL)}
    done = runner.post(f"/checkpoints/{checkpoint.pk}/complete", json={"resources": checkpoint.resources})
    assert done.status_code == 200
    back = runner.get(f"/checkpoints/{checkpoint.pk}/files/model.pt", headers={"Range": "bytes=3999000-"})
    assert back.content == MODEL[3_999_000:] and back.headers["x-trainmaster-sha256"] == SHA256
    checkpoint.refresh_from_db()
    assert checkpoint.state == CheckpointState.COMPLETED and checkpoint.digests == {"model.pt": SHA256}
    assert list((web.data_dir / "checkpoints" / ".incoming").glob(f"{checkpoint.pk}*")) == []
    assert stored_files.store_of(checkpoint).listing() == {"model.pt": len(MODEL)}
    with stored_files.store_of(checkpoint).open_file("model.pt", 100) as file:
        assert file.read() == MODEL[100:]
    stored_files.store_of(checkpoint).delete(["model.pt", "folder/"])
    assert stored_files.store_of(checkpoint).listing() == {}
    stored_files.store_of(checkpoint).delete()
    assert not (web.data_dir / "checkpoints" / str(checkpoint.pk)).exists()


def when(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def link_of(paths: RunPaths, checkpoint: Checkpoint) -> Link:
    spec = {
        "token": RUN_TOKEN,
        "allocation_id": checkpoint.allocation_id,
        "member": 0,
        "cluster": {"id": "c", "name": "test"},
    }
    return Link(paths, cast(Spec, spec), Weather())


def upload(web: Web, folder: Path, checkpoint: Checkpoint, name: str, moved: list[int]) -> FileUpload:
    """As a runner makes it whose run folder says that the server is this one."""
    paths = RunPaths(folder)
    write_json(paths.server, {"urls": [web.url], "cert_sha256": None})
    return FileUpload(
        link_of(paths, checkpoint), f"/runner/v1/checkpoints/{checkpoint.pk}", folder, name, moved.append
    )


def test_a_runner_brings_its_files_whatever_is_there_already(
    web: Web, runner: httpx.Client, checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_uploads, "PART_BYTES", 1_000_000)
    moved: list[int] = []
    (tmp_path / "model.pt").write_bytes(MODEL)
    assert put_part(runner, checkpoint, 0, 1_500_000).status_code == 200  # of an attempt before
    upload(web, tmp_path, checkpoint, "model.pt", moved).to_server()
    assert sum(moved) == len(MODEL)
    upload(web, tmp_path, checkpoint, "model.pt", moved).to_server()
    kept = web.data_dir / "checkpoints" / str(checkpoint.pk) / "model.pt"
    assert kept.read_bytes() == MODEL
    # other bytes of an attempt before: the whole is sent again
    kept.unlink()
    parts = f"/checkpoints/{checkpoint.pk}/parts/model.pt"
    assert (
        runner.put(parts, params={"offset": 0, "size": len(MODEL)}, content=b"?" * 1_200_000).status_code
        == 200
    )
    upload(web, tmp_path, checkpoint, "model.pt", moved).to_server()
    assert kept.read_bytes() == MODEL
    (tmp_path / "model.pt").write_bytes(b"")
    Checkpoint.objects.update(resources={"model.pt": 0})
    kept.unlink()
    upload(web, tmp_path, checkpoint, "model.pt", moved).to_server()
    assert kept.read_bytes() == b""


def test_checkpoints_that_are_gone_already_or_refused_for_good_keep_no_other_waiting(
    web: Web, checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads_of_runner, "_UNTOLD_SECONDS", 0.0)
    gone, waiting = checkpoint, make_checkpoint(checkpoint.trial, Member.objects.get(), {"model.pt": MODEL})
    Checkpoint.objects.filter(pk=gone.pk).update(state=CheckpointState.DELETED)
    unknown = str(uuid.uuid4())  # its record never came to the server: that is refused for ten minutes
    paths = RunPaths(tmp_path)
    write_json(paths.server, {"urls": [web.url], "cert_sha256": None})
    paths.spool.mkdir()
    uploads = Uploads(paths, link_of(paths, checkpoint), Weather(), 1)
    for name in (unknown, str(gone.pk), str(waiting.pk)):
        paths.checkpoint(name).mkdir(parents=True)
        (paths.checkpoint(name) / "model.pt").write_bytes(MODEL)
        record = {"type": "checkpoint", "uuid": name, "resources": gone.resources, "storage": "server"}
        uploads.on_core(record)
    thread = threading.Thread(target=uploads.run)
    thread.start()
    try:
        when(lambda: uploads.pending() == 1)
        told = [sentence for level, sentence in uploads.sentences() if level == "ERROR"]
        assert told == []
        uploads.all_told.set()  # so nobody tells the server of it any more, as after the restore of a backup
        when(lambda: not uploads.pending())
    finally:
        uploads.ended.set()
        thread.join()
    (given_up,) = [sentence for level, sentence in uploads.sentences() if level == "ERROR"]
    assert unknown[:8] in given_up and "was abandoned; its files stay on this host" in given_up
    states = dict(Checkpoint.objects.values_list("pk", "state"))
    assert states == {gone.pk: "DELETED", waiting.pk: "COMPLETED"}
    assert not (web.data_dir / "checkpoints" / str(gone.pk)).exists()
    assert not paths.checkpoint(str(gone.pk)).exists() and paths.checkpoint(unknown).exists()


def test_a_checkpoint_with_a_file_below_a_file_is_given_up_and_named_in_the_log(
    web: Web,
    runner: httpx.Client,
    checkpoint: Checkpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two ranks saved it: one a file, which the server has, the other a file below that. The next one is uploaded."""
    next_one = make_checkpoint(checkpoint.trial, Member.objects.get(), {"model.pt": MODEL})
    resources = {"state": 1, "state/rank1": 1}
    Checkpoint.objects.filter(pk=checkpoint.pk).update(resources=resources)
    assert runner.put(f"/checkpoints/{checkpoint.pk}/files/state", content=b"0").status_code == 200
    refused = runner.put(f"/checkpoints/{checkpoint.pk}/files/state/rank1", content=b"1")
    assert refused.status_code == 409 and "one of the two cannot be stored" in refused.text
    monkeypatch.setattr(uploads_of_runner, "_GIVE_UP_SECONDS", 1.0)
    paths = RunPaths(tmp_path)
    write_json(paths.server, {"urls": [web.url], "cert_sha256": None})
    paths.spool.mkdir()
    before = set(stored_files.incoming().iterdir())  # of other tests with this server
    uploads = Uploads(paths, link_of(paths, checkpoint), Weather(), 1)
    below = paths.checkpoint(str(checkpoint.pk)) / "state/rank1"
    below.parent.mkdir(parents=True)
    below.write_bytes(b"1")
    paths.checkpoint(str(next_one.pk)).mkdir(parents=True)
    (paths.checkpoint(str(next_one.pk)) / "model.pt").write_bytes(MODEL)
    for each, files in ((checkpoint, resources), (next_one, {"model.pt": len(MODEL)})):
        record = {"type": "checkpoint", "uuid": str(each.pk), "resources": files, "storage": "server"}
        uploads.on_core(record)
    thread = threading.Thread(target=uploads.run)
    thread.start()
    try:
        when(lambda: not uploads.pending())
    finally:
        uploads.ended.set()
        thread.join()
    told = [sentence for level, sentence in uploads.sentences() if level == "ERROR"]
    assert len(told) == 1 and f"checkpoint {str(checkpoint.pk)[:8]} was abandoned" in told[0]
    assert "(1): 'state/rank1'. A name stands for a file here and for a folder there" in told[0]
    assert told[0] in capsys.readouterr().err
    assert below.exists(), "its files stay on the host"
    (left,) = set(stored_files.incoming().iterdir()) - before
    assert left.stat().st_size == 0
    left.unlink()
    states = dict(Checkpoint.objects.values_list("pk", "state"))
    assert states == {checkpoint.pk: "PARTIAL", next_one.pk: "COMPLETED"}


@pytest.fixture
def in_s3(checkpoint: Checkpoint, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Checkpoint:
    Experiment.objects.update(config={"checkpoint_storage": bucket.section(**KEYS)})
    Checkpoint.objects.update(storage=bucket.section(signed=True))
    return Checkpoint.objects.select_related("trial__experiment").get(pk=checkpoint.pk)


def test_a_host_without_keys_brings_files_to_s3_and_back(
    web: Web, runner: httpx.Client, in_s3: Checkpoint, bucket: Bucket, tmp_path: Path
) -> None:
    large = 38 * 1024**2
    Checkpoint.objects.update(resources={"model.pt": len(MODEL), "deep/large.bin": large})
    base = f"/checkpoints/{in_s3.pk}"
    wanted = {"path": "model.pt", "size": len(MODEL)}
    (part,) = runner.post(f"{base}/sign", json=wanted).json()["parts"]
    assert KEYS["secret_key"] not in part["url"]
    assert httpx.put(part["url"], content=MODEL).status_code == 200
    assert runner.post(f"{base}/sign", json={**wanted, "sha256": SHA256}).json() == {
        "stored": True,
        "parts": [],
    }
    missing = runner.post(f"{base}/complete", json={})
    assert missing.status_code == 409 and missing.json()["missing"] == ["deep/large.bin"]
    # in parts, resumed: what S3 has is not asked for again
    wanted = {"path": "deep/large.bin", "size": large}
    content = os.urandom(1024**2) * 38
    sha256 = hashlib.sha256(content).hexdigest()
    first, last = runner.post(f"{base}/sign", json=wanted).json()["parts"]
    assert (first["offset"], first["bytes"], last["offset"]) == (0, 32 * 1024**2, 32 * 1024**2)
    answer = httpx.put(last["url"], content=content[last["offset"] :], timeout=60)
    assert answer.status_code == 200
    lacking = runner.post(f"{base}/sign", json={**wanted, "sha256": sha256}).json()
    assert not lacking["stored"] and [each["offset"] for each in lacking["parts"]] == [0]
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "large.bin").write_bytes(content)
    upload(web, tmp_path, in_s3, "deep/large.bin", []).to_bucket()
    assert runner.post(f"{base}/sign", json={**wanted, "sha256": sha256}).json()["stored"]
    assert runner.post(f"{base}/sign", json={**wanted, "sha256": sha256}).json()["stored"]
    assert runner.post(f"{base}/complete", json={}).status_code == 200
    assert bucket.names() == [f"team/a/{in_s3.pk}/deep/large.bin", f"team/a/{in_s3.pk}/model.pt"]
    where = runner.get(f"{base}/files/model.pt")
    assert where.status_code == 307 and where.headers["x-trainmaster-sha256"] == SHA256
    assert httpx.get(where.headers["location"], headers={"Range": "bytes=5-"}).content == MODEL[5:]
    in_s3.refresh_from_db()
    assert in_s3.state == CheckpointState.COMPLETED and in_s3.digests["deep/large.bin"] == sha256
    with stored_files.store_of(in_s3).open_file("model.pt", 7) as file:
        assert file.read() == MODEL[7:]
    stored_files.store_of(in_s3).delete(["model.pt"])
    assert bucket.names() == [f"team/a/{in_s3.pk}/deep/large.bin"]
    stored_files.store_of(in_s3).delete()
    assert bucket.names() == []
    with pytest.raises(FileNotFoundError):
        stored_files.store_of(in_s3).open_file("model.pt")

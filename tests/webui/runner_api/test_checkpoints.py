"""Upload and download of checkpoints over HTTP, against a real web process."""

import hashlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from django.conf import settings
from django.utils import timezone

from experiments.models import Checkpoint, Experiment, Project, Trial, Workspace
from experiments.states import CheckpointState
from jobs.models import Job, Member
from submissions.models import Context
from tests.rig.rows import RUN_TOKEN, make_gang
from tests.rig.web import Web

pytestmark = pytest.mark.django_db(transaction=True)

FILES = {"model.pt": b"weights" * 1000, "deep/er/state.json": b"{}", "empty": b""}


@pytest.fixture(autouse=True)
def same_data_dir(web: Web, settings: object) -> None:
    """The web process keeps its files in its own folder; this process looks there, too."""
    settings.DATA_DIR = web.data_dir  # type: ignore[attr-defined]


def make_trial(member: Member) -> Trial:
    job = member.allocation.task.job
    workspace, _ = Workspace.objects.get_or_create(name=f"w-{job.pk}"[:80])
    project, _ = Project.objects.get_or_create(workspace=workspace, name="p", key=str(job.pk)[:8])
    context, _ = Context.objects.get_or_create(
        sha256="0" * 64, defaults={"archive": b"", "size_bytes": 0, "listing": []}
    )
    Job.objects.filter(pk=job.pk).update(kind=Job.Kind.EXPERIMENT)
    experiment = Experiment.objects.create(
        job=job,
        name="e",
        owner=job.owner,
        project=project,
        config={},
        original_config="",
        context=context,
        seed=1,
    )
    return Trial.objects.create(experiment=experiment, task=member.allocation.task, seed=1, run_id=1)


def make_checkpoint(trial: Trial, member: Member, files: dict[str, bytes]) -> Checkpoint:
    return Checkpoint.objects.create(
        trial=trial,
        allocation_id=member.allocation_id,
        run_key=member.run_key,
        state=CheckpointState.PARTIAL,
        steps_completed=5,
        resources={path: len(content) for path, content in files.items()} | {"folder/": 0},
        storage={"type": "server"},
        reported_at=timezone.now(),
    )


@pytest.fixture
def runner(web: Web) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {RUN_TOKEN}"}
    with httpx.Client(base_url=f"{web.url}/runner/v1", headers=headers, timeout=60) as client:
        yield client


@pytest.fixture
def checkpoint(db: None) -> Checkpoint:
    member = make_gang()[0]
    return make_checkpoint(make_trial(member), member, FILES)


def put(runner: httpx.Client, checkpoint: Checkpoint, path: str, content: bytes) -> httpx.Response:
    return runner.put(f"/checkpoints/{checkpoint.pk}/files/{path}", content=content)


def test_a_checkpoint_is_complete_when_all_its_files_are_there(
    runner: httpx.Client, checkpoint: Checkpoint
) -> None:
    base = f"/checkpoints/{checkpoint.pk}"
    assert put(runner, checkpoint, "model.pt", FILES["model.pt"]).status_code == 200
    missing = runner.post(f"{base}/complete", json={"resources": checkpoint.resources})
    assert missing.status_code == 409 and missing.json()["missing"] == ["deep/er/state.json", "empty"]
    for path, content in FILES.items():
        assert put(runner, checkpoint, path, content).status_code == 200
    assert runner.post(f"{base}/complete", json={"resources": checkpoint.resources}).status_code == 200
    assert runner.post(f"{base}/complete", json={"resources": checkpoint.resources}).status_code == 200
    checkpoint.refresh_from_db()
    assert checkpoint.state == CheckpointState.COMPLETED
    for path, content in FILES.items():
        answer = runner.get(f"{base}/files/{path}")
        assert answer.status_code == 200 and answer.content == content
    part = runner.get(f"{base}/files/model.pt", headers={"Range": "bytes=7-13"})
    assert part.status_code == 206 and part.content == b"weights"
    root = Path(settings.DATA_DIR) / "checkpoints"
    assert (root / str(checkpoint.pk) / "folder").is_dir()
    assert list((root / ".incoming").iterdir()) == []
    assert (root / str(checkpoint.pk) / "model.pt").stat().st_mode & 0o077 == 0
    # sent again, as after a lost answer, it changes nothing
    assert put(runner, checkpoint, "model.pt", FILES["model.pt"]).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "%2e%2e/x",
        "a/../../x",
        "a//b",
        "%2Fetc/passwd",
        "a/%2e/b",
        "a/%2e%2e/%2e%2e/x",
        "nul%00",
        "x" * 300,
        "",
    ],
)
def test_names_that_lead_outside_are_refused(runner: httpx.Client, checkpoint: Checkpoint, path: str) -> None:
    Checkpoint.objects.update(resources={})  # a record without a list of files accepts any sound name
    url = httpx.URL(f"{runner.base_url}checkpoints/{checkpoint.pk}/files/").copy_with(
        raw_path=f"/runner/v1/checkpoints/{checkpoint.pk}/files/{path}".encode()
    )
    assert runner.put(url, content=b"x").status_code in {400, 404}
    assert not (Path(settings.DATA_DIR) / "x").exists()


def test_files_that_were_not_reported_or_differ_are_refused(
    runner: httpx.Client, checkpoint: Checkpoint
) -> None:
    assert put(runner, checkpoint, "other", b"x").status_code == 404
    assert put(runner, checkpoint, "model.pt", b"short").status_code == 400
    chunked = runner.put(f"/checkpoints/{checkpoint.pk}/files/model.pt", content=iter([b"x"]))
    assert chunked.status_code == 411
    answer = runner.post(f"/checkpoints/{checkpoint.pk}/complete", json={"resources": {"../x": 1}})
    assert answer.status_code == 400
    assert (
        runner.post(f"/checkpoints/{checkpoint.pk}/complete", json={"resources": {"x": -1}}).status_code
        == 400
    )


def test_an_upload_that_breaks_off_leaves_nothing(web: Web, checkpoint: Checkpoint) -> None:
    import socket
    from urllib.parse import urlsplit

    port = urlsplit(web.url).port
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(
            f"PUT /runner/v1/checkpoints/{checkpoint.pk}/files/model.pt HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {RUN_TOKEN}\r\nContent-Length: 7000\r\n\r\nabc".encode()
        )
    incoming = web.data_dir / "checkpoints" / ".incoming"
    answer = httpx.put(
        f"{web.url}/runner/v1/checkpoints/{checkpoint.pk}/files/model.pt",
        content=FILES["model.pt"],
        headers={"Authorization": f"Bearer {RUN_TOKEN}"},
    )
    assert answer.status_code == 200
    assert list(incoming.iterdir()) == []


def test_a_run_writes_its_own_checkpoints_and_reads_those_of_its_experiment(
    web: Web, runner: httpx.Client, checkpoint: Checkpoint
) -> None:
    stranger = make_gang(token="a-stranger")[0]
    make_trial(stranger)
    assert put(runner, checkpoint, "model.pt", FILES["model.pt"]).status_code == 200
    url = f"{web.url}/runner/v1/checkpoints/{checkpoint.pk}"
    headers = {"Authorization": "Bearer a-stranger"}
    assert httpx.get(f"{url}/files/model.pt", headers=headers).status_code == 404
    assert httpx.put(f"{url}/files/model.pt", content=b"evil", headers=headers).status_code == 404
    assert httpx.post(f"{url}/complete", json={}, headers=headers).status_code == 404
    assert httpx.get(f"{url}/files/model.pt").status_code == 401
    # a fork resumes from a checkpoint of another experiment
    Trial.objects.filter(task=stranger.allocation.task).update(latest_checkpoint=checkpoint)
    assert httpx.get(f"{url}/files/model.pt", headers=headers).status_code == 200
    assert httpx.put(f"{url}/files/model.pt", content=b"evil", headers=headers).status_code == 404
    assert runner.get(f"/checkpoints/{uuid.uuid4()}/files/model.pt").status_code == 404


def test_a_file_below_a_file_is_refused_with_a_sentence(web: Web, runner: httpx.Client) -> None:
    member = make_gang(token="another")[0]
    row = make_checkpoint(make_trial(member), member, {"a": b"1", "a/b": b"2"})
    headers = {"Authorization": "Bearer another"}
    base = f"/checkpoints/{row.pk}"
    assert runner.put(f"{base}/files/a", content=b"1", headers=headers).status_code == 200
    digest = hashlib.sha256(b"2").hexdigest()
    for path in (f"{base}/files/a/b", f"{base}/parts/a/b?offset=0&size=1&sha256={digest}"):
        answer = runner.put(path, content=b"2", headers=headers)
        assert answer.status_code == 409 and "a file here and for a folder there" in answer.text, path
    assert runner.put("/event-files/x?offset=0", content=b"1", headers=headers).status_code == 200
    assert runner.put("/event-files/x/y?offset=0", content=b"1", headers=headers).status_code == 409


@pytest.mark.parametrize("number", ["9" * 5000, "٣", "-1", "1.5", ""])
def test_a_number_that_is_none_is_refused_with_a_sentence(
    runner: httpx.Client, checkpoint: Checkpoint, number: str
) -> None:
    for path in (
        f"/checkpoints/{checkpoint.pk}/parts/model.pt?offset={number}&size=1",
        f"/checkpoints/{checkpoint.pk}/parts/model.pt?offset=0&size={number}",
        f"/event-files/x?offset={number}",
    ):
        answer = runner.put(path, content=b"1")
        assert answer.status_code == 400 and "must be a number of bytes" in answer.text, path

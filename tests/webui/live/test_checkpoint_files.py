"""Files of a checkpoint over HTTP, to people and their tools: whole, from the middle, and as archives."""

import io
import tarfile
import zipfile
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from accounts.models import LoginToken
from experiments.models import Checkpoint
from experiments.states import CheckpointState
from tests.rig.rows import make_gang
from tests.rig.web import Web
from tests.webui.runner_api.test_checkpoints import FILES, make_checkpoint, make_trial

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def checkpoint(web: Web, settings: Any) -> Checkpoint:
    """Complete, in the store of the web process."""
    settings.DATA_DIR = web.data_dir
    member = make_gang()[0]
    row = make_checkpoint(make_trial(member), member, FILES)
    Checkpoint.objects.filter(pk=row.pk).update(state=CheckpointState.COMPLETED)
    for path, content in FILES.items():
        place = web.data_dir / "checkpoints" / str(row.pk) / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return row


@pytest.fixture
def person(web: Web, checkpoint: Checkpoint) -> Iterator[httpx.Client]:
    token = LoginToken.issue(checkpoint.trial.experiment.owner)
    with httpx.Client(base_url=web.url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
        yield client


def test_files_come_whole_from_the_middle_and_as_archives(
    person: httpx.Client, checkpoint: Checkpoint
) -> None:
    base = f"/api/v1/checkpoints/{checkpoint.pk}"
    listed = person.get(f"{base}/files").json()["files"]
    assert {row["path"]: int(row["sizeBytes"]) for row in listed} == {
        path: len(content) for path, content in FILES.items()
    }
    assert person.get(f"{base}/files/model.pt").content == FILES["model.pt"]
    part = person.get(f"{base}/files/model.pt", headers={"Range": "bytes=3500-"})
    assert (part.status_code, part.content) == (206, FILES["model.pt"][3500:])
    assert part.headers["content-range"] == "bytes 3500-6999/7000"
    assert person.get(f"{base}/files/model.pt", headers={"Range": "bytes=7000-"}).status_code == 416
    assert person.get(f"{base}/files/none").status_code == 404
    for end in ("tar", "tar.gz"):
        with tarfile.open(fileobj=io.BytesIO(person.get(f"{base}/archive?format={end}").content)) as archive:
            found = {name: archive.extractfile(name).read() for name in archive.getnames()}  # type: ignore[union-attr]
        assert found == FILES
    packed = zipfile.ZipFile(io.BytesIO(person.get(f"{base}/archive?format=zip").content))
    assert {name: packed.read(name) for name in packed.namelist()} == FILES
    # where and how the published client asks
    answer = person.get(f"/checkpoints/{checkpoint.pk}", headers={"Accept": "application/gzip"})
    with tarfile.open(fileobj=io.BytesIO(answer.content), mode="r:gz") as archive:
        assert archive.getnames() == sorted(FILES)


def test_what_cannot_be_had_says_why(web: Web, person: httpx.Client, checkpoint: Checkpoint) -> None:
    def refused(**changes: Any) -> tuple[int, str]:
        Checkpoint.objects.filter(pk=checkpoint.pk).update(**changes)
        answer = person.get(f"/api/v1/checkpoints/{checkpoint.pk}/files")
        return answer.status_code, answer.json()["message"]

    status, sentence = refused(storage={"type": "shared_fs", "host_path": "/mnt/team"})
    assert (status, "/mnt/team" in sentence) == (409, True)
    assert refused(state="PARTIAL")[1].endswith(
        "is still being uploaded; try again when the upload is complete."
    )
    assert refused(state="DELETING")[1].endswith("is deleted.")
    assert httpx.get(f"{web.url}/api/v1/checkpoints/{checkpoint.pk}/files").status_code == 401

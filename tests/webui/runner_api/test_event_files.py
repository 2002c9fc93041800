"""Files for TensorBoard on their way from a run's folder to the server, against a real web process."""

import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import httpx
import pytest

from experiments import event_files
from experiments.models import Trial
from shown import tensorboard_archive
from tests.rig.rows import RUN_TOKEN, make_gang
from tests.rig.web import Web
from tests.trainmaster.made_run import make_run
from tests.webui.runner_api.test_checkpoints import make_trial
from trainmaster import core
from trainmaster.jsonfile import read_json, write_json
from trainmaster.paths import RunPaths
from trainmaster.runner.event_files import EventFiles
from trainmaster.runner.link import Link, Weather

pytestmark = pytest.mark.django_db(transaction=True)

EVENTS = "events.out.tfevents.1.gpu1"


@pytest.fixture(autouse=True)
def same_data_dir(web: Web, settings: object) -> None:
    settings.DATA_DIR = web.data_dir  # type: ignore[attr-defined]


@pytest.fixture
def trial(db: None) -> Trial:
    return make_trial(make_gang()[0])


@pytest.fixture
def run(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = make_run(tmp_path / "run", token=RUN_TOKEN)
    write_json(folder / "server.json", {"urls": [web.url], "cert_sha256": None})
    monkeypatch.setenv("TRAINMASTER_RUN_DIR", str(folder))
    yield folder


def bring(run: Path) -> EventFiles:
    """As the runner does once nobody writes any more."""
    paths, spec, weather, ended = RunPaths(run), read_json(run / "spec.json"), Weather(), threading.Event()
    assert spec is not None
    ended.set()
    found = EventFiles(paths, spec, Link(paths, spec, weather), weather)
    found.run(ended)
    return found


def kept(trial: Trial) -> dict[str, bytes]:
    return {path: file.read_bytes() for path, file in event_files.of_trial(trial.experiment_id, trial.pk)}


def test_files_grow_on_the_server_as_they_grow_on_the_host(run: Path, trial: Trial) -> None:
    (run / "tensorboard/sub").mkdir(parents=True)
    (run / "tensorboard-rank3").mkdir()
    first = os.urandom(3_000_000)  # more than one part
    (run / "tensorboard/sub" / EVENTS).write_bytes(first)
    (run / "tensorboard/notes.txt").write_text("stays here")
    (run / "tensorboard-rank3/a.pt.trace.json").write_text("{}")
    assert not bring(run).pending()
    assert kept(trial) == {f"sub/{EVENTS}": first, "a.pt.trace.json.rank3": b"{}"}
    with (run / "tensorboard/sub" / EVENTS).open("ab") as file:
        file.write(b"more")
    bring(run)  # another runner, which knows of nothing that was sent before
    assert kept(trial)[f"sub/{EVENTS}"] == first + b"more"


def test_a_file_that_was_written_anew_stands_in_the_place_of_the_old_one(run: Path, trial: Trial) -> None:
    (run / "tensorboard").mkdir()
    (run / "tensorboard" / EVENTS).write_bytes(b"of the attempt before")
    bring(run)
    (run / "tensorboard" / EVENTS).write_bytes(b"of this one, and longer than that")
    bring(run)
    assert kept(trial) == {EVENTS: b"of this one, and longer than that"}


def test_in_manual_mode_only_what_was_chosen_is_brought(run: Path, trial: Trial) -> None:
    manual = core.TensorboardMode.MANUAL
    with core.init(tensorboard_mode=manual) as context:
        (context.train.get_tensorboard_path() / EVENTS).write_text("own")
        (context.train.get_tensorboard_path() / "table.txt").write_text("chosen")
        context.train.upload_tensorboard_files(
            lambda path: path.name == "table.txt", lambda path, rank: Path(f"of-{rank}") / path
        )
    bring(run)
    assert kept(trial) == {"of-0/table.txt": b"chosen"}


def test_shared_storage_and_foreign_names_bring_nothing(run: Path, trial: Trial, web: Web) -> None:
    spec = read_json(run / "spec.json")
    assert spec is not None
    write_json(run / "spec.json", {**spec, "checkpoint_storage": {"type": "shared_fs", "host_path": "/nfs"}})
    (run / "tensorboard").mkdir()
    (run / "tensorboard" / EVENTS).write_text("copied by the rank")
    bring(run)
    headers = {"Authorization": f"Bearer {RUN_TOKEN}"}
    with httpx.Client(base_url=f"{web.url}/runner/v1/event-files/", headers=headers, timeout=60) as runner:
        names = ("..%2f..%2fescaped", "one", "one")
        answers = [runner.put(name, params={"offset": 0}, content=b"x") for name in names]
        assert [answer.status_code for answer in answers] == [400, 200, 409]
        assert answers[2].json()["offset"] == 1
    assert kept(trial) == {"one": b"x"}


def test_the_archive_has_them_and_a_deletion_takes_them(run: Path, trial: Trial) -> None:
    (run / "tensorboard").mkdir()
    (run / "tensorboard" / EVENTS).write_bytes(b"events")
    bring(run)
    archive = ZipFile(io.BytesIO(b"".join(tensorboard_archive.archive([trial], "tb"))))
    assert archive.read(f"tb/trial-{trial.pk}/files/{EVENTS}") == b"events"
    event_files.delete(trial.experiment_id)
    assert kept(trial) == {}


def test_a_file_below_a_file_is_given_up_and_named_in_the_log(
    run: Path, trial: Trial, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server has a file where the run has a folder by now: 409 without an offset, which no retry will cure."""
    (run / "tensorboard").mkdir()
    (run / "tensorboard" / EVENTS).write_bytes(b"a file")
    bring(run)
    (run / "tensorboard" / EVENTS).unlink()
    below = run / "tensorboard" / EVENTS / EVENTS
    below.parent.mkdir()
    below.write_bytes(b"below a file")
    (run / "tensorboard" / f"{EVENTS}.other").write_bytes(b"beside it")
    assert not bring(run).pending()
    assert kept(trial) == {EVENTS: b"a file", f"{EVENTS}.other": b"beside it"}
    said = capsys.readouterr().err
    assert (
        said.count(f"{below} was not uploaded to the server: ") == 1
        and "one of the two cannot be stored" in said
    )

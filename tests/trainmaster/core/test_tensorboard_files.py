"""Files that training code writes for TensorBoard are brought beside the checkpoints, and never hurt the run."""

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.trainmaster.made_run import make_run
from trainmaster import core
from trainmaster.core import _tensorboard

MANUAL = core.TensorboardMode.MANUAL


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = make_run(tmp_path / "run")
    monkeypatch.setenv("TRAINMASTER_RUN_DIR", str(folder))
    yield folder


@pytest.fixture
def storage(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "nfs").mkdir()
    return {"type": "shared_fs", "host_path": str(tmp_path / "nfs"), "storage_path": "team"}


def kept(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "nfs/team/tensorboard/experiment/7/trial/11"
    return {
        path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()
    }


def test_event_files_are_copied_while_they_grow_and_at_the_end(
    run: Path, storage: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_tensorboard, "EVERY_SECONDS", 0.01)
    with core.init(checkpoint_storage=storage) as context:
        folder = context.train.get_tensorboard_path()
        assert folder == run / "tensorboard"
        (folder / "sub").mkdir()
        events = folder / "sub/events.out.tfevents.1.host"
        events.write_text("first")
        (folder / "notes.txt").write_text("stays here")
        until = time.monotonic() + 60
        while kept(tmp_path) != {"sub/events.out.tfevents.1.host": "first"} and time.monotonic() < until:
            threading.Event().wait(0.02)
        assert kept(tmp_path) == {"sub/events.out.tfevents.1.host": "first"}
        events.write_text("first and more")
        with pytest.raises(RuntimeError, match="MANUAL"):
            context.train.upload_tensorboard_files()
    assert kept(tmp_path) == {"sub/events.out.tfevents.1.host": "first and more"}


def test_in_manual_mode_only_what_is_told_is_copied(
    run: Path, storage: dict[str, Any], tmp_path: Path
) -> None:
    with core.init(checkpoint_storage=storage, tensorboard_mode=MANUAL) as context:
        (context.train.get_tensorboard_path() / "a.txt").write_text("a")
        (context.train.get_tensorboard_path() / "b.txt").write_text("b")
        assert kept(tmp_path) == {}
        context.train.upload_tensorboard_files(
            lambda path: path.name == "a.txt", lambda path, rank: path.with_name(f"{path.name}.{rank}")
        )
        assert kept(tmp_path) == {"a.txt.0": "a"}
    assert kept(tmp_path) == {"a.txt.0": "a"}


def test_a_storage_that_cannot_be_written_costs_a_warning(
    run: Path, storage: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "nfs/team").write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING), core.init(checkpoint_storage=storage) as context:
        (context.train.get_tensorboard_path() / "events.out.tfevents.1").write_text("1")
    assert "TensorBoard files cannot be copied" in caplog.text


def test_without_a_folder_that_all_share_they_stay_where_they_are(run: Path) -> None:
    with core.init():  # who asks for no folder gets none
        pass
    assert not (run / "tensorboard").exists()
    with core.init() as context:
        path = context.train.get_tensorboard_path() / "events.out.tfevents.1"
        path.write_text("1")
        assert context.train._tensorboard._thread is None
    assert path.read_text() == "1"

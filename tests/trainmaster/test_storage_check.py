"""A run whose checkpoints could not be stored is not started, and says why."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.trainmaster.conftest import TestHost, wait_until
from tests.trainmaster.stream_server import StreamServer
from trainmaster.paths import RunPaths
from trainmaster.protocol import Spec
from trainmaster.runner import storage_check
from trainmaster.runner.state import read_sentence, try_lock
from trainmaster.storage_faults import StorageFault

SCRIPT = "open('started', 'w').close()"
TRIAL = {"trial_id": 1, "experiment_id": 7, "trial_seed": 1, "hparams": {}, "config": {}, "run_id": 1}


@pytest.mark.parametrize(
    ("section", "why"),
    [
        (
            {"type": "shared_fs", "host_path": "/mnt/nobody-has-mounted-this"},
            r"checkpoint storage /mnt/nobody-has-mounted-this on host \w+ does not exist (No such file or directory): "
            "mount or create it there, or change checkpoint_storage",
        ),
        (
            {"type": "gcs", "bucket": "b"},
            r"checkpoint storage gcs b needs the Python package gcsfs in the job's Python on host",
        ),
    ],
)
def test_a_storage_that_cannot_be_used_is_found_before_the_start(
    section: dict[str, str], why: str, host: TestHost, stream_server: StreamServer
) -> None:
    trial = {**TRIAL, "steps_completed": 0, "latest_checkpoint": None}
    paths, _ = host.launch(SCRIPT, checkpoint_storage=section, trial=trial)
    record = stream_server.wait_for(stream_server.exit)
    sentence = why.replace(r"\w+", record["storage_fault"].partition("on host ")[2].partition(" ")[0])
    assert record["code"] in (None, 1) and record["storage_fault"].startswith(sentence)
    assert not (paths.code / "started").exists()
    [line] = stream_server.texts("launcher.stderr")
    assert line.startswith(f"ERROR: trainmaster: {sentence}") and line.endswith(
        "The entrypoint was not started."
    )


def test_hosts_that_do_not_share_their_folder_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gang: Any = {**spec_for(tmp_path, "shared_fs"), "members": 2, "allocation_id": "r.1"}
    assert storage_check.by_launcher({**gang, "member": 1}) is None
    paths = RunPaths(tmp_path / "run")
    mark = str(storage_check.mark_of(gang))
    paths.control.mkdir(parents=True)
    paths.storage_mark.write_text(json.dumps({"mark": mark}))
    monkeypatch.setattr(storage_check, "_SEEN_SECONDS", 0.0)
    with pytest.raises(StorageFault, match=r"on host gpu2 is not the same folder as on gpu1"):
        storage_check.require_mark(paths, "gpu2", "gpu1")
    assert "mount the same one" in str(read_sentence(paths.storage_fault))
    assert storage_check.by_launcher({**gang, "member": 0}) is None
    storage_check.require_mark(paths, "gpu2", "gpu1")
    storage_check.remove_mark({**gang, "member": 0})
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def spec_for(folder: Path, kind: str = "directory") -> Spec:
    name = "container_path" if kind == "directory" else "host_path"
    spec = {"checkpoint_storage": {"type": kind, name: str(folder)}, "task_type": "TRIAL", "run_key": "r.1.0"}
    return {**spec, "host": {"id": "", "name": "gpu2"}, "member": 0, "members": 1}  # type: ignore[return-value,typeddict-item]


def test_a_folder_is_tried_and_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert storage_check.by_launcher(spec_for(tmp_path / "made")) is None
    assert list((tmp_path / "made").iterdir()) == []
    assert storage_check.by_launcher(spec_for(Path("/dev/full"))) is not None
    # a mount that hangs: here a pipe that nobody writes to
    os.mkfifo(tmp_path / ".trainmaster-check.r.1.0")
    monkeypatch.setattr(storage_check, "LIMIT_SECONDS", 0.2)
    monkeypatch.setattr(storage_check, "_write_and_read", lambda probe, content: probe.open("rb").close())
    launch = try_lock(tmp_path / "lock")
    fault = storage_check.by_launcher(spec_for(tmp_path, "shared_fs"))
    assert launch is not None
    os.close(launch)
    try:
        # what still hangs has none of the launcher's locks
        wait_until(lambda: try_lock(tmp_path / "lock") is not None)
    finally:
        with (tmp_path / ".trainmaster-check.r.1.0").open("wb"):  # lets go of it
            pass
    assert fault is not None
    assert f"checkpoint storage {tmp_path} on host gpu2 does not answer" in fault and "still mounted" in fault

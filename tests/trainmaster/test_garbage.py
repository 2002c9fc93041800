"""A job writes garbage into files of its folder that the host's part reads."""

import contextlib
import json
import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig import pace
from tests.trainmaster.stream_server import TOKEN
from trainmaster.host import controlling, stacks
from trainmaster.paths import RunPaths, Workdir
from trainmaster.protocol import MARKER
from trainmaster.runner import in_container, state
from trainmaster.runner.link import Link, Weather
from trainmaster.runner.state import locked, read_exit, read_server, read_shipped
from trainmaster.runner.stopping import read_stop
from trainmaster.runner.uploads import Uploads

pytestmark = pytest.mark.survive(43)
DEEP = "[" * 100_000


def run(workdir: Workdir, key: str) -> RunPaths:
    paths = workdir.run(key)
    for folder in (paths.spool, paths.control):
        folder.mkdir(parents=True)
    paths.spec.write_text('{"members": 1}')
    paths.state.write_text(json.dumps({"host_id": "h", "boot_id": "another"}))
    paths.shipped.write_text(json.dumps({"offset": 0, "finished": True, "refused": None}))
    return paths


@pytest.mark.parametrize("garbage", [DEEP, "[]", "null", "{", '{"code": "no", "ended_at": 1}', "\0\0"])
def test_what_stands_in_place_of_the_exit_file_is_none(garbage: str, tmp_path: Path) -> None:
    paths = run(Workdir(tmp_path), "1.t.1.0")
    paths.exit.write_text(garbage)
    assert read_exit(paths) is None


@pytest.mark.parametrize("name", ["exit", "shipped", "state"])
def test_garbage_of_one_run_keeps_the_status_of_no_other(name: str, tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    bad, good = run(workdir, "1.bad.1.0"), run(workdir, "1.good.1.0")
    getattr(bad, name).write_text(DEEP)
    answer = controlling.status({"runs": ["1.bad.1.0", "1.good.1.0"]}, workdir)["runs"]
    assert answer["1.good.1.0"]["state"] == "ended" and good.root.exists()
    assert answer["1.bad.1.0"]["state"] == ("incomplete" if name == "state" else "ended")


HUGE = "1" + 400 * "0"
#: what a job may put in the place of a file that a verb reads or locks
IN_ITS_PLACE: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "nothing that may be opened": lambda path: path.touch(mode=0),
    "a device without an end": lambda path: path.symlink_to("/dev/zero"),
    "itself": lambda path: path.symlink_to(path),
    "a sparse file": lambda path: path.open("wb").truncate(1 << 40),
    "wrong types": lambda path: path.write_text(
        '{"boot_id": "b", "bundle": [], "launcher": {"pid": "1/../.."}, "runner": 7, "urls": 3, "offset": "far"}'
    ),
    "huge numbers": lambda path: path.write_text(
        f'{{"deadline": {HUGE}, "grace_seconds": 1, "reason": "", "code": {HUGE}, "signal": null, '
        f'"ended_at": {HUGE}, "stopped": true, "offset": -1, "finished": false}}'
    ),
    "no number": lambda path: path.write_text('{"deadline": NaN, "grace_seconds": 1, "reason": ""}'),
}


@pytest.mark.parametrize("what", IN_ITS_PLACE)
@pytest.mark.parametrize("name", ["exit", "shipped", "state", "stop", "runner_log", "spec", "stacks"])
def test_no_verb_waits_or_breaks_for_what_a_run_put_in_place_of_a_file(
    name: str, what: str, tmp_path: Path
) -> None:
    workdir = Workdir(tmp_path)
    bad, good = run(workdir, "1.bad.1.0"), run(workdir, "1.good.1.0")
    getattr(bad, name).unlink(missing_ok=True)
    IN_ITS_PLACE[what](getattr(bad, name))
    keys = {"1.bad.1.0": {}, "1.good.1.0": {}}
    read_exit(bad), read_shipped(bad), read_stop(bad), read_server(bad)
    answer = controlling.status({"runs": list(keys)}, workdir)["runs"]
    assert answer["1.good.1.0"]["state"] == "ended"
    assert answer["1.bad.1.0"]["state"] in ("incomplete", "ended")
    assert stacks.stack({"runs": keys}, workdir)["runs"]["1.good.1.0"] == {"ranks": {}}
    for verb in (controlling.preempt, controlling.stop):
        assert "error" not in verb({"runs": keys}, workdir)["runs"]["1.good.1.0"]
    removed = controlling.remove({"runs": list(keys), "force": True, "bundles": True}, workdir)
    assert removed["runs"]["1.good.1.0"]["removed"] and not good.root.exists()


def ranks_of(key: str) -> subprocess.Popen[bytes]:
    ranks = subprocess.Popen(["sleep", "600"], env={MARKER: key}, start_new_session=True)
    environment = Path(
        f"/proc/{ranks.pid}/environ"
    )  # which the kernel has only a moment after it was executed
    assert pace.wait_until(lambda: key in environment.read_text(), 60)
    return ranks


def spoil_state(paths: RunPaths) -> None:
    paths.state.write_text("{")


def spoil_control(paths: RunPaths) -> None:
    paths.control.rmdir()
    paths.control.write_text("no folder")


@contextlib.contextmanager
def hold_lock(paths: RunPaths) -> Iterator[None]:
    """The order of a stop is there, and whoever would change it waits for the run."""
    paths.stop.write_text('{"deadline": 1e11, "grace_seconds": 1, "reason": ""}')
    with locked(paths.state_lock):
        yield


@pytest.mark.parametrize("spoil", [spoil_state, spoil_control, hold_lock])
def test_a_run_that_spoils_its_folder_is_seen_and_ended_by_its_marker(
    spoil: Callable[[RunPaths], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "LOCK_SECONDS", 0.05)
    workdir, key = Workdir(tmp_path), f"1.{uuid.uuid4().hex}.1.0"
    paths = run(workdir, key)
    ranks = ranks_of(key)
    try:
        with spoil(paths) or contextlib.nullcontext():
            answer = controlling.status({"runs": [key]}, workdir)["runs"][key]
            assert answer["state"] == ("remains" if spoil is spoil_state else "running")
            assert answer["pids"] == [ranks.pid]
            assert controlling.stop({"runs": {key: {"grace_seconds": 0.0}}}, workdir)["runs"][key]["stopping"]
        assert ranks.wait(60) == -signal.SIGKILL
    finally:
        ranks.kill()
        ranks.wait()


def test_a_folder_beside_the_runs_that_is_none_is_passed_over(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    run(workdir, "1.good.1.0")
    (workdir.runs / "odd name").mkdir()
    assert list(controlling.status({}, workdir)["runs"]) == ["1.good.1.0"]
    assert list(controlling.remove({"force": True, "bundles": True}, workdir)["runs"]) == ["1.good.1.0"]


OF_A_CONTAINER = ["{", "{}", DEEP, "[]", '{"runtime": "x"}', '{"runtime": [], "path": 1, "name": 2}']


@pytest.mark.parametrize("garbage", OF_A_CONTAINER)
def test_what_a_container_wrote_in_place_of_its_note_keeps_no_run_from_ending(
    garbage: str, tmp_path: Path
) -> None:
    paths = run(Workdir(tmp_path), "1.t.1.0")
    paths.container.write_text(garbage)
    image: Any = {"image": "a"}
    assert in_container.why_not_started(paths, image, 125) is None
    in_container.clean_up(paths)
    assert not paths.container.exists()


def test_neither_program_nor_name_is_taken_from_a_file_that_the_container_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = run(Workdir(tmp_path / "work"), "1.t.1.0")
    for name, folder in (("podman", tmp_path / "bin"), ("evil", tmp_path)):
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/{name}.words\n')
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    note = {"runtime": "podman", "path": str(tmp_path / "evil"), "name": "another"}
    paths.container.write_text(json.dumps(note))
    in_container.clean_up(paths)
    assert (tmp_path / "podman.words").read_text().split()[-1] == "trainmaster-1.t.1.0"
    assert not (tmp_path / "evil.words").exists()


@pytest.mark.parametrize("uuid", ["", "..", "a/b", "\0", "\ud800", "x" * 300, "a?b"])
def test_a_checkpoint_whose_name_no_address_holds_is_not_queued(uuid: str, tmp_path: Path) -> None:
    paths, weather = run(Workdir(tmp_path), "1.t.1.0"), Weather()
    spec: Any = {"token": TOKEN, "allocation_id": "1.t.1", "member": 0, "cluster": {"id": "c"}}
    uploads = Uploads(paths, Link(paths, spec, weather), weather, 1)
    uploads.on_core({"type": "checkpoint", "uuid": uuid, "resources": {"w": 1}, "storage": "server"})
    assert uploads.pending() == 0

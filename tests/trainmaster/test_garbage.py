"""A job writes garbage into files of its folder that the host's part reads."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainmaster.stream_server import TOKEN
from trainmaster.host import controlling
from trainmaster.paths import RunPaths, Workdir
from trainmaster.runner.link import Link, Weather
from trainmaster.runner.state import read_exit
from trainmaster.runner.uploads import Uploads

pytestmark = pytest.mark.survive(43)
DEEP = "[" * 100_000


def run(workdir: Workdir, key: str) -> RunPaths:
    paths = workdir.run(key)
    for folder in (paths.spool, paths.control):
        folder.mkdir(parents=True)
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
    assert answer["1.bad.1.0"].get("state") == "ended" or "cannot be read" in answer["1.bad.1.0"]["message"]


@pytest.mark.parametrize("uuid", ["", "..", "a/b", "\0", "\ud800", "x" * 300, "a?b"])
def test_a_checkpoint_whose_name_no_address_holds_is_not_queued(uuid: str, tmp_path: Path) -> None:
    paths, weather = run(Workdir(tmp_path), "1.t.1.0"), Weather()
    spec: Any = {"token": TOKEN, "allocation_id": "1.t.1", "member": 0}
    uploads = Uploads(paths, Link(paths, spec, weather), weather, 1)
    uploads.on_core({"type": "checkpoint", "uuid": uuid, "resources": {"w": 1}, "storage": "server"})
    assert uploads.pending() == 0

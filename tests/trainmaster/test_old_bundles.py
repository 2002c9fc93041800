"""Bundles of earlier versions leave the host once nothing uses them."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.trainmaster.conftest import TestHost, wait_until

pytestmark = pytest.mark.survive(33)
DAY = 24 * 3600


def bundle(host: TestHost, name: str, age_days: float) -> Path:
    folder = host.workdir.bundle(name * 64)
    (folder / "trainmaster").mkdir(parents=True)
    age(folder, age_days)
    return folder


def age(folder: Path, days: float) -> None:
    then = time.time() - days * DAY
    os.utime(folder, (then, then))


def removed(host: TestHost) -> list[str]:
    return [name[0] for name in host.verb("remove", {"runs": [], "bundles": True})["bundles"]]


@pytest.fixture
def old(host: TestHost) -> dict[str, Path]:
    """Bundles `a` to `d`, the newest first, and the present one."""
    age(host.bundle, 1.5)
    return {name: bundle(host, name, days) for days, name in enumerate("abcd", 2)}


def test_the_newest_two_and_those_of_the_last_day_stay(host: TestHost, old: dict[str, Path]) -> None:
    torn = bundle(host, ".", 0.5)
    for name in "bcd":
        age(old[name], 0.5)
    assert removed(host) == ["a"], "and the one that does this, the fourth"
    for name in "bcd":
        age(old[name], 9)
    age(old["d"], 8)
    age(torn, 3)
    assert sorted(removed(host)) == [".", "b", "c"]
    assert set(host.workdir.bundles.iterdir()) == {host.bundle, old["d"]}


def test_what_a_run_folder_or_a_process_uses_stays(host: TestHost, old: dict[str, Path]) -> None:
    run = host.run_script("pass")
    wait_until(lambda: host.status(run).get("finished"))
    state = json.loads(run.state.read_text())
    assert state["bundle"] == host.bundle.name
    program = [sys.executable, "-c", "input()", f"{old['c']}/trainmaster/runner"]
    with subprocess.Popen(program, stdin=subprocess.PIPE) as process:
        run.state.write_text(json.dumps({**state, "bundle": old["b"].name}))
        assert removed(host) == ["d"]
        assert process.stdin is not None
        process.stdin.close()
    del state["bundle"]
    run.state.write_text(json.dumps(state))
    assert removed(host) == [], "an older bundle has started that run, which may be any of them"
    shutil.rmtree(run.root)
    assert removed(host) == ["b", "c"]

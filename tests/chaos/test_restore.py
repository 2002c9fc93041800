"""A server that is lost in the middle of a search, with its folder, is restored from a backup made a while before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.test_search import LIMIT_SECONDS, SEARCHER, TRAINING, processes_of, trials
from tests.rig.hosts import HostRig
from tests.rig.server import ROOT, Server
from tests.rig.stack import config, running_stack

pytestmark = [pytest.mark.chaos, pytest.mark.hosts]


def manage(server: Server, *arguments: str, beside_it: bool) -> str:
    """A command of `manage.py`, in the environment of the running server or without a server."""
    environment = dict(server.environment)
    if not beside_it:
        for name in ("DATABASE_URL", "REDIS_URL"):
            del environment[name]
    command = [sys.executable, str(ROOT / "manage.py"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.survive(36)
def test_a_search_goes_on_from_a_backup_on_an_empty_folder(host_rig: HostRig, tmp_path: Path) -> None:
    if not host_rig.take(1)[0].isolated:
        pytest.skip("needs network namespaces (root and iproute2)")
    saved = tmp_path / "saved.backup"
    with running_stack(host_rig) as stack:
        stack.add_hosts()
        settings = {
            "hyperparameters": {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}},
            "searcher": SEARCHER,
            "max_restarts": 0,
            "reproducibility": {"experiment_seed": 5},
        }
        experiment = stack.submit({"train.py": TRAINING}, config(1, "python3 train.py", **settings))

        def made(count: int) -> bool:
            return len(trials(stack, experiment)) >= count

        stack.wait(lambda: made(5), LIMIT_SECONDS, "5 trials")
        assert "stored files" in manage(stack.server, "backup", str(saved), beside_it=True)
        assert saved.stat().st_mode & 0o077 == 0
        stack.wait(lambda: made(8), LIMIT_SECONDS, "8 trials: some that the backup does not know")

        stack.server.close()  # kill -9, and its disk is lost with it
        stack.server.data.rename(tmp_path / "lost")
        assert "Restored into" in manage(
            stack.server, "restore", str(saved), "--data", str(stack.server.data), beside_it=False
        )
        stack.server.start()
        stack.token = stack.server.login()

        assert stack.wait_end(experiment, LIMIT_SECONDS) == "STATE_COMPLETED"
        found = trials(stack, experiment)
        assert len(found) == 16, "none was lost, none was made twice"
        assert len({trial["hparams"]["lr"] for trial in found}) == 16
        assert {trial["state"] for trial in found} == {"STATE_COMPLETED"}
        tasks = {trial["taskId"] for trial in found}
        stack.wait(lambda: not processes_of(tasks), 60, "the last processes to leave")

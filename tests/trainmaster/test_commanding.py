"""The verb `command`: Slurm is asked under the account of the person whose job it is about."""

import os
from pathlib import Path

import pytest

from trainmaster.host import commanding
from trainmaster.host.errors import VerbError
from trainmaster.paths import Workdir

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another account")
ONE = "daemon"


def test_a_command_runs_under_the_account_with_nothing_of_the_logins_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "x")
    monkeypatch.setenv("SLURM_CONF", "/etc/own.conf")
    request = {"unix_user": ONE, "unix_ids": None, "seconds": 20, "stdin": "body"}
    script = 'id -un; pwd; echo "$SLURM_CONF $HOME [$SECRET]"; cat; echo said >&2; exit 3'
    done = commanding.command({**request, "script": script}, Workdir(tmp_path))
    assert (done["code"], done["stderr"]) == (3, "said\n")
    assert done["stdout"].splitlines() == [ONE, "/", "/etc/own.conf /usr/sbin []", "body"]
    with pytest.raises(VerbError, match="took longer than"):
        commanding.command({**request, "script": "exec sleep 60", "seconds": 0.2}, Workdir(tmp_path))
    with pytest.raises(VerbError, match="has UID 1 here, and the user is linked with UID 7"):
        commanding.command({**request, "script": "", "unix_ids": {"uid": 7, "gid": None}}, Workdir(tmp_path))
    with pytest.raises(VerbError, match="is root here"):
        commanding.command({**request, "script": "", "unix_user": "root"}, Workdir(tmp_path))

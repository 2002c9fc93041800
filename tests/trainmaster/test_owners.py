"""What accounts answer of their runs: each is believed in its own alone, and nobody waits for one that keeps silent."""

import os
import shutil
import signal
import time
from typing import Any

import pytest

from tests.rig import parts
from trainmaster.host import accounts
from trainmaster.paths import Workdir
from trainmaster.runner import attending

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another account")

ONE, OTHER = "daemon", "nobody"


@pytest.fixture
def workdir() -> Any:
    with parts.private_folder("owners") as folder:
        folder.chmod(0o755)
        for key, account in (("1.a.1.0", ONE), ("2.b.1.0", OTHER)):
            run = folder / "runs" / key
            run.mkdir(parents=True, mode=0o700)
            shutil.chown(run, account)
        yield Workdir(folder)


def asked(
    handler: accounts.Handler, workdir: Workdir, known: dict[str, str | None] | None = None
) -> dict[str, Any]:
    return accounts.for_each_owner("status", handler, {"1.a.1.0": {}, "2.b.1.0": {}}, {}, workdir, known)


def test_an_account_is_believed_in_its_own_runs_alone(workdir: Workdir) -> None:
    def lies(request: dict[str, Any], _: Workdir) -> dict[str, Any]:
        if "1.a.1.0" in request["runs"]:
            return {"runs": {"1.a.1.0": {"uid": os.getuid()}}}
        return {"runs": {"1.a.1.0": {"state": "ended", "exit": {"code": 0}}, "2.b.1.0": "nothing"}}

    found = asked(lies, workdir)
    assert found["1.a.1.0"] == {"uid": workdir.run("1.a.1.0").root.stat().st_uid}
    assert found["2.b.1.0"]["error"] == "account"


def test_an_account_that_stops_what_runs_under_it_delays_nobody(
    workdir: Workdir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "_OWNERS_SECONDS", 1.0)

    def sleeps(request: dict[str, Any], _: Workdir) -> dict[str, Any]:
        if "2.b.1.0" in request["runs"]:
            time.sleep(60)
        return {"runs": {key: {"state": "running", "more": "x" * 300_000} for key in request["runs"]}}

    for first, second in (("1.a.1.0", "2.b.1.0"), ("2.b.1.0", "1.a.1.0")):  # whoever is asked first
        begun = time.monotonic()
        found = accounts.for_each_owner("status", sleeps, {first: {}, second: {}}, {}, workdir)
        assert time.monotonic() - begun < 30
        assert found["1.a.1.0"]["state"] == "running", "more than a pipe holds"
        assert "without an answer in time" in found["2.b.1.0"]["message"]


def test_what_has_answered_is_waited_for_no_more(workdir: Workdir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "_exit", lambda _: os.kill(os.getpid(), signal.SIGSTOP))  # as its account may do
    begun = time.monotonic()
    assert accounts.in_account(accounts.account(ONE), lambda: {"uid": os.getuid()}) == {"uid": 1}
    assert time.monotonic() - begun < 30


def test_a_folder_in_the_place_of_a_run_is_not_the_run(workdir: Workdir) -> None:
    def ended(request: dict[str, Any], _: Workdir) -> dict[str, Any]:
        return {"runs": {key: {"state": "ended"} for key in request["runs"]}}

    found = asked(ended, workdir, {"1.a.1.0": ONE, "2.b.1.0": ONE})
    assert found["1.a.1.0"] == {"state": "ended"}
    assert found["2.b.1.0"]["error"] == "taken" and "Remove it manually" in found["2.b.1.0"]["message"]
    assert asked(ended, workdir, {"1.a.1.0": None, "2.b.1.0": OTHER})["1.a.1.0"]["error"] == "taken"


def test_an_account_answers_for_its_run_although_another_has_made_its_lock(
    workdir: Workdir, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, Any] = {}

    def heard_by_sudo(entry: Any, verb: str, request: dict[str, Any], where: Workdir) -> dict[str, Any]:
        told.update(request)
        return {}

    monkeypatch.setattr(accounts, "by_sudo", heard_by_sudo)
    monkeypatch.setattr(os, "getuid", lambda: 65534)
    accounts._elsewhere(1, "status", lambda *_: {}, {"runs": {"3.c.1.0": None}}, workdir)
    monkeypatch.undo()
    workdir.lock("3.c.1.0").touch()
    shutil.chown(workdir.lock("3.c.1.0"), OTHER)
    found = accounts.for_each_owner(
        "status",
        lambda request, _: {"runs": {key: {"uid": os.getuid()} for key in request["runs"]}},
        told["runs"],
        {},
        workdir,
        told["accounts"],
    )
    assert found == {"3.c.1.0": {"uid": os.getuid()}}


def test_a_node_starts_nothing_that_another_account_has_put_in_the_place_of_its_run(workdir: Workdir) -> None:
    paths = workdir.run("1.a.1.0")  # of another account than this one
    paths.ticket.write_text('{"job_id": "7"}')
    os.environ["SLURM_JOB_ID"] = "7"
    try:
        workdir.runs.chmod(0o711)
        assert attending._is_chosen(paths), "nobody else could have made it"
        workdir.runs.chmod(0o1733)
        assert attending._is_chosen(paths) is None
        link = workdir.run("3.c.1.0")
        link.root.symlink_to(paths.root)
        assert attending._is_chosen(link) is None
        os.chown(paths.root, 0, 0)
        assert attending._is_chosen(paths) and attending._is_chosen(link) is None
    finally:
        del os.environ["SLURM_JOB_ID"]

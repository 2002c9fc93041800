"""`pool`, `agent` and `slot` at a terminal and in scripts, against the whole server with a host of this machine."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

import pytest

from tests.rig.pace import wait_until
from tests.trainmaster.cli.conftest import CommandLine
from tests.trainmaster.cli.terminal import Terminal

LASTING = "import time\nwhile True:\n    time.sleep(0.2)\n"
CONFIG = """
name: keeps-on
entrypoint: python3 train.py
searcher: {name: single, metric: loss, max_length: {batches: 10}}
hyperparameters: {lr: 0.1}
resources: {slots_per_trial: 1, resource_pool: mine}
"""


def test_a_pool_is_made_described_edited_and_deleted(tm: CommandLine) -> None:
    made = tm(
        "pool",
        "create",
        "a100",
        "--scheduler",
        "fair_share",
        "--priority-floor",
        "editor=20",
        "--no-preemption",
    )
    assert (made.returncode, made.stdout.strip()) == (0, "Created pool a100")
    shown = json.loads(tm("pool", "describe", "a100", "-o", "json").stdout)
    assert (shown["scheduler"], shown["preemption"], shown["priorityFloor"]) == (
        "fair_share",
        False,
        {"editor": 20},
    )
    edited = tm(
        "resource-pool", "edit", "a100", "--host-lost-after", "600", "--strict", "--priority-floor", "none"
    )
    assert edited.stdout.strip() == (
        "Changed pool a100: host-lost-after from none to 600, strict from no to yes, "
        "priority-floor from editor=20 to none"
    )
    hung = tm("pool", "edit", "a100", "--hang-after", "1800", "--hang-do", "restart")
    assert (
        hung.stdout.strip() == "Changed pool a100: hang-do from tell to restart, hang-after from 900 to 1800"
    )
    young = tm("pool", "edit", "a100", "--min-runtime", "600", "--min-runtime", "50=60")
    assert young.stdout.strip() == "Changed pool a100: min-runtime from none to 1=600 50=60"
    cleared = tm("pool", "edit", "a100", "--min-runtime", "none")
    assert cleared.stdout.strip() == "Changed pool a100: min-runtime from 1=600 50=60 to none"
    for name in ("vision", "speech"):
        tm("user-group", "create", name)
    tm("pool", "edit", "a100", "--group", "vision=weight:2,limit:8", "--usage-half-life", "86400")
    more = tm("pool", "edit", "a100", "--group", "speech=weight:3")
    assert more.stdout.strip() == (
        "Changed pool a100: group from vision=limit:8,weight:2 to speech=weight:3 vision=limit:8,weight:2"
    )
    closed = tm("pool", "edit", "a100", "--open-to", "group:vision", "--open-to", "workspace:1")
    assert closed.stdout.strip() == "Changed pool a100: open-to from none to group:vision workspace:1"
    assert "group:vision workspace:1" in tm("pool", "describe", "a100").stdout
    tm("pool", "edit", "a100", "--open-to", "everyone")
    tm("pool", "edit", "a100", "--group", "vision=none", "--group", "speech=none")
    assert json.loads(tm("pool", "describe", "a100", "-o", "json").stdout)["groupShares"] == {}
    described = " ".join(tm("pool", "describe", "a100").stdout.split())
    assert "Host lost after (s): 600" in described and "Usage half life (s): 86400" in described
    rows = list(csv.DictReader(io.StringIO(tm("pool", "list", "-o", "csv").stdout)))
    assert {row["Name"]: row["Scheduler"] for row in rows} | {"a100": "fair share"} == {
        row["Name"]: row["Scheduler"] for row in rows
    }
    assert tm("pool", "delete", "a100", "--yes").stdout.strip() == "Deleted pool a100"
    assert "a100" not in tm("pool").stdout


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("create", "x", "--scheduler", "rr"), 1, "Found 'rr'; allowed: priority or fair_share."),
        (("create", "a b"), 1, "The name 'a b' is not allowed"),
        (
            ("edit", "default", "--default-priority", "1.5"),
            1,
            "Found '1.5'; allowed: a whole number from 1 to 99.",
        ),
        (("edit", "default", "--priority-floor", "3"), 2, "allowed: ROLE=N"),
        (
            ("edit", "default", "--min-runtime", "10m"),
            1,
            "Found {'1': '10m'}; allowed: seconds from a priority",
        ),
        (("edit", "default"), 2, "name at least one rule"),
        (("edit", "default", "--group", "vision"), 2, "allowed: GROUP=guarantee:N,limit:N,weight:X"),
        (("edit", "default", "--group", "moon=weight:1"), 1, "there is no group moon"),
        (("edit", "moon", "--strict"), 1, "Pool moon not found"),
        (("delete", "default", "--yes"), 1, "Pool default cannot be removed"),
    ],
)
def test_a_wrong_wish_about_a_pool_is_a_sentence(
    tm: CommandLine, words: tuple[str, ...], code: int, sentence: str
) -> None:
    tm("pool", "list")  # which makes the default pool
    ran = tm("pool", *words)
    assert ran.returncode == code
    assert sentence in ran.stderr


@pytest.fixture
def running(tm: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The host `cpu1` of this machine with two slots in pool `mine`; a trial runs on one. The experiment's id."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "code").mkdir()
    (folder / "code" / "train.py").write_text(LASTING)
    (folder / "config.yaml").write_text(CONFIG)
    tm("pool", "create", "mine")
    added = tm(
        "host",
        "add",
        "local",
        "--name",
        "cpu1",
        "--pool",
        "mine",
        "--slots",
        "2",
        "--allow-login-account",
        "--yes",
    )
    assert added.returncode == 0, added.stderr
    created = tm("experiment", "create", str(folder / "config.yaml"), str(folder / "code"))
    experiment = created.stdout.split()[-1]
    assert wait_until(lambda: "keeps-on" in held(tm), 60), tm("job", "list", "-p", "mine").stdout
    yield experiment
    tm("experiment", "kill", experiment)
    assert wait_until(lambda: not held(tm), 60)
    tm("host", "remove", "cpu1", "--yes")


def held(tm: CommandLine) -> str:
    """What `slot list` says of the slots that are held: allocation and task, with the experiment's name."""
    slots = json.loads(tm("slot", "list", "-o", "json").stdout)
    mine = [slot["heldBy"] for slot in slots if slot["agent"]["id"] == "cpu1" and slot.get("heldBy")]
    return " ".join(f"{each['allocationId']} keeps-on" for each in mine)


def test_hosts_and_slots_are_listed_drained_disabled_and_enabled(tm: CommandLine, running: str) -> None:
    agents = list(csv.DictReader(io.StringIO(tm("agent", "list", "-o", "csv").stdout)))
    assert list(agents[0]) == ["Agent ID", "Version", "Registered Time", "Slots", "Containers", "Resource Pool",
                               "Enabled", "Draining", "Addresses"]  # fmt: skip
    slots = list(csv.DictReader(io.StringIO(tm("slot", "ls", "-o", "csv").stdout)))
    assert list(slots[0]) == ["Agent ID", "Resource Pool", "Slot ID", "Enabled", "Draining", "Allocation ID",
                              "Task Name", "Type", "Device"]  # fmt: skip
    mine = [slot for slot in slots if slot["Agent ID"] == "cpu1"]
    assert [slot["Allocation ID"] for slot in mine][1] == "FREE"
    drained = tm("agent", "disable", "cpu1", "--drain")
    assert "Tasks still in progress on draining agents." in drained.stderr
    assert f"(Experiment {running})" in drained.stdout
    assert tm("agent", "enable", "cpu1").stdout.strip() == "Enabled agent cpu1."
    refused = tm("pool", "move-host", "default", "cpu1")
    assert (refused.returncode, "while it runs" in refused.stderr) == (1, True)
    assert tm("agent", "disable").returncode == 2

    before = held(tm)
    asked = Terminal(tm.command("slot", "disable", "cpu1", "0"), tm.environment)
    asked.answer("stops 1 running task, which goes back to the queue (commands end for good)", "n")
    assert asked.wait() == 1 and "Nothing was changed." in asked.said
    assert held(tm) == before
    stopped = tm("slot", "disable", "cpu1", "0")
    assert (stopped.returncode, stopped.stderr.strip()) == (0, f"stopped: exp {running}")
    assert wait_until(lambda: held(tm) not in ("", before), 60), "tried again on the other slot"
    assert tm("slot", "enable", "cpu1", "0").stdout.strip() == "Enabled slot 0 of agent cpu1"

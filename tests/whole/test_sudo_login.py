"""A host whose login is an ordinary account that may become its users by sudo, and nobody else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.hosts import ALICE, BOB, CARRIER, UIDS, HostRig, processes_with_marker
from tests.rig.stack import Stack, config, running_stack
from tests.whole.test_accounts import INTRUDER, RANK_0, TRIES, VICTIM, Person, make_person

pytestmark = [pytest.mark.hosts, pytest.mark.skipif(shutil.which("sudo") is None, reason="needs sudo")]

#: as docs/add-host.md has it
RULE = f"{CARRIER} ALL=({ALICE},{BOB}) NOPASSWD: ALL\n"


@pytest.fixture(scope="module")
def stack(host_rig: HostRig) -> Iterator[Stack]:
    if not host_rig.take(1)[0].isolated:
        pytest.skip("needs hosts with accounts of their own (root and network namespaces)")
    rule = Path("/etc/sudoers.d/trainmaster-whole-test")
    rule.write_text(RULE)
    rule.chmod(0o440)
    try:
        with running_stack(host_rig, hosts=1) as stack:
            (host,) = stack.hosts
            host.workdir.mkdir()
            os.chown(host.workdir, UIDS[CARRIER], UIDS[CARRIER])
            host.authorize(stack.get("/api/v1/hosts/server-key")["publicKey"], CARRIER)
            about = {"name": host.name, "transport": "ssh", "address": host.address, "port": host.port}
            stack.post("/api/v1/hosts", {**about, "user": CARRIER, "slots": 2, "allowLoginAccount": False})
            stack.wait(lambda: stack._admitted(host), 180, "the host to be ready")
            yield stack
    finally:
        rule.unlink()


@pytest.fixture(scope="module")
def people(stack: Stack) -> dict[str, Person]:
    return {login: make_person(stack, login, UIDS[login]) for login in (ALICE, BOB)}


def test_jobs_of_linked_users_are_kept_apart_and_stopped_through_sudo(people: dict[str, Person]) -> None:
    alice, bob = people[ALICE], people[BOB]
    victim = alice.stack.submit({"worker.py": VICTIM}, config(1, RANK_0))
    alice.stack.wait_lines(victim, 1)
    words = alice.lines(victim)[0].split()
    assert words[1] == str(alice.uid)
    (key,) = alice.stack.run_keys(victim)
    assert {Path(f"/proc/{pid}").stat().st_uid for pid in processes_with_marker(key)} == {alice.uid}

    code = INTRUDER.replace("FOLDER", repr(words[3])).replace("PID", words[5], 1)
    intruder = bob.stack.submit({"worker.py": code}, config(1, RANK_0))
    assert bob.stack.wait_end(intruder) == "STATE_COMPLETED"
    lines = bob.lines(intruder)
    assert (lines[0], lines[-1]) == (f"uid {bob.uid}", "tried all")
    tries = dict(line.split(": ", 1) for line in lines[1:-1])
    assert len(tries) == TRIES and set(tries.values()) == {"refused"}, tries

    (host,) = alice.stack.hosts
    for command in (
        f"cat {words[3]}/spec.json", f"kill {words[5]}", "sudo -n id", "sudo -n cat /etc/shadow",
        "sudo -n -u nobody id", f"sudo -n -u {ALICE} sudo -n id", f"sudo -n -g root -u {ALICE} id",
        f"sudo -n -u {ALICE} cat /etc/shadow",
    ):  # fmt: skip
        done = host.run(command, CARRIER)
        assert done.returncode != 0, f"{command}: {done.stdout}"
    assert host.run(f"sudo -n -u {ALICE} id -u", CARRIER).stdout.strip() == str(alice.uid)

    assert processes_with_marker(key), "the victim lives"
    alice.stack.post(f"/api/v1/experiments/{victim}/kill")
    assert alice.stack.wait_end(victim) == "STATE_CANCELED"
    alice.stack.assert_nothing_runs([key])


def test_work_that_would_run_as_the_login_is_refused(stack: Stack) -> None:
    body = {"config": config(1, RANK_0), "modelDefinition": [], "activate": True}
    status, sentence = stack.refused("POST", "/api/v1/experiments", body)
    assert status == 403 and "it would run as the login account" in sentence, sentence

"""Verbs on the nodes of a job: what the login node is told to run, and what is made of answers, which are stand-ins."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import pytest

from dispatch.ssh import remote, slurm_login, slurm_node, tunnel
from dispatch.ssh.contact_errors import Unreachable, VerbFailed
from dispatch.ssh.slurm_login import SlurmRefused
from hosts.models import Host
from tests.rig.rows import make_gang
from tests.rig.world import make_host

pytestmark = pytest.mark.django_db


class Login:
    """Its srun, which answers what a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.row = make_host("p-login", 0)
        self.nodes = [make_host(f"n{number}@p", 1) for number in (1, 2)]
        for number, node in enumerate(self.nodes, 1):
            node.address, node.workdir = f"n{number}", "/scratch"
            node.save()
        self.asked: list[tuple[str, bytes]] = []
        self.answers: list[str | SlurmRefused] = []
        monkeypatch.setattr(slurm_login, "ask", self._ask)

    def _ask(self, login: Host, words: Sequence[str], stdin: bytes, **_: Any) -> tuple[str, str]:
        self.asked.append((" ".join(words), stdin))
        answer = self.answers.pop(0)
        if isinstance(answer, SlurmRefused):
            raise answer
        return answer, ""

    def ask(self, *answers: str | SlurmRefused) -> dict[str, Any]:
        self.answers = list(answers)
        return slurm_node.verb(self.row, "7", self.nodes, "status", {"runs": ["a.0", "a.1"]})


@pytest.fixture
def login(monkeypatch: pytest.MonkeyPatch) -> Login:
    return Login(monkeypatch)


def refused(said: str) -> SlurmRefused:
    return SlurmRefused(f"srun failed: {said}", said=said, code=1)


def labelled(task: int, *lines: str) -> list[str]:
    """As srun forwards them: in pieces, each on a line of its own."""
    pieces = [line[at : at + 20] for line in lines for at in range(0, len(line), 20)]
    return [f"{task}: {piece}" for piece in pieces]


def test_nodes_get_the_programs_once_and_answer_for_their_own_runs(login: Login) -> None:
    first = labelled(
        0, "a banner", '{"begun": 1}', json.dumps({"runs": {"a.0": {"state": "ended"}, "a.9": "no"}})
    )
    second = labelled(1, json.dumps({"runs": {"a.1": {"state": "running", "of": {"more": 1}}}}))
    mixed = [line for lines in zip_longest(first, second) for line in lines if line]
    for more in (["pushed"], []):
        runs = login.ask(*more, "\n".join(mixed))["runs"]
        assert {key: run["state"] for key, run in runs.items()} == {"a.0": "ended", "a.1": "running"}
    (push, archive), (words, stdin), _ = login.asked
    assert archive == remote.current_bundle().archive and "--nodelist=n1,n2" in push
    assert words.startswith("srun --jobid=7 --overlap") and "--nodes=2 --ntasks=2" in words
    assert f"/scratch/bundle/{remote.current_bundle().sha256}/trainmaster/host status" in words
    assert json.loads(stdin) == {"runs": ["a.0", "a.1"]}


@pytest.mark.parametrize("second", ["", '1: {"runs": {"a.1"', "1: noise", '1: {"begun": 1}'])
def test_a_node_that_did_not_answer_says_nothing_of_its_runs(login: Login, second: str) -> None:
    with pytest.raises(VerbFailed, match="1 of the 2 nodes") as failed:
        login.ask("pushed", '0: {"runs": {"a.0": {"state": "absent"}}}\n' + second)
    assert failed.value.delivered


def test_only_an_error_after_the_programs_are_there_leaves_a_doubt(login: Login) -> None:
    with pytest.raises(Unreachable, match="could not be brought into /scratch") as error:
        login.ask(refused("Permission denied"))
    assert not error.value.delivered
    with pytest.raises(Unreachable, match="step creation") as error:
        login.ask("pushed", refused("step creation"))
    assert error.value.delivered
    with pytest.raises(Unreachable, match="lost Trainmaster's programs") as error:
        login.ask(refused("python3: can't open file '/scratch/bundle/…'"))
    assert not error.value.delivered and not Host.objects.exclude(bundle_sha256="").exists()


def test_errors_of_nodes_are_those_of_the_verb(login: Login) -> None:
    with pytest.raises(VerbFailed, match="The disk is full") as failed:
        login.ask("pushed", '1: {"error": "disk", "message": "The disk is full."}')
    assert failed.value.code == "disk" and not failed.value.delivered
    with pytest.raises(VerbFailed, match="0 of the 2 nodes") as failed:
        login.ask('0: {"begun": 1}\n1: noise')
    assert failed.value.delivered


def test_runs_that_could_not_be_told_of_a_new_url_are_told_later(
    login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    [member] = make_gang()
    host = member.host
    Host.objects.filter(pk=host.pk).update(
        admission=Host.Admission.READY, server_url="http://new", told_url="http://old"
    )
    answers: list[Any] = [Unreachable("It is silent."), {}]
    told: list[Any] = []

    def verb(at: Host, name: str, request: dict[str, Any]) -> Any:
        told.append((name, request["runs"], "http://new" in request["server"]["urls"]))
        if isinstance(answer := answers.pop(0), Unreachable):
            raise answer
        return answer

    monkeypatch.setattr(remote, "verb", verb)
    for left in (True, False, False):
        tunnel.tell_untold(host.pk)
        assert tunnel.untold().filter(pk=host.pk).exists() == left
    assert told == [("server", [member.run_key], True)] * 2

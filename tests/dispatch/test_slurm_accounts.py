"""What a Slurm pool with accounts=own makes of answers: stand-ins. Real accounts in a real cluster:
tests/chaos/test_slurm_people.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from django.db.models import F

from accounts.models import User
from accounts.refusals import FieldRefusals, Refusal
from dispatch.runs.submitting import Submissions
from dispatch.ssh import remote, slurm_login
from dispatch.ssh.slurm_login import Person
from dispatch.watching import slurm_people
from events import presence
from experiments import submit
from experiments.config import parse
from hosts import login_accounts, pool_edits, trust
from hosts.models import Host, ResourcePool
from hosts.slurm import facts
from jobs import feeding
from jobs.fed_jobs import FedJob
from jobs.models import Allocation, Member
from submissions import contexts, host_remarks
from tests.dispatch import test_slurm_answers_settled as answers
from tests.rig.world import make_project, make_user, trial_of

pytestmark = pytest.mark.django_db(transaction=True)

SUDO = {"account": {"name": "ml", "uid": 1000, "switch": "sudo", "root_by": ""}}
CONFIG = """
name: fed
entrypoint: [sh, -c, "exit 0"]
searcher: {name: single, metric: loss, max_length: 1}
resources: {slots_per_trial: 1}
"""


class World(answers.World):
    """A pool with accounts=own, whose login `ml` becomes alice and bob by sudo. Jobs: (id, user, state, comment)."""

    def __init__(self) -> None:
        super().__init__()
        rules = {**self.pool.slurm, "accounts": "own", "folder": "/shared"}
        ResourcePool.objects.filter(pk=self.pool.pk).update(
            slurm=rules, allow_login_account=False, shared_account=False
        )
        Host.objects.filter(pool=self.pool).update(facts=SUDO)
        self.pool.refresh_from_db()
        self.login.refresh_from_db()
        for name in ("alice", "bob"):
            User.objects.filter(pk=make_user(name).pk).update(unix_user=name)
        self.listed: list[tuple[str, str, str, str]] = []
        self.users = ""
        self.unknown: list[str] = []
        self.config = ""
        self.under: list[tuple[str, str]] = []
        self.faults: dict[str, Exception] = {}

    def ask(
        self,
        login: Host,
        words: Sequence[str],
        stdin: bytes = b"",
        *,
        person: Person | None = None,
        **more: object,
    ) -> tuple[str, str]:
        account = person.account if person else ""
        self.under.append((words[0], account))
        if fault := self.faults.get(account):
            raise fault
        if words[0] == "squeue":
            mark, self.users = words[-1].partition("%")[0], words[words.index("-u") + 1]
            return "".join(
                f"{mark}{id_}|{id_}|N/A|{state}|{user}|1|1|N/A|p|N/A|n1|None|{comment}\n"
                for id_, user, state, comment in self.listed
            ), "".join(f"squeue: error: Invalid user: {user}\n\n" for user in self.unknown)
        if words[0] == "scontrol":
            return self.config, ""
        return super().ask(login, words, stdin, **more)

    def fed_of(self, name: str) -> FedJob:
        owner = User.objects.get(username=name)
        made = submit.create(
            owner=owner, config=parse(CONFIG), original=CONFIG, context=contexts.empty(), project=make_project(),
            parent=None, activate=True, idempotency_key=None, actor=f"user:{name}",
        )  # fmt: skip
        self.passes()
        return FedJob.objects.get(task=trial_of(made).task_id)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(slurm_login, "ask", made.ask)
    monkeypatch.setattr(
        remote,
        "verb",
        lambda host, verb, request, **_: {
            "runs": {**{key: {"state": "absent"} for key in request.get("runs", ())}, **made.runs}
        },
    )
    return made


def test_each_job_is_handed_over_and_taken_back_under_the_account_of_its_owner(world: World) -> None:
    alices, bobs = world.fed_of("alice"), world.fed_of("bob")
    assert (alices.unix_user, bobs.unix_user) == ("alice", "bob")
    assert [user for word, user in world.under if word == "sbatch"] == ["alice", "bob"]
    [output] = [word for word in world.sent[0] if word.startswith("--output=")]
    assert output == f"--output=/shared/printed/alice/{alices.attempt}.txt"
    world.listed = [("1", "alice", "PENDING", alices.attempt), ("2", "bob", "PENDING", bobs.attempt)]
    feeding.take_back(bobs, "others are ahead of it now")
    world.look()
    assert world.users == "alice,bob,ml"
    assert world.canceled == ["2"] and world.under[-1] == ("scancel", "bob")


def test_a_comment_of_anybody_else_is_nothing(world: World) -> None:
    alices = world.fed_of("alice")
    FedJob.objects.update(job_id="", send_after=None)  # its answer was lost
    world.listed = [("66", "bob", "RUNNING", alices.attempt)]
    world.look()
    alices.refresh_from_db()
    assert alices.job_id == "" and not Allocation.objects.exists() and not world.canceled
    world.listed.append(("1", "alice", "PENDING", alices.attempt))
    world.look()
    alices.refresh_from_db()
    assert alices.job_id == "1"
    feeding.ended(alices)
    world.passes()
    world.listed = [("66", "bob", "RUNNING", alices.attempt), ("7", "alice", "PENDING", alices.attempt)]
    FedJob.objects.filter(ended_at=None).update(job_id="9")
    world.look()
    assert world.canceled == ["7"], "a submission of hers that came late, not what bob calls so"


def test_an_account_that_the_login_node_cannot_find_just_now_has_lost_no_job(world: World) -> None:
    alices, bobs = world.fed_of("alice"), world.fed_of("bob")
    world.listed = [("1", "alice", "PENDING", alices.attempt), ("2", "bob", "PENDING", bobs.attempt)]
    world.look()
    world.listed, world.unknown = [("1", "alice", "PENDING", alices.attempt)], ["bob"]
    answers.be_whole(seconds=7200)
    world.look()
    world.look_later()
    bobs.refresh_from_db()
    assert (bobs.job_id, bobs.over_at, bobs.refused) == ("2", None, False)
    FedJob.objects.filter(pk=bobs.pk).update(job_id="", send_after=None)  # its answer was lost
    world.look()
    bobs.refresh_from_db()
    assert bobs.sent_at is not None and bobs.over_at is None, "it is not sent twice"
    FedJob.objects.filter(pk=bobs.pk).update(job_id="2", seen_at=F("seen_at") - timedelta(hours=1))
    world.look()
    world.look_later()
    bobs.refresh_from_db()
    assert bobs.refused, "its account was deleted"


def test_another_account_of_its_owner_takes_a_job_back_and_hands_it_over_again(world: World) -> None:
    row = world.fed_of("alice")
    User.objects.filter(username="alice").update(unix_user="alicia")
    assert feeding.OTHER_ACCOUNT in world.why(row)
    world.listed = [("1", "alice", "PENDING", row.attempt)]
    world.look()
    assert world.under[-1] == ("scancel", "alice") and world.users == "alice,ml"
    world.listed = []
    world.look()
    world.look_later()
    world.passes()
    new = FedJob.objects.get(ended_at=None)
    assert (new.attempt, new.unix_user, new.pk != row.pk) == (row.attempt, "alicia", True)

    # changed once more when it has nodes: nothing begins under an account that is not the owner's
    User.objects.filter(username="alice").update(unix_user="alice")
    world.listed = [("2", "alicia", "RUNNING", new.attempt)]
    world.look()
    new.refresh_from_db()
    assert not Allocation.objects.exists() and new.back_at is not None


def test_a_silent_account_keeps_its_jobs_in_slurm_and_says_so(world: World) -> None:
    row = world.fed_of("alice")
    world.listed = [("1", "alice", "PENDING", row.attempt)]
    feeding.take_back(row, "others are ahead of it now")
    world.faults["alice"] = remote.VerbFailed("broke", "It took longer than 20 s.", delivered=True)
    for _ in range(2):
        world.look()
    row.refresh_from_db()
    assert row.back_why == "others are ahead of it now; it is still there: It took longer than 20 s."
    root = {"account": {"name": "root", "uid": 0, "switch": "root"}}
    Host.objects.filter(pk=world.login.pk).update(facts=root)
    world.login.refresh_from_db()
    world.look()
    assert world.canceled == ["1"] and world.under[-1] == ("scancel", "")


def test_what_slurm_hides_by_now_is_not_over(world: World) -> None:
    row = world.fed_of("alice")
    world.listed = [("1", "alice", "PENDING", row.attempt)]
    world.look()
    world.listed, world.config = [], "PrivateData             = jobs\n"
    world.look()
    world.look_later()
    row.refresh_from_db()
    assert (row.job_id, row.over_at) == ("1", None)
    world.config = ""
    world.look()
    world.look_later()
    row.refresh_from_db()
    assert row.refused


def test_an_attempt_keeps_the_account_of_its_job(world: World) -> None:
    row = world.fed_of("alice")
    world.listed = [("1", "alice", "RUNNING", row.attempt)]
    world.look()
    attempt = Allocation.objects.get(pk=row.attempt)
    assert attempt.unix_user == "alice"
    User.objects.filter(username="alice").update(unix_user="alicia")
    attempt = Allocation.objects.get(pk=row.attempt)
    assert (attempt.account, attempt.account_now) == ("alice", "alicia")


def test_an_account_that_is_not_there_or_does_not_answer_holds_up_nobody_else(world: World) -> None:
    world.faults["alice"] = remote.VerbFailed("no_account", "This host has no account 'alice'.")
    alices, bobs = world.fed_of("alice"), world.fed_of("bob")
    alices.refresh_from_db()
    assert bobs.job_id and "no account 'alice'" in world.why(alices) and alices.refused, (
        "it takes no place of others"
    )
    FedJob.objects.filter(pk=alices.pk).update(made_at=F("made_at") - timedelta(minutes=8), send_after=None)
    Submissions(world.pool, world.login).send_due()
    alices.refresh_from_db()
    assert alices.send_after and (alices.send_after - presence.database_now()).total_seconds() > 300, "longer"
    world.faults["alice"] = remote.VerbFailed("broke", "It took longer than 20 s.", delivered=True)
    world.fed_of("alice")
    FedJob.objects.filter(unix_user="").update(send_after=None)
    asked = len(world.under)
    Submissions(world.pool, world.login).send_due()
    assert world.under[asked:].count(("sh", "alice")) == 1, "her other jobs wait as well"


def test_a_run_whose_folder_nobody_can_look_into_ends_as_slurm_says(world: World) -> None:
    row = world.fed_of("alice")
    world.listed = [("1", "alice", "RUNNING", row.attempt)]
    world.look()
    world.runs = {f"{row.attempt}.0": {"error": "no_account", "message": "It has no account here."}}
    world.listed = [("1", "alice", "FAILED", row.attempt)]
    world.look()
    world.look_later()
    assert Member.objects.get().state != "ENDED", "it may be there again"
    FedJob.objects.update(over_at=F("over_at") - timedelta(minutes=5))
    answers.be_whole(seconds=600)
    world.look()
    member = Member.objects.get()
    assert (member.state, member.exit_reason) == ("ENDED", "launch_failed")


def test_who_has_no_account_is_refused_and_the_doctor_says_whose_jobs_wait(world: World) -> None:
    make_user("carl")
    with pytest.raises(Refusal, match="its owner has no linked Unix account"):
        login_accounts.refuse_as_login(world.pool, "")
    login_accounts.refuse_as_login(world.pool, "alice")
    world.faults["bob"] = remote.VerbFailed(
        "sudo", "This login cannot switch to 'bob': a password is required."
    )
    state, sentence = slurm_people.check(world.login) or ("", "")
    assert state == "warn" and sentence == (
        "Jobs of bob cannot be handed to Slurm. bob (bob): This login cannot switch to 'bob': a password is required."
    )
    Host.objects.filter(pk=world.login.pk).update(facts=world.login.facts)
    [remark] = [each for each in host_remarks.remarks({}, None, world.pool, "bob") if "Slurm" in each]
    assert "The account bob could not hand jobs to Slurm when the doctor of p-login last looked" in remark
    assert not [each for each in host_remarks.remarks({}, None, world.pool, "alice") if "Slurm" in each]
    world.faults["alice"] = world.faults["bob"]
    assert (slurm_people.check(world.login) or ("", ""))[0] == "fail"
    world.faults["alice"] = remote.Unreachable("The link broke.")
    with pytest.raises(remote.Unreachable):  # that is no fault of hers
        slurm_people.check(world.login)
    world.login.facts = {"account": {**SUDO["account"], "switch": "none"}}
    assert "ml cannot switch to other accounts" in (slurm_people.check(world.login) or ("", ""))[1]
    assert not any("accounts=one" in gap for gap in trust.of_server().gaps)


def test_settings_that_contradict_accounts_of_their_own() -> None:
    for values, sentence in [
        ({"slurm": {"login": "s", "accounts": "mine"}}, "accounts: found 'mine'; allowed: one or own"),
        (
            {"slurm": {"login": "s", "accounts": "own", "folder": "/x", "folder_is_shared": False}},
            "accounts=own needs a folder that the login node and all nodes share",
        ),
        ({"slurm": {"login": "s", "accounts": "own"}, "shared_account": True}, "contradicts accounts=own"),
    ]:
        with pytest.raises(FieldRefusals, match=sentence):
            pool_edits.create("stars", values, actor="user:ada")
    config = {"PrivateData": "accounts,jobs", "SlurmUser": "slurm(64030)"}
    with pytest.raises(Refusal, match="Slurm hides the jobs of others from ml"):
        facts.refuse_hidden_jobs(config, "ml")
    for account, private in [("root", "jobs"), ("slurm", "jobs"), ("ml", "none"), ("ml", "usage,cloud")]:
        facts.refuse_hidden_jobs({**config, "PrivateData": private}, account)

"""The documented example of the job queue with real jobs on one slot, run by an editor at the command line."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.rig.hosts import HostRig
from tests.rig.pace import wait_until
from tests.rig.stack import Stack, config, running_stack
from tests.trainmaster.cli.terminal import Terminal

pytestmark = pytest.mark.hosts

PASSWORD = "A long password of a tester 7"
LIMIT_SECONDS = 240.0
#: Runs until it is told to stop, and saves what it has done then.
TRAINING = """
import time
import determined as det

with det.core.init() as core:
    steps = 0
    while not core.preempt.should_preempt():
        steps += 1
        time.sleep(0.1)
    with core.checkpoint.store_path({"steps_completed": steps}) as (path, _):
        (path / "state").write_text(str(steps))
"""
HEADINGS = [
    "#",
    "ID",
    "Type",
    "Job Name",
    "Priority",
    "Submitted",
    "Slots (acquired/needed)",
    "Status",
    "User",
]


@pytest.fixture(scope="module")
def stack(host_rig: HostRig) -> Iterator[Stack]:
    """One host with one slot."""
    with running_stack(host_rig, hosts=1) as stack:
        stack.add_hosts(slots=1)
        yield stack


@dataclass
class Person:
    """A user at the command line."""

    name: str
    stack: Stack

    @property
    def environment(self) -> dict[str, str]:
        token = self.stack.token
        return {"TRAINMASTER_TOKEN": token, "DET_USER_TOKEN": token, "NO_COLOR": "1"}

    def tm(self, *words: str) -> str:
        """What a command prints, which must be well."""
        done = self.stack.server.cli(*words, environment=self.environment)
        assert done.returncode == 0, f"{words}: {done.stdout} {done.stderr}"
        return done.stdout

    def refused(self, *words: str) -> str:
        done = self.stack.server.cli(*words, environment=self.environment)
        assert done.returncode == 1, f"{words}: {done.returncode} {done.stdout} {done.stderr}"
        return done.stderr.strip()

    def table(self) -> list[list[str]]:
        """The rows of `job ls`, cell by cell, under the documented headings."""
        head, _, *rows = self.tm("job", "ls", "-p", "default").splitlines()
        assert [cell.strip() for cell in head.split("|")] == HEADINGS
        return [[cell.strip() for cell in row.split("|")] for row in rows]

    def submit(self, name: str) -> str:
        """The id of a new job that asks for one slot."""
        experiment = self.stack.submit({"train.py": TRAINING}, config(1, "python3 train.py", name=name))
        return str(self.stack.experiment(experiment)["jobId"])

    def is_at(self, place: int, job: str, status: str) -> bool:
        """Whether the job stands there so, as REST says, which costs less to ask than a command."""
        rows = self.stack.get("/api/v1/job-queues?resourcePool=default&limit=-1")["jobs"]
        found = rows[place] if place < len(rows) else {"jobId": ""}
        return bool(found["jobId"] == job and found["summary"]["state"] == status)

    def wait_row(self, place: int, job: str, slots: str, status: str) -> None:
        def there() -> bool:
            rows = self.table()
            row = rows[place] if place < len(rows) else [""] * len(HEADINGS)
            return [row[1], row[6], row[7]] == [job[:8], slots, status]

        assert wait_until(lambda: self.is_at(place, job, status) and there(), LIMIT_SECONDS), (
            f"no {job} at {place}, {slots} {status}:\n{self.table()}\n{self.tm('job', 'explain', job)}"
        )


def make_person(stack: Stack, name: str, role: str = "editor") -> Person:
    user = {"username": name, "active": True, "role": role}
    stack.post("/api/v1/users", {"user": user, "password": PASSWORD, "isHashed": False})
    own = Stack(stack.server, stack.hosts)
    words = {"username": name, "password": PASSWORD, "isHashed": False}
    own.token = str(stack.server.request("POST", "/api/v1/auth/login", words)["token"])
    return Person(name, own)


@pytest.fixture(scope="module")
def people(stack: Stack) -> dict[str, Person]:
    return {
        "user1": make_person(stack, "user1"),
        "user2": make_person(stack, "user2"),
        "viewer": make_person(stack, "viewer", "viewer"),
    }


@pytest.fixture
def user1(stack: Stack, people: dict[str, Person]) -> Iterator[Person]:
    yield people["user1"]
    for row in stack.get("/api/v1/job-queues?limit=-1")["jobs"]:
        stack.post(f"/api/v1/experiments/{row['entityId']}/kill")
    stack.wait(
        lambda: not stack.get("/api/v1/job-queues")["jobs"] and not stack.holders(),
        LIMIT_SECONDS,
        "an empty queue",
    )


def row(place: int, job: str, name: str, priority: int, slots: str, status: str) -> list[str]:
    """A row of the table as it is printed, without the time of the submission."""
    return [str(place), job[:8], "TYPE_EXPERIMENT", name, str(priority), slots, status, "user1"]


def without_time(table: list[list[str]]) -> list[list[str]]:
    return [cells[:5] + cells[6:] for cells in table]


def test_the_documented_example_prints_the_documented_tables(user1: Person) -> None:
    """S4-28; the tables are read when the stopped job has ended."""
    first, second = user1.submit("first_job"), user1.submit("second_job")
    user1.wait_row(0, first, "1/1", "STATE_SCHEDULED")
    assert without_time(user1.table()) == [
        row(0, first, "first_job", 42, "1/1", "STATE_SCHEDULED"),
        row(1, second, "second_job", 42, "0/1", "STATE_QUEUED"),
    ]
    user1.tm("job", "update", second[:8], "--ahead-of", first[:8])
    user1.wait_row(0, second, "1/1", "STATE_SCHEDULED")
    assert without_time(user1.table()) == [
        row(0, second, "second_job", 42, "1/1", "STATE_SCHEDULED"),
        row(1, first, "first_job", 42, "0/1", "STATE_QUEUED"),
    ]
    user1.tm("job", "update-batch", f"{second[:8]}.priority=1", f"{first[:8]}.priority=1")
    wait_for_a_pass(user1, first)
    then = [
        row(0, second, "second_job", 1, "1/1", "STATE_SCHEDULED"),
        row(1, first, "first_job", 1, "0/1", "STATE_QUEUED"),
    ]
    assert without_time(user1.table()) == then
    server = user1.stack.server
    server.stop()
    server.start()
    assert without_time(user1.table()) == then, "the order outlives the server"


def wait_for_a_pass(user: Person, job: str) -> None:
    """Until the pool was looked at after this moment."""
    since = time.time()

    def planned() -> bool:
        found = user.stack.get(f"/api/v1/jobs/{job}/explain").get("plannedAt", "")
        return bool(found > time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(since + 1)))

    user.stack.wait(planned, LIMIT_SECONDS, "another pass")


def test_without_preemption_the_order_changes_and_nothing_stops(stack: Stack, user1: Person) -> None:
    stack.server.request("PATCH", "/api/v1/resource-pools/default", {"preemption": False}, token=stack.token)
    try:
        first, second = user1.submit("first_job"), user1.submit("second_job")
        user1.wait_row(0, first, "1/1", "STATE_SCHEDULED")
        user1.tm("job", "update", second[:8], "--ahead-of", first[:8])
        wait_for_a_pass(user1, second)
        assert without_time(user1.table()) == [
            row(0, second, "second_job", 42, "0/1", "STATE_QUEUED"),
            row(1, first, "first_job", 42, "1/1", "STATE_SCHEDULED"),
        ]
    finally:
        stack.server.request(
            "PATCH", "/api/v1/resource-pools/default", {"preemption": True}, token=stack.token
        )


def test_on_a_terminal_work_of_others_is_stopped_only_after_a_question(
    user1: Person, people: dict[str, Person]
) -> None:
    theirs = user1.submit("theirs")
    user1.wait_row(0, theirs, "1/1", "STATE_SCHEDULED")
    user2 = people["user2"]
    mine = user2.submit("mine")
    words = ["job", "update", mine[:8], "--to-top"]
    said = user2.tm(*words, "--dry-run")
    assert f"job {theirs[:8]} theirs (1 slot, of user1): it has" in said
    assert said.splitlines()[0] == "With this edit:"
    no = terminal(user2, *words)
    no.answer("This stops other users' work. Continue? [y/N]", "n")
    assert no.wait() == 1
    assert f"job {theirs[:8]} theirs (1 slot, of user1)" in no.said
    assert [cells[3] for cells in user1.table()] == ["theirs", "mine"]
    yes = terminal(user2, *words)
    yes.answer("[y/N]", "y")
    assert yes.wait() == 0
    user2.wait_row(0, mine, "1/1", "STATE_SCHEDULED")
    assert user2.tm("job", "undo").strip() == f"Job {mine[:8]}: it has its former position."
    user1.wait_row(0, theirs, "1/1", "STATE_SCHEDULED")
    edits = [line for line in user1.tm("job", "explain", mine).splitlines() if "user2: " in line]
    assert [line.split("user2: ")[1] for line in edits] == ["moved (undo)", "moved"]


def terminal(user: Person, *words: str) -> Terminal:
    """A command of the user's on a terminal."""
    server = user.stack.server
    environment = {**server.cli_environment, **user.environment}
    return Terminal(server.cli_command(*words), environment)


def test_the_command_line_refuses_with_the_servers_sentence(user1: Person) -> None:
    job = user1.submit("job")
    for priority in ("0", "100", "1.5", "x"):
        sentence = f"priority must be between 1 and 99; 1 is the highest. Found: {priority}."
        said = user1.refused("job", "update", job[:8], "-p", priority)
        assert said == f"Failed to update the job: {sentence}"
        assert user1.refused("job", "update-batch", f"{job}.priority={priority}").endswith(sentence)
        assert user1.refused("job", "update", job, "-p", priority, "--dry-run").endswith(sentence)


def test_a_viewer_may_not_edit_and_a_table_of_mine_is_mine(user1: Person, people: dict[str, Person]) -> None:
    job = user1.submit("job")
    refused = people["viewer"].refused("job", "update", job, "-p", "1")
    assert refused == "Failed to update the job: viewer is a viewer and cannot change anything."
    assert "first" not in people["user2"].tm("job", "ls", "--mine")
    assert job[:8] in user1.tm("job", "ls", "--mine", "--why")

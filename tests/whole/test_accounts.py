"""Jobs of two people on one host: each runs under its own Unix account, and neither reaches into the other's."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.rig.hosts import ALICE, BOB, UIDS, HostRig, processes_with_marker
from tests.rig.stack import Json, Stack, config, running_stack

pytestmark = pytest.mark.hosts

PASSWORD = "A long password of a tester 7"
RANK_0 = "python3 -m determined.launch.wrap_rank 0 python3 worker.py"

VICTIM = """
import os, pathlib, time
folder = pathlib.Path(os.environ["TRAINMASTER_RUN_DIR"])
(folder / "code" / "private.txt").write_text("private")
print(f"uid {os.getuid()} folder {folder} pid {os.getpid()}", flush=True)
time.sleep(300)
"""

#: Tries to reach into the victim's run; prints one line for each try.
INTRUDER = """
import ctypes, os, pathlib, signal
folder, pid = pathlib.Path(FOLDER), PID
print(f"uid {os.getuid()}", flush=True)

def attempt(what, act):
    try:
        act()
        print(f"{what}: allowed", flush=True)
    except PermissionError:
        print(f"{what}: refused", flush=True)
    except OSError as error:
        print(f"{what}: {error}", flush=True)

attempt("list runs", lambda: os.listdir(folder.parent))
attempt("list folder", lambda: os.listdir(folder))
for name in ("spec.json", "server.json", "code/private.txt", "spool/outbox", "spool/rank0.stdout", "state.json"):
    attempt(name, lambda: (folder / name).read_bytes())
attempt("write", lambda: (folder / "control" / "stop.json").write_text("{}"))
attempt("rename", lambda: folder.rename(folder.parent / "taken"))
attempt("environ", lambda: pathlib.Path(f"/proc/{pid}/environ").read_bytes())
attempt("memory", lambda: open(f"/proc/{pid}/mem", "rb").read(1))
attempt("descriptors", lambda: os.listdir(f"/proc/{pid}/fd"))
attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
attempt("hard link", lambda: os.link(folder / "spec.json", "stolen.json"))

def trace():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(0x4206, pid, 0, 0):  # PTRACE_SEIZE
        raise OSError(ctypes.get_errno(), "ptrace")

attempt("trace", trace)
attempt("signal", lambda: os.kill(pid, signal.SIGTERM))
print("tried all", flush=True)
"""
TRIES = 17


@pytest.fixture(scope="module")
def stack(host_rig: HostRig) -> Iterator[Stack]:
    """One host with two slots, where alice and bob have accounts."""
    if not host_rig.take(1)[0].isolated:
        pytest.skip("needs hosts with accounts of their own (root and network namespaces)")
    with running_stack(host_rig, hosts=1) as stack:
        stack.add_hosts()
        yield stack


@dataclass
class Person:
    """A user of the server who is linked to the account of the same name, and the stack as he sees it."""

    stack: Stack
    uid: int

    def lines(self, experiment: int) -> list[str]:
        return self.stack.lines_by_rank(experiment).get(0, [])


@pytest.fixture(scope="module")
def people(stack: Stack) -> dict[str, Person]:
    return {login: make_person(stack, login, UIDS[login]) for login in (ALICE, BOB)}


def make_person(stack: Stack, login: str, uid: int) -> Person:
    user = {"username": login, "active": True, "role": "editor"}
    made = stack.post("/api/v1/users", {"user": user, "password": PASSWORD, "isHashed": False})["user"]
    group = {"agentUser": login, "agentUid": uid, "agentGroup": login, "agentGid": uid}
    stack.server.request("PATCH", f"/api/v1/users/{made['id']}", {"agentUserGroup": group}, token=stack.token)
    own = Stack(stack.server, stack.hosts)
    words = {"username": login, "password": PASSWORD, "isHashed": False}
    own.token = str(stack.server.request("POST", "/api/v1/auth/login", words)["token"])
    return Person(own, uid)


@dataclass
class Victim:
    """Alice's run: its experiment, key, folder as the host sees it, and the pid of its rank."""

    experiment: int
    key: str
    folder: str
    pid: int


@pytest.fixture(scope="module")
def victim(people: dict[str, Person]) -> Iterator[Victim]:
    alice = people[ALICE]
    experiment = alice.stack.submit({"worker.py": VICTIM}, config(1, RANK_0))
    alice.stack.wait_lines(experiment, 1)
    words = alice.lines(experiment)[0].split()
    assert words[1] == str(alice.uid)
    yield Victim(experiment, alice.stack.run_keys(experiment)[0], words[3], int(words[5]))
    alice.stack.post(f"/api/v1/experiments/{experiment}/kill")
    assert alice.stack.wait_end(experiment) == "STATE_CANCELED"


def spec_of(stack: Stack, run_key: str) -> Json:
    return dict(json.loads((stack.hosts[0].workdir / "runs" / run_key / "spec.json").read_text()))


def test_every_process_of_a_job_has_the_uid_of_its_submitter(
    people: dict[str, Person], victim: Victim
) -> None:
    pids = processes_with_marker(victim.key)
    assert pids
    assert {Path(f"/proc/{pid}").stat().st_uid for pid in pids} == {people[ALICE].uid}


@pytest.mark.survive(39)
def test_another_persons_job_cannot_read_write_or_signal(people: dict[str, Person], victim: Victim) -> None:
    bob = people[BOB]
    code = INTRUDER.replace("FOLDER", repr(victim.folder)).replace("PID", str(victim.pid), 1)
    experiment = bob.stack.submit({"worker.py": code}, config(1, RANK_0))
    assert bob.stack.wait_end(experiment) == "STATE_COMPLETED"
    lines = bob.lines(experiment)
    assert lines[0] == f"uid {bob.uid}"
    assert lines[-1] == "tried all"
    tries = dict(line.split(": ", 1) for line in lines[1:-1])
    assert len(tries) == TRIES
    assert set(tries.values()) == {"refused"}, tries
    assert processes_with_marker(victim.key), "the victim lives"


@pytest.mark.survive(34)
def test_no_secret_is_in_argv_logs_or_answers(
    stack: Stack, people: dict[str, Person], victim: Victim
) -> None:
    spec = spec_of(stack, victim.key)
    secrets = {spec["token"], spec["gang"]["secret"], stack.token, people[ALICE].stack.token, PASSWORD}
    secrets |= {stack.server.password, (stack.server.data / "secret_key").read_text().strip()}
    places = {f"argv of {pid}": words for pid, words in argv_of_all().items()}
    places |= {name: stack.server.log(name) for name in ("web", "worker", "postgres", "redis")}
    trial = stack.trial(victim.experiment)
    for path in (
        f"experiments/{victim.experiment}", f"experiments/{victim.experiment}/trials", f"tasks/{trial['taskId']}",
        "hosts", "agents", "users", "job-queues-v2", "master/config", "master", "me",
    ):  # fmt: skip
        places[path] = json.dumps(stack.get(f"/api/v1/{path}"))
    places["task log"] = json.dumps(stack.records(trial["id"]))
    folder = stack.hosts[0].workdir / "runs" / victim.key
    for file in [*folder.glob("spool/.*"), folder / "state.json"]:
        places[file.name] = file.read_text(errors="replace")
    assert not [place for place, text in places.items() for secret in secrets if secret in text]


def argv_of_all() -> dict[str, str]:
    words = {}
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words[file.parent.name] = file.read_bytes().decode(errors="replace")
    return words


def test_a_run_token_opens_its_own_run_alone(stack: Stack, people: dict[str, Person], victim: Victim) -> None:
    bob = people[BOB]
    other = bob.stack.submit({"worker.py": VICTIM}, config(1, RANK_0))
    try:
        bob.stack.wait_lines(other, 1)
        token = spec_of(stack, bob.stack.run_keys(other)[0])["token"]
        allocation, member = victim.key.rsplit(".", 1)
        stream, trial = f"/runner/v1/streams/{allocation}/{member}", stack.trial(victim.experiment)["id"]
        for method, path in (
            ("POST", f"{stream}?offset=0"),
            ("POST", f"{stream}/heartbeat"),
            ("GET", f"{stream}/signals?wait=0"),
            ("GET", f"/api/v1/experiments/{victim.experiment}"),
            ("GET", f"/api/v1/trials/{trial}"),
            ("GET", f"/api/v1/trials/{trial}/logs"),
            ("GET", "/api/v1/users"),
            ("GET", "/api/v1/hosts"),
            ("POST", f"/api/v1/experiments/{other}/kill"),
            ("POST", "/api/v1/experiments"),
        ):
            status, sentence = stack.refused(method, path, {} if method == "POST" else None, token)
            assert status in {401, 403, 404}, f"{method} {path}: {status} {sentence}"
            assert token not in sentence
        assert processes_with_marker(victim.key)
    finally:
        bob.stack.post(f"/api/v1/experiments/{other}/kill")
        assert bob.stack.wait_end(other) == "STATE_CANCELED"


def test_a_person_may_not_end_the_job_of_another(people: dict[str, Person], victim: Victim) -> None:
    status, sentence = people[BOB].stack.refused("POST", f"/api/v1/experiments/{victim.experiment}/kill", {})
    assert status == 403, sentence
    assert processes_with_marker(victim.key)


#: Says what the run sees of its host.
LOOKS = """
import os, pathlib
print("numbers", os.getuid(), os.getgid())
print("mounted", sorted(os.listdir("/trainmaster-data")) == sorted(os.listdir("/usr/share")))
print("code", pathlib.Path("/run/determined/workdir/worker.py").read_text() == pathlib.Path("worker.py").read_text())
print("owner", os.stat("/run/determined/workdir/worker.py").st_uid)
"""


@pytest.mark.parametrize("login", [None, ALICE])
def test_a_run_sees_the_mounts_of_its_config_as_root_and_as_a_person(
    stack: Stack, people: dict[str, Person], login: str | None
) -> None:
    person = people[login] if login else Person(stack, 0)
    mounts = [{"host_path": "/usr/share", "container_path": "/trainmaster-data", "read_only": True}]
    experiment = person.stack.submit({"worker.py": LOOKS}, config(1, RANK_0, bind_mounts=mounts))
    assert person.stack.wait_end(experiment) == "STATE_COMPLETED", person.lines(experiment)
    lines = person.lines(experiment)
    assert [line for line in lines if "trainmaster" not in line] == [
        f"numbers {person.uid} {person.uid}", "mounted True", "code True", f"owner {person.uid}",
    ]  # fmt: skip
    assert not Path("/trainmaster-data").exists()

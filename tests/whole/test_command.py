"""Commands over SSH on real hosts: in turn, killed, their exit code and whole log, never preempted, never retried."""

import base64
import hashlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from tests.rig.hosts import HostRig
from tests.rig.stack import Json, Stack, config, running_stack

pytestmark = pytest.mark.hosts

ROOT = Path(__file__).resolve().parent.parent.parent

SETTINGS = {
    "TRAINMASTER_HOST_SILENT_AFTER_SECONDS": "4",
    "TRAINMASTER_PROXY_ORIGIN": "http://*.tasks.test",
    "TRAINMASTER_PROXY_ACCESS_SECONDS": "0.3",
}
LIMIT_SECONDS = 180
ENDED = {"COMPLETED", "CANCELED", "ERROR"}
LAST = 5000
#: prints 1..N on stdout and a word on stderr; ends with code 7
COUNTS = f"seq 1 {LAST}; echo slots $DET_SLOT_IDS >&2; exit 7"
#: goes on until a file lies in its folder
HOLDS = "echo begun; until [ -e go ]; do sleep 0.1; done"


@pytest.fixture(scope="module")
def stack(host_rig: HostRig) -> Iterator[Stack]:
    """One host with one slot."""
    with running_stack(host_rig, 1, SETTINGS) as stack:
        stack.add_hosts(slots=1)
        yield stack


def run(stack: Stack, entrypoint: str | list[str], **resources: object) -> str:
    body = {"config": {"entrypoint": entrypoint, "resources": resources}}
    return str(stack.post("/api/v1/commands", body)["command"]["id"])


def command(stack: Stack, command_id: str) -> Json:
    return dict(stack.get(f"/api/v1/commands/{command_id}")["command"])


def wait_for(stack: Stack, command_id: str, phase: str) -> Json:
    stack.wait(
        lambda: command(stack, command_id)["phase"] in {phase, *ENDED},
        LIMIT_SECONDS,
        f"{command_id} to be {phase}",
    )
    record = command(stack, command_id)
    assert record["phase"] == phase, (record, lines(stack, command_id))
    return record


def let_go(stack: Stack, command_id: str) -> None:
    """Lay the file for which the command waits into its folder."""
    (stack.hosts[0].workdir / "runs" / f"{command_id}.1.0" / "code" / "go").touch()


def lines(stack: Stack, command_id: str, query: str = "") -> list[str]:
    return [record["log"] for record in stack.task_records(command_id, query)]


def reason(stack: Stack, job_id: str) -> str:
    return " ".join(row["sentence"] for task in stack.get(f"/api/v1/jobs/{job_id}/explain")["tasks"]
                    for row in task.get("blockers") or [])  # fmt: skip


def test_two_commands_on_one_slot_run_in_turn_and_say_everything(stack: Stack) -> None:
    first, second = run(stack, HOLDS), run(stack, COUNTS)
    wait_for(stack, first, "RUNNING")
    assert command(stack, second)["phase"] == "QUEUED"
    assert "slot" in reason(stack, command(stack, second)["jobId"])
    let_go(stack, first)
    good, bad = wait_for(stack, first, "COMPLETED"), wait_for(stack, second, "ERROR")
    assert (good["exitCode"], good["hosts"]) == (0, [stack.hosts[0].name])
    failed = (
        "resources failed with non-zero exit code: container failed with non-zero exit code: 7 (exit code 7)"
    )
    assert (bad["exitCode"], bad["exitStatus"]) == (7, f"{failed} — exit code 7 on {stack.hosts[0].name}")
    assert good["endTime"] <= bad["runStartTime"]
    assert lines(stack, second, "stdtypes=stdout&sources=task") == [str(n) for n in range(1, LAST + 1)]
    assert lines(stack, second, "stdtypes=stderr") == ["slots [0]"]
    stack.wait_free()


def test_a_killed_command_leaves_nothing_and_its_slot_is_free(stack: Stack) -> None:
    killed = run(stack, ["sh", "-c", "echo begun; sleep 600 & sleep 600"])
    stack.wait(lambda: "begun" in lines(stack, killed), LIMIT_SECONDS, "its first line")
    stack.post(f"/api/v1/commands/{killed}/kill")
    record = wait_for(stack, killed, "CANCELED")
    assert (record["state"], record["ending"]) == ("STATE_TERMINATED", "killed by admin, exit code 143")
    stack.assert_nothing_runs([f"{killed}.1.0"])
    stack.wait_free()


def test_a_job_of_higher_priority_waits_for_a_command(stack: Stack) -> None:
    held = run(stack, HOLDS, priority=90)
    wait_for(stack, held, "RUNNING")
    urgent = stack.submit({}, config(1, "true", resources={"slots_per_trial": 1, "priority": 1}))
    job_id = stack.experiment(urgent)["jobId"]
    stack.wait(lambda: f"cmd {held[:8]}" in reason(stack, job_id), LIMIT_SECONDS, "the reason")
    assert "not preemptible" in reason(stack, job_id)
    jobs = stack.get("/api/v1/job-queues-v2")["jobs"]
    assert {row["full"]["jobId"]: row["full"]["isPreemptible"] for row in jobs}[
        command(stack, held)["jobId"]
    ] is False
    let_go(stack, held)
    assert wait_for(stack, held, "COMPLETED")["exitCode"] == 0
    assert stack.wait_end(urgent) == "STATE_COMPLETED"


def test_no_slots_are_no_wait_and_one_too_many_never_fits(stack: Stack) -> None:
    held, free = run(stack, HOLDS), run(stack, ["true"], slots=0)
    wait_for(stack, held, "RUNNING")
    assert wait_for(stack, free, "COMPLETED")["exitCode"] == 0
    never = {"config": {"entrypoint": "true", "resources": {"slots": 2}}}
    status, sentence = stack.refused("POST", "/api/v1/commands", never)
    assert status == 400 and "needs 2 slots on one host" in sentence
    stack.post(f"/api/v1/commands/{held}/kill")
    wait_for(stack, held, "CANCELED")


# --- what people use through the server -------------------------------------------------------------------------


def code(name: str) -> list[Json]:
    text = (ROOT / "tests" / "rig" / name).read_bytes()
    return [
        {"path": name, "type": 48, "content": base64.b64encode(text).decode(), "mtime": "0", "mode": 0o644}
    ]


def test_a_port_of_a_command_is_used_through_the_server(stack: Stack) -> None:
    config = {
        "entrypoint": ["python3", "small_service.py", "8123"],
        "environment": {"proxy_ports": [{"proxy_port": 8123}]},
        "resources": {"slots": 0},
    }
    made = stack.post("/api/v1/commands", {"config": config, "files": code("small_service.py")})["command"]
    address = f"/proxy/{made['id']}/"
    with httpx.Client(
        base_url=stack.server.url, headers={"Authorization": f"Bearer {stack.token}"}
    ) as client:
        assert client.get(address).status_code in {200, 503}  # 503 is no page, and says that it is not ready
        stack.wait(lambda: client.get(address).status_code == 200, LIMIT_SECONDS, "the service")
        seen = client.get(f"{address}a/b?c=1", headers={"Cookie": "sessionid=s; other=2"})
        assert seen.json()["path"] == "/a/b?c=1"
        told = {name.lower(): value for name, value in seen.json()["headers"].items()}
        assert told["cookie"] == "other=2" and "authorization" not in told
        assert [cookie.name for cookie in client.cookies.jar] == ["mine"]
        assert client.get(f"{address}away").headers["location"] == f"{address}there?a=1"
        assert len(client.get(f"{address}drip").content) == 3 * len(b"line 0\n") * 20000
        body = os.urandom(3_000_000)
        parts = (body[place : place + 65536] for place in range(0, len(body), 65536))
        assert client.post(address, content=parts).text == hashlib.sha256(body).hexdigest()
    assert httpx.get(stack.server.url + address).status_code == 401
    page = httpx.get(stack.server.url + address, headers={"Accept": "text/html"})
    # no redirect: a script would read what it leads to
    assert (page.status_code, page.headers["refresh"]) == (401, f"0; url=/login?next={address}")
    socket_url = f"{stack.server.url.replace('http', 'ws', 1)}{address}echo"
    login = {"Authorization": f"Bearer {stack.token}"}
    with connect(
        socket_url,
        additional_headers=login,
        subprotocols=[Subprotocol("one"), Subprotocol("two")],
        max_size=2_000_000,
    ) as ws:
        assert ws.subprotocol == "one"
        ws.send("text")
        ws.send(bytes(5000))
        assert (ws.recv(LIMIT_SECONDS), ws.recv(LIMIT_SECONDS)) == ("text", bytes(5000))
        large = bytes(1_200_000)  # more than the console's own sockets take at once
        ws.send(large)
        assert ws.recv(LIMIT_SECONDS) == large
    with pytest.raises(InvalidStatus):
        connect(socket_url, additional_headers={"Origin": "https://elsewhere"})
    ends_with_its_token(stack, address)
    has_an_origin_of_its_own(stack, made["id"], address)
    stack.post(f"/api/v1/commands/{made['id']}/kill")
    wait_for(stack, made["id"], "CANCELED")
    assert httpx.get(stack.server.url + address, headers=login).status_code in {410, 502}


def ends_with_its_token(stack: Stack, address: str) -> None:
    """A stream and a socket on which nothing passes."""
    given = stack.post("/api/v1/tokens", {"scope": "write"})
    login = {"Authorization": f"Bearer {given['token']}"}
    socket_url = f"{stack.server.url.replace('http', 'ws', 1)}{address}echo"
    with (
        httpx.stream(
            "GET", f"{stack.server.url}{address}hold", headers=login, timeout=LIMIT_SECONDS
        ) as answer,
        connect(socket_url, additional_headers=login) as ws,
    ):
        blocks = answer.iter_raw()
        assert next(blocks) == b"begun\n"
        ws.send("heard")
        assert ws.recv(LIMIT_SECONDS) == "heard"
        path = f"/api/v1/tokens/{given['tokenId']}"
        stack.server.request("PATCH", path, {"setRevoked": True}, token=stack.token)
        with pytest.raises(httpx.RemoteProtocolError):
            list(blocks)
        with pytest.raises(ConnectionClosed) as closed:
            ws.recv(LIMIT_SECONDS)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008


def has_an_origin_of_its_own(stack: Stack, task_id: str, address: str) -> None:
    """A browser is handed over by a ticket that counts once; nothing else is there; the console's logout ends it."""
    there = {"Host": f"{task_id}.tasks.test", "Accept": "text/html"}
    with httpx.Client(base_url=stack.server.url) as console, httpx.Client(base_url=stack.server.url) as task:
        form = console.get("/login").text
        found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)
        assert found
        fields = {"username": "admin", "password": stack.server.password, "csrfmiddlewaretoken": found[1]}
        assert console.post("/login", data=fields).status_code == 302
        told = console.get(f"{address}a?b=1", headers={"Accept": "text/html"}).headers["location"]
        origin, ticket = told.split("/proxy/")
        assert origin == f"http://{task_id}.tasks.test"
        assert console.post(address, headers={"Origin": stack.server.url}).status_code == 403
        elsewhere = {"Host": f"{uuid4()}.tasks.test"}
        # the console is no place to enter by it
        assert "set-cookie" not in task.get(f"/proxy/{ticket}").headers
        entered = task.get(f"/proxy/{ticket}", headers=there)
        assert (entered.status_code, entered.headers["location"]) == (303, f"{address}a?b=1")
        assert task.get(f"/proxy/{ticket}", headers=there).status_code == 401
        cookies = [each.split(";")[0] for each in entered.headers.get_list("set-cookie")]
        assert all("HttpOnly" in each and address in each for each in entered.headers.get_list("set-cookie"))
        login = {"Cookie": "; ".join(cookies)}
        seen = task.get(f"{address}a?b=1", headers={**there, **login}).json()
        assert (
            seen["path"] == "/a?b=1" and "Cookie" not in seen["headers"] and "cookie" not in seen["headers"]
        )
        assert task.get(address, headers={**elsewhere, **login}).status_code == 401
        for path in ("/experiments", "/api/v1/me", "/runner/v1/nonce?value=1"):
            assert task.get(path, headers={**there, **login}).status_code == 404
        page = console.get("/settings").text
        found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        assert found
        console.post("/logout", data={"csrfmiddlewaretoken": found[1]})

        def leads_back() -> bool:
            answer = task.get(f"{address}a", headers={**there, **login})
            return answer.headers.get("location") == f"{stack.server.url}{address}a"

        stack.wait(leads_back, LIMIT_SECONDS, "the login to have ended")


def test_ssh_reaches_into_a_shell_and_ends_with_it(stack: Stack, tmp_path: Path) -> None:
    made = stack.post("/api/v1/shells", {"config": {"resources": {"slots": 0}}})["shell"]
    at = f"/api/v1/shells/{made['id']}"
    stack.wait(lambda: stack.get(at)["shell"]["ready"], LIMIT_SECONDS, "the shell")
    environment = {**os.environ, "TRAINMASTER_TOKEN": stack.token, "XDG_CACHE_HOME": str(tmp_path)}
    show = [sys.executable, "-m", "trainmaster.cli.main", "-m", stack.server.url, "shell", "show-ssh-command"]
    shown = subprocess.run(
        [*show, made["id"][:8]], env=environment, capture_output=True, text=True, check=True
    )
    ssh = shlex.split(shown.stdout)
    command = "pwd; echo $TRAINMASTER_RUN; cat > given; exit 3"
    told = subprocess.run([*ssh, command], input="words", env=environment, capture_output=True, text=True,
                          timeout=LIMIT_SECONDS, check=False)  # fmt: skip
    assert told.returncode == 3, told
    folder, run_key = told.stdout.split()
    assert (folder.endswith(f"{run_key}/code"), run_key) == (True, f"{made['id']}.1.0")
    sleeping = subprocess.Popen([*ssh, "cat given; sleep 600"], env=environment, stdout=subprocess.PIPE)
    assert sleeping.stdout is not None and sleeping.stdout.read(5) == b"words"
    written = subprocess.run(
        [*show[:-1], "ssh-config", "--name", "box", made["id"]],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    (tmp_path / "config").write_text(written.stdout)
    port = stack.hosts[0].port  # as editors and port forwards do
    through = ["ssh", "-F", str(tmp_path / "config"), "-W", f"{stack.hosts[0].address}:{port}", "box"]
    forwarded = subprocess.Popen(through, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert forwarded.stdout is not None and forwarded.stdout.read(7) == b"SSH-2.0"
    forwarded.terminate()
    forwarded.communicate(timeout=LIMIT_SECONDS)
    stack.post(f"{at}/kill")
    assert sleeping.wait(LIMIT_SECONDS) != 0
    stack.wait(lambda: stack.get(at)["shell"]["phase"] == "CANCELED", LIMIT_SECONDS, "its end")
    stack.assert_nothing_runs([run_key])


def test_a_command_on_a_lost_host_has_failed_and_is_not_run_again(stack: Stack) -> None:
    host = stack.hosts[0]
    if not host.isolated:
        pytest.skip("needs network namespaces to cut a link")
    lost = run(stack, HOLDS)
    wait_for(stack, lost, "RUNNING")
    host.cut()
    stack.wait(lambda: stack.host_state(host.name) == "silent", LIMIT_SECONDS, "the host to be silent")
    assert command(stack, lost)["phase"] == "RUNNING"  # silence is not death
    stack.post(f"/api/v1/hosts/{host.name}/lost")
    record = wait_for(stack, lost, "ERROR")
    assert record["ending"] == f"its host was declared lost ({host.name})"
    assert "exitCode" not in record
    assert not stack.get("/api/v1/job-queues-v2")["jobs"]
    host.restore()

"""Commands over SSH on real hosts: in turn, killed, their exit code and whole log, never preempted, never retried."""

from collections.abc import Iterator

import pytest

from tests.rig.hosts import HostRig
from tests.rig.stack import Json, Stack, config, running_stack

pytestmark = pytest.mark.hosts

SETTINGS = {"TRAINMASTER_HOST_SILENT_AFTER_SECONDS": "4"}
LIMIT_SECONDS = 60
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
    assert (bad["exitCode"], bad["exitStatus"]) == (7, f"exit code 7 on {stack.hosts[0].name}")
    assert good["endTime"] <= bad["runStartTime"]
    assert lines(stack, second, "stdtypes=stdout&sources=task") == [str(n) for n in range(1, LAST + 1)]
    assert lines(stack, second, "stdtypes=stderr") == ["slots [0]"]
    assert not stack.holders()


def test_a_killed_command_leaves_nothing_and_its_slot_is_free(stack: Stack) -> None:
    killed = run(stack, ["sh", "-c", "echo begun; sleep 600 & sleep 600"])
    stack.wait(lambda: "begun" in lines(stack, killed), LIMIT_SECONDS, "its first line")
    stack.post(f"/api/v1/commands/{killed}/kill")
    record = wait_for(stack, killed, "CANCELED")
    assert (record["state"], record["exitStatus"]) == ("STATE_TERMINATED", "killed by admin, exit code 143")
    stack.assert_nothing_runs([f"{killed}.1.0"])
    assert not stack.holders()


def test_a_job_of_higher_priority_waits_for_a_command(stack: Stack) -> None:
    held = run(stack, HOLDS, priority=90)
    wait_for(stack, held, "RUNNING")
    urgent = stack.submit({}, config(1, "true", resources={"slots_per_trial": 1, "priority": 1}))
    job_id = stack.experiment(urgent)["jobId"]
    stack.wait(lambda: f"cmd {held[:8]}" in reason(stack, job_id), LIMIT_SECONDS, "the reason")
    assert "may not be stopped" in reason(stack, job_id)
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
    never = run(stack, "true", slots=2)
    assert "2 on one host" in reason(stack, command(stack, never)["jobId"])
    for each in (never, held):
        stack.post(f"/api/v1/commands/{each}/kill")
        wait_for(stack, each, "CANCELED")


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
    assert record["exitStatus"] == f"its host was declared lost ({host.name})"
    assert "exitCode" not in record
    assert not stack.get("/api/v1/job-queues-v2")["jobs"]
    host.restore()

"""Hosts, and the published client's view of them: agents, slots and pools."""

import uuid

import asyncssh
import pytest
from django.test import Client
from django.utils.html import escape

from accounts.models import User
from commands import transitions as transitions_of_commands
from commands.models import BurnIn, GroupBurnIn
from dispatch.watching import host_signs
from events.models import Event
from experiments.models import Trial
from hosts.health import links
from hosts.health.links import Rate
from hosts.models import Host, ResourcePool, Slot
from jobs import transitions
from jobs.models import Allocation
from jobs.states import Reason
from tests.rig.api import Api, Cast, Json
from tests.rig.world import make_host
from trainmaster.host.interpreters import find_interpreters

BODY = {"name": "gpu7", "transport": "ssh", "address": "10.0.0.7", "port": 2222, "user": "lab", "slots": 4}


def public_key() -> str:
    return asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()


def test_adding_a_host_answers_at_once_and_its_state_can_be_polled(cast: Cast, pool: ResourcePool) -> None:
    key = public_key()
    jumps = [{"address": "bastion", "user": "j", "hostKey": key}]
    status, answer = cast.admin.send(
        "POST", "hosts", {**BODY, "hostKey": key, "jumps": jumps, "pool": "default"}
    )
    assert status == 202
    host = answer["host"]
    assert host["state"] == "admitting"
    assert (host["address"], host["port"], host["user"]) == ("10.0.0.7", 2222, "lab")
    assert host["hostKey"]["state"] == "pinned"
    assert host["hostKey"]["fingerprint"].startswith("SHA256:")
    assert host["jumps"][0]["hostKey"]["state"] == "pinned"
    assert cast.vic.get("hosts/gpu7")["host"]["id"] == host["id"]
    assert cast.vic.get("hosts")["hosts"][0]["name"] == "gpu7"
    assert Event.objects.filter(kind=Event.Kind.HOST, actor="user:admin").exists()


@pytest.mark.parametrize("who", ["ada", "vic", "stranger"])
def test_hosts_are_changed_by_admins_alone(cast: Cast, host: Host, who: str) -> None:
    expected = 401 if who == "stranger" else 403
    api: Api = getattr(cast, who)
    assert api.refused("POST", "hosts", BODY)[0] == expected
    assert api.refused("DELETE", "hosts/gpu1")[0] == expected
    for step in ("enable", "disable", "drain", "doctor", "accept-key", "lost"):
        assert api.refused("POST", f"hosts/gpu1/{step}")[0] == expected
    assert api.refused("POST", "agents/gpu1/disable")[0] == expected


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"name": "a b"}, "name"),
        ({"port": 70000}, "port"),
        ({"transport": "carrier pigeon"}, "transport"),
        ({"slots": -1}, "slots"),
        ({"hostKey": "ssh-rsa nonsense"}, "hostKey"),
        ({"python": "python3"}, "absolute path"),
        ({"jumps": [{"port": 22}]}, "jumps[0].address"),
    ],
)
def test_a_wrong_field_of_a_new_host_is_named(
    cast: Cast, pool: ResourcePool, change: dict[str, object], part: str
) -> None:
    status, sentence = cast.admin.refused("POST", "hosts", {**BODY, **change})
    assert status == 400
    assert part in sentence
    assert not Host.objects.exists()


def test_a_name_is_taken_once_and_an_unknown_pool_is_404(cast: Cast, host: Host) -> None:
    assert cast.admin.refused("POST", "hosts", {**BODY, "name": "gpu1"})[0] == 409
    assert cast.admin.refused("POST", "hosts", {**BODY, "pool": "moon"})[0] == 404


def test_disable_drain_enable_and_the_doctor_show_in_the_state(cast: Cast, host: Host) -> None:
    assert cast.admin.post("hosts/gpu1/disable")["host"]["state"] == "disabled"
    assert cast.admin.post("hosts/gpu1/drain")["host"]["state"] == "draining"
    assert cast.admin.post("hosts/gpu1/enable")["host"]["state"] == "ready"
    assert cast.admin.send("POST", "hosts/gpu1/doctor")[0] == 202
    assert cast.admin.post("hosts/gpu1/lost")["host"]["state"] == "lost"


def test_an_offered_key_is_accepted_by_its_fingerprint_alone(cast: Cast, host: Host) -> None:
    pinned, offered = (" ".join(public_key().split()[:2]) for _ in range(2))
    Host.objects.update(host_key=pinned, offered_host_key=offered, admission=Host.Admission.SUSPENDED)
    shown = cast.vic.get("hosts/gpu1")["host"]
    assert (shown["state"], shown["hostKey"]["state"]) == ("suspended", "changed")
    assert cast.admin.refused("POST", "hosts/gpu1/accept-key", {"fingerprint": "SHA256:no"})[0] == 400
    assert cast.admin.refused("POST", "hosts/gpu1/accept-key", {"key": pinned})[0] == 400
    accepted = cast.admin.post("hosts/gpu1/accept-key", {"fingerprint": shown["hostKey"]["offered"]})["host"]
    assert accepted["hostKey"] == {"state": "pinned", "fingerprint": shown["hostKey"]["offered"]}
    assert accepted["state"] == "admitting"


def test_a_host_that_runs_something_stays_and_an_idle_one_goes(
    cast: Cast, host: Host, running: tuple[Trial, Allocation, Api]
) -> None:
    status, sentence = cast.admin.refused("DELETE", "hosts/gpu1")
    assert status == 409
    assert "while it runs" in sentence
    Host.objects.create(name="idle", pool=host.pool)
    cast.admin.delete("hosts/idle")
    assert cast.admin.refused("GET", "hosts/idle") == (404, "host idle not found")


def test_slots_say_who_holds_them(cast: Cast, running: tuple[Trial, Allocation, Api]) -> None:
    slots = cast.vic.get("hosts/gpu1")["host"]["slots"]
    assert slots[0]["heldBy"]["username"] == "ada"
    assert slots[0]["heldBy"]["allocationId"] == running[1].pk
    assert slots[1]["heldBy"] is None
    assert slots[1]["memoryMb"] == 141_000


def test_the_servers_public_key_is_shown_to_those_who_log_in(
    cast: Cast, settings: object, tmp_path: object
) -> None:
    settings.DATA_DIR = tmp_path  # type: ignore[attr-defined]
    assert cast.vic.get("hosts/server-key")["publicKey"].startswith("ssh-ed25519 ")
    assert cast.stranger.refused("GET", "hosts/server-key")[0] == 401


def test_agents_are_hosts_in_the_dialect(cast: Cast, running: tuple[Trial, Allocation, Api]) -> None:
    agent = cast.vic.get("agents")["agents"][0]
    assert agent["id"] == "gpu1"
    assert agent["slotStats"]["typeStats"]["TYPE_CUDA"] == {
        "states": {"STATE_ASSIGNED": 1}, "disabled": 0, "draining": 0, "total": 2,
    }  # fmt: skip
    assert agent["slots"]["0"]["container"]["parent"] == running[1].pk
    assert cast.vic.get("agents?excludeSlots=true")["agents"][0]["slots"] == {}
    assert cast.vic.get("agents/gpu1")["agent"]["enabled"] is True
    assert len(cast.vic.get("agents/gpu1/slots")["slots"]) == 2
    assert cast.vic.get("agents/gpu1/slots/1")["slot"]["device"]["type"] == "TYPE_CUDA"
    assert cast.vic.refused("GET", "agents/gpu1/slots/9")[0] == 404
    assert cast.vic.refused("GET", "agents/none")[0] == 404


def test_agents_are_drained_and_enabled_by_the_published_client(cast: Cast, host: Host) -> None:
    def standing(agent: Json) -> list[tuple[bool, bool]]:
        """(enabled, draining) of the agent, then of each of its slots."""
        return [(each["enabled"], each["draining"]) for each in (agent, *agent["slots"].values())]

    drained = cast.admin.post("agents/gpu1/disable", {"agentId": "gpu1", "drain": True})["agent"]
    assert standing(drained) == [(False, True)] * 3
    counted = drained["slotStats"]["typeStats"]["TYPE_CUDA"]
    assert (counted["disabled"], counted["draining"], counted["total"]) == (2, 2, 2)
    enabled = cast.admin.post("agents/gpu1/enable")["agent"]
    assert standing(enabled) == [(True, False)] * 3 and enabled == cast.admin.get("agents/gpu1")["agent"]
    assert standing(cast.admin.post("agents/gpu1/disable")["agent"]) == [(False, False)] * 3


def test_a_slot_is_drained_disabled_and_enabled(cast: Cast, running: tuple[Trial, Allocation, Api]) -> None:
    allocation = running[1]
    drained = cast.admin.post("agents/gpu1/slots/0/disable", {"drain": True})["slot"]
    assert (drained["enabled"], drained["draining"]) == (False, True)
    assert Allocation.objects.get(pk=allocation.pk).stop_kind == ""
    assert cast.admin.post("agents/gpu1/slots/0/disable")["slot"]["enabled"] is False
    assert Allocation.objects.get(pk=allocation.pk).stop_kind == "STOP"
    assert cast.admin.post("agents/gpu1/slots/0/enable")["slot"]["enabled"] is True
    assert cast.ada.refused("POST", "agents/gpu1/slots/0/disable")[0] == 403
    assert cast.admin.refused("POST", "agents/gpu1/slots/7/enable")[0] == 404


def test_what_is_out_of_use_because_of_a_fault_is_told_and_let_back(cast: Cast, host: Host) -> None:
    Host.objects.filter(pk=host.pk).update(boot_id="b1")
    line = "EDAC MC1: 1 UE memory scrubbing error"
    host_signs.take_in(
        host.pk, {"kernel": {"boot": "b1", "source": "kmsg", "until": 9, "lines": [[9, line]]}}
    )
    health = cast.vic.get("hosts/gpu1/health")
    assert (health["state"], health["kernelLog"], health["denied"]) == ("quarantined", "kmsg", "")
    [out], [sign] = health["outOfUse"], health["signs"]
    assert out["slot"] is None and "a day after a reboot" in out["returns"]
    assert (sign["action"], sign["line"], sign["done"]) == ("vendor", line, "The host was taken out of use.")
    told = cast.vic.get("hosts/gpu1")["host"]
    assert (told["state"], told["health"], told["stateReason"]) == (
        "draining",
        "quarantined",
        sign["sentence"],
    )
    console = Client()
    console.force_login(User.objects.get(username="admin"))
    page = console.get("/hosts/gpu1", follow=True).content.decode()
    assert escape(sign["sentence"]) in page and line in page
    assert "Release" in console.get("/hosts/gpu1/menu", follow=True).content.decode()
    assert cast.ada.refused("POST", "hosts/gpu1/release", {})[0] == 403
    assert cast.admin.post("hosts/gpu1/release", {})["state"] == "ok"
    assert cast.admin.refused("POST", "hosts/gpu1/release", {})[0] == 409


def test_a_burn_in_is_asked_for_by_admins_and_shown_beside_the_median(cast: Cast, host: Host) -> None:
    assert cast.vic.get("hosts/gpu1/health")["burnIn"] is None
    assert cast.ada.refused("POST", "hosts/gpu1/burn-in")[0] == 403
    asked = cast.admin.post("hosts/gpu1/burn-in")["commandId"]
    assert cast.admin.post("hosts/gpu1/burn-in")["commandId"] == asked, "one at a time"
    assert cast.vic.get("hosts/gpu1/health")["burnIn"]["openId"] == asked
    figures = [{"measure": "copy", "value": 11.0, "how": "", "device": "H100", "slot": 0}]
    BurnIn.objects.update(figures=figures, is_done=True)
    transitions_of_commands.kill(asked, actor="user:admin")
    console = Client()
    console.force_login(User.objects.get(username="admin"))
    assert "copy bandwidth" in console.get("/hosts/gpu1", follow=True).content.decode()
    console.post("/hosts/gpu1/burn-in", follow=True)
    shown = cast.vic.get("hosts/gpu1/health")["burnIn"]
    assert shown["openId"] not in ("", asked) and shown["commandId"] == asked
    assert shown["figures"] == [
        {"slot": 0, "measure": "copy", "name": "copy bandwidth", "value": 11.0, "unit": "GB/s", "median": None,
         "hosts": 0, "verdict": "unknown"}
    ]  # fmt: skip
    Host.objects.filter(pk=host.pk).update(draining=True)
    transitions_of_commands.kill(shown["openId"], actor="user:admin")
    assert cast.admin.refused("POST", "hosts/gpu1/burn-in")[0] == 409


def test_hosts_are_measured_together_and_what_was_found_is_shown(cast: Cast, host: Host) -> None:
    other = make_host("gpu7", host.slots.count())
    Slot.objects.filter(host=other).update(kind=host.slots.all()[0].kind)
    Host.objects.filter(pk=other.pk).update(pool=host.pool)
    body = {"hosts": ["gpu1", "gpu7"]}
    assert cast.ada.refused("POST", "group-burn-ins", body)[0] == 403
    assert cast.admin.refused("POST", "group-burn-ins", {"hosts": ["gpu1", "gpu1"]})[0] == 400
    assert cast.admin.refused("POST", "group-burn-ins", {"hosts": ["gpu1", "x"]})[0] == 404
    asked = cast.admin.post("group-burn-ins", body)["commandId"]
    rate = Rate("send", (str(other.pk), str(host.pk)), 0.0, "gloo", sentence="timed out")
    findings = [{"host": str(other.pk), "hosts": [], "sentence": "gpu7: slow <b>", "is_bad": False}]
    GroupBurnIn.objects.update(rates=[links.as_record(rate)], findings=findings)
    shown = cast.vic.get(f"group-burn-ins/{asked}")
    assert shown["hosts"] == ["gpu1", "gpu7"] and shown["ending"] == ""
    assert shown["findings"] == [{"host": "gpu7", "sentence": "gpu7: slow <b>"}]
    assert shown["rates"] == [
        {"measure": "send", "name": "point-to-point rate", "hosts": ["gpu7", "gpu1"], "value": 0.0, "unit": "GB/s",
         "median": None, "pairs": 0, "error": "timed out"}
    ]  # fmt: skip
    assert cast.vic.get("hosts/gpu1/health")["groupBurnIn"] == shown
    assert cast.vic.refused("GET", f"group-burn-ins/{uuid.uuid4()}")[0] == 404
    console = Client()
    console.force_login(User.objects.get(username="admin"))
    page = console.get("/hosts/gpu1", follow=True).content.decode()
    assert "gpu7 to gpu1" in page and "gpu7: slow &lt;b&gt;" in page
    answer = console.post(f"/pools/{host.pool.name}/pairs/burn-in")
    assert answer.headers["Location"] == f"/tasks/{asked}", "the same one"


def test_a_person_takes_a_slot_out_of_use_and_says_why(cast: Cast, host: Host) -> None:
    assert cast.admin.refused("POST", "hosts/gpu1/quarantine", {"slot": 0})[0] == 400
    assert cast.admin.refused("POST", "hosts/gpu1/quarantine", {"slot": 77, "reason": "x"})[0] == 404
    health = cast.admin.post("hosts/gpu1/quarantine", {"slot": 0, "reason": "its fan is loud"})
    assert (health["state"], health["outOfUse"][0]["sentence"]) == ("1 slot quarantined", "its fan is loud")
    assert cast.admin.refused("POST", "hosts/gpu1/quarantine", {"slot": 0, "reason": "again"})[0] == 409
    assert Event.objects.filter(reason="quarantined", actor="user:admin", detail__slot=0).exists()
    assert cast.admin.refused("POST", "hosts/gpu1/release", {"slot": 0, "hours": 4})[0] == 400
    health = cast.admin.post("hosts/gpu1/release", {"slot": 0, "hours": 4, "reason": "for the demo"})
    assert health["outOfUse"] == []
    [kept] = health["overruled"]
    assert (kept["slot"], kept["by"], kept["reason"]) == (0, "admin", "for the demo")
    console = Client()
    console.force_login(User.objects.get(username="admin"))
    assert "whatever is reported of it, as admin has decided" in " ".join(
        console.get("/hosts/gpu1", follow=True).content.decode().split()
    )
    cast.admin.post("hosts/gpu1/quarantine", {"slot": 0, "reason": "its fan is loud"})
    form = {"slot": "0", "hours": "four", "reason": "x"}
    told = console.post("/hosts/gpu1/release", form, follow=True).content.decode()
    assert "allowed: a number, such as 4" in told
    console.post("/hosts/gpu1/release", {**form, "hours": "4"})
    assert cast.vic.get("hosts/gpu1/health")["overruled"][0]["slot"] == 0


def test_the_interpreter_and_the_pool_of_a_host_are_changed(cast: Cast, host: Host) -> None:
    ResourcePool.objects.create(name="big")
    changed = cast.admin.patch("hosts/gpu1", {"python": "/opt/py/bin/python", "pool": "big"})["host"]
    assert (changed["python"], changed["pool"]) == ("/opt/py/bin/python", "big")
    changed = cast.admin.patch("hosts/gpu1", {"activate": "/opt/conda/bin/activate"})["host"]
    assert (changed["python"], changed["activate"]) == ("/opt/py/bin/python", "/opt/conda/bin/activate")
    assert cast.admin.refused("PATCH", "hosts/gpu1", {"python": "python3"})[0] == 400
    assert cast.ada.refused("PATCH", "hosts/gpu1", {"python": "/x"})[0] == 403


def test_a_pool_has_all_33_fields(cast: Cast, running: tuple[Trial, Allocation, Api]) -> None:
    pool = cast.vic.get("resource-pools")["resourcePools"][0]
    assert {
        "agentDockerImage", "agentDockerNetwork", "agentDockerRuntime", "agentFluentImage", "auxContainerCapacity",
        "auxContainerCapacityPerAgent", "auxContainersRunning", "clusterName", "containerStartupScript",
        "defaultAuxPool", "defaultComputePool", "description", "details", "imageId", "instanceType", "location",
        "masterCertName", "masterUrl", "maxAgentStartingPeriod", "maxAgents", "maxIdleAgentPeriod", "minAgents", "name",
        "numAgents", "preemptible", "resourceManagerMetadata", "schedulerFittingPolicy", "schedulerType", "slotType",
        "slotsAvailable", "slotsUsed", "startupScript", "type",
    } <= pool.keys()  # fmt: skip
    assert (pool["numAgents"], pool["slotsAvailable"], pool["slotsUsed"]) == (1, 2, 1)
    assert pool["schedulerType"] == "SCHEDULER_TYPE_PRIORITY"
    assert cast.stranger.refused("GET", "resource-pools")[0] == 401


def test_a_slot_that_is_gone_is_marked_and_counts_for_nothing(cast: Cast, host: Host) -> None:
    host.slots.filter(index=1).update(missing=True)
    slots = cast.vic.get("hosts/gpu1")["host"]["slots"]
    assert [slot["missing"] for slot in slots] == [False, True]
    agent = cast.vic.get("agents/gpu1")["agent"]
    assert [agent["slots"][index]["enabled"] for index in ("0", "1")] == [True, False]
    assert agent["slotStats"]["typeStats"]["TYPE_CUDA"]["disabled"] == 1
    pool = cast.vic.get("resource-pools")["resourcePools"][0]
    assert (pool["slotsAvailable"], pool["slotsPerAgent"]) == (1, 1)
    client = Client()
    client.force_login(User.objects.get(username="vic"))
    assert "slot 1 (H200" in client.get("/hosts/gpu1").content.decode()


def test_a_removed_host_is_shown_nowhere(cast: Cast, running: tuple[Trial, Allocation, Api]) -> None:
    _, allocation, _ = running
    member = allocation.members.get()
    transitions.member_ended(member.pk, code=0, signal=None, reason=Reason.COMPLETED)
    cast.admin.delete("hosts/gpu1")
    assert Host.objects.filter(name="gpu1", admission=Host.Admission.REMOVED).exists()
    assert cast.vic.get("hosts")["hosts"] == cast.vic.get("agents")["agents"] == []
    assert cast.vic.get("resource-pools")["resourcePools"][0]["numAgents"] == 0
    for path in ("hosts/gpu1", "agents/gpu1", "agents/gpu1/slots"):
        assert cast.vic.refused("GET", path)[0] == 404
    client = Client()
    client.force_login(User.objects.get(username="vic"))
    assert "/hosts/gpu1" not in client.get("/hosts").content.decode()
    assert client.get("/hosts/gpu1").status_code == 404


def test_interpreters_are_answered_as_a_probe_finds_them(cast: Cast, host: Host) -> None:
    found = find_interpreters()
    Host.objects.update(facts={"interpreters": found})
    answered = cast.ada.get("hosts/gpu1")["host"]["interpreters"]
    assert [one["lacks"] for one in answered] == [one["lacks"] for one in found] != []

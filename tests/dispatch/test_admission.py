"""Admission against real sshds: what goes right is stored, and each thing that goes wrong is a sentence."""

import os
import shutil
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.conf import LazySettings

from accounts.refusals import Refusal
from dispatch.ssh import connections, remote, server_key
from dispatch.watching import admission, doctor
from dispatch.watching.doctor_checks import best_python, examine, slots_of
from events.models import Event, Presence
from hosts import login_accounts, registry
from hosts.models import Host, Slot
from hosts.pools import default_pool
from hosts.registry import NewHost
from tests.dispatch.sshd import Sshd, wait_until
from tests.rig import hosts as rig
from tests.rig.ports import free_port
from tests.rig.web import Web

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("redis_server"),
]


@pytest.fixture
def listening(web: Web, settings: LazySettings) -> None:
    """The settings of a server whose web process is `web`, on loopback."""
    settings.LISTEN_ADDRESS, settings.LISTEN_PORT = "127.0.0.1", urlsplit(web.url).port


def add(sshd: Sshd, tmp_path: Path, **changes: object) -> Host:
    known: dict[str, object] = {
        "name": f"h{uuid.uuid4().hex[:6]}",
        "address": "127.0.0.1",
        "port": sshd.port,
        "login_user": sshd.user,
        "host_key": sshd.host_key,
        "python": sys.executable,
        "workdir": str(tmp_path / "work"),
        "wanted_slots": 2,
        **changes,
    }
    return registry.add(NewHost(**known), default_pool(), actor="user:ada")  # type: ignore[arg-type]


def admitted(host: Host) -> Host:
    admission.admit(host.pk)
    host.refresh_from_db()
    return host


def checks(host: Host) -> dict[str, tuple[str, str]]:
    return {check["name"]: (check["state"], check["sentence"]) for check in host.doctor["checks"]}


def test_a_host_is_admitted_with_facts_slots_report_and_the_way_back(
    listening: None, sshd: Sshd, tmp_path: Path, settings: LazySettings
) -> None:
    host = admitted(add(sshd, tmp_path))
    assert (host.admission, host.state_reason, host.contact) == ("ready", "", "reachable")
    assert [(slot.index, slot.kind) for slot in host.slots.all()] == [(0, "cpu"), (1, "cpu")]
    assert host.server_route == "seen" and host.server_url == f"http://127.0.0.1:{settings.LISTEN_PORT}"
    assert host.boot_id and host.facts["hostname"] and host.bundle_sha256
    assert host.clock_skew_seconds is not None and abs(host.clock_skew_seconds) < 10
    names = [
        "python",
        "torch",
        "gpu",
        "disk",
        "home",
        "clock",
        "isolation",
        "view",
        "logind",
        "containers",
        "signs",
        "route",
    ]
    accounts = ["account", "users"] if login_accounts.may_switch(host.facts) else ["users"]
    found = [check["name"] for check in host.doctor["checks"]]
    assert found == [*names, "forwarding", "bundle", *accounts]
    assert checks(host)["python"][0] == checks(host)["route"][0] == "ok"
    steps = Event.objects.filter(kind=Event.Kind.HOST, subject=str(host.pk)).values_list("reason", flat=True)
    assert {"added", "admitted", "answered"} <= set(steps)
    wait_until(
        lambda: Presence.objects.filter(part="web").exists(), what="the web process to say that it is there"
    )


@pytest.mark.survive(4)
def test_the_first_key_of_an_ssh_name_waits_to_be_accepted_and_is_then_pinned(
    listening: None, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host without an address is one that the ssh config of the server's account knows."""
    config, program = tmp_path / "ssh_config", tmp_path / "bin" / "ssh"
    config.write_text(f"Host lab\n  HostName 127.0.0.1\n  Port {sshd.port}\n  User {sshd.user}\n")
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {config} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    host = admitted(add(sshd, tmp_path, name="lab", address="", port=0, login_user="", host_key=""))
    assert (host.address, host.port, host.login_user) == ("127.0.0.1", sshd.port, sshd.user)
    assert Event.objects.filter(kind=Event.Kind.HOST, reason="name_resolved").count() == 1
    typed = Host(name="lab", port=22)
    admission._resolve(typed)
    assert (typed.address, typed.port) == ("127.0.0.1", 22), "a port that was given counts"
    assert host.admission == Host.Admission.ADMITTING and host.offered_host_key == sshd.host_key
    assert server_key.fingerprint(sshd.host_key) in host.state_reason
    with pytest.raises(Refusal, match="has not offered this key"):
        registry.accept_key(host.pk, key="ssh-ed25519 AAAAother", actor="user:ada")
    registry.accept_key(host.pk, key=host.offered_host_key, actor="user:ada")
    host = admitted(host)
    assert (host.admission, host.host_key) == ("ready", sshd.host_key)


def test_the_key_of_a_jump_host_is_accepted_first(
    listening: None, start_sshd: Callable[..., Sshd], tmp_path: Path
) -> None:
    jump, target = start_sshd(), start_sshd()
    jumps = [{"address": "127.0.0.1", "port": jump.port, "user": jump.user}]
    host = admitted(add(target, tmp_path, host_key="", jumps=jumps))
    assert host.jumps[0]["offered_host_key"] == jump.host_key and not host.offered_host_key
    registry.accept_key(host.pk, actor="user:ada")
    host = admitted(host)
    assert host.jumps[0]["host_key"] == jump.host_key and host.offered_host_key == target.host_key
    registry.accept_key(host.pk, actor="user:ada")
    assert admitted(host).admission == Host.Admission.READY


@pytest.mark.survive(4)
def test_a_changed_key_suspends_a_ready_host_until_it_is_accepted(
    listening: None, sshd: Sshd, tmp_path: Path
) -> None:
    host = admitted(add(sshd, tmp_path))
    sshd.stop()
    sshd.new_host_key()
    sshd.start()
    for _ in range(2):  # the pooled connection may be found broken first
        with pytest.raises(remote.RemoteError):
            remote.verb(host, "status", {"runs": []})
    host.refresh_from_db()
    assert host.admission == Host.Admission.SUSPENDED and "is pinned" in host.state_reason
    assert host.slots.count() == 2
    registry.accept_key(host.pk, actor="user:ada")
    assert admitted(host).admission == Host.Admission.READY


def test_bad_hosts_fail_with_a_sentence_and_nothing_half_done(
    listening: None, sshd: Sshd, tmp_path: Path
) -> None:
    def reason(**changes: object) -> str:
        host = admitted(add(sshd, tmp_path, **changes))
        assert host.admission == Host.Admission.FAILED and not host.slots.exists()
        assert checks(host)["contact"] == ("fail", host.state_reason)
        return host.state_reason

    assert "is unknown" in reason(address="no-such-host.invalid")
    assert "refuses connections" in reason(port=free_port())
    assert "is not Python 3.8 or later" in reason(python="/opt/none/python")
    assert "is not Python 3.8 or later" in reason(python="/bin/false")
    assert "No folder could be created at /proc/none" in reason(workdir="/proc/none")
    sshd.authorize()
    connections.forget(sshd.endpoint())
    assert "authorized_keys" in reason(name="other", login_user="root")


@pytest.mark.skipif(os.geteuid() != 0, reason="hides the machine's own Pythons by mounts: needs root")
def test_a_host_without_any_python_says_so(listening: None, sshd: Sshd, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "id", "mkdir"):
        shutil.copy(shutil.which(name) or "", programs / name)
    bare = tmp_path / "bare.sh"
    bare.write_text(
        f"mount -t tmpfs none /usr/local && mount -t tmpfs none /opt && mount --bind {programs} /usr/bin\n"
        'PATH=/usr/bin HOME=/nonexistent exec /usr/bin/sh -c "$SSH_ORIGINAL_COMMAND"\n'
    )
    sshd.stop()
    sshd.options = [f"ForceCommand exec unshare --mount --propagation private sh {bare}"]
    sshd.start()
    host = admitted(add(sshd, tmp_path, python=""))
    assert host.admission == Host.Admission.FAILED
    assert "has no Python 3.8 or later" in host.state_reason and "--python" in host.state_reason


@pytest.mark.survive(41)
def test_a_server_that_nobody_answers_for_is_no_route(
    sshd: Sshd, tmp_path: Path, settings: LazySettings, redis_server: object
) -> None:
    settings.LISTEN_PORT = free_port()
    host = admitted(add(sshd, tmp_path))
    assert host.admission == Host.Admission.FAILED
    assert "cannot reach the server" in host.state_reason and "tunnel" in host.state_reason


def test_the_local_host_is_admitted_by_the_same_road(listening: None, tmp_path: Path) -> None:
    new = NewHost("local", transport="local", workdir=str(tmp_path / "work"), wanted_slots=3)
    host = admitted(registry.add(new, default_pool(), actor="user:ada"))
    assert (host.admission, host.server_route, host.slots.count()) == ("ready", "url", 3)


def test_the_local_hosts_first_python_is_the_servers_even_if_it_is_not_on_path(
    listening: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    new = NewHost("local", transport="local", workdir=str(tmp_path / "work"), wanted_slots=1)
    host = admitted(registry.add(new, default_pool(), actor="user:ada"))
    found = [interpreter["path"] for interpreter in host.facts["interpreters"]]
    with_torch = [one["path"] for one in host.facts["interpreters"] if one.get("torch")]
    assert found[0] == sys.executable and not sys.executable.startswith("/usr/bin")
    assert host.python == (
        sys.executable if sys.executable in with_torch or not with_torch else with_torch[0]
    )


def test_root_gets_the_system_folder_and_others_one_in_their_home(
    listening: None, isolated_hosts: list[rig.Host]
) -> None:
    machine = isolated_hosts[0]
    found = {}
    for login in ("root", rig.ALICE):
        machine.authorize(server_key.public_key(), login)
        new = NewHost(
            login, address=machine.address, login_user=login, host_key=machine.host_key, wanted_slots=1
        )
        host = admitted(registry.add(new, default_pool(), actor="user:ada"))
        assert host.admission == Host.Admission.READY, host.state_reason
        found[login] = (host.workdir, checks(host)["isolation"][0], host.python)
    alice = Host.objects.get(name=rig.ALICE)
    assert found["root"][:2] == ("/var/lib/trainmaster", "ok")
    assert found[rig.ALICE][:2] == (f"/home/alice/.trainmaster/hosts/{alice.pk}", "warn")
    assert found["root"][2].startswith("/")  # found without being named


def test_the_doctor_examines_a_ready_host_again(listening: None, sshd: Sshd, tmp_path: Path) -> None:
    host = admitted(add(sshd, tmp_path))
    before = host.doctor["at"]
    host.slots.filter(index=1).delete()
    doctor.run(host.pk)
    host.refresh_from_db()
    assert host.doctor["at"] > before and host.slots.count() == 2
    sshd.stop()
    doctor.run(host.pk)
    host.refresh_from_db()
    assert checks(host)["contact"][0] == "fail" and host.admission == Host.Admission.READY


@pytest.mark.survive(19)
def test_a_second_name_of_a_machine_is_refused_and_the_first_is_named(
    listening: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho '0, GPU-1, NVIDIA H100, 81559, 550.54.15, 00000000:3B:00.0'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    def named(name: str) -> Host:
        known = NewHost(name=name, transport="local", workdir=str(tmp_path / "work"))
        return admitted(registry.add(known, default_pool(), actor="user:ada"))

    first, second = named("gpu1"), named("gpu1-again")
    assert first.admission == "ready" and [slot.uuid for slot in first.slots.all()] == ["GPU-1"]
    assert second.admission == "failed" and not second.slots.exists()
    assert second.state_reason.startswith("gpu1-again has the same GPUs as gpu1 (GPU-1)")
    assert checks(second)["machine"] == ("fail", second.state_reason)


def facts(**changes: object) -> dict[str, object]:
    """Facts as the verb `probe` gives them, of a host in order."""
    return {
        "python": {"path": "/usr/bin/python3", "version": "3.11.2"},
        "cpus": {"count": 8, "usable": 8},
        "interpreters": [
            {"path": "/usr/bin/python3", "version": "3.11.2", "torch": None, "cuda": None},
            {"path": "/opt/cpu/bin/python", "version": "3.11.2", "torch": "2.4.0", "cuda": None},
            {"path": "/opt/gpu/bin/python", "version": "3.10.1", "torch": "2.4.0", "cuda": "12.4"},
            {"path": "/opt/old/bin/python", "version": "3.7.1", "torch": "1.1.0", "cuda": "9.0"},
        ],
        "gpus": [],
        "gpu_source": "none",
        "disk": {"path": "/w", "free_bytes": 2**40, "writable": True, "network": False, "filesystem": "ext4"},
        "home": {"network": False, "filesystem": "ext4"},
        "account": {"name": "ml", "switch": "root"},
        "isolation": {"cgroup_v2": True, "systemd": True},
        "logind": {"detached_runs_survive": True},
        **changes,
    }


GPU = {"index": 0, "uuid": "GPU-1", "name": "H100", "memory_mib": 81559, "driver": "550", "mig": []}


def judged(
    skew: float = 0.0, python: str = "/usr/bin/python3", **changes: object
) -> dict[str, tuple[str, str]]:
    return {c["name"]: (c["state"], c["sentence"]) for c in examine(facts(**changes), python, "", skew)}


def test_a_missing_torch_warns_and_names_the_interpreters_that_have_it() -> None:
    state, sentence = judged()["torch"]
    assert state == "warn" and "/opt/gpu/bin/python (torch 2.4.0)" in sentence
    assert judged(python="/opt/cpu/bin/python", gpus=[GPU], gpu_source="nvml")["torch"][0] == "warn"
    assert judged(python="/opt/gpu/bin/python")["torch"][0] == "ok"


def test_the_interpreter_with_a_torch_that_fits_the_host_is_chosen() -> None:
    assert best_python(facts(), "/usr/bin/python3") == "/opt/cpu/bin/python"
    assert best_python(facts(gpus=[GPU]), "/usr/bin/python3") == "/opt/gpu/bin/python"
    assert best_python(facts(interpreters=[]), "/usr/bin/python3") == "/usr/bin/python3"


@pytest.mark.survive(7)
def test_what_endangers_runs_is_told() -> None:
    assert judged(skew=-90.0)["clock"] == (
        "warn",
        "The clock is 90.0 s behind the server's; set up NTP. Times are corrected.",
    )
    full = {"path": "/w", "free_bytes": 2**28, "writable": True, "network": False, "filesystem": "ext4"}
    assert judged(disk=full)["disk"][0] == "fail"
    assert judged(account={"name": "ml", "switch": "none"})["isolation"][0] == "warn"
    state, sentence = judged(logind={"detached_runs_survive": False})["logind"]
    assert state == "fail" and "loginctl enable-linger ml" in sentence
    assert "view" not in judged() and "signs" not in judged(), "of a host that was not asked"
    account = {"name": "ml", "switch": "root", "uid": 1000}
    assert judged(signs={"kernel": "dmesg", "denied": []}, account=account)["signs"] == (
        "ok",
        "Faults are read from the kernel's log (dmesg) and measured. ml sees its own processes only.",
    )
    assert judged(signs={"kernel": "", "denied": ["No log.", "No NVML."]})["signs"] == (
        "warn",
        "No log. No NVML.",
    )
    assert judged(view={"login": None, "account": None})["view"][0] == "ok"
    state, sentence = judged(view={"login": None, "account": "Operation not permitted"})["view"]
    assert state == "warn" and "linked account get no mount namespace (Operation not permitted)" in sentence
    scope = {"unit": "session-3.scope", "kill_mode": None, "ends_runs": True, "leaves": True}
    assert judged(logind={"detached_runs_survive": False}, service=scope)["logind"][0] == "ok"
    assert "service" not in judged(service=scope), "it is about services alone"
    service = {"unit": "tm.service", "kill_mode": "mixed", "ends_runs": True, "leaves": False}
    state, sentence = judged(service=service)["service"]
    assert state == "fail" and "KillMode=mixed" in sentence and "KillMode=process" in sentence
    assert judged(service={**service, "leaves": True})["service"][0] == "ok"
    assert judged(service={**service, "kill_mode": "process", "ends_runs": False})["service"][0] == "ok"


def test_gpus_and_mig_instances_are_slots_by_uuid() -> None:
    instances = [{"uuid": f"MIG-{n}", "name": "H100 1g", "memory_mib": 9728} for n in range(2)]
    found = slots_of(facts(gpus=[GPU, {**GPU, "uuid": "GPU-2", "mig": instances}]), wanted=5)
    assert [slot.uuid for slot in found] == ["GPU-1", "MIG-0", "MIG-1"]
    assert {slot.kind for slot in found} == {Slot.Kind.CUDA}
    assert len(slots_of(facts(), wanted=None)) == 8 and slots_of(facts(), wanted=0) == []

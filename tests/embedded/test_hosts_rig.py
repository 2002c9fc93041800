"""The test hosts themselves: what the other tests rely on must hold."""

import os
import random
import shutil
import signal
import subprocess

import pytest

from embedded import processes
from tests.rig import network, pace
from tests.rig.hosts import ALICE, BOB, Host, HostRig, processes_with_marker

pytestmark = pytest.mark.hosts


def test_each_host_answers_over_ssh_with_its_own_name_and_files(isolated_hosts: list[Host]) -> None:
    first, second = isolated_hosts
    assert (
        first.run("mkdir -p /var/lib/trainmaster && touch /var/lib/trainmaster/x && hostname").stdout
        == "gpu1\n"
    )
    assert second.run("hostname; ls /var/lib/trainmaster").stdout == "gpu2\n"
    assert (first.workdir / "x").exists()
    assert (
        first.run("cat /proc/sys/kernel/random/boot_id").stdout
        != second.run("cat /proc/sys/kernel/random/boot_id").stdout
    )


def test_two_people_can_log_in_and_have_the_tests_python(isolated_hosts: list[Host]) -> None:
    host = isolated_hosts[0]
    for login in (ALICE, BOB):
        done = host.run("id -un; python3 -c 'import yaml; print(yaml.__name__)'; pwd", login)
        assert done.stdout == f"{login}\nyaml\n/home/{login}\n", done.stderr
    assert host.run("ls /home/bob", ALICE).returncode != 0


def test_a_cut_link_is_silent_and_comes_back(isolated_hosts: list[Host]) -> None:
    host = isolated_hosts[0]
    host.cut()
    assert host.run("true").returncode == 255
    assert isolated_hosts[1].run("true").returncode == 0
    host.restore()
    assert pace.wait_until(lambda: host.run("true").returncode == 0, 60)


def test_work_outlives_sshd_and_is_found_by_its_marker(hosts: list[Host]) -> None:
    host = hosts[0]
    key = f"rig-{os.getpid()}.0"
    host.run(f"TRAINMASTER_RUN={key} setsid -f sleep 60 </dev/null >/dev/null 2>&1")
    found = processes_with_marker(key)
    assert len(found) == 1
    host.stop_sshd()
    assert host.run("true").returncode == 255
    assert processes_with_marker(key) == found
    host.start_sshd()
    assert host.run("true").returncode == 0
    os.kill(found[0], signal.SIGKILL)
    assert pace.wait_until(lambda: not processes_with_marker(key), 60)


def test_a_reboot_ends_everything_and_changes_the_boot_id(isolated_hosts: list[Host]) -> None:
    host = isolated_hosts[0]
    before = host.run("cat /proc/sys/kernel/random/boot_id").stdout
    host.run("TRAINMASTER_RUN=reboot.0 setsid -f sleep 60 </dev/null >/dev/null 2>&1")
    host.reboot()
    assert processes_with_marker("reboot.0") == []
    assert host.run("cat /proc/sys/kernel/random/boot_id").stdout not in ("", before)


def test_closing_a_rig_leaves_nothing(host_rig: HostRig, tmp_path: object) -> None:
    if host_rig.network is None:
        pytest.skip(host_rig.refusal)
    rig = HostRig(host_rig.folder)
    assert rig.network is not None
    host = rig.take(1)[0]
    host.run("setsid -f sleep 60 </dev/null >/dev/null 2>&1")
    bridge, pids = rig.network.bridge, network.pids(str(host.namespace))
    rig.close()
    assert not any(processes.identify(pid) for pid in pids)
    assert bridge not in network.ip("netns", "list") + network.ip("link", "show")
    assert not rig.folder.exists()
    assert str(rig.folder) not in subprocess.run(["mount"], capture_output=True, text=True, check=True).stdout


def test_what_a_swept_network_has_left_is_no_refusal(
    host_rig: HostRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    if host_rig.network is None:
        pytest.skip(host_rig.refusal)
    swept = network.make()
    shutil.rmtree(swept.folder)  # by a process in another network, which does not see the bridge
    monkeypatch.setattr(random, "shuffle", lambda subnets: subnets.insert(0, swept.subnet))
    again = network.make()
    found = again.subnet
    again.close()
    assert found == swept.subnet
    assert not (network.FOLDERS / f"{network.PREFIX}{swept.subnet}").exists()


def test_a_refusal_after_a_network_is_a_fault(host_rig: HostRig, monkeypatch: pytest.MonkeyPatch) -> None:
    if host_rig.network is None:
        pytest.skip(host_rig.refusal)

    def refuse(*_: str) -> str:
        raise network.NotAllowed("no")

    monkeypatch.setattr(network, "ip", refuse)
    monkeypatch.setattr(network, "sweep", lambda: None)
    with pytest.raises(RuntimeError, match="have worked in this run of tests, and now: no"):
        network.make()

"""The kernel's log as the host reads it: this machine's own, and records of the form that /dev/kmsg gives."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from trainmaster.host import kernel_log
from trainmaster.processes import boot_id

XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Facility and level, number, microseconds, flags; text; below it values of the device."""
    log = [
        f"4,1,1000000,-;{XID}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n",
        "6,2,5000000,-;eth0: entered promiscuous mode\n",
        f"12,3,6000000,-;{XID}\n",  # a program wrote it: the facility is a user's
        "3,4,7000000,-;NVRM: The NVIDIA GPU 0000:18:00.0\\x0aNVRM: fallen off the bus\n",
        "nonsense",
    ]
    monkeypatch.setattr(kernel_log, "_records", lambda _: (record.encode() for record in log))
    monkeypatch.setattr(kernel_log, "_KMSG", os.devnull)


@pytest.mark.usefixtures("records")
def test_only_new_signs_of_the_kernel_itself_are_told() -> None:
    first = kernel_log.look({})
    assert (first["lines"], first["until"], first["source"]) == ([], 7_000_000, "kmsg"), "it may be long ago"
    again = kernel_log.look({"boot": boot_id(), "until": 6_500_000})
    assert again["lines"] == [[7_000_000, "NVRM: The NVIDIA GPU 0000:18:00.0 NVRM: fallen off the bus"]]
    other_boot = kernel_log.look({"boot": "another", "until": 9_000_000})
    assert [at for at, _ in other_boot["lines"]] == [1_000_000, 7_000_000]


def test_what_a_program_writes_to_the_log_is_no_sign() -> None:
    before = kernel_log.look({})
    if before.get("source") != "kmsg" or os.geteuid() != 0:
        pytest.skip("this account may not read and write /dev/kmsg")
    Path("/dev/kmsg").write_text(f"<0>{XID} of a test\n")
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    assert any(b"of a test" in record for record in kernel_log._records(log))
    os.close(log)
    after = kernel_log.look({"boot": before["boot"], "until": before["until"]})
    assert not any("of a test" in text for _, text in after["lines"])


def test_without_the_right_to_read_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_log, "_KMSG", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = kernel_log.look({"boot": "another"})
    assert answer["lines"] == [] and "systemd-journal or adm" in answer["denied"]


def test_dmesg_is_read_where_nothing_else_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "dmesg"
    program.write_text(f"#!/bin/sh\necho '<4>[    1.500000] {XID}'\necho '<6>[    2.000001] eth0: up'\n")
    program.chmod(0o755)
    monkeypatch.setattr(kernel_log, "_KMSG", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    answer = kernel_log.look({"boot": "another"})
    assert (answer["source"], answer["until"], answer["lines"]) == ("dmesg", 2_000_001, [[1_500_000, XID]])


def test_a_run_that_failed_brings_the_signs_of_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6
    lines = [
        (int(now - 3600e6 - 0.01 * now), "eth0: NIC Link is Down"),
        (int(now - 5e6), XID),
        (int(now), "all is well"),
    ]
    monkeypatch.setattr(kernel_log, "_read", lambda: ("kmsg", lines))
    assert kernel_log.of_last(10.0, 20) == [[lines[1][0], XID]]
    own = [
        (int(now), f"Out of memory: Killed process {number} (python) total-vm:1kB") for number in range(30)
    ]
    freed = [(int(now), XID.replace("79, GPU has fallen off the bus", "45, Ch 00000010"))] * 30
    monkeypatch.setattr(kernel_log, "_read", lambda: ("kmsg", [lines[1], *own, *freed]))
    found = [text for _, text in kernel_log.of_last(10.0, 5)]
    assert XID in found and len(found) == 5, "neither repeats nor programs hide it"
    monkeypatch.setattr(kernel_log, "_read", lambda: ("", None))
    assert kernel_log.of_last(10.0, 20) == []

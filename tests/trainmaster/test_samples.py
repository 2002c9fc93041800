"""What the runner measures of its host, of the run's own GPUs and of each rank, and how it comes to the server."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from metrics.names import METRICS, is_known
from tests.trainmaster.conftest import TestHost, wait_until
from tests.trainmaster.stream_server import StreamServer
from trainmaster.host.measuring import measure
from trainmaster.paths import Workdir
from trainmaster.processes import boot_id
from trainmaster.runner import host_samples
from trainmaster.runner.gpu_samples import parse
from trainmaster.runner.host_samples import HostSamples
from trainmaster.runner.sampling import Columns

ROOT = Path(__file__).resolve().parents[2]
#: A library with two GPUs and a MIG instance, which tells its memory alone.
NVML = """
from types import SimpleNamespace
NVML_TEMPERATURE_GPU = 0
class NVMLError(Exception): pass
def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetHandleByUUID(uuid):
    if uuid not in ("GPU-a", "GPU-b", "MIG-1"): raise NVMLError("no such GPU")
    return uuid
def of_whole(device, value):
    if device == "MIG-1": raise NVMLError("not supported")
    return value
def nvmlDeviceGetUtilizationRates(device): return of_whole(device, SimpleNamespace(gpu=83, memory=20))
def nvmlDeviceGetMemoryInfo(device): return SimpleNamespace(used=30 * 2**30, free=50 * 2**30, total=80 * 2**30)
def nvmlDeviceGetTemperature(device, sensor): return of_whole(device, 61)
def nvmlDeviceGetPowerUsage(device): return of_whole(device, 412345)
"""
SMI = """#!/bin/sh
echo "GPU-a, 83, 30720, 51200, 61, 412.35"
echo "GPU-b, [N/A], 1, 2, 35, [Not Supported]"
echo "GPU-other, 1, 1, 1, 1, 1"
"""
#: What GpuSamples says until it has said something, in a process that has the stand-in; one look says the same.
READ = """
import json, sys, time
from trainmaster.runner.gpu_samples import GpuSamples, look_at
samples, until = GpuSamples(sys.argv[1:]), time.monotonic() + 60
found = samples.read(0.0)
while not found and sys.argv[1:] and time.monotonic() < until:
    found = samples.read(1.0)
assert look_at(sys.argv[1:]) == found
print(json.dumps(found))
"""


def gpu_samples(folder: Path, uuids: list[str]) -> Any:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}",
        "PATH": f"{folder}:/usr/bin:/bin",
    }
    command = [sys.executable, "-c", READ, *uuids]
    return json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)


def test_only_the_runs_own_gpus_are_measured_and_only_what_they_tell(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text(NVML)
    assert gpu_samples(tmp_path, ["GPU-b", "MIG-1", "GPU-lost"]) == {
        "gpu_util/GPU-b": 83,
        "gpu_memory_used/GPU-b": 30 * 2**30,
        "gpu_memory_free/GPU-b": 50 * 2**30,
        "gpu_temperature/GPU-b": 61,
        "gpu_power/GPU-b": 412.3,
        "gpu_memory_used/MIG-1": 30 * 2**30,
        "gpu_memory_free/MIG-1": 50 * 2**30,
    }
    assert gpu_samples(tmp_path, []) == {}


def test_without_the_library_nvidia_smi_is_asked(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('there is none')")
    program = tmp_path / "nvidia-smi"
    program.write_text(SMI)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    assert gpu_samples(tmp_path, ["GPU-a", "GPU-b"]) == {
        "gpu_util/GPU-a": 83,
        "gpu_memory_used/GPU-a": 30 * 2**30,
        "gpu_memory_free/GPU-a": 50 * 2**30,
        "gpu_temperature/GPU-a": 61,
        "gpu_power/GPU-a": 412.35,
        "gpu_memory_used/GPU-b": 2**20,
        "gpu_memory_free/GPU-b": 2 * 2**20,
        "gpu_temperature/GPU-b": 35,
    }


def test_an_answer_of_another_form_tells_nothing() -> None:
    assert parse("No devices were found\n\nGPU-a, 1\n", {"GPU-a"}) == {}


def test_columns_of_a_record_are_as_long_as_its_times() -> None:
    columns = Columns()
    columns.add(1.0, {"cpu_util_simple": 5.0})
    columns.add(2.0, {"cpu_util_simple": 6.0, "rank_cpu/0": 0.5})
    columns.add(3.0, {"rank_cpu/0": 0.7})
    assert columns.take(2.5) == b""
    record = json.loads(columns.take(2.0))
    assert record == {
        "k": "samples",
        "t": [1.0, 2.0, 3.0],
        "v": {"cpu_util_simple": [5.0, 6.0, None], "rank_cpu/0": [None, 0.5, 0.7]},
    }
    assert columns.take(0.0) == b""


def values(server: StreamServer, name: str) -> list[float]:
    columns = [record["v"].get(name, []) for record in server.records("samples")]
    return [value for column in columns for value in column if value is not None]


WORK = """
import os, time
held = b"x" * (96 << 20)
until = time.time() + %f
while time.time() < until and not os.path.exists("enough"): pass
"""


def test_a_run_ships_samples_of_its_host_and_ranks(host: TestHost, stream_server: StreamServer) -> None:
    limits = {"sample_seconds": 0.2, "sample_record_seconds": 1.0}
    paths = host.run_script(WORK % 600, limits=limits)
    stream_server.wait_for(lambda: len(stream_server.records("samples")) >= 3)
    stream_server.wait_for(lambda: max(values(stream_server, "rank_memory/0"), default=0) > 96 << 20)
    stream_server.wait_for(lambda: values(stream_server, "rank_cpu/0"))
    (paths.code / "enough").touch()
    stream_server.wait_for(stream_server.exit)
    records = stream_server.records("samples")
    for record in records:
        assert all(len(column) == len(record["t"]) for column in record["v"].values())
        assert all(is_known(column) for column in record["v"])
        assert record["t"] == sorted(record["t"])
    found = {column.partition("/")[0] for record in records for column in record["v"]}
    assert {"cpu_util_simple", "memory_free", "net_throughput_sent", "rank_memory", "rank_cpu"} <= found
    assert found <= set(METRICS) and not any(name.startswith("gpu") for name in found), "there are no GPUs"
    assert 0 < max(values(stream_server, "rank_cpu/0")) < 2
    assert all(0 <= value <= 100 for value in values(stream_server, "cpu_util_simple"))


@pytest.mark.parametrize("seconds", [0, 60])
def test_short_runs_and_servers_that_want_none_ship_no_samples(
    host: TestHost, stream_server: StreamServer, seconds: int
) -> None:
    host.run_script(WORK % 1, limits={"sample_seconds": seconds})
    stream_server.wait_for(stream_server.exit, 60)
    assert stream_server.records("samples") == []


def test_a_host_that_is_asked_goes_on_from_counters_that_it_can_read(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    workdir.measured.write_text(json.dumps({"boot_id": boot_id(), "at": "yesterday", "counters": 3}))
    looks = [measure({"host": True}, workdir, {})["v"] for _ in range(2)]
    assert all("memory_free" in look for look in looks)
    assert isinstance(json.loads(workdir.measured.read_text())["at"], float)


def test_samples_wait_for_a_server_that_is_away(host: TestHost, stream_server: StreamServer) -> None:
    paths = host.run_script(WORK % 600, limits={"sample_seconds": 0.1, "sample_record_seconds": 0.3})
    wait_until(lambda: bool(stream_server.records("samples")))
    stream_server.down()
    before = paths.outbox.stat().st_size
    wait_until(lambda: paths.outbox.stat().st_size > before + 2000)
    (paths.code / "enough").touch()
    wait_until(paths.exit.exists)
    stream_server.up()
    stream_server.wait_for(stream_server.exit, 60)
    times = [at for record in stream_server.records("samples") for at in record["t"]]
    assert times == sorted(set(times)) and len(times) >= 6


def test_a_network_card_that_goes_takes_nothing_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(**cards: int) -> None:
        rows = [f"{name}: {count} 0 0 0 0 0 0 0 {2 * count} 0 0 0 0 0 0 0" for name, count in cards.items()]
        (tmp_path / "net" / "dev").write_text("\n".join(["head |", "head |", *rows]) + "\n")

    (tmp_path / "net").mkdir()
    monkeypatch.setattr(host_samples, "PROC", tmp_path)
    monkeypatch.setattr(host_samples, "SYS", tmp_path)
    looks = HostSamples()
    counted(eth0=1_000, veth7=9_000_000)
    assert looks.read(1.0) == {}
    counted(eth0=1_500)
    assert looks.read(2.0) == {"net_throughput_recv": 500.0, "net_throughput_sent": 1_000.0}
    again = HostSamples()
    again.resume(json.loads(json.dumps(looks.kept())))
    counted(eth0=1_700, veth8=4)
    assert again.read(4.0) == {"net_throughput_recv": 100.0, "net_throughput_sent": 200.0}

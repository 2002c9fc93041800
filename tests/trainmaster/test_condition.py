"""How a host looks at its own condition: NVML by its real binding, links of /sys, folders, and calls that hang."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig.pace import wait_until
from tests.trainmaster.conftest import TestHost
from trainmaster.host import condition, links
from trainmaster.host.in_time import answers
from trainmaster.processes import is_alive, marked
from trainmaster.protocol import KEEPER_MARKER, MARKER

ROOT = Path(__file__).resolve().parents[2]
GPUS = {"GPU-0": "0000:01:00", "GPU-1": "0000:02:00"}
HEALTHY = {
    "ecc_volatile": 0, "ecc_aggregate": 4, "rows_corrected": 1, "rows_uncorrected": 2, "rows_pending": 0,
    "rows_failed": 0, "throttle": 0, "width": 16, "width_most": 16, "generation": 4, "generation_most": 5,
    "pstate": 0, "busy": 93, "memory_used": 7 << 30, "memory_total": 80 << 30, "processes": 2, "graphics": 0,
}  # fmt: skip
NO_LIBRARY = "raise ImportError('there is none')"
LOOK = """
import json, sys
from pathlib import Path
from trainmaster.host import condition
from trainmaster.host.condition import Asked
from trainmaster.paths import Workdir
condition.PATIENCE_SECONDS = float(sys.argv[3])
asked = Asked(json.loads(sys.argv[1]), Workdir(Path(sys.argv[2])))
print(json.dumps({"condition": asked.condition(), "users": asked.gpu_users, "sample": asked.gpu_sample}))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders with the stand-in: `new`, `old` as of a driver before 535, `one` with a single GPU."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler (cc) for the stand-in of NVIDIA's library")
    folder = tmp_path_factory.mktemp("nvml")
    for name, more in (("new", []), ("old", ["-DOLD_DRIVER"]), ("one", ["-DGPUS=1"])):
        (folder / name).mkdir()
        source = Path(__file__).with_name("nvml_stand_in.c")
        library = folder / name / "libnvidia-ml.so.1"
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-Wall", "-Werror", *more, "-o", library, source], check=True
        )
    return folder


Numbers = dict[str, int]


@pytest.fixture
def look(built: Path, tmp_path: Path) -> Callable[..., Any]:
    def ask(
        first: Numbers,
        second: Numbers | None = None,
        *,
        driver: str = "new",
        patience: float = 60,
        **more: Any,
    ) -> Any:
        """What a host with these two GPUs answers, by the real binding."""
        rows = [
            f"{gpu} {name} {number}"
            for gpu, of in ((0, first), (1, second or {}))
            for name, number in of.items()
        ]
        (tmp_path / "numbers").write_text("\n".join(rows))
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "NVML_STAND_IN": str(tmp_path / "numbers"),
            "LD_LIBRARY_PATH": str(built / driver),
        }
        request = json.dumps({"condition": {"gpus": GPUS, "folders": []}, **more})
        command = [sys.executable, "-c", LOOK, request, str(tmp_path), str(patience)]
        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        return json.loads(said)

    return ask


def test_the_check_of_a_machine_with_a_gpu_says_what_it_could_not_check(built: Path, tmp_path: Path) -> None:
    """Here the GPU is the stand-in, with which no program can compute."""
    (tmp_path / "numbers").write_text("\n".join(f"0 {name} {number}" for name, number in HEALTHY.items()))
    paths = {"NVML_STAND_IN": str(tmp_path / "numbers"), "LD_LIBRARY_PATH": str(built / "one")}
    (tmp_path / "pynvml.py").write_text(NO_LIBRARY)
    none = {"PATH": "/nowhere", "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "tests.rig.gpu_check"]
    for more, part in (
        (paths, "not checked  NCCL under torchrun: "),
        (none, "nothing was checked"),
    ):
        environment = {**os.environ, "GPU_CHECK_PYTHON": "/bin/false", **more}
        said = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
        assert said.returncode == 0 and part in said.stdout, said.stdout + said.stderr
        assert ("throttle 0" in said.stdout) is (more is paths)


def test_a_gpu_tells_its_numbers_by_the_real_binding(look: Callable[..., Any]) -> None:
    pages = {"pages_single": 3, "pages_double": 2, "pages_pending": 1, "throttle": 0x48, "mig": 0}
    answer = look(HEALTHY, pages, gpu_users=True, sample={"host": False, "gpus": ["GPU-0"]})
    told = answer["condition"]["gpus"]
    assert told["GPU-0"] == {name: number for name, number in HEALTHY.items() if name != "graphics"}
    assert told["GPU-1"] == {"pages": 5, "pages_pending": 1, "throttle": 0x48}
    assert answer["condition"]["denied"] == []
    assert answer["sample"]["gpu_util/GPU-0"] == 93
    # GPU-1 does not tell its processes, so nobody can tell who uses the GPUs of the host
    assert answer["users"] is None


def test_what_the_account_may_not_read_is_said_and_an_older_driver_is_asked_by_its_own_names(
    look: Callable[..., Any],
) -> None:
    told = look({**HEALTHY, "ecc_volatile": -4, "mig": 1}, {"throttle": 1}, driver="old")["condition"]
    assert told["gpus"]["GPU-0"].keys() == HEALTHY.keys() - {
        "ecc_volatile", "memory_used", "memory_total", "processes", "graphics",
    }  # fmt: skip
    assert told["gpus"]["GPU-1"] == {"throttle": 1}
    assert told["denied"] == ["The driver does not let this account read: ECC since the driver was loaded."]


def test_a_lost_gpu_is_told_by_its_address_and_harms_not_the_other(look: Callable[..., Any]) -> None:
    told = look(HEALTHY, {**HEALTHY, "lost": 1})["condition"]["gpus"]
    assert told["GPU-1"] == {"lost": 1} and told["GPU-0"]["ecc_aggregate"] == 4
    assert look(HEALTHY, {**HEALTHY, "throttle": -16})["condition"]["gpus"]["GPU-1"] == {"reset": 1}


def test_a_driver_that_hangs_is_waited_for_once_and_then_only_counted(
    look: Callable[..., Any], tmp_path: Path
) -> None:
    first = look({"hangs": 1}, patience=0.3)["condition"]
    second = look({"hangs": 1}, patience=0.3, gpu_users=True)
    noted = json.loads((tmp_path / "looking.json").read_text())
    process = noted["late"]["driver"]["process"]
    assert is_alive(process, noted["boot_id"])
    os.kill(process["pid"], 9)
    assert first["gpus"] == {} and 0.3 <= first["driver_late"] < second["condition"]["driver_late"]
    assert "did not answer within" in first["denied"][0] and second["users"] is None


def test_without_the_library_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text(NO_LIBRARY)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "PATH": str(tmp_path)}
    command = [sys.executable, "-c", LOOK, json.dumps({"condition": {"gpus": GPUS}}), str(tmp_path), "60"]
    told = json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)[
        "condition"
    ]
    assert told["gpus"] == {} and "libnvidia-ml.so.1" in told["denied"][0]


def test_work_that_fails_or_says_nonsense_answers_nothing(tmp_path: Path) -> None:
    found = answers(
        {"good": lambda: [1], "bad": lambda: 1 / 0, "odd": lambda: object()}, tmp_path / "late", 20.0
    )
    assert {name: each.value for name, each in found.items()} == {"good": [1], "bad": None, "odd": None}
    assert not (tmp_path / "late").exists()


def test_what_a_work_said_before_it_hangs_is_kept(tmp_path: Path) -> None:
    def work() -> Iterator[dict[str, int]]:
        yield {"first": 1}
        yield {"second": 2}
        time.sleep(60)

    found = answers({"slow": work}, tmp_path / "late", 1.0)["slow"]
    assert found.value == {"first": 1, "second": 2} and found.late is not None
    [process] = [each["process"] for each in json.loads((tmp_path / "late").read_text())["late"].values()]
    os.kill(process["pid"], 9)
    os.waitpid(process["pid"], 0)


def test_where_no_more_processes_may_start_the_others_are_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork, started = os.fork, []

    def once() -> int:
        if started:
            raise BlockingIOError
        started.append(1)
        return fork()

    monkeypatch.setattr(os, "fork", once)
    before = len(list(Path("/proc/self/fd").iterdir()))
    found = answers({"one": lambda: 1, "two": lambda: 2}, tmp_path / "late", 20.0)
    assert (
        found == {"one": (1, None), "two": (None, None)}
        and len(list(Path("/proc/self/fd").iterdir())) == before
    )


def test_what_hangs_keeps_nobody_waiting_and_is_asked_again_once_its_process_is_gone(tmp_path: Path) -> None:
    works = {"hangs": lambda: time.sleep(60), "good": lambda: "here"}
    begun = time.monotonic()
    first = answers(works, tmp_path / "late", 2.0)  # a busy machine takes half a second for a fork
    assert time.monotonic() - begun < 20 and first["good"].value == "here"
    [process] = [each["process"] for each in json.loads((tmp_path / "late").read_text())["late"].values()]
    second = answers(works, tmp_path / "late", 0.2)
    assert (second["hangs"].late or 0) > (first["hangs"].late or 9)
    os.kill(process["pid"], 9)
    os.waitpid(process["pid"], 0)
    assert answers({"hangs": lambda: "back"}, tmp_path / "late", 20.0)["hangs"] == ("back", None)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def test_links_are_read_as_the_kernel_writes_them(tmp_path: Path) -> None:
    port = tmp_path / "class/infiniband/mlx5_0/ports/1"
    write(port / "state", "4: ACTIVE")
    write(port / "rate", "200 Gb/sec (4X HDR)")
    write(port / "link_layer", "InfiniBand")
    write(port / "counters/link_downed", "3")
    write(port / "counters/symbol_error", "0")
    write(tmp_path / "class/infiniband/mlx5_1/ports/1/state", "1: DOWN")
    write(tmp_path / "class/infiniband/mlx5_1/ports/1/rate", "2.5 Gb/sec (1X SDR)")
    for device in ("rxe0", "mlx5_2"):
        write(tmp_path / f"class/infiniband/{device}/ports/1/state", "4: ACTIVE")
    for device in ("mlx5_0", "mlx5_1", "mlx5_2"):
        (tmp_path / f"class/infiniband/{device}/device").mkdir(parents=True)
    (tmp_path / "class/infiniband/mlx5_2/device/physfn").mkdir()
    for card, speed in (("eth0", "25000"), ("eth1", "-1"), ("virtual", "1000")):
        write(tmp_path / f"class/net/{card}/operstate", "up" if card != "eth1" else "down")
        write(tmp_path / f"class/net/{card}/speed", speed)
        write(tmp_path / f"class/net/{card}/carrier_changes", "2")
    for card in ("eth0", "eth1", "vf0"):
        (tmp_path / f"class/net/{card}/device").mkdir(parents=True)
    (tmp_path / "class/net/vf0/device/physfn").mkdir()
    assert links.ports(tmp_path) == {
        "mlx5_0/1": {
            "state": "ACTIVE",
            "layer": "InfiniBand",
            "rate": 200.0,
            "link_downed": 3,
            "symbol_error": 0,
        },
        "mlx5_1/1": {"state": "DOWN", "rate": 2.5},
    }
    assert links.cards(tmp_path) == {
        "eth0": {"state": "up", "rate": 25000, "carrier_changes": 2},
        "eth1": {"state": "down", "carrier_changes": 2},
    }
    assert links.ports(tmp_path / "none") == links.cards(tmp_path / "none") == {}


def test_files_of_ended_processes_in_shared_memory_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    for name in (f"torch_{gone.pid}_12_0", f"torch_{os.getpid()}_12_0", f"other_{gone.pid}_1"):
        (tmp_path / name).write_bytes(b"x" * 8192)
        os.utime(tmp_path / name, (1.0, 1.0))
    (tmp_path / f"torch_{gone.pid}_young").write_bytes(b"x" * 8192)
    monkeypatch.setattr(condition, "_SHM_USED", 0.0)
    monkeypatch.setattr(condition, "PROC", tmp_path / "proc")
    told = condition.shared_memory(tmp_path)
    assert (told["files"], told["left"]) == (1, 8192) and 0 < told["used"] <= told["total"]
    assert condition.shared_memory(tmp_path / "none") == {}
    write(tmp_path / "proc/7/status", "Name:\tcat\nNSpid:\t7\t1")
    assert condition.shared_memory(tmp_path)["files"] == 0, "a container may know it by another pid"


def test_a_host_answers_with_its_condition_where_it_is_asked(host: TestHost) -> None:
    told = host.verb("status", {"runs": [], "condition": {"folders": ["/nowhere/at/all"], "gpus": {}}})[
        "condition"
    ]
    assert told["folders"]["."]["free"] > 0 and told["folders"]["."]["read_only"] is False
    assert told["folders"]["/nowhere/at/all"]["missing"] is True
    assert abs(told["now"] - time.time()) < 60 and told["denied"] == [] and "driver_late" not in told
    assert "condition" not in host.verb("status", {"runs": []})


def test_processes_are_counted_by_run_and_account_but_not_below_another_run() -> None:
    own, other = "a.1.0", "b.2.0"
    code = "import subprocess, sys; subprocess.run(['sleep', '60'], env={'TRAINMASTER_RUN': sys.argv[1]})"
    left = subprocess.Popen(["sleep", "60"], env={MARKER: own})
    launcher = subprocess.Popen([sys.executable, "-c", code, own], env={KEEPER_MARKER: other})
    try:
        wait_until(lambda: len(marked().get(own, [])) == 2, 20)
        assert condition._runs()[own] == {condition.name_of(os.getuid()): 1}
    finally:
        for process in [{"pid": left.pid}, *marked().get(own, []), {"pid": launcher.pid}]:
            os.kill(process["pid"], 9)
        left.wait()
        launcher.wait()

"""The launch module and the SDK in a whole run, started by the host part and read by its runner."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.rig.ports import free_port
from tests.trainmaster.conftest import TestHost, wait_until
from tests.trainmaster.stream_server import StreamServer
from trainmaster.processes import of_run

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")

PROGRAM = """
import determined as det, torch.distributed as dist, os, signal, sys
dist.init_process_group("gloo")
info = det.get_cluster_info()
with det.core.init(distributed=det.core.DistributedContext.from_torch_distributed()) as core:
    rank = core.distributed.rank
    print("hello from", rank, "of trial", info.trial.trial_id)
    if rank == 0:
        core.train.report_validation_metrics(1, {"loss": float("nan")})
    core.distributed.allgather(None)
    if rank == 1:
        sys.exit(3)
    signal.pause()
"""


def two_slots() -> dict[str, Any]:
    ports = {"c10d": free_port(), "comm": free_port()}
    return {
        "python": sys.executable,
        "slots": [{"index": index, "uuid": f"cpu-{index}", "kind": "cpu"} for index in range(2)],
        "gang": {"addresses": ["127.0.0.1"], "slot_counts": [2], "ports": ports, "interface": None, "secret": "ab"},
        "trial": {
            "trial_id": 4, "experiment_id": 2, "trial_seed": 1, "hparams": {}, "config": {}, "run_id": 1,
            "steps_completed": 0, "latest_checkpoint": None,
        },
    }  # fmt: skip


def test_the_failing_rank_its_lines_and_the_metrics_reach_the_server(
    host: TestHost, stream_server: StreamServer
) -> None:
    entrypoint = ["python3", "-m", "determined.launch.torch_distributed", "train.py"]
    paths, answer = host.launch(entrypoint, {"train.py": PROGRAM}, **two_slots())
    assert answer["state"] == "launched"
    record = stream_server.wait_for(stream_server.exit, 60)
    assert record["code"] == 3
    assert (record["first_failure"]["rank"], record["first_failure"]["code"]) == (1, 3)
    for rank in range(2):
        assert stream_server.texts(f"rank{rank}.stdout") == [f"hello from {rank} of trial 4"]
    reports = [entry["d"] for entry in stream_server.records("core") if entry["d"]["type"] == "metrics"]
    assert [(report["group"], report["metrics"]) for report in reports] == [("validation", {"loss": "NaN"})]
    wait_until(lambda: of_run(paths.key) == [])
    assert not list(Path(paths.root).glob("ranks-*"))


WAITING = """
import time
import determined as det
import torch.distributed as dist
dist.init_process_group("gloo")
with det.core.init(distributed=det.core.DistributedContext.from_torch_distributed()) as core:
    print("here", flush=True)
    while not core.preempt.should_preempt(): time.sleep(0.02)
    print("saved")
"""


def test_forked_ranks_are_found_show_their_stacks_and_are_preempted(
    host: TestHost, stream_server: StreamServer
) -> None:
    entrypoint = ["python3", "-m", "determined.launch.torch_distributed", "train.py"]
    paths, _ = host.launch(entrypoint, {"train.py": WAITING}, **two_slots())
    wait_until(lambda: all(stream_server.texts(f"rank{rank}.stdout") == ["here"] for rank in range(2)))
    answers = host.verb("stack", {"runs": {paths.key: {"ranks": None}}})["runs"][paths.key]["ranks"]
    assert sorted(answers) == ["0", "1"]
    for rank, answer in answers.items():
        assert 'File "train.py", line 8 in <module>' in answer["text"]
        stat = Path(f"/proc/{answer['pid']}/stat").read_text().rpartition(")")[2].split()
        assert Path(f"/proc/{stat[1]}/cmdline").read_bytes().rstrip(b"\0") == b"parent of rank %d" % int(rank)
        assert Path(f"/proc/{answer['pid']}/cmdline").read_bytes().split(b"\0")[1:] == [b"train.py", b""]
    host.verb("preempt", {"runs": {paths.key: {"reason": "test"}}})
    record = stream_server.wait_for(stream_server.exit, 60)
    assert (record["code"], record.get("first_failure")) == (0, None)
    assert [stream_server.texts(f"rank{rank}.stdout") for rank in range(2)] == [["here", "saved"]] * 2
    wait_until(lambda: of_run(paths.key) == [])


THIRD_PARTY = """
import os, sys
rank = int(os.environ["RANK"])
print("hello from", rank)
print("[rank=7] is text here", file=sys.stderr)
os.system(f"echo a child of {rank}")
"""


def test_ranks_of_a_bare_torchrun_have_streams_of_their_own(
    host: TestHost, stream_server: StreamServer
) -> None:
    torchrun = [
        "python3",
        "-m",
        "torch.distributed.run",
        "--nproc_per_node=2",
        f"--master_port={free_port()}",
    ]
    host.launch([*torchrun, "train.py"], {"train.py": THIRD_PARTY}, **two_slots())
    record = stream_server.wait_for(stream_server.exit, 60)
    assert record["code"] == 0
    for rank in range(2):
        assert stream_server.texts(f"rank{rank}.stdout") == [f"hello from {rank}", f"a child of {rank}"]
        assert stream_server.texts(f"rank{rank}.stderr") == ["[rank=7] is text here"]
    assert not stream_server.texts("launcher.stdout")


@pytest.mark.parametrize("override", [["--redirects=3"], ["--tee=3"]])
def test_torchruns_redirects_do_not_mix_the_ranks_of_our_launch_module(
    override: list[str], host: TestHost, stream_server: StreamServer
) -> None:
    entrypoint = ["python3", "-m", "determined.launch.torch_distributed", *override, "--", "train.py"]
    host.launch(entrypoint, {"train.py": THIRD_PARTY}, **two_slots())
    assert stream_server.wait_for(stream_server.exit, 60)["code"] == 0
    for rank in range(2):
        assert stream_server.texts(f"rank{rank}.stdout") == [f"hello from {rank}", f"a child of {rank}"]


def test_what_a_user_sends_elsewhere_stays_there(host: TestHost, stream_server: StreamServer) -> None:
    script = "RANK=1 LOCAL_RANK=1 python3 train.py | sed s/hello/piped/; RANK=0 LOCAL_RANK=0 python3 train.py 2>err"
    paths, _ = host.launch(script, {"train.py": THIRD_PARTY}, **two_slots())
    assert stream_server.wait_for(stream_server.exit, 60)["code"] == 0
    assert stream_server.texts("launcher.stdout") == ["piped from 1", "a child of 1"]
    assert stream_server.texts("rank0.stdout") == ["hello from 0", "a child of 0"]
    assert stream_server.texts("rank0.stderr") == []
    assert (paths.code / "err").read_text() == "[rank=7] is text here\n"


TOLD = """
import os
print("rank", os.environ["RANK"], "nice", os.nice(0), "told", os.environ["FROM_HOOK"])
"""


def test_launchers_nest_and_know_what_the_startup_hook_exported(
    host: TestHost, stream_server: StreamServer, tmp_path: Path
) -> None:
    activate = tmp_path / "activate"
    activate.write_text("WORKS=works\n")
    hook = 'echo "hook in $(basename "$PWD")"\nexport FROM_HOOK="it $WORKS"\n'
    nested = "nice -n 3 python3 -m cProfile -o profile.out -m determined.launch.torch_distributed train.py"
    files = {"train.py": TOLD, "startup-hook.sh": hook}
    paths, _ = host.launch(nested, files, activate=str(activate), **two_slots())
    assert stream_server.wait_for(stream_server.exit, 60)["code"] == 0
    assert stream_server.texts("launcher.stdout") == ["hook in code"]
    for rank in range(2):
        assert stream_server.texts(f"rank{rank}.stdout") == [f"rank {rank} nice 3 told it works"]
    assert (paths.code / "profile.out").stat().st_size > 0


def test_a_program_that_a_hook_lacks_is_the_hooks(host: TestHost, stream_server: StreamServer) -> None:
    host.launch(["touch", "started"], {"startup-hook.sh": "no-such-program\n"})
    record = stream_server.wait_for(stream_server.exit)
    said = "startup-hook.sh ended with exit code 127; the entrypoint was not started"
    assert (record["code"], record["hook_fault"]) == (127, said)


def test_a_startup_hook_that_fails_starts_no_entrypoint(host: TestHost, stream_server: StreamServer) -> None:
    host.launch(["touch", "started"], {"startup-hook.sh": "cd /nowhere\ntouch never\n"})
    assert stream_server.wait_for(stream_server.exit)["code"] == 1
    *_, sentence = stream_server.texts("launcher.stderr")
    assert sentence.endswith("startup-hook.sh ended with exit code 1; the entrypoint was not started.")
    assert [path.name for path in host.workdir.runs.glob("*/code/*")] == ["startup-hook.sh"]


CUSTOM = """
import determined as det, subprocess, sys
info = det.get_cluster_info()
wrap = [sys.executable, "-m", "determined.launcher.wrap_rank"]
ranks = [subprocess.Popen([*wrap, str(n), sys.executable, "worker.py", str(n)]) for n in range(len(info.slot_ids))]
codes = [rank.wait() for rank in ranks]
sys.exit(max(codes))
"""


def test_a_custom_launcher_keeps_its_ranks_apart_by_wrap_rank(
    host: TestHost, stream_server: StreamServer
) -> None:
    worker = "import sys; print('worker', sys.argv[1]); sys.exit(4 * int(sys.argv[1]))"
    host.launch(["python3", "launch.py"], {"launch.py": CUSTOM, "worker.py": worker}, **two_slots())
    record = stream_server.wait_for(stream_server.exit, 60)
    assert (record["code"], record["first_failure"]["rank"]) == (4, 1)
    for rank in range(2):
        assert stream_server.texts(f"rank{rank}.stdout") == [f"worker {rank}"]

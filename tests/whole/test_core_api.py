"""The Core API on real hosts: the ladder of the repository, reports that are wrong, results of batch inference."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rig.hosts import HostRig
from tests.rig.light_gang import LAUNCHER
from tests.rig.stack import Json, Stack, config, running_stack
from trainmaster.experimental import Determined

pytestmark = pytest.mark.hosts

LADDER = Path(__file__).resolve().parent.parent.parent / "examples" / "core_api"
NAMES = ("determined", "trainmaster")
LIMIT_SECONDS = 180.0
BATCHES = 30
STEPS, SLOW_RANK = 20, 2
SECONDS, SLOW_SECONDS = 0.05, 0.5  # far apart: a busy machine adds to both
#: All ranks take equally long for a step, because they meet in each; they do not work equally long.
UNEQUAL = f"""
import sys, time
import determined as det

rank, size, local, local_size, here, hosts = map(int, sys.argv[1:])
distributed = det.core.DistributedContext(
    rank=rank, size=size, local_rank=local, local_size=local_size, cross_rank=here, cross_size=hosts,
    chief_ip=det.get_cluster_info().chief_address)
with det.core.init(distributed=distributed) as context:
    profiler = context.profiler
    for step in range(1, {STEPS + 1}):
        with profiler.step(step):
            with profiler.timing("train_batch"):
                time.sleep({SLOW_SECONDS} if rank == {SLOW_RANK} else {SECONDS})
            profiler.count("samples", 8)
            distributed.allgather(step)
        if context.preempt.should_preempt():
            break
"""
#: Each rank says when it begins, and leaves once it is asked to.
LEAVES = """
import os, sys, time

print("began", os.environ["DET_ALLOCATION_ID"], time.time(), flush=True)
import determined as det

rank, size, local, local_size, here, hosts = map(int, sys.argv[1:])
distributed = det.core.DistributedContext(
    rank=rank, size=size, local_rank=local, local_size=local_size, cross_rank=here, cross_size=hosts,
    chief_ip=det.get_cluster_info().chief_address)
with det.core.init(distributed=distributed) as context:
    while not context.preempt.should_preempt():
        time.sleep(0.05)
"""
#: A line of the kernel's log after which the host is taken out of use, given to the server as if the host had sent it.
FAULT = """
import os, time
from dispatch.watching import host_signs
from hosts.models import Host

host = Host.objects.get(name=os.environ["FAULTY"])
until = host.kernel_log.get("until", 0) + 1
line = "NMI watchdog: Watchdog detected hard LOCKUP on cpu 3"
kernel = {"boot": host.boot_id, "source": "kmsg", "until": until, "lines": [[until, line]]}
print("told", time.time())
host_signs.take_in(host.pk, {"kernel": kernel})
"""
RECOVERED_WITHIN_SECONDS = 30
RANKS = 6  # on three of the four hosts


@pytest.fixture(scope="module")
def stack(host_rig: HostRig) -> Iterator[Stack]:
    """Four hosts with two slots each."""
    with running_stack(host_rig, hosts=4) as stack:
        stack.add_hosts(slots=2)
        yield stack


def step_of_the_ladder(stack: Stack, stage: str, package: str) -> int:
    """Submit it as it is, but for the name of the package, and shorter."""
    text = (LADDER / f"{stage}.py").read_text()
    text = re.sub(r"\bdetermined\b", package, text).replace("time.sleep(0.1)", "time.sleep(0.01)")
    text = text.replace("range(100)", f"range({BATCHES})").replace("/ 100", f"/ {BATCHES}")
    text = text.replace("range(start, 100)", f"range(start, {BATCHES})")
    text = text.replace("steps_completed=100", f"steps_completed={BATCHES}")
    settings = yaml.safe_load((LADDER / f"{stage}.yaml").read_text())
    settings["searcher"]["max_length"] = BATCHES
    if stage.startswith("3"):
        settings["searcher"] |= {"max_trials": 4, "max_rungs": 2}
    if stage.startswith("4"):
        settings["resources"] = {"slots_per_trial": 4}
    return stack.submit({f"{stage}.py": text}, json.dumps(settings))


def trials(stack: Stack, experiment: int) -> list[Json]:
    return list(stack.get(f"/api/v1/experiments/{experiment}/trials")["trials"])


def reports(stack: Stack, trial: int, group: str) -> dict[int, Json]:
    """Step to the metrics that were reported for it."""
    rows = stack.get(f"/api/v1/trials/{trial}/workloads?limit=0")["workloads"]
    found = [row[group] for row in rows if group in row]
    steps = [row["totalBatches"] for row in found]
    assert len(steps) == len(set(steps)), "a step was reported twice"
    return {row["totalBatches"]: row["metrics"]["avgMetrics"] for row in found}


def saved(stack: Stack, experiment: int) -> list[int]:
    """Steps of its checkpoints, whatever became of their files."""
    found = stack.get(f"/api/v1/experiments/{experiment}/checkpoints")["checkpoints"]
    return sorted(int(one["metadata"]["steps_completed"]) for one in found)


def said(stack: Stack, trial: int) -> str:
    """Its log as text."""
    return "\n".join(record["log"] for record in stack.records(trial))


def test_the_ladder_runs_under_both_names(stack: Stack) -> None:
    stages = [path.stem for path in sorted(LADDER.glob("[0-4]_*.py"))]
    assert len(stages) == 5
    jobs = {
        (stage[0], name): step_of_the_ladder(stack, stage, name) for stage in stages[::-1] for name in NAMES
    }
    for (stage, name), experiment in jobs.items():
        ended = stack.wait_end(experiment, LIMIT_SECONDS)
        first = trials(stack, experiment)[0]["id"]
        assert ended == "STATE_COMPLETED", (stage, name, said(stack, first))
    tens = list(range(10, BATCHES + 1, 10))
    for name in NAMES:
        (start,) = trials(stack, jobs["0", name])
        assert [f"x is now {x}" in said(stack, start["id"]) for x in tens] == [True] * len(tens)
        for stage, by in (("1", 1), ("2", 1), ("4", 4)):
            (trial,) = trials(stack, jobs[stage, name])
            assert reports(stack, trial["id"], "training") == {step: {"x": by * step} for step in tens}
            assert reports(stack, trial["id"], "validation") == {BATCHES: {"x": by * BATCHES}}
            assert stack.experiment(jobs[stage, name])["progress"] == 1.0
            assert saved(stack, jobs[stage, name]) == (tens if stage != "1" else [])
        tried = trials(stack, jobs["3", name])
        best = {trial["hparams"]["increment_by"] * trial["totalBatchesProcessed"]: trial for trial in tried}
        assert len(tried) == 4
        assert all(trial["state"].endswith("COMPLETED") for trial in tried), tried
        assert max(best) == max(trial["bestValidation"]["metrics"]["avgMetrics"]["x"] for trial in tried)
        lines = stack.records(trials(stack, jobs["4", name])[0]["id"])
        ranks = {record.get("rankId") for record in lines if "worker starting" in record["log"]}
        chiefs = {record.get("rankId") for record in lines if "x is now" in record["log"]}
        assert (ranks, chiefs) == ({0, 1, 2, 3}, {0}), "each line is known as its rank's"


#: What reports get wrong, in a trial that ends well all the same.
MISTAKES = """
import logging, math, pathlib, sys
import determined as det

logging.basicConfig(level=logging.INFO)

def refused(what, *words, **more):
    try:
        what(*words, **more)
    except Exception as error:
        print(f"refused: {type(error).__name__}: {error}", flush=True)
    else:
        print("not refused:", words, more, flush=True)

def main():
    with det.core.init() as context:
        train, checkpoint = context.train, context.checkpoint
        for step in range(1, 4):
            train.report_training_metrics(step, {
                "loss": [1.0, math.nan, math.inf][step - 1], "down": -math.inf, "n" * 10240: 1, "raw": b"x",
                "nul\\0": 2.0, "deep": {"a": {"b": step}},
            })
        train.report_training_metrics(3, {"loss": 7.0, "late": 1})
        refused(train.report_validation_metrics, 3, {"accuracy": None})
        refused(train.report_metrics, "a.b", 3, {"x": 1})
        refused(train.set_metadata, {"blob": "x" * 5 * 2**20})
        refused(train.report_progress, 7)
        folder = pathlib.Path("files")
        folder.mkdir()
        (folder / "weights").write_text("w")
        refused(checkpoint.upload, folder, {"epoch": 1})
        refused(checkpoint.upload, folder)
        refused(checkpoint.upload, folder, {"steps_completed": 3, "model": object()})
        train.set_metadata({"large": "y" * 2**20, "nul\\0": "\\0", "nan": math.nan})
        train.report_validation_metrics(3, {"accuracy": math.nan})
    readonly = pathlib.Path(sys.argv[1])
    with det.core.init(checkpoint_storage=str(readonly)) as context:
        refused(context.checkpoint.upload, folder, {"steps_completed": 3})
        context.train.report_training_metrics(4, {"loss": 0.5})
        print("the end", flush=True)

if __name__ == "__main__":
    main()
"""


def test_wrong_reports_are_named_and_what_is_odd_is_shown_as_it_is(stack: Stack, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file where a folder is wanted: nobody, not even root, can write checkpoints in it")
    experiment = stack.submit({"train.py": MISTAKES}, config(1, f"python3 train.py {taken}"))
    assert stack.wait_end(experiment, LIMIT_SECONDS) == "STATE_COMPLETED", stack.lines_by_rank(experiment)
    trial = stack.trial(experiment)
    log = said(stack, trial["id"])
    assert "not refused" not in log and "the end" in log, log
    for words in (
        "refused: RuntimeError: Validation metrics must have values; None was given for: accuracy.",
        "refused: ValueError: The metric group 'a.b' must be a name without '.'.",
        "refused: ValueError: The metadata is 5.0 MiB as JSON, allowed: 4.0 MiB",
        "refused: ValueError: The progress is 7; it must be between 0 and 1.",
        'refused: ValueError: The checkpoint\'s metadata must have "steps_completed"',
        "refused: ValueError: The checkpoint's metadata contains a object, which JSON cannot represent.",
        "has a name of 10240 characters (at most 512) and is skipped",
        "the metric 'raw' is a bytes and is skipped",
        "loss of training at step 3 was already reported with another value",
        str(taken),
    ):
        assert words in log, (words, log)
    expected: dict[int, dict[str, Any]] = {
        step: {"loss": loss, "down": "-Infinity", "nul\ufffd": 2.0, "deep.a.b": step}
        for step, loss in ((1, 1.0), (2, "NaN"), (3, "Infinity"))
    }
    expected[3]["late"] = 1
    expected[4] = {"loss": 0.5}
    assert reports(stack, trial["id"], "training") == expected
    assert reports(stack, trial["id"], "validation") == {3: {"accuracy": "NaN"}}
    metadata = stack.trial(experiment)["metadata"]
    assert (metadata["nul\ufffd"], metadata["nan"], len(metadata["large"])) == ("\ufffd", "NaN", 2**20)
    assert saved(stack, experiment) == []


def test_the_slow_rank_of_a_gang_in_step_is_named(stack: Stack) -> None:
    experiment = stack.submit({"launch.py": LAUNCHER, "worker.py": UNEQUAL}, config(4))
    assert stack.wait_end(experiment, 120) == "STATE_COMPLETED"
    trial = stack.trial(experiment)["id"]
    found = stack.get(f"/api/v1/trials/{trial}/timings?points=5")
    hosts = {one["rank"]: one["host"] for one in found["ranks"]}
    assert sorted(hosts) == [0, 1, 2, 3] and hosts[0] == hosts[1] != hosts[2] == hosts[3]
    steps = [one for one in found["series"] if one["name"] == "step"]
    for one in steps:
        assert sum(one["count"]) == STEPS and len(one["steps"]) <= 5
        assert (one["firstSteps"][0], one["steps"][-1]) == (1, STEPS)
    means = [sum(one["seconds"][1:]) / sum(one["count"][1:]) for one in steps]  # they do not begin together
    assert max(means) < 2 * min(means), "in step, all ranks take equally long"
    slow: Json = found["straggler"]
    assert (slow["rank"], slow["host"], slow["isSlow"]) == (SLOW_RANK, hosts[SLOW_RANK], True)
    assert slow["work"] >= SLOW_SECONDS and SECONDS <= slow["medianWork"] < SLOW_SECONDS
    assert slow["lostShare"] > 0.1 and slow["lostSeconds"] > SECONDS * STEPS
    assert len(found["work"]["seconds"]) == 4
    (samples,) = found["throughput"]
    assert samples["name"] == "samples" and 0 < samples["perSecond"] < 4 * 8 / SLOW_SECONDS


#: Stores its results after two batches and at its end; each time its progress is saved too.
INFERENCE = """
import torch
from determined.pytorch import experimental

class Doubles(experimental.TorchBatchProcessor):
    def __init__(self, context):
        self.context, self.results = context, []

    def process_batch(self, batch, batch_idx):
        self.results += (2 * batch[0]).tolist()

    def on_checkpoint_start(self):
        with self.context.upload_path() as path:
            (path / "results.json").write_text(str(self.results))
        self.results = []

numbers = torch.utils.data.TensorDataset(torch.arange(8))
experimental.torch_batch_process(Doubles, numbers, batch_size=2, checkpoint_interval=2)
"""


def test_results_of_batch_inference_outlive_their_experiment(stack: Stack, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    text = config(
        1,
        "python3 infer.py",
        environment={"python": sys.executable},
        checkpoint_storage={"type": "server", "save_trial_best": 0, "save_trial_latest": 1},
    )
    experiment = stack.submit({"infer.py": INFERENCE}, text)
    assert stack.wait_end(experiment, LIMIT_SECONDS) == "STATE_COMPLETED", stack.lines_by_rank(experiment)

    def found() -> list[Json]:
        return list(stack.get(f"/api/v1/experiments/{experiment}/checkpoints")["checkpoints"])

    progress = ["STATE_COMPLETED", "STATE_DELETED"]  # the latest is kept
    results = {one["uuid"] for one in found() if one["metadata"].get("batch_process_results")}
    stack.wait(
        lambda: sorted(one["state"] for one in found() if one["uuid"] not in results) == progress,
        LIMIT_SECONDS,
        "the earlier progress to be deleted",
    )
    assert {one["state"] for one in found() if one["uuid"] in results} == {"STATE_COMPLETED"}
    client = Determined(master=stack.server.url, user="admin", password=stack.server.password)
    folders = [Path(client.get_checkpoint(uuid).download(str(tmp_path / uuid))) for uuid in results]
    stored = sorted(json.loads((folder / "results.json").read_text()) for folder in folders)
    assert stored == [[0, 2, 4, 6], [8, 10, 12, 14]]


def spares(stack: Stack, kept: int | None = None) -> list[Json]:
    """The hosts that the pool keeps as spares, once it has been told how many."""
    if kept is not None:
        stack.server.request(
            "PATCH", "/api/v1/resource-pools/default", {"spareHosts": kept}, token=stack.token
        )
    return list(stack.get("/api/v1/resource-pools/default")["resourcePool"]["spares"])


def begun(stack: Stack, trial: int) -> dict[str, float]:
    """Attempt -> when the last of its ranks ran its first instruction."""
    lines = re.findall(r"began (\S+) ([0-9.]+)", said(stack, trial))
    return {attempt: max(float(at) for one, at in lines if one == attempt) for attempt, _ in lines}


def hosts_of(stack: Stack) -> set[str]:
    """The hosts with slots that are held."""
    found = stack.get("/api/v1/hosts")["hosts"]
    return {host["name"] for host in found if any(slot["heldBy"] for slot in host["slots"])}


def test_a_gang_whose_host_fails_begins_again_on_the_spare_within_half_a_minute(stack: Stack) -> None:
    spares(stack, 1)
    experiment = stack.submit({"launch.py": LAUNCHER, "worker.py": LEAVES}, config(RANKS))
    trial = trials(stack, experiment)[0]["id"]
    stack.wait(lambda: said(stack, trial).count("began") == RANKS, LIMIT_SECONDS, "its first attempt")
    [spare] = [one["host"] for one in spares(stack)]
    [first], before = begun(stack, trial), hosts_of(stack)
    assert spare not in before
    faulty = min(before)
    command = [sys.executable, "manage.py", "shell", "--no-imports", "-c", FAULT]
    environment = {**stack.server.environment, "FAULTY": faulty}
    told = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True, timeout=60
    ).stdout
    stack.wait(lambda: said(stack, trial).count("began") == 2 * RANKS, LIMIT_SECONDS, "its second attempt")
    [at] = [at for attempt, at in begun(stack, trial).items() if attempt != first]
    seconds = at - float(told.split()[1])
    print(f"the last rank ran its first instruction {seconds:.1f} s after the verdict")
    assert hosts_of(stack) == {spare, *before} - {faulty}
    assert trials(stack, experiment)[0]["restarts"] == 0
    assert seconds <= RECOVERED_WITHIN_SECONDS
    assert all(one["runs"] for one in spares(stack)), "none is free until one of them has ended"
    stack.post(f"/api/v1/experiments/{experiment}/kill")
    stack.wait_end(experiment, LIMIT_SECONDS)
    stack.post(f"/api/v1/hosts/{faulty}/release", {})
    spares(stack, 0)

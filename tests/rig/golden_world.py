"""A small world with a row of each kind, always the same but for ids and times, for tests of the whole REST dialect."""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.utils import timezone

from accounts.models import LoginToken, User
from commands.models import GroupBurnIn
from dispatch.passes import pool_pass
from dispatch.runs import settle
from dispatch.watching import host_signs
from experiments import media
from experiments.models import Checkpoint, Experiment, Media, Trial
from hosts import pair_checks
from hosts.health import links
from hosts.health.links import Rate
from hosts.models import Host, PairSearch, ResourcePool, Slot
from hosts.pair_checks import PairFound
from hosts.pools import default_pool
from jobs import transitions
from jobs.models import Allocation, Task, UsageRecord
from logs import pulse
from logs import store as log_store
from logs.hangs import rows as hangs
from logs.hangs.evidence import Told
from logs.hangs.verdict import Verdict
from logs.lines import NewLine, blocks_of
from metrics import profiler_batches, sample_store, timing_store
from metrics.profiler_batches import SYSTEM, Batch, Labels
from notifications import outbox
from shown.rest_bodies import BODIES
from tests.rig.api import Api, uploaded
from tests.rig.world import assigned

#: when things happened that no answer compares with the present
NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
CONFIG = """
name: {name}
description: A run of the golden world
labels: [night, "a,b"]
entrypoint: python3 train.py
searcher: {{name: single, metric: loss, max_length: {{batches: 10}}{source}}}
hyperparameters: {{lr: 0.1}}
resources: {{slots_per_trial: {slots}}}
retention_policy: {{log_retention_days: 30}}
max_restarts: 0
"""
CUSTOM = "{name: custom, entrypoint: python3 train.py, searcher: {name: custom, metric: loss, unit: batches}}"
UNMANAGED = """
name: laptop
searcher: {name: single, metric: loss}
checkpoint_storage: {type: shared_fs, host_path: /srv/checkpoints}
"""
TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
ValueError: loss is NaN"""

METRIC = "metricName=loss&group=validation"
PERIOD = "RESOURCE_ALLOCATION_AGGREGATION_PERIOD"
BEGIN, END = "2026-03-10T00:00:00Z", "2026-03-11T00:00:00Z"
#: route -> query strings, each a request of its own
QUERIES: dict[str, list[str]] = {
    "/api/v1/experiments": ["showTrialData=true"],
    "/api/v1/experiments/metrics-stream/metric-names": ["ids={ended/experiment_id}"],
    "/api/v1/experiments/{experiment_id}/metrics-stream/batches": [METRIC],
    "/api/v1/experiments/{experiment_id}/metrics-stream/trials-sample": [METRIC],
    "/api/v1/experiments/{experiment_id}/metrics-stream/trials-snapshot": [f"{METRIC}&batchesProcessed=10"],
    "/api/v1/resources/allocation/aggregated": [
        f"startDate=2026-03-10&endDate=2026-03-10&period={PERIOD}_DAILY",
        f"startDate=2026-03&endDate=2026-03&period={PERIOD}_MONTHLY",
    ],
    "/api/v1/resources/allocation/raw": [f"timestampAfter={BEGIN}&timestampBefore={END}"],
    "/api/v1/resources/goodput": ["startDate=2026-03-10&endDate=2026-03-10&groupBy=experiment"],
    "/api/v1/trials/metrics/trial_metrics": ["group=training&trialIds={trials/trial_id}"],
    "/api/v1/trials/metrics/training_metrics": ["trialIds={trials/trial_id}"],
    "/api/v1/trials/metrics/validation_metrics": ["trialIds={trials/trial_id}"],
    "/api/v1/trials/time-series": [
        "trialIds={trials/trial_id}&metricNames=loss&group=training",
        "trialIds={trials/trial_id}&metricIds=validation.loss",
    ],
    "/api/v1/trials/{trial_id}/workloads": ["includeBatchMetrics=true"],
    "/experiments/{experiment_id}/preview_gc": [
        "save_experiment_best=0&save_trial_best=0&save_trial_latest=0",
    ],
    "/resources/allocation/aggregated": [
        f"start_date=2026-03-10&end_date=2026-03-10&period={PERIOD}_DAILY",
    ],
    "/resources/allocation/allocations-csv": [f"timestamp_after={BEGIN}&timestamp_before={END}"],
    "/resources/allocation/raw": [f"timestamp_after={BEGIN}&timestamp_before={END}"],
    "/resources/goodput": ["start_date=2026-03-10&end_date=2026-03-10&group_by=user"],
}


@dataclass
class World:
    """`api` is an admin's client; `places` has, for `noun/parameter` of a route, the values that lead to rows."""

    api: Api
    data_dir: Path
    places: dict[str, list[str]] = field(default_factory=dict)

    def add(self, place: str, *values: object) -> None:
        self.places.setdefault(place, []).extend(str(value) for value in values)


def make(data_dir: Path) -> World:
    """Create the rows; stored files lie below `data_dir`, which must be settings.DATA_DIR."""
    admin = User(username="root", role=User.Role.ADMIN)
    admin.set_unusable_password()
    admin.save()
    world = World(Api(LoginToken.issue(admin)), data_dir)
    _people(world, admin)
    _places(world)
    gpu1, gpu2 = _hosts(world)
    running = _running(world, gpu1)
    _ended(world, gpu2)
    _others(world)
    _once(world, running, [gpu2.slots.get(index=0), gpu1.slots.get(index=1), gpu2.slots.get(index=1)])
    _together(world, gpu1, gpu2)
    pool_pass.run(default_pool().pk)
    outbox.look(datetime.now(UTC))
    _faulty(world, gpu2)
    return world


def _together(world: World, *hosts: Host) -> None:
    """The command is taken for a burn-in of the hosts together that has measured one rate."""
    rate = Rate("all_reduce", tuple(str(host.pk) for host in hosts), 1.1, "gloo")
    command_id = world.places["commands/command_id"][0]
    row = GroupBurnIn.objects.create(command_id=command_id, rates=[links.as_record(rate)])
    row.hosts.add(*hosts)
    world.add("group-burn-ins/command_id", command_id)


def _faulty(world: World, host: Host) -> None:
    """One slot is out of use, and the kernel has reported something harmless."""
    world.api.post(f"hosts/{host.name}/quarantine", {**BODIES["QuarantineBody"], "slot": 1})
    line = "NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python, MMU Fault"
    told = {"boot": "b", "source": "kmsg", "until": 9, "lines": [[9, line]]}
    host_signs.take_in(host.pk, {"kernel": told})


def _people(world: World, admin: User) -> None:
    api = world.api
    api.put("master/cluster_message", BODIES["ClusterMessageBody"])
    api.post("users", BODIES["NewUser"])
    people = [User.objects.get(username="grace").pk]
    group = api.post("groups", {"name": "research", "addUsers": people})["group"]
    world.add("groups/group_id", group["groupId"])
    api.post("users/setting", BODIES["SettingsBody"])
    world.add("users/user_id", admin.pk)
    world.add("users/username", "grace", "root")
    world.add("tokens/token_id", api.post("tokens", BODIES["NewToken"])["tokenId"])
    told = {"triggers": [{"triggerType": "TRIGGER_TYPE_CUSTOM"}], "scope": "cluster"}
    for more in ({}, told):
        rule = api.post("webhooks", {**BODIES["NewWebhook"], **more})["webhook"]
        world.add("webhooks/rule_id", rule["id"])
    outbox.look(datetime.now(UTC))


def _places(world: World) -> None:
    api = world.api
    place = api.post("workspaces", BODIES["WorkspaceBody"])["workspace"]
    project = api.post(f"workspaces/{place['id']}/projects", BODIES["ProjectBody"])["project"]
    api.put(f"projects/{project['id']}/notes", {"notes": [{"name": "Rates", "contents": "Low"}]})
    api.put("templates/night", {"config": {"resources": {"priority": 10}}})
    world.add("workspaces/workspace_id", place["id"], 1)
    world.add("projects/project_id", project["id"], 1)
    world.add("key/key", project["key"])
    world.add("templates/name", "night")


def _hosts(world: World) -> tuple[Host, Host]:
    """Two hosts of the default pool that know each other, and a pool without hosts."""
    world.api.post("resource-pools", {**BODIES["NewPool"], "priorityFloor": {"editor": 10}})
    pool = default_pool()
    hosts = []
    for number, name in enumerate(("gpu1", "gpu2"), 1):
        host = _host(pool, name, f"10.0.0.{number}")
        hosts.append(host)
        for index in range(2):
            Slot.objects.create(
                host=host, index=index, kind="cuda", uuid=f"GPU-{index}", brand="H200", memory_mb=141_000,
                outside={"user": "grace", "pid": 12, "command": "python3"} if index else {},
            )  # fmt: skip
    network = {
        "network": "10.0.0.0/24", "interfaces": {"gpu1": "eth0", "gpu2": "eth0"}, "mb_per_second": 900.0,
        "round_trip_ms": 0.1, "speed_mbit": 10_000,
    }  # fmt: skip
    pair_checks.note(*hosts, PairFound(True, "They meet.", "eth0", 0.1, 900.0, 400.0, [network]))
    world.api.post("resource-pools/default/doctor")
    PairSearch.objects.update(untested=[{"hosts": ["gpu2"], "sentence": "gpu2 did not answer."}])
    for noun in ("hosts", "agents"):
        world.add(f"{noun}/name", "gpu1", "gpu2")
    world.add("slots/index", "0", "1")
    world.add("resource-pools/name", "default", "a100")
    starts = datetime.now(UTC) + timedelta(days=700)
    repairs = {
        "name": "repairs",
        "starts": f"{starts:%Y-%m-%dT08:00}",
        "ends": f"{starts:%Y-%m-%dT10:00}",
        "slots": 1,
    }
    world.api.post("resource-pools/default/windows", {**BODIES["WindowFields"], **repairs, "weekly": False})
    world.add("windows/window", "repairs")
    return hosts[0], hosts[1]


def _host(pool: ResourcePool, name: str, address: str) -> Host:
    key = "ssh-ed25519 " + base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + bytes(32)).decode()
    python = {"path": "/usr/bin/python3", "kind": "path", "version": "3.11.2", "prefix": "/usr"}
    return Host.objects.create(
        name=name, pool=pool, address=address, login_user="train", host_key=key,
        admission=Host.Admission.READY, contact=Host.Contact.REACHABLE,
        last_seen_at=NOON, last_heartbeat_at=NOON, clock_skew_seconds=0.5, added_by="root", server_route="url",
        jumps=[{"address": "gate", "port": 22, "user": "ada", "host_key": key}],
        facts={"interpreters": [{**python, "torch": None, "cuda": None}]},
        doctor={"checks": [{"name": "ssh", "state": "ok", "sentence": "It answers."}], "at": NOON.isoformat()},
    )  # fmt: skip


def _submit(world: World, config: str, **body: Any) -> Experiment:
    files = [uploaded("train.py", "print(1)\n"), uploaded("data/rows.csv", "1\n")]
    made = world.api.post("experiments", {"config": config, "modelDefinition": files, **body})["experiment"]
    return Experiment.objects.get(pk=made["id"])


def _known(world: World, experiment: Experiment) -> None:
    world.add("experiments/experiment_id", experiment.pk)
    world.add("jobs/job_id", experiment.job_id)
    world.add("job-queues/job_id", experiment.job_id)
    for each in Trial.objects.filter(experiment=experiment):
        world.add("trials/trial_id", each.pk)
        world.add("runs/trial_id", each.pk)
        world.add("tasks/task_id", each.task_id)


def _start(task_id: str, slot: Slot) -> Allocation:
    """An attempt of the task that runs on the slot."""
    allocation = assigned(
        task_id=task_id, placement=[(slot.host_id, [slot.pk])], on_sufferance=False, actor="scheduler"
    )
    member = allocation.members.get()
    transitions.member_launched(member.pk, boot_id="boot")
    transitions.member_running(member.pk)
    return allocation


def _running(world: World, host: Host) -> Trial:
    """A trial that runs and has reported everything that a trial reports."""
    experiment = _submit(world, CONFIG.format(name="running", slots=1, source=""))
    trial = experiment.trials.get()
    allocation = _start(trial.task_id, host.slots.get(index=0))
    _report(world, trial, Api(transitions.run_token(allocation)))
    _measure(trial, host)
    _media(world, trial, allocation)
    _checkpoint(world, trial, allocation)
    member = allocation.members.get()
    _log(trial, allocation, "epoch 1 begins")
    sign = {"calls": 3, "waits": True, "beats": 9, "beat_seconds": 2.0, "gap_seconds": 1.0, "step": 10}
    looks = {"rank": 0, "state": "S", "cpu": 1.0, "state_seconds": 5.0, "idle_seconds": 1.0}
    pulse.keep(member.pk, [{**looks, **sign}])
    hang = hangs.begin(allocation.pk, timezone.now() - timedelta(seconds=900))
    found = Verdict("missing", (0,), "It hangs.", "all_reduce number 3")
    assert hangs.keep_look(hang, [Told(0, host.name, 7, "S")], found, timezone.now(), 1)
    hang.told_at = hang.over_at = timezone.now()
    hang.save(update_fields=["told_at", "over_at"])
    _known(world, experiment)
    world.add("allocations/allocation_id", allocation.pk)
    world.add("resources/resources_id", member.run_key)
    trial.refresh_from_db()
    return trial


def _report(world: World, trial: Trial, run: Api) -> None:
    for group, steps in (("training", 5), ("validation", 5), ("training", 10), ("validation", 10)):
        metrics = {"trialId": trial.pk, "trialRunId": 1, "stepsCompleted": steps, "metrics": {
            "avgMetrics": {"loss": 1.0 / steps, "note": "text"}, "batchMetrics": [{"loss": 0.5}]}}  # fmt: skip
        run.post(f"trials/{trial.pk}/metrics", {"group": group, "metrics": metrics})
    run.post(f"trials/{trial.pk}/progress", {"progress": 0.5, "is_raw": False})
    run.post(f"trials/{trial.pk}/runner/metadata", {"state": "training"})
    world.api.post(f"runs/{trial.pk}/metadata", BODIES["MetadataBody"])


def _media(world: World, trial: Trial, allocation: Allocation) -> None:
    gif = base64.b64encode(b"GIF89a" + bytes([1, 0, 1, 0]) + bytes(4)).decode()
    text = {"kind": "text", "name": "answer", "step": 10, "text": "42"}
    for said in ({"kind": "image", "name": "digits", "step": 5, "image": gif, "caption": "a 7"}, text):
        media.reported(trial, allocation.members.get(), said)
    world.add("media/media_id", *Media.objects.filter(trial=trial).values_list("pk", flat=True))


def _measure(trial: Trial, host: Host) -> None:
    """What its host and its ranks measured ten minutes ago."""
    at = [time.time() - 600 + second for second in range(20)]
    columns = {"cpu_util_simple": [5.0] * 20, "gpu_power/GPU-0": [300.25] * 20}
    sample_store.store(trial.task_id, host.pk, host.name, [{"k": "samples", "t": at, "v": columns}])
    labels = Labels("cpu_util_simple", host.name, "", SYSTEM)
    profiler_batches.store(trial.task_id, Batch(labels, [50.0] * 2, [0] * 2, at[:2]))
    for rank, work in ((0, 0.25), (1, 0.5)):
        for step in range(1, 11):
            rows = {"step": 0.5, "step.work": work, "train_batch": work / 2}
            values = {
                name: {"n": 1, **dict.fromkeys(["sum", "min", "max", "p50", "p95"], seconds)}
                for name, seconds in rows.items()
            }
            took = {"t": [at[0] + step, at[0] + step + 0.5], "s": [step, step], "v": values}
            timing_store.store(trial.task_id, host.name, [{"r": rank, **took, "c": {"samples": 8}}])


def _checkpoint(world: World, trial: Trial, allocation: Allocation) -> None:
    """One checkpoint with its files in the server's own storage, one that is deleted, one that no policy keeps."""
    for steps, state in ((10, "COMPLETED"), (5, "DELETED"), (3, "COMPLETED")):
        row = Checkpoint.objects.create(
            trial=trial, allocation_id=allocation.pk, state=state, steps_completed=steps,
            resources={"model.pt": 7}, size_bytes=7, storage={"type": "server"}, reported_at=NOON,
            metadata={"steps_completed": steps, "note": "best"}, digests={"model.pt": "0" * 64},
        )  # fmt: skip
        if steps == 10:
            file = world.data_dir / "checkpoints" / str(row.pk) / "model.pt"
            file.parent.mkdir(parents=True)
            file.write_bytes(b"weights")
            Trial.objects.filter(pk=trial.pk).update(latest_checkpoint=row)
            world.add("checkpoints/checkpoint_uuid", row.pk)
            world.add("files/path", "model.pt")
            source = {"trialId": trial.pk, "checkpointUuid": str(row.pk)}
            world.api.post("trial-source-info", {"trialSourceInfo": source})


def _log(trial: Trial, allocation: Allocation, text: str) -> None:
    member = allocation.members.select_related("host").get()
    lines = [
        NewLine(NOON.timestamp() + number, 0, "stderr", "INFO", line, False)
        for number, line in enumerate(text.splitlines())
    ]
    log_store.append(trial.task_id, member, member.host.name, blocks_of(lines))


def _ended(world: World, host: Host) -> None:
    """An experiment that failed, with its traceback and its usage; its log has been kept long enough."""
    experiment = _submit(world, CONFIG.format(name="failed", slots=1, source=""))
    trial = experiment.trials.get()
    allocation = _start(trial.task_id, host.slots.get(index=0))
    run = Api(transitions.run_token(allocation))
    _report(world, trial, run)
    _log(trial, allocation, TRACEBACK)
    failed = {"rank": 0, "at": NOON.timestamp(), "exit_code": 1}
    settle.member_exited(
        allocation.members.get().pk, code=1, signal=None, ended_at=None, first_failure=failed
    )
    Task.objects.filter(pk=trial.task_id).update(ended_at=datetime.now(UTC) - timedelta(days=40))
    UsageRecord.objects.update(started_at=NOON.replace(hour=10), ended_at=NOON.replace(hour=11))
    _known(world, experiment)
    world.add("ended/experiment_id", experiment.pk)


def _others(world: World) -> None:
    """An experiment that waits, one whose program searches, and one of a run outside the queue."""
    source = f", source_checkpoint_uuid: {world.places['checkpoints/checkpoint_uuid'][0]}"
    first, second = (
        _submit(world, CONFIG.format(name=name, slots=2, source=source)) for name in ("waiting", "later")
    )
    world.api.post("job-queues", {"updates": [{"jobId": str(second.job_id), "priority": 10}]})
    world.api.post("webhooks/custom", {**BODIES["CustomBody"], "experimentId": first.pk})
    world.add("jobs/job_id", first.job_id)
    world.add("job-queues/job_id", second.job_id)
    world.add("trials/trial_id", first.trials.get().pk)
    custom = _submit(world, CUSTOM)
    world.add("experiments/experiment_id", custom.pk)
    made = world.api.put("experiments/by-external-id/sweep", {"config": UNMANAGED, "unmanaged": True})[
        "experiment"
    ]
    asked = {"experimentId": made["id"], "hparams": {"lr": 0.1}, "unmanaged": True}
    trial = world.api.put("trials", {"externalTrialId": "night-3", "createTrialRequest": asked})["trial"]
    world.api.post(f"trials/{trial['id']}/start", {})
    _known(world, Experiment.objects.get(pk=made["id"]))
    world.add("by-external-id/experiment", "sweep")
    world.add("experiment/trial", "night-3")


def _once(world: World, shown: Trial, slots: list[Slot]) -> None:
    """A command, a shell and a notebook that have started on the slots, and a TensorBoard."""
    for noun, body in (("command", "NewCommand"), ("shell", "NewService"), ("notebook", "NewService")):
        made = world.api.post(f"{noun}s", BODIES[body])[noun]
        _start(made["id"], slots.pop(0))
        world.add(f"{noun}s/command_id", made["id"])
    array = world.api.post("commands", {"config": {"entrypoint": "true", "array": "0-3%2"}})["command"][
        "array"
    ]
    world.add("arrays/array_id", array["id"])
    world.api.post("schedules", {**BODIES["NewSchedule"], "experimentId": None, "commandId": array["id"]})
    world.add("schedules/name", BODIES["NewSchedule"]["name"])
    chosen = {"trialIds": [shown.pk], "experimentIds": [shown.experiment_id]}
    world.add("tensorboards/command_id", world.api.post("tensorboards", chosen)["tensorboard"]["id"])

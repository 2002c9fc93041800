"""Uses determined.experimental.client as scripts do, and prints what it has seen: the same under every client.

The line before says which public functions and methods of that module nothing here has called.

argv: the server's URL, a folder for files, a word that is nobody else's. The admin's password comes by stdin.
"""

import functools
import inspect
import json
import pathlib
import sys
import tarfile
import time
import warnings

warnings.simplefilter("ignore")

from determined.common.api import errors  # noqa: E402
from determined.experimental import Determined, client  # noqa: E402

URL, HERE, TAG = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
PASSWORD = sys.stdin.read().strip()
LIMIT_SECONDS = 180
TRAIN = """
import determined as det
from determined.experimental import client
lr = det.get_cluster_info().trial.hparams["lr"]
assert client.get_trial(det.get_cluster_info().trial.trial_id).hparams == {"lr": lr}
with det.core.init() as core:
    (core.train.get_tensorboard_path() / "events.out.tfevents.1.host").write_text("events")
    for step in (1, 2, 3):
        core.train.report_training_metrics(step, {"loss": lr * step, "text": "x"})
        core.train.report_metrics("inference", step, {"seen": step})
        loss = lr * abs(step - 2) + lr + step / 100
        core.train.report_validation_metrics(step, {"loss": loss, "accuracy": lr * step})
        with core.checkpoint.store_path({"steps_completed": step, "who": "me"}) as (path, uuid):
            (path / "inner").mkdir()
            (path / "inner" / "weights").write_text(f"weights of {step}")
        print("line", step, flush=True)
"""
LASTING = "import time\nwhile True:\n    time.sleep(0.2)\n"
CONFIG = {
    "name": f"tour-{TAG}",
    "entrypoint": "python3 train.py",
    "searcher": {"name": "grid", "metric": "loss", "smaller_is_better": True, "max_length": {"batches": 3}},
    "hyperparameters": {"lr": {"type": "categorical", "vals": [0.5, 1.0]}},
    "checkpoint_storage": {
        "type": "server",
        "save_experiment_best": 9,
        "save_trial_best": 9,
        "save_trial_latest": 9,
    },
    "resources": {"slots_per_trial": 1},
    "max_restarts": 0,
}
seen = {}
uncalled = set()


def watch(place, prefix=""):
    """From now on its public functions say when they are called."""
    for name, function in inspect.getmembers(place, inspect.isfunction):
        if not name.startswith("_"):
            uncalled.add(prefix + name)
            setattr(place, name, noted(prefix + name, function))


def noted(name, function):
    @functools.wraps(function)
    def call(*args, **options):
        uncalled.discard(name)
        return function(*args, **options)

    return call


def raised(kind, call, *args, **options):
    try:
        call(*args, **options)
    except kind as error:
        return bool(str(error))
    return False


def until(condition):
    end = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.2)


def code(text):
    folder = HERE / f"code-{len(list(HERE.iterdir()))}"
    folder.mkdir()
    (folder / "train.py").write_text(text)
    return folder


def users():
    me = client.whoami()
    assert client.get_session_username() == me.username == "admin" and me.admin
    assert raised(ValueError, client.create_user, f"weak-{TAG}", False, "short")
    user = client.create_user(f"eve-{TAG}", admin=False, password="Long-Word-1")
    user.change_display_name(f"Eve of {TAG}")
    user.link_with_agent(1001, 1002, "eve", "staff")
    user.deactivate()
    assert user.username not in [each.username for each in client.list_users(active=True)]
    user.activate()
    user.change_password("Longer-Word-2")
    user.rename(f"eva-{TAG}")
    found = client.get_user_by_name(f"eva-{TAG}")
    assert found.user_id == user.user_id == client.get_user_by_id(user.user_id).user_id
    assert Determined(URL, found.username, "Longer-Word-2").whoami().user_id == user.user_id
    assert raised(errors.UnauthenticatedException, Determined, URL, f"nobody-{TAG}", "wrong")
    seen["user"] = [found.admin, found.active, found.remote, found.display_name.replace(TAG, "")]
    seen["agent"] = [found.agent_uid, found.agent_gid, found.agent_user, found.agent_group]


def places():
    client.create_workspace(f"{TAG} lab two")
    lab = client.create_workspace(f"{TAG} lab")
    assert raised(errors.APIException, client.create_workspace, f"{TAG} lab")
    assert client.get_workspace(f"{TAG} lab").id == lab.id, "by the whole name"
    assert {lab.name, f"{TAG} lab two"} <= {each.name for each in client.list_workspaces()}
    lab.create_project("vision and more")
    project = lab.create_project("vision", "sees")
    assert lab.get_project("vision").id == project.id, "by the whole name"
    project.set_description("sees more")
    project.add_note("plan", "first")
    project.add_note("end", "last")
    project.remove_note("plan")
    project.archive()
    assert project.archived
    project.unarchive()
    project.reload()
    seen["project"] = [project.name, project.description, project.notes, project.archived, project.username]
    seen["numbers"] = [project.n_experiments, project.n_active_experiments, project.workspace_id == lab.id]
    assert raised(errors.NotFoundException, lab.get_project, "sound")
    assert raised(errors.NotFoundException, client.get_workspace, f"{TAG} nowhere")
    lab.delete_project("vision and more")
    seen["projects"] = [each.name for each in lab.list_projects()]
    seen["pools"] = [pool.name for pool in lab.list_pools()]


def experiment():
    made = client.create_experiment(CONFIG, model_dir=code(TRAIN))
    first = made.await_first_trial()
    assert first.experiment_id == made.id and first.get_experiment().id == made.id
    made.set_name(f"named-{TAG}")
    made.set_description("described")
    made.set_notes("noted")
    made.set_labels({TAG, "old"})
    made.add_label("new/er")
    made.remove_label("old")
    seen["labels"] = sorted(label for label in made.labels if label != TAG)
    assert made.wait(interval=0.5) == client.ExperimentState.COMPLETED
    until(lambda: len(made.list_checkpoints()) == 6)
    made = client.get_experiment(made.id)
    assert made.name == f"named-{TAG}" and made.labels == {TAG, "new/er"}
    seen["experiment"] = [made.state.name, made.description, made.notes, made.archived, made.progress]
    seen["place"] = [made.project_id, made.workspace_id]
    seen["config"] = [made.config["name"].replace(TAG, ""), made.config["searcher"]["metric"]]
    one = [[each.id for each in client.list_experiments(**by)] for by in (
        {"labels": [TAG]}, {"name": f"named-{TAG}"}, {"experiment_ids": [made.id]},
        {"labels": [TAG], "users": ["admin"], "states": [client.ExperimentState.COMPLETED]},
    )]  # fmt: skip
    assert one == [[made.id]] * 4, one
    assert client.list_experiments(labels=[TAG], states=[client.ExperimentState.RUNNING]) == []
    found = client.list_experiments(
        sort_by=client.ExperimentSortBy.ID, order_by=client.OrderBy.DESC, name=f"-{TAG}"
    )
    assert [each.id for each in found] == sorted((each.id for each in found), reverse=True)
    path = pathlib.Path(made.download_code(str(HERE / "fetched")))
    with tarfile.open(str(path)) as tar:
        seen["code"] = sorted(name.lstrip("./") for name in tar.getnames() if name.endswith(".py"))
    return made


def trials(made):
    found = made.list_trials(sort_by=client.TrialSortBy.ID, order_by=client.OrderBy.DESCENDING)
    ids = [trial.id for trial in found]
    assert ids == sorted(ids, reverse=True) == [trial.id for trial in made.iter_trials(limit=1)][::-1]
    best = next(trial for trial in found if trial.hparams == {"lr": 0.5})
    assert client.get_trial(best.id).hparams == best.hparams
    seen["trial"] = [
        best.state.name,
        sorted(best.summary_metrics),
        best.summary_metrics["avg_metrics"]["loss"],
    ]
    for group in ("training", "validation", "inference"):
        seen[group] = [[each.steps_completed, each.metrics, each.group, each.batch_metrics, each.trial_run_id]
                       for each in best.iter_metrics(group)]  # fmt: skip
    ended = [each.end_time.timestamp() for each in best.iter_metrics("training")]
    assert ended == sorted(ended) and abs(ended[-1] - time.time()) < 600
    of_all = list(client.stream_trials_metrics(ids, "validation"))
    assert {each.trial_id for each in of_all} == set(ids) and len(of_all) == 6
    seen["older"] = [each.total_batches for each in best.stream_training_metrics()]
    seen["kinds"] = sorted({type(each).__name__ for each in best.stream_validation_metrics()})
    assert raised(errors.NotFoundException, lambda: list(client.stream_trials_metrics([10**8], "training")))
    return best


def logs(trial):
    def said(**options):
        return [line.split("|| ", 1)[-1].strip() for line in trial.iter_logs(**options) if "|| line" in line]

    seen["lines"] = said()
    assert said(follow=True) == said() == said(rank_ids=[-1])
    assert said(search_text="line 2") == ["line 2"]
    everything = list(trial.iter_logs())
    assert (
        list(trial.iter_logs(head=3)) == everything[:3] and list(trial.iter_logs(tail=3)) == everything[-3:]
    )
    assert (
        list(trial.logs(timestamp_before=1))
        == []
        == list(trial.iter_logs(timestamp_after="2100-01-01T00:00:00Z"))
    )
    assert raised(ValueError, lambda: list(trial.iter_logs(head=-1)))
    assert all(line.endswith("\n") for line in everything)


def brief(checkpoint):
    return [checkpoint.training.hparams, checkpoint.metadata["steps_completed"], checkpoint.state.name]


def checkpoints(made, trial):
    loss = client.CheckpointSortBy.SEARCHER_METRIC
    seen["best first"] = [brief(each) for each in made.list_checkpoints()][:3]
    seen["by name"] = [brief(each) for each in made.list_checkpoints("accuracy", client.OrderBy.DESC, 3)]
    seen["worst"] = brief(made.list_checkpoints(loss, client.OrderBy.DESC, max_results=1)[0])
    seen["of trials"] = [brief(each) for each in made.top_n_checkpoints(5)]
    seen["top"] = [
        brief(made.top_checkpoint()),
        brief(made.top_checkpoint("accuracy", smaller_is_better=False)),
    ]
    steps = trial.list_checkpoints(client.CheckpointSortBy.BATCH_NUMBER, client.OrderBy.ASC)
    seen["steps"] = [brief(each) for each in steps]
    assert (
        trial.select_checkpoint(latest=True).uuid
        == steps[2].uuid
        == trial.select_checkpoint(uuid=steps[2].uuid).uuid
    )
    assert trial.select_checkpoint(best=True).uuid == trial.top_checkpoint().uuid == steps[1].uuid
    assert raised(AssertionError, trial.select_checkpoint)
    assert raised(AssertionError, made.list_checkpoints, "loss")
    best = client.get_checkpoint(steps[1].uuid)
    seen["files"] = {path: size for path, size in best.resources.items() if path != "metadata.json"}
    assert best.training.experiment_id == made.id and best.training.trial_id == trial.id
    seen["validation"] = best.training.validation_metrics["avgMetrics"]
    best.add_metadata({"tag": "best", "who": "you"})
    best.remove_metadata(["tag", "nothing"])
    best.reload()
    seen["metadata"] = best.metadata
    best.write_metadata_file(str(HERE / "said.json"))
    assert json.loads((HERE / "said.json").read_text()) == best.metadata
    folder = pathlib.Path(best.download(str(HERE / "files"), mode=client.DownloadMode.MASTER))
    seen["downloaded"] = sorted(each.relative_to(folder).as_posix() for each in folder.rglob("*"))
    assert (folder / "inner" / "weights").read_text() == "weights of 2"
    assert best.download(str(folder)) == str(folder), "it is there already"
    steps[0].delete()
    until(lambda: steps[0].reload() or steps[0].state.name == "DELETED")
    assert raised(Exception, steps[0].download, str(HERE / "gone"))


def steering():
    file = HERE / "lasting.yaml"
    file.write_text(json.dumps({**CONFIG, "name": f"lasting-{TAG}", "searcher": {"name": "single", "metric": "loss",
                                "max_length": {"batches": 1}}, "hyperparameters": {}}))  # fmt: skip
    made = client.create_experiment(file, str(code(LASTING)), project_id=1)
    made.pause()
    until(lambda: made.reload() or made.state == client.ExperimentState.PAUSED)
    assert raised(ValueError, made.wait)
    made.activate()
    made.await_first_trial().kill()
    until(lambda: made.reload() or made.state.name in ("CANCELED", "ERROR", "COMPLETED"))
    made.cancel()
    made.kill()
    assert made.wait(interval=0.2).name == made.state.name
    made.archive()
    assert made.archived
    assert raised(errors.APIException, made.activate)
    made.unarchive()
    made.move_to_project(f"{TAG} lab", "vision")
    project = client.get_workspace(f"{TAG} lab").get_project("vision")
    assert [each.id for each in project.list_experiments()] == [made.id] and made.project_id == project.id
    made.delete_tensorboard_files()
    made.delete()
    until(lambda: project.list_experiments() == [])
    assert raised(errors.NotFoundException, client.get_experiment, made.id)


def refusals():
    for call, what in (
        (client.get_experiment, 10**8),
        (client.get_trial, 10**8),
        (client.get_checkpoint, "00000000-0000-4000-8000-000000000000"),
        (client.get_user_by_name, f"nobody-{TAG}"),
    ):
        assert raised(errors.NotFoundException, call, what), call
    wrong = {**CONFIG, "resources": {"slots_per_trial": "many"}}
    try:
        client.create_experiment(wrong, code(TRAIN))
    except errors.APIException as error:
        seen["refusal"] = [error.status_code, "resources.slots_per_trial" in str(error)]


def older_names(made, trial):
    """What few scripts use, and what was deprecated when the client was last published."""
    lab = client.get_workspace(f"{TAG} lab")
    lab.reload()
    project = lab.create_project("sight")
    project.set_name("hearing")
    project.set_key(f"K{TAG}".upper()[:5])
    project.reload()
    seen["renamed"] = project.name
    trial.reload()
    assert len(made.get_trials()) == 2 and len(trial.get_checkpoints()) == 3
    assert [each.steps_completed for each in trial.stream_metrics("inference")] == [1, 2, 3]
    whole = client.Determined(master=URL, user="admin", password=PASSWORD)
    assert [each.steps_completed for each in whole.stream_trials_metrics([trial.id], "inference")] == [
        1,
        2,
        3,
    ]
    kinds = (
        client.stream_trials_training_metrics([trial.id]),
        client.stream_trials_validation_metrics([trial.id]),
    )
    seen["by kind"] = [[each.total_batches for each in kind] for kind in kinds]
    other = next(each for each in made.list_trials() if each.id != trial.id)
    checkpoint = other.select_checkpoint(latest=True)
    assert list(checkpoint.get_metrics("training")) == [], "nobody has used it"
    checkpoint.remove_files(["inner/*"])
    until(lambda: checkpoint.reload() or checkpoint.state.name == "PARTIALLY_DELETED")
    seen["left"] = sorted(checkpoint.resources)


def registry():
    """There is none; each function says so, and so does the class whose methods they are."""
    whole = client.Determined(master=URL, user="admin", password=PASSWORD)
    return [raised(Exception, call, *words) for call, *words in (
        (client.create_model, "a"), (client.get_model, "a"), (client.get_model_by_id, 1),
        (client.get_models,), (client.list_models,), (client.get_model_labels,), (whole.get_model_by_id, 1),
    )]  # fmt: skip


watch(client)
for noun in ("Checkpoint", "Determined", "Experiment", "Project", "Trial", "User", "Workspace"):
    watch(getattr(client, noun), f"{noun}.")
client.login(master=URL, user="admin", password=PASSWORD)
users()
places()
refusals()
made = experiment()
trial = trials(made)
logs(trial)
checkpoints(made, trial)
older_names(made, trial)
assert all(registry())
steering()
client.delete_workspace(f"{TAG} lab two")
client.logout()
print(made.id)
print(json.dumps(sorted(uncalled)))
print(json.dumps(seen, sort_keys=True))

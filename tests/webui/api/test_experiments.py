"""Experiments: submitting with every way to be wrong, reading, changing, stopping."""

import base64
import io
import json
import tarfile
from collections.abc import Callable

import pytest
from django.test import Client

from accounts.models import User
from events.models import Event
from experiments.models import Experiment, Template, Trial, Workspace
from hosts.models import Host, ResourcePool
from submissions.models import Context
from tests.rig.api import CONFIG, Api, Cast, Json, uploaded

Submit = Callable[..., Json]


def test_a_submission_is_an_experiment_with_a_job_and_a_trial(cast: Cast, submit: Submit) -> None:
    record = submit()
    assert record["state"] == "STATE_QUEUED"
    assert record["username"] == "ada"
    assert record["numTrials"] == 1
    assert record["searcherType"] == "single"
    assert record["originalConfig"] == CONFIG
    assert record["config"]["resources"]["resource_pool"] == "default"
    again = cast.vic.get(f"experiments/{record['id']}")
    assert again["experiment"]["jobId"] == record["jobId"]
    assert again["jobSummary"] == {"state": "STATE_QUEUED", "jobsAhead": 0}


def test_the_record_has_every_field_that_the_client_insists_on(submit: Submit) -> None:
    assert {
        "id", "name", "state", "archived", "config", "originalConfig", "startTime", "numTrials", "searcherType",
        "username", "jobId", "projectId", "projectOwnerId",
    } <= submit().keys()  # fmt: skip


def test_an_idempotency_key_gives_the_first_experiment_again_and_only_to_its_owner(
    cast: Cast, pool: ResourcePool
) -> None:
    body = {"config": CONFIG}
    first = cast.ada.post("experiments", body, **{"idempotency-key": "k1"})["experiment"]["id"]
    assert cast.ada.post("experiments", body, **{"idempotency-key": "k1"})["experiment"]["id"] == first
    assert cast.bob.post("experiments", body, **{"idempotency-key": "k1"})["experiment"]["id"] != first


def test_viewers_and_strangers_submit_nothing(cast: Cast, pool: ResourcePool) -> None:
    assert cast.vic.refused("POST", "experiments", {"config": CONFIG})[0] == 403
    assert cast.stranger.refused("POST", "experiments", {"config": CONFIG})[0] == 401
    assert not Experiment.objects.exists()


@pytest.mark.parametrize(
    ("config", "part"),
    [
        ("{", "YAML"),
        ("[]", "a map"),
        (CONFIG + "\nunknown_field: 1\n", "unknown_field"),
        (CONFIG.replace("entrypoint: python3 train.py\n", ""), "entrypoint"),
        (CONFIG.replace("slots_per_trial: 1", "slots_per_trial: x"), "resources.slots_per_trial"),
        (CONFIG.replace("slots_per_trial: 1", "resource_pool: nowhere"), "nowhere does not exist"),
    ],
)
def test_a_wrong_config_is_refused_with_its_field_and_leaves_nothing(
    cast: Cast, pool: ResourcePool, config: str, part: str
) -> None:
    for extra in ({}, {"validateOnly": True}):
        status, sentence = cast.ada.refused("POST", "experiments", {"config": config, **extra})
        assert status == 400
        assert part in sentence
    assert not Experiment.objects.exists()
    assert not Event.objects.exists()


def test_all_faults_of_a_submission_are_told_at_once(cast: Cast, pool: ResourcePool) -> None:
    names = "\nworkspace: nowhere\nproject: nothing\n"
    config = CONFIG.replace("slots_per_trial: 1", "resource_pool: none, max_time: 9") + names
    config = config.replace("loss,", "loss, source_trial_id: 4711,")
    body = {"config": config, "modelDefinition": [uploaded("../x.py", "1")]}
    unknown = ["project nothing in workspace nowhere not found", "resource pool none does not exist"]
    for extra in ({}, {"validateOnly": True}):
        status, sentence = cast.ada.refused("POST", "experiments", {**body, **extra})
        assert status == 400 and len(sentence.splitlines()) == 4
        assert all(part in sentence for part in [*unknown, "leads outside", "there is no trial 4711"])
        wrong = {**body, "config": config + "labels: 1\n", **extra}
        status, sentence = cast.ada.refused("POST", "experiments", wrong)
        assert all(part in sentence for part in [*unknown, "leads outside", "<config>.labels"])
    status, sentence = cast.ada.refused(
        "POST", "experiments", {"config": names + "labels: 1", "template": "t"}
    )
    assert status == 400 and "entrypoint" not in sentence, "which the template may have"
    assert all(part in sentence for part in ["template t not found", "<config>.labels", unknown[0]])
    assert not Experiment.objects.exists() and not Context.objects.exists() and not Event.objects.exists()


def test_several_limits_of_a_pool_are_told_at_once(cast: Cast, pool: ResourcePool) -> None:
    ResourcePool.objects.update(longest_max_time_seconds=60, priority_floor={"editor": 40})
    config = CONFIG.replace("slots_per_trial: 1", "priority: 1, max_time: 90")
    status, sentence = cast.ada.refused("POST", "experiments", {"config": config})
    assert status == 400 and "at most 60 s" in sentence and "40" in sentence


def test_validate_only_refuses_a_search_that_creating_would(cast: Cast, pool: ResourcePool) -> None:
    config = CONFIG.replace("name: single", "name: random, max_trials: 2000000")
    for extra in ({}, {"validateOnly": True}):
        status, sentence = cast.ada.refused("POST", "experiments", {"config": config, **extra})
        assert status == 400 and "searcher.max_trials" in sentence


def test_a_null_among_hyperparameters_reaches_the_trial(cast: Cast, submit: Submit) -> None:
    Template.objects.create(name="t", workspace_id=1, config={"hyperparameters": {"depth": 3, "lr": 1}})
    config = CONFIG.replace("{lr: 0.1}", "{depth: null, batch: 60_000, nested: {x: ~}}")
    trial = Experiment.objects.get(pk=submit(config=config, template="t")["id"]).trials.get()
    assert trial.hparams == {"depth": None, "batch": 60000, "nested": {"x": None}, "lr": 1}


@pytest.mark.parametrize(
    ("file", "part"),
    [
        (uploaded("../x.py", "1"), "leads outside"),
        (uploaded("a/../../x.py", "1"), "leads outside"),
        (uploaded("/etc/passwd", "1"), "absolute"),
        (uploaded("link", "/etc/passwd", type=50), "outside the submitted folder"),
        (uploaded("a/link", "../../x", type=50), "outside the submitted folder"),
        (uploaded("x", "", type=49), "type 49"),
        ({"path": "x", "content": "!!"}, "not base64"),
    ],
)
def test_a_folder_that_leads_out_of_itself_is_refused(
    cast: Cast, pool: ResourcePool, file: Json, part: str
) -> None:
    status, sentence = cast.ada.refused("POST", "experiments", {"config": CONFIG, "modelDefinition": [file]})
    assert status == 400
    assert part in sentence
    assert not Experiment.objects.exists()
    assert not Context.objects.exists()


def test_a_folder_over_the_limit_names_its_largest_files(
    cast: Cast, pool: ResourcePool, settings: object
) -> None:
    settings.CONTEXT_BYTES = 1000  # type: ignore[attr-defined]
    files = [uploaded("small.py", "1"), uploaded("data/big.bin", b"0" * 2000)]
    status, sentence = cast.ada.refused("POST", "experiments", {"config": CONFIG, "modelDefinition": files})
    assert status == 400
    assert "data/big.bin" in sentence.split(",")[0]
    assert ".detignore" in sentence


def test_validate_only_keeps_nothing(cast: Cast, pool: ResourcePool) -> None:
    files = [uploaded("train.py", "1")]
    body = {"config": CONFIG, "modelDefinition": files, "validateOnly": True}
    assert cast.ada.post("experiments", body)["experiment"]["id"] == 0
    assert not Experiment.objects.exists()
    assert not Context.objects.exists()


def test_a_submission_may_be_paused_from_the_start(submit: Submit) -> None:
    assert submit(activate=False)["state"] == "STATE_PAUSED"


def test_slots_that_the_pool_can_never_give_are_told_at_submit(cast: Cast, host: Host) -> None:
    config = CONFIG.replace("slots_per_trial: 1", "slots_per_trial: 3")
    for only in (True, False):
        answer = cast.ada.post("experiments", {"config": config, "validateOnly": only})
        assert answer["warnings"] == ["LAUNCH_WARNING_CURRENT_SLOTS_EXCEEDED"]
        assert "needs 3 slots; hosts here have 2" in answer["notices"][0]


def test_a_trial_on_one_host_that_never_fits_is_refused_when_submitted_continued_and_moved(
    cast: Cast, host: Host
) -> None:
    config = CONFIG.replace("slots_per_trial: 1", "slots_per_trial: 4, is_single_node: true")
    for only in (True, False):
        status, sentence = cast.ada.refused("POST", "experiments", {"config": config, "validateOnly": only})
        assert status == 400 and "request unfulfillable" in sentence
        assert "needs 4 slots on one host; the largest host here has 2" in sentence
    assert not Experiment.objects.exists()
    larger = cast.admin.post("resource-pools", {"name": "larger"})["resourcePool"]["name"]
    body = {"config": config.replace("is_single_node: true", "is_single_node: true, resource_pool: larger")}
    made = cast.ada.post("experiments", body)["experiment"]  # its hosts are not there yet
    update = {"updates": [{"jobId": made["jobId"], "resourcePool": host.pool.name}]}
    status, sentence = cast.ada.refused("POST", "job-queues", update)
    assert status == 400 and "needs 4 slots on one host" in sentence and larger == "larger"
    cast.ada.post(f"experiments/{made['id']}/kill")
    again = {"id": made["id"], "overrideConfig": f"resources: {{resource_pool: {host.pool.name}}}"}
    status, sentence = cast.ada.refused("POST", "experiments/continue", again)
    assert status == 400 and "needs 4 slots on one host" in sentence
    assert cast.ada.post("experiments/continue", {"id": made["id"]})["experiment"]["state"] == "STATE_QUEUED"


def test_paths_that_a_host_without_mount_namespaces_lacks_are_told_at_submit(cast: Cast, host: Host) -> None:
    refused = {"login": None, "account": "Operation not permitted"}
    Host.objects.update(facts={"view": refused, "account": {"name": "root", "switch": "root"}})
    config = CONFIG + "bind_mounts: ['/mnt/nfs:/data', '/same:/same']\n"
    files = [uploaded("train.py", "sys.path.append('/run/determined/workdir')")]
    expected = [
        "No mount namespace for runs on gpu1: Operation not permitted.",
        "/data (use /mnt/nfs) and /run/determined/workdir (use the working directory).",
    ]
    ResourcePool.objects.update(allow_login_account=True)
    answer = cast.ada.post("experiments", {"config": config, "modelDefinition": files})
    assert answer["notices"] == [], "root has a view there"
    User.objects.filter(username="ada").update(unix_user="ada")
    for only in (True, False):
        body = {"config": config, "modelDefinition": files, "validateOnly": only}
        [notice] = cast.ada.post("experiments", body)["notices"]
        assert all(part in notice for part in expected) and "/same" not in notice
    command = {
        "config": {"entrypoint": ["true"], "bind_mounts": [{"host_path": "/a", "container_path": "/b"}]}
    }
    [notice] = cast.ada.post("commands", command)["notices"]
    assert "/b (use /a)" in notice and "workdir" not in notice
    assert cast.ada.post("experiments", {"config": CONFIG})["notices"] == []


def test_packages_that_the_python_of_a_host_lacks_are_told_at_submit(cast: Cast, host: Host) -> None:
    python = {"path": "/opt/ml/bin/python", "lacks": ["ruamel.yaml", "boto3", "zmq"]}
    Host.objects.update(python=python["path"], facts={"interpreters": [python]})
    optional = "try:\n    import boto3\nexcept ImportError: pass\n"
    code = "import os, zmq as z\nfrom ruamel import yaml\nimport requests\n" + optional
    files = [uploaded("train.py", code)]

    def notices(more: str = "", *others: Json) -> list[str]:
        body = {"config": CONFIG + more, "modelDefinition": [*files, *others], "validateOnly": True}
        return list(cast.ada.post("experiments", body)["notices"])

    [notice] = notices()
    assert "/opt/ml/bin/python on gpu1 lacks: pyzmq and ruamel.yaml." in notice
    assert "`/opt/ml/bin/python -m pip install pyzmq ruamel.yaml`" in notice
    assert notices("environment: {activate: /opt/x/bin/activate}") == [], "nothing is known of that one"
    assert notices("environment: {python: /usr/bin/python3}") == []
    assert notices("environment: {python: /opt/ml/bin/python3}") == [
        notice.replace("bin/python", "bin/python3")
    ]
    for installing in (
        notices("", uploaded("startup-hook.sh", "pip install -r requirements.txt")),
        notices("environment: {hooks: {pre: uv pip install zmq}}"),
    ):
        assert not any("lacks" in each for each in installing)
    assert "ruamel" in notices("", uploaded("zmq/__init__.py", ""))[0], "zmq is the code's own now"
    command = {"config": {"entrypoint": ["true"]}, "files": files}
    assert notice in cast.ada.post("commands", command)["notices"]
    image = "environment: {image: team/train}"
    assert notice in notices(image), "its host cannot run images"
    podman = {"name": "podman", "version": "5.0", "problem": None}
    Host.objects.update(facts={"interpreters": [python], "containers": {"runtimes": [podman]}})
    assert not any("lacks" in each for each in notices(image))


def test_names_that_only_the_published_package_has_are_told_at_submit(cast: Cast, host: Host) -> None:
    code = """
from determined.keras import TFKerasTrial, TFKerasTrialContext
from determined.pytorch import PyTorchTrial, deepspeed
from determined.tensorboard.metric_writers.pytorch import TorchWriter
from determined.common.api.errors import NotFoundException
import determined.launch.torch_distributed, determined as det
"""

    def lacking(more: str = "") -> list[str]:
        body = {
            "config": CONFIG + more,
            "modelDefinition": [uploaded("model_def.py", code), uploaded("src/determined/own.py", "")],
            "validateOnly": True,
        }
        return [each for each in cast.ada.post("experiments", body)["notices"] if "The code imports" in each]

    keras, deep = lacking()
    assert keras.startswith(
        "The code imports determined.keras, which runs do not have here. Keras models train"
    )
    assert "imports determined.pytorch.deepspeed," in deep and "sdk: installed" in deep
    assert (
        lacking("environment: {sdk: installed}\ncheckpoint_storage: {type: shared_fs, host_path: /x}") == []
    )


@pytest.mark.parametrize(
    ("hook", "told"),
    [
        ("set -e\npip install -r requirements.txt\n", True),
        ("/opt/conda/bin/conda install -y numpy", True),
        ("python3 -m pip install --target packages rich", False),
        ("python3 -m venv own && own/bin/pip install rich", False),
        ("apt-get install -y jq; echo pip", False),
    ],
)
def test_a_hook_that_installs_into_a_python_of_others_is_warned_about(
    cast: Cast, host: Host, hook: str, told: bool
) -> None:
    files = [uploaded("train.py", "print(1)\n"), uploaded("startup-hook.sh", hook)]
    notices = cast.ada.post("experiments", {"config": CONFIG, "modelDefinition": files})["notices"]
    assert [each.startswith("startup-hook.sh installs packages into a Python") for each in notices] == [
        True
    ] * told
    own = CONFIG + f"environment: {{hooks: {{pre: {json.dumps(hook)}}}}}\n"
    notices = cast.ada.post("experiments", {"config": own, "modelDefinition": files[:1]})["notices"]
    assert any(each.startswith("The pre hook installs") for each in notices) is told


def test_a_template_is_merged_and_an_unknown_one_is_404(cast: Cast, pool: ResourcePool) -> None:
    Template.objects.create(name="t", workspace_id=1, config={"resources": {"priority": 7}})
    answer = cast.ada.post("experiments", {"config": CONFIG, "template": "t"})
    assert answer["config"]["resources"]["priority"] == 7
    assert cast.ada.refused("POST", "experiments", {"config": CONFIG, "template": "x"}) == (
        404,
        "template x not found",
    )


def test_a_fork_takes_the_code_of_its_parent(cast: Cast, submit: Submit) -> None:
    parent = submit()["id"]
    fork = cast.bob.post("experiments", {"config": CONFIG, "parentId": parent})["experiment"]
    assert fork["forkedFrom"] == parent
    assert cast.bob.get(f"experiments/{fork['id']}/file_tree")["files"][0]["name"] == "train.py"
    assert cast.ada.refused("POST", "experiments", {"config": CONFIG, "parentId": 99})[0] == 404


def test_a_fork_of_what_was_shown_has_its_parents_secrets_for_its_owner_alone(
    cast: Cast, submit: Submit
) -> None:
    config = CONFIG + "environment: {environment_variables: [HF_TOKEN=hunter2]}\n"
    parent = submit(config=config)
    assert "hunter2" not in str(parent)
    kept = []
    for person in (cast.ada, cast.bob, cast.admin):
        answer = person.post("experiments", {"config": parent["originalConfig"], "parentId": parent["id"]})
        assert "hunter2" not in str(answer)
        stored = Experiment.objects.get(pk=answer["experiment"]["id"]).config["environment"]
        kept.append(stored["environment_variables"]["cuda"] == ["HF_TOKEN=hunter2"])
        assert any("HF_TOKEN is a mask" in notice for notice in answer["notices"]) is not kept[-1]
    assert kept == [True, False, True]


def test_the_code_is_read_back_file_by_file_and_whole(cast: Cast, pool: ResourcePool) -> None:
    files = [uploaded("b/inner.py", "inner"), uploaded("a.py", "top"), uploaded("run.sh", "x", mode=0o755)]
    pk = cast.ada.post("experiments", {"config": CONFIG, "modelDefinition": files})["experiment"]["id"]
    tree = cast.vic.get(f"experiments/{pk}/file_tree")["files"]
    assert [(node["name"], node["isDir"]) for node in tree] == [
        ("a.py", False),
        ("b", True),
        ("run.sh", False),
    ]
    assert tree[1]["files"][0]["path"] == "b/inner.py"
    content = cast.vic.post(f"experiments/{pk}/file", {"path": "b/inner.py"})["file"]
    assert base64.b64decode(content) == b"inner"
    assert cast.vic.refused("POST", f"experiments/{pk}/file", {"path": "../../etc/passwd"})[0] == 404
    archive = base64.b64decode(cast.vic.get(f"experiments/{pk}/model_def")["b64Tgz"])
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        assert packed.getnames() == ["a.py", "b/inner.py", "run.sh"]
        assert packed.getmember("run.sh").mode == 0o755


def test_the_same_folder_is_stored_once(submit: Submit) -> None:
    submit()
    submit()
    assert Context.objects.count() == 1


@pytest.mark.survive(34)
def test_secrets_of_a_config_are_masked_in_every_answer(cast: Cast, pool: ResourcePool) -> None:
    config = CONFIG + "environment: {environment_variables: [API_KEY=hunter2, SEED=1]}\n"
    pk = cast.ada.post("experiments", {"config": config})["experiment"]["id"]
    for path in (f"experiments/{pk}", "experiments"):
        text = str(cast.vic.get(path))
        assert "hunter2" not in text
        assert "SEED=1" in text


def test_the_list_filters_sorts_and_pages(cast: Cast, submit: Submit) -> None:
    for name in ("alpha", "beta", "gamma"):
        submit(config=CONFIG.replace("digits", name))
    submit(by=cast.bob, config=CONFIG.replace("digits", "alphabet"), activate=False)
    names = lambda query: [row["name"] for row in cast.vic.get(f"experiments?{query}")["experiments"]]  # noqa: E731
    assert names("users=ada&name=alpha") == ["alpha"]
    assert names("states=STATE_PAUSED") == ["alphabet"]
    assert names("states=STATE_ACTIVE&sortBy=SORT_BY_NAME&orderBy=ORDER_BY_DESC") == [
        "gamma",
        "beta",
        "alpha",
    ]
    assert names("limit=1&offset=1") == ["beta"]
    assert names("archived=true") == []
    page = cast.vic.get("experiments?limit=-2")
    assert page["experiments"] == []
    assert page["pagination"]["total"] == 4
    assert cast.vic.refused("GET", "experiments?sortBy=SORT_BY_MOON")[0] == 400
    assert cast.vic.refused("GET", "experiments?experimentIdFilter.gt=x")[0] == 400


def test_a_long_list_costs_a_fixed_number_of_queries(
    cast: Cast, submit: Submit, django_assert_max_num_queries: Callable[[int], object]
) -> None:
    for _ in range(5):
        submit()
    with django_assert_max_num_queries(5):  # type: ignore[attr-defined]
        assert len(cast.ada.get("experiments")["experiments"]) == 5


def test_pause_activate_cancel_kill_and_archive(cast: Cast, submit: Submit) -> None:
    pk = submit()["id"]
    state = lambda: cast.ada.get(f"experiments/{pk}")["experiment"]["state"]  # noqa: E731
    cast.ada.post(f"experiments/{pk}/pause")
    assert state() == "STATE_PAUSED"
    assert cast.ada.get(f"experiments/{pk}")["jobSummary"] is None
    cast.ada.post(f"experiments/{pk}/activate")
    assert state() == "STATE_QUEUED"
    assert cast.ada.refused("POST", f"experiments/{pk}/archive")[0] == 409
    cast.ada.post(f"experiments/{pk}/cancel")
    assert state() == "STATE_CANCELED"
    cast.ada.post(f"experiments/{pk}/kill")
    assert state() == "STATE_CANCELED"
    status, sentence = cast.ada.refused("POST", f"experiments/{pk}/pause")
    assert (status, "terminal state" in sentence) == (409, True)
    assert cast.ada.refused("POST", f"experiments/{pk}/activate")[0] == 404
    cast.ada.post(f"experiments/{pk}/archive")
    assert cast.ada.get(f"experiments/{pk}")["experiment"]["archived"] is True
    cast.ada.post(f"experiments/{pk}/unarchive")
    assert Event.objects.filter(experiment_id=pk, actor="user:ada").exists()


@pytest.mark.parametrize("action", ["pause", "activate", "cancel", "kill", "archive", "unarchive"])
def test_only_the_owner_and_admins_act(cast: Cast, submit: Submit, action: str) -> None:
    pk = submit()["id"]
    status, sentence = cast.bob.refused("POST", f"experiments/{pk}/{action}")
    assert status == 403
    assert "belongs to ada" in sentence
    assert cast.vic.refused("POST", f"experiments/{pk}/{action}")[0] == 403
    assert cast.stranger.refused("POST", f"experiments/{pk}/{action}")[0] == 401
    assert cast.admin.refused("POST", f"experiments/99999/{action}")[0] == 404
    assert cast.ada.refused("GET", f"experiments/{pk}/{action}")[0] == 405


def test_an_admin_may_pause_what_is_not_his(cast: Cast, submit: Submit) -> None:
    pk = submit()["id"]
    cast.admin.post(f"experiments/{pk}/pause")
    assert cast.vic.get(f"experiments/{pk}")["experiment"]["state"] == "STATE_PAUSED"


def test_one_that_runs_cannot_be_deleted_and_an_ended_one_goes(cast: Cast, submit: Submit) -> None:
    pk = submit()["id"]
    assert cast.ada.refused("DELETE", f"experiments/{pk}")[0] == 400
    cast.ada.post(f"experiments/{pk}/kill")
    cast.ada.delete(f"experiments/{pk}")
    assert cast.ada.get(f"experiments/{pk}")["experiment"]["state"] == "STATE_DELETING"


def test_bulk_actions_say_what_did_not_work(cast: Cast, submit: Submit) -> None:
    mine, ended, others = submit()["id"], submit()["id"], submit(by=cast.bob)["id"]
    cast.ada.post(f"experiments/{ended}/kill")
    body = {"experimentIds": [mine, ended, others, 99999]}
    results = cast.ada.post("projects/1/experiments/pause", body)["results"]
    errors = {row["id"]: row["error"] for row in results}
    assert errors[mine] == ""
    assert "terminal state" in errors[ended]
    assert "belongs to bob" in errors[others]
    assert "not found" in errors[99999]
    assert (
        cast.ada.post("projects/-1/experiments/activate", {"experimentIds": [mine]})["results"][0]["error"]
        == ""
    )
    cast.ada.post("projects/-1/experiments/kill", {"filters": {"userIds": [], "users": ["ada"]}})
    assert (
        cast.ada.delete("projects/1/experiments/delete", {"experimentIds": [mine]})["results"][0]["error"]
        == ""
    )


def test_a_patch_changes_fields_and_equal_values_are_no_change(cast: Cast, submit: Submit) -> None:
    pk = submit()["id"]
    body = {"name": "new", "description": "d", "labels": ["a", "b", "a"], "notes": "# n"}
    changed = cast.ada.patch(f"experiments/{pk}", body)["experiment"]
    assert [changed[name] for name in body] == ["new", "d", ["a", "b"], "# n"]
    assert changed["config"]["name"] == "new"
    cast.ada.post(f"experiments/{pk}/kill")
    cast.ada.post(f"experiments/{pk}/archive")
    cast.ada.patch(
        f"experiments/{pk}", {"name": "new", "description": "d", "labels": ["a", "b"], "notes": "# n"}
    )
    assert cast.bob.refused("PATCH", f"experiments/{pk}", {"name": "x"})[0] == 403


def test_priority_and_max_slots_are_patched_and_shown_in_the_config(cast: Cast, submit: Submit) -> None:
    pk = submit()["id"]
    config = cast.ada.patch(f"experiments/{pk}", {"resources": {"priority": 3, "maxSlots": 4}})["experiment"][
        "config"
    ]
    assert (config["resources"]["priority"], config["resources"]["max_slots"]) == (3, 4)
    config = cast.ada.patch(f"experiments/{pk}", {"resources": {"maxSlots": None}})["experiment"]["config"]
    assert config["resources"]["max_slots"] is None
    for wrong in (0, 100, 1.5, "x"):
        status, sentence = cast.ada.refused("PATCH", f"experiments/{pk}", {"resources": {"priority": wrong}})
        assert status == 400
        assert sentence == f"priority must be between 1 and 99; 1 is the highest. Found: {wrong}."


@pytest.mark.parametrize("wrong", [-1, 2**31, 10**400, 1.5, True, "4", [4]])
def test_a_patch_with_a_part_that_is_refused_changes_nothing(
    cast: Cast, submit: Submit, wrong: object
) -> None:
    before = submit()
    pk = before["id"]
    events = Event.objects.count()
    body = {"name": "new", "labels": ["a"], "resources": {"priority": 3, "maxSlots": wrong}}
    status, sentence = cast.ada.refused("PATCH", f"experiments/{pk}", body)
    assert status == 400
    assert sentence.startswith(
        "max_slots must be a whole number between 0 and 2147483647, or none (in JSON null) for no limit."
    )
    assert cast.ada.get(f"experiments/{pk}")["experiment"]["config"] == before["config"]
    experiment = Experiment.objects.select_related("job").get(pk=pk)
    assert (experiment.name, experiment.labels, experiment.job.max_slots) == (before["name"], [], None)
    assert Event.objects.count() == events


def test_a_new_limit_of_slots_is_told_as_what_it_is(cast: Cast, submit: Submit) -> None:
    pk = submit()["id"]
    answer = cast.ada.patch(f"experiments/{pk}", {"resources": {"maxSlots": 2**31 - 1}})
    [notice] = answer["notices"]
    assert notice.endswith(": it may hold 2147483647 slots.")
    event = Event.objects.filter(kind=Event.Kind.JOB).latest("id")
    assert (event.reason, event.detail) == ("max_slots_set", {"max_slots": [None, 2**31 - 1]})


def test_labels_are_added_listed_and_removed(cast: Cast, submit: Submit) -> None:
    pk = submit()["id"]
    assert cast.ada.put(f"experiments/{pk}/labels/night run")["labels"] == ["night run"]
    assert cast.vic.get("experiment/labels")["labels"] == ["night run"]
    assert cast.ada.delete(f"experiments/{pk}/labels/night run")["labels"] == []
    assert cast.bob.refused("PUT", f"experiments/{pk}/labels/x")[0] == 403


def test_an_experiment_moves_to_another_project(cast: Cast, submit: Submit) -> None:
    workspace = Workspace.objects.create(name="lab")
    project = cast.admin.post(f"workspaces/{workspace.pk}/projects", {"name": "vision"})["project"]
    pk = submit()["id"]
    cast.ada.post(f"experiments/{pk}/move", {"experimentId": pk, "destinationProjectId": project["id"]})
    assert cast.ada.get(f"experiments/{pk}")["experiment"]["projectName"] == "vision"
    assert cast.ada.refused("POST", f"experiments/{pk}/move", {"destinationProjectId": 99})[0] == 404


def test_reading_what_is_not_there_is_404_and_strangers_read_nothing(cast: Cast) -> None:
    for path in ("", "/trials", "/checkpoints", "/model_def", "/file_tree", "/validation-history"):
        assert cast.vic.refused("GET", f"experiments/99{path}")[0] == 404
        assert cast.stranger.refused("GET", f"experiments/99{path}")[0] == 401


def test_without_a_validation_there_is_no_best_metric(cast: Cast, submit: Submit) -> None:
    pk = submit()["id"]
    assert cast.vic.refused("GET", f"experiments/{pk}/searcher/best_searcher_validation_metric")[0] == 404
    assert cast.vic.get(f"experiments/{pk}/validation-history")["validationHistory"] == []


def test_a_run_reads_its_own_experiment_alone(
    cast: Cast, submit: Submit, running: tuple[object, object, Api]
) -> None:
    own = Experiment.objects.get()
    run = running[2]
    assert run.get(f"experiments/{own.pk}")["experiment"]["id"] == own.pk
    other = submit(by=cast.bob)["id"]
    assert run.refused("GET", f"experiments/{other}")[0] == 404
    assert run.refused("GET", "experiments")[0] == 403
    assert run.refused("POST", f"experiments/{own.pk}/kill")[0] == 403


def test_hyperparameters_come_back_by_name(cast: Cast, submit: Submit) -> None:
    given = (
        "hyperparameters: {width: 8, lr: 0.1, augment: {noise: 1, flip: true, crop_sizes: [3, 1, 2]}, b: 2}"
    )
    pk = submit(config=CONFIG.replace("hyperparameters: {lr: 0.1}", given))["id"]
    answer = cast.vic.get(f"experiments/{pk}")
    trial = cast.vic.get(f"experiments/{pk}/trials")["trials"][0]
    places = (answer["config"]["hyperparameters"], answer["experiment"]["hyperparameters"], trial["hparams"])
    for found in places:
        assert list(found) == ["augment", "b", "lr", "width"]
        assert list(found["augment"]) == ["crop_sizes", "flip", "noise"]
    assert trial["hparams"]["augment"]["crop_sizes"] == [3, 1, 2]


def test_lists_sorted_by_state_follow_the_words_that_are_shown(cast: Cast, submit: Submit) -> None:
    found = [submit(name=str(at))["id"] for at in range(4)]
    for pk, state in zip(found, ("CANCELED", "ACTIVE", "PAUSED", "COMPLETED"), strict=True):
        Experiment.objects.filter(pk=pk).update(state=state)
        Trial.objects.filter(experiment=pk).update(state=state)
    rows = cast.vic.get("experiments?sortBy=SORT_BY_STATE&orderBy=ORDER_BY_ASC")["experiments"]
    shown = [row["state"] for row in rows]
    assert shown == ["STATE_CANCELED", "STATE_COMPLETED", "STATE_PAUSED", "STATE_QUEUED"]
    rows = cast.vic.get("experiments?sortBy=SORT_BY_STATE&orderBy=ORDER_BY_DESC")["experiments"]
    assert [row["state"] for row in rows] == shown[::-1]
    browser = Client()
    browser.force_login(User.objects.get(username="vic"))
    page = browser.get("/experiments?sort=state").content.decode()
    places = [page.index(f'href="/experiments/{pk}"') for pk in (found[0], found[3], found[2], found[1])]
    assert places == sorted(places)


def test_a_legacy_entrypoint_says_which_launcher_it_takes(cast: Cast, submit: Submit) -> None:
    config = CONFIG.replace("entrypoint: python3 train.py", "entrypoint: model_def:Digits")
    said = "`python3 -m determined.launch.torch_distributed --trial model_def:Digits`"
    answer = cast.ada.post("experiments", {"config": config})
    assert [each for each in answer["notices"] if said in each]
    own = config + "environment: {sdk: installed}\ncheckpoint_storage: {type: shared_fs, host_path: /x}\n"
    assert not any(said in each for each in cast.ada.post("experiments", {"config": own})["notices"])

"""Forms that are found in old configs, and what is said of fields that do nothing here."""

from __future__ import annotations

import re

import pytest

from experiments.config import ConfigError, ExperimentConfig, check_template, merge, parse, schema
from trainmaster import yamltext

GOOD = "entrypoint: python3 train.py\nsearcher: {name: single, metric: loss, max_length: {batches: 10}}\n"


def faults(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return str(caught.value)


def test_what_is_kept_may_be_said_without_a_kind_of_storage() -> None:
    kept = "checkpoint_storage: {save_trial_latest: 3}\n"
    assert parse(GOOD + kept).checkpoint_storage.type == "server"
    template = check_template("checkpoint_storage: {type: shared_fs, host_path: /mnt}")
    storage = parse(GOOD + kept, template=template).effective()["checkpoint_storage"]
    assert (storage["type"], storage["host_path"], storage["save_trial_latest"]) == ("shared_fs", "/mnt", 3)
    assert "one of server" in faults(GOOD + "checkpoint_storage: {type: hdfs}")


@pytest.mark.parametrize(
    ("older", "batches", "unit", "period"),
    [
        ("searcher: {name: single, metric: m, max_steps: 20}\nmin_validation_period: 2", 2000, 100, 200),
        (
            "batches_per_step: 8\nsearcher: {name: single, metric: m, max_steps: 20}\nmin_validation_period: 2",
            160,
            8,
            16,
        ),
        ("searcher: {name: single, metric: m, max_length: 20}\nmin_validation_period: 2", 20, 100, 2),
    ],
)
def test_what_is_counted_in_steps_becomes_batches(older: str, batches: int, unit: int, period: int) -> None:
    config = parse("entrypoint: model_def:Trial\n" + older)
    effective = config.effective()
    length = effective["searcher"]["max_length"]
    assert length in (batches, {"batches": batches})
    assert (effective["scheduling_unit"], effective["min_validation_period"]) == (unit, {"batches": period})
    assert "max_steps" not in effective["searcher"] and "batches_per_step" not in effective
    assert any("max_steps" in remark for remark in config.remarks()) is ("max_steps" in older)
    halving = "entrypoint: x\nsearcher: {name: adaptive_asha, metric: m, max_trials: 4, max_steps: 5}"
    assert parse(halving).effective()["searcher"]["max_length"] == {"batches": 500}


def test_steps_that_are_wrong_are_named_where_they_stand() -> None:
    start = "entrypoint: x\nsearcher: {name: single, metric: m, "
    assert "<config>.searcher.max_steps: found 0, allowed: 1 or more" in faults(start + "max_steps: 0}")
    assert "found max_steps and max_length" in faults(start + "max_steps: 1, max_length: 1}")
    assert "<config>.min_checkpoint_period" in faults(
        start + "max_steps: 1}\nmin_checkpoint_period: 2147483647"
    )
    assert "2147483647 batches" in faults(start + "max_steps: 2147483647}")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("slots_per_trial: 2", "did you mean resources.slots_per_trial?"),
        ("resource_pool: a", "did you mean resources.resource_pool?"),
        ("environment: {hook: {}}", "did you mean hooks?"),
        ("checkpoint_policy: bets", "did you mean best?"),
        ("environment: {activate: source ~/venv/bin/activate}", "a script to source"),
        ("profiling: {enable: true}", "did you mean enabled?"),
        ("resources: {shm_size: 1 gi}", "a memory size"),
        ("log_policies: [{pattern: x}]", "a name or, in the older form"),
        (
            "checkpoint_storage: {type: azure, container: c, connection_string: s, credential: k}",
            "either connection_string or credential",
        ),
    ],
)
def test_a_fault_says_what_is_allowed_and_what_is_near(wrong: str, sentence: str) -> None:
    assert sentence in faults(GOOD + wrong)


@pytest.mark.parametrize(
    "section",
    [
        *(
            "resources: {}",
            "environment: {}",
            "environment: {hooks: {}}",
            "profiling: {}",
            "optimizations: {}",
        ),
        *("checkpoint_storage: {type: server}", "checkpoint_storage: {type: s3, bucket: b}"),
        *(f"searcher: {{name: {name}, metric: m}}" for name in ("single", "grid", "custom", "async_halving")),
    ],
)
def test_a_hint_never_repeats_the_refused_word(section: str) -> None:
    definitions = schema.of_config()["$defs"].values()
    known = {name for part in definitions for name in part.get("properties", {})}
    for name in known:
        config = yamltext.load(GOOD + section) if "searcher" not in section else yamltext.load(section)
        path, inner = [], config
        for path_step in re.findall(r"(\w+): {", section):
            path, inner = [*path, path_step], inner[path_step]
        if name in inner or name == "pod_spec":  # which may have any field
            continue
        inner[name] = {"no": "field"}
        hint = faults(yamltext.dump(config))
        near = [word for found in re.findall(r"did you mean ([^?]*)\?", hint) for word in found.split(" or ")]
        assert ".".join([*path, name]) not in near and name not in near, hint


def test_a_field_of_another_kind_names_those_that_have_it() -> None:
    grid = "entrypoint: x\nsearcher: {name: grid, metric: m, max_trials: 2}\n"
    assert "(max_trials is a field of random, adaptive_asha and async_halving)" in faults(grid)
    assert "(host_path is a field of shared_fs)" in faults(
        GOOD + "checkpoint_storage: {type: server, host_path: /x}"
    )


@pytest.mark.parametrize(
    "contradiction",
    [
        "hyperparameters: {lr: {type: double, minval: 2, maxval: 1}}",
        "profiling: {begin_on_batch: 2, end_after_batch: 1}",
        "checkpoint_storage: {type: shared_fs, host_path: /mnt, storage_path: ../x}",
        "min_validation_period: {batches: 1, epochs: 1}",
        "environment: {python: /a, activate: /b}",
    ],
)
def test_a_template_may_not_contradict_itself(contradiction: str) -> None:
    with pytest.raises(ConfigError, match="invalid template: <config>"):
        check_template(contradiction)


def test_a_template_may_lack_what_a_config_needs() -> None:
    whole = "searcher: {name: grid, metric: m}\nhyperparameters: {n: {type: int, minval: 1, maxval: 2}}\nproject: p\n"
    template = check_template(whole + "checkpoint_storage: {type: s3, bucket: b, access_key: a}")
    assert template["project"] == "p"


def test_a_template_may_have_fields_of_tasks_which_experiments_leave_out() -> None:
    template = check_template(
        "{work_dir: /srv, idle_timeout: 30m, notebook_idle_type: activity, max_restarts: 1}"
    )
    found = parse(GOOD, template=template).effective()
    assert found["max_restarts"] == 1 and "work_dir" not in found
    with pytest.raises(ConfigError, match='notebook_idle_type: found "never"'):
        check_template("notebook_idle_type: never")
    assert "work_dir: found an unknown field" in faults(GOOD + "work_dir: /srv")


def test_what_does_nothing_here_is_said_once_with_its_reason() -> None:
    text = """
environment: {add_capabilities: [SYS_PTRACE], pod_spec: {spec: {}}, proxy_ports: [{proxy_port: 80}]}
resources: {slots: 4, shm_size: 4g, devices: ["/dev/a:/dev/a"], agent_label: big, native_parallel: true}
bind_mounts: ["/data:/data"]
records_per_epoch: 60000
optimizations: {mixed_precision: O1, tensor_fusion_threshold: 128}
checkpoint_storage: {type: shared_fs, host_path: /mnt, container_path: /x}
pbs: {pbsbatch_args: [-V]}
integrations: {webhooks: {webhook_id: [1]}, pachyderm: {dataset: {repo: r}}}
"""
    remarks = parse(GOOD + text).remarks()
    named = {remark.partition(" has no effect")[0] for remark in remarks}
    of_jobs = {f"environment.{name}" for name in ("add_capabilities", "pod_spec", "proxy_ports")}
    of_jobs |= {f"resources.{name}" for name in ("shm_size", "devices", "agent_label", "native_parallel")}
    own = {
        "resources.slots",
        "records_per_epoch",
        "checkpoint_storage.container_path",
        "pbs",
        "integrations.pachyderm",
    }
    own |= {"optimizations.mixed_precision", "optimizations.tensor_fusion_threshold"}
    assert named == {*of_jobs, *own} and len(remarks) == len(named)
    assert all(remark.endswith(".") and len(remark) > 40 for remark in remarks)


def test_what_only_a_container_has_needs_an_image_of_ones_own() -> None:
    config = GOOD + "resources: {shm_size: 4g}\nbind_mounts: [/data:/in]\n"
    without = parse(config + "environment: {add_capabilities: [A]}").remarks()
    paths = ["environment.add_capabilities", "resources.shm_size"]
    assert [remark.partition(" has")[0] for remark in without] == paths
    assert all("unless environment.image names your own image" in remark for remark in without)
    [of_image] = parse(f"{config}environment: {{image: team/train:1, add_capabilities: [A]}}").remarks()
    assert of_image.startswith(
        "environment.image, environment.add_capabilities and resources.shm_size have no effect on hosts without podman"
    )
    [of_image] = parse(f"{GOOD}environment: {{image: team/train:1}}").remarks()
    assert of_image.startswith("environment.image has no effect on hosts without podman, docker or apptainer")
    determined = parse(f"{config}environment: {{image: determinedai/x:1, add_capabilities: [A]}}").remarks()
    assert determined[0].startswith("environment.image has no effect: determinedai/x:1 is")
    assert determined[1:] == without


def test_a_config_of_defaults_gets_no_remarks() -> None:
    config = parse(GOOD)
    assert config.remarks() == []
    assert ExperimentConfig.model_validate(config.effective()).remarks() == []


def test_the_hosts_own_package_reads_its_optimizations_itself() -> None:
    text = "environment: {sdk: installed}\ncheckpoint_storage: {type: directory, container_path: /kept}\n"
    assert parse(GOOD + text + "optimizations: {mixed_precision: O1}\nrecords_per_epoch: 9").remarks() == []


def test_hooks_are_one_value_each() -> None:
    template = {"environment": {"hooks": {"pre": ["a", "b"], "timeout_seconds": 5}}}
    merged = merge(template, {"environment": {"hooks": {"pre": ["c"], "post": "d"}}})
    assert merged == {"environment": {"hooks": {"pre": ["c"], "post": "d", "timeout_seconds": 5}}}


def test_the_older_name_of_a_kind_of_slot_does_not_stand_beside_the_newer() -> None:
    assert "either cuda or gpu (its older name), not both" in faults(
        GOOD + "environment: {image: {cuda: a, gpu: b}}"
    )


def test_what_is_asked_of_slurm_is_kept() -> None:
    given = parse(
        GOOD + "slurm: {sbatch_args: [--constraint=ib], gpu_type: a100, slots_per_node: 4}"
    ).effective()
    assert given["slurm"] == {"sbatch_args": ["--constraint=ib"], "slots_per_node": 4, "gpu_type": "a100"}
    assert "slurm" not in parse(GOOD).effective()
    # one for Determined is kept as it is: pools of hosts take it, and a Slurm pool says what is wrong
    theirs = parse(GOOD + "slurm: {sbatch_args: [--time=1:00:00], rendezvous: x}").effective()
    assert theirs["slurm"] == {"sbatch_args": ["--time=1:00:00"], "rendezvous": "x"}

"""The JSON Schemas that editors get agree with what a submission accepts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments.config import ConfigError, ExperimentConfig, check, check_template, schema
from experiments.config.model import TemplateConfig
from trainmaster import yamltext

ROOT = Path(__file__).resolve().parents[3]
CONFIGS = jsonschema.Draft7Validator(schema.of_config())
TEMPLATES = jsonschema.Draft7Validator(schema.of_template())
GOOD: dict[str, Any] = {"entrypoint": "x", "searcher": {"name": "single", "metric": "m", "max_length": 9}}
#: one of each form that somebody may write
FORMS = """
- {description: null, labels: null, name: n, resources: null, environment: {}}
- {entrypoint: [python3, train.py]}
- {checkpoint_storage: {save_trial_best: 2}}
- {checkpoint_storage: {type: s3, bucket: b, prefix: a/b, endpoint_url: "http://10.0.0.1:9000"}}
- {checkpoint_storage: {type: azure, container: c, connection_string: s}}
- {min_validation_period: 5, min_checkpoint_period: {epochs: 2}}
- {searcher: {name: random, metric: m, max_trials: 3, max_steps: 2}, batches_per_step: 10}
- searcher: {name: adaptive_asha, metric: m, max_trials: 3, max_length: {records: 9}, mode: aggressive, divisor: 2.5}
- {searcher: {name: grid, metric: m, max_length: 1.0e+3}}
- searcher: {name: single, metric: m, source_checkpoint_uuid: 11111111-2222-3333-4444-555555555555}
- {hyperparameters: {lr: 0.1, n: [1, 2], none: null, deep: {a: {type: int, minval: 1, maxval: 3}, b: x}}}
- {hyperparameters: {a: {type: log, base: 10, minval: -3, maxval: -1}, b: {type: categorical, vals: [1, null]}}}
- {hyperparameters: {a: {type: const, val: null}, b: {type: double, minval: 0, maxval: 1.5, count: 3}}}
- {environment: {environment_variables: [A=1]}}
- {environment: {environment_variables: {gpu: [A=1], cpu: {B: 2, C: true, D: x}}}}
- {environment: {image: {gpu: a, cpu: b}, hooks: {pre: [a, b], post: c, timeout_seconds: 5}, ports: {a: 80}}}
- {environment: {image: some/image, registry_auth: {username: u, password: p}, pod_spec: {spec: {}}}}
- {bind_mounts: ["/a:/b:ro", "/a:b", {host_path: /a, container_path: b, read_only: true}]}
- {resources: {devices: ["/a:/b", "/a:/b:r"], shm_size: .5g, max_time: 1h30m, priority: 1, weight: 0.5, slots: 2}}
- {resources: {shm_size: 4294967296, max_time: 90, devices: [{host_path: /a, container_path: /b}]}}
- {log_policies: [{name: a, pattern: x}, {pattern: y, action: {type: exclude_node}}]}
- {log_policies: [{pattern: x, action: cancel_retries}, {pattern: y, action: [exclude_node, cancel_retries]}]}
- {log_policies: [{name: a}, {pattern: x, actions: [cancel_retries, {signal: label}]}]}
- {hang: {after: 15m, do: restart_elsewhere}}
- {hang: {after: 900}}
- {slurm: {gpu_type: [], partition: a}}
- {retention_policy: {log_retention_days: -1}, slurm: {gpu_type: a}, integrations: {webhooks: {exclude: true}}}
"""
WRONG = """
- {tyop: 1}
- {entrypoint: ""}
- {entrypoint: []}
- {searcher: {name: single}}
- {searcher: {name: sigle, metric: m}}
- {searcher: {name: random, metric: m, max_trials: 0}}
- {searcher: {name: single, metric: m, max_trials: 1}}
- {searcher: {name: single, metric: m, max_length: 0}}
- {searcher: {name: single, metric: m, max_length: {batches: 1, epochs: 1}}}
- {searcher: {name: single, metric: m, max_length: {hours: 1}}}
- {max_restarts: -1}
- {max_restarts: 1.5}
- {max_restarts: "5"}
- {labels: a}
- {resources: {slots_per_trial: -1}}
- {resources: {priority: 100}}
- {resources: {weight: 0}}
- {resources: {shm_size: 1 gi}}
- {resources: {max_time: 0}}
- {resources: {max_time: ""}}
- {resources: {devices: ["/a"]}}
- {bind_mounts: ["a:/b"]}
- {bind_mounts: [{host_path: a, container_path: /b}]}
- {bind_mounts: [{host_path: /a, container_path: .}]}
- {environment: {environment_variables: ["A B=1"]}}
- {environment: {environment_variables: {A: 1}}}
- {environment: {hooks: {during: x}}}
- {environment: {hooks: {pre: x, timeout_seconds: 0}}}
- {environment: {sdk: other}}
- {hyperparameters: {a: {type: integer}}}
- {hyperparameters: {a: {type: int, minval: 1}}}
- {hyperparameters: {a: {b: {type: int, minval: 1, maxval: 2, tyop: 3}}}}
- {checkpoint_storage: {type: hdfs}}
- {checkpoint_storage: {type: shared_fs}}
- {checkpoint_storage: {type: s3, bucket: b, prefix: a/../b}}
- {checkpoint_storage: {type: s3, bucket: b, endpoint_url: example.com}}
- {log_policies: [{pattern: x, action: run}]}
- {min_validation_period: {batches: -1}}
- {retention_policy: {log_retention_days: 40000}}
- {hang: {after: soon}}
- {hang: {do: kill}}
- {hang: restart}
- {reproducibility: {experiment_seed: -1}}
"""


def accepted(config: dict[str, Any]) -> bool:
    try:
        check(config)
    except ConfigError:
        return False
    return True


def faults(validator: jsonschema.Draft7Validator, config: object) -> list[str]:
    return [error.message for error in validator.iter_errors(config)]


def test_the_schemas_are_schemas_and_name_every_field() -> None:
    for found, model in ((schema.of_config(), ExperimentConfig), (schema.of_template(), TemplateConfig)):
        jsonschema.Draft7Validator.check_schema(found)
        assert set(found["properties"]) == set(model.model_fields)
        assert all(field.get("description") for field in found["properties"].values())
    assert CONFIGS.schema["required"] == ["entrypoint", "searcher"]


def test_each_form_is_good_for_both() -> None:
    for form in yaml.safe_load(FORMS):
        config = {**GOOD, **form}
        assert accepted(config), form
        assert faults(CONFIGS, config) == []
        assert faults(TEMPLATES, form) == []


def test_each_fault_is_one_for_both() -> None:
    for wrong in yaml.safe_load(WRONG):
        config = {**GOOD, **wrong}
        assert not accepted(config), wrong
        assert faults(CONFIGS, config), wrong


def test_the_configs_of_the_examples_are_good_for_editors() -> None:
    files = sorted((ROOT / "examples").rglob("*.yaml"))
    assert files
    for file in files:
        assert faults(CONFIGS, yamltext.load(file.read_text())) == [], file


def test_an_effective_config_and_a_template_are_good_for_editors() -> None:
    assert faults(CONFIGS, check(GOOD).effective()) == []
    for part in ({}, {"searcher": {"metric": "m"}}, {"checkpoint_storage": {"type": "s3"}}):
        check_template(yamltext.dump(part) if part else "{}")
        assert faults(TEMPLATES, part) == []
    assert faults(TEMPLATES, {"template": "other"})


scalars = st.none() | st.booleans() | st.integers(-2, 120) | st.sampled_from([0.5, 2.0, "", "a", "4g", "/a"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
NAMES = sorted(set(ExperimentConfig.model_fields) - {"searcher"})


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_editor_complains_of_what_is_accepted(data: st.DataObject) -> None:
    config = dict(GOOD)
    for name in data.draw(st.lists(st.sampled_from(NAMES), max_size=2)):
        kinds = CONFIGS.schema["properties"][name].get("anyOf", [])
        models = [kind["$ref"].rpartition("/")[2] for kind in kinds if "$ref" in kind]
        fields = sorted(CONFIGS.schema["$defs"][models[0]].get("properties", {})) if models else []
        inner = st.dictionaries(st.sampled_from(fields), values, max_size=3) if fields else values
        config[name] = data.draw(inner)
    if accepted(config):
        assert faults(CONFIGS, config) == []

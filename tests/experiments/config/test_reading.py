"""What a config may hold, what it becomes, and what is said when it is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments import runs
from experiments.config import ConfigError, ExperimentConfig, check_template, older_forms, parse
from submissions.config.environment import variables

GOOD = "entrypoint: python3 train.py\nsearcher: {name: single, metric: loss, max_length: {batches: 10}}\n"


def problems_of(text: str, *overrides: str) -> dict[str, tuple[str, str]]:
    with pytest.raises(ConfigError) as caught:
        parse(text, overrides)
    return {problem.path: (problem.found, problem.allowed) for problem in caught.value.problems}


def test_the_smallest_config_gets_every_default() -> None:
    config = parse(GOOD).effective()
    assert config["max_restarts"] == 5
    assert config["resources"]["slots_per_trial"] == 1
    assert config["searcher"]["max_length"] == {"batches": 10}
    assert config["checkpoint_storage"] == {
        "type": "server",
        "save_experiment_best": 0,
        "save_trial_best": 1,
        "save_trial_latest": 1,
    }
    assert config["min_validation_period"] == {"batches": 0}
    assert config["scheduling_unit"] == 100
    assert config["environment"]["sdk"] == "trainmaster"
    assert config["preemptible"] is True
    assert config["profiling"] == {
        "enabled": False,
        "begin_on_batch": 0,
        "end_after_batch": None,
        "sync_timings": True,
        "sampling_interval": None,
    }
    assert config["name"].startswith("Experiment (")


def test_the_effective_config_reads_back_as_itself() -> None:
    config = parse(
        GOOD + "hyperparameters: {lr: 1e-3, n: {size: {type: int, minval: 1, maxval: 3}}}\n"
    ).effective()
    assert parse(json.dumps(config)).effective() == config


def test_whole_numbers_are_within_what_can_be_stored() -> None:
    assert parse(GOOD, ["resources.max_slots=2147483647"]).resources.max_slots == 2**31 - 1
    for field in ("resources.max_slots", "resources.slots_per_trial", "max_restarts", "scheduling_unit"):
        assert problems_of(GOOD, f"{field}=2147483648") == {
            f"<config>.{field}": ("2147483648", "2147483647 or less")
        }


def test_all_faults_are_reported_at_once_with_path_found_and_allowed() -> None:
    text = """
name: 3
resources: {slots_per_trial: -1, priority: 100, weight: 0, slots: -2}
searcher: {name: single}
environment: {python: a, activate: b}
"""
    assert problems_of(text) == {
        "<config>.name": ("3", "text"),
        "<config>.resources.slots_per_trial": ("-1", "0 or more"),
        "<config>.resources.priority": ("100", "a whole number from 1 (highest) to 99"),
        "<config>.resources.weight": ("0", "a number greater than 0"),
        "<config>.resources.slots": ("-2", "0 or more"),
        "<config>.searcher.metric": ("nothing", "a value"),
        "<config>.entrypoint": ("nothing", "a command that starts the training, such as python3 train.py"),
        "<config>.environment": ("python and activate", "either python or activate, not both"),
    }


@pytest.mark.parametrize(
    ("path", "yaml"),
    [
        ("", "tyop: 1"),
        (".resources", "resources: {tyop: 1}"),
        (".resources.devices[0]", "resources: {devices: [{host_path: /a, container_path: /b, tyop: 1}]}"),
        (".environment", "environment: {tyop: 1}"),
        (".environment.registry_auth", "environment: {registry_auth: {tyop: 1}}"),
        (".environment.proxy_ports[0]", "environment: {proxy_ports: [{proxy_port: 1, tyop: 1}]}"),
        (".bind_mounts[0]", "bind_mounts: [{host_path: /a, container_path: b, tyop: 1}]"),
        (".checkpoint_storage", "checkpoint_storage: {type: server, tyop: 1}"),
        (".hyperparameters.a.b", "hyperparameters: {a: {b: {type: const, val: 1, tyop: 1}}}"),
        (".log_policies[0]", "log_policies: [{pattern: x, action: exclude_node, tyop: 1}]"),
        (".profiling", "profiling: {tyop: 1}"),
        (".optimizations", "optimizations: {tyop: 1}"),
        (".reproducibility", "reproducibility: {tyop: 1}"),
        (".retention_policy", "retention_policy: {tyop: 1}"),
        (".min_validation_period", "min_validation_period: {batches: 1, tyop: 1}"),
    ],
)
def test_an_unknown_field_is_refused_at_every_level(path: str, yaml: str) -> None:
    found = problems_of(GOOD + yaml)
    assert found[f"<config>{path}.tyop"][0] == "an unknown field"
    assert len(found) == 1


def test_profiling_may_not_end_before_it_begins() -> None:
    found = problems_of(GOOD + "profiling: {enabled: true, begin_on_batch: 9, end_after_batch: 5}")
    allowed = "at most 5: begin_on_batch must be less than end_after_batch"
    assert found == {"<config>.profiling.begin_on_batch": ("9", allowed)}
    equal = parse(GOOD + "profiling: {begin_on_batch: 5, end_after_batch: 5}").effective()["profiling"]
    assert equal["begin_on_batch"] == equal["end_after_batch"] == 5


@pytest.mark.parametrize(
    ("interval", "allowed"),
    [("0", "0.1 or more"), ("-1", "0.1 or more"), ("1e9", "3600 or less"), ("often", "a number")],
)
def test_an_interval_of_samples_that_makes_no_sense_is_refused(interval: str, allowed: str) -> None:
    (problem,) = problems_of(GOOD + f"profiling: {{sampling_interval: {interval}}}").items()
    assert problem[0] == "<config>.profiling.sampling_interval" and allowed in problem[1][1]
    assert parse(GOOD + "profiling: {sampling_interval: 0.1}").profiling.sampling_interval == 0.1


@pytest.mark.parametrize("written", ["s3.example.com", "s3://bucket", "http://", "http://x:99999"])
def test_an_endpoint_of_s3_is_an_address(written: str) -> None:
    section = "checkpoint_storage: {{type: s3, bucket: b, endpoint_url: '{}'}}"
    (problem,) = problems_of(GOOD + section.format(written)).items()
    assert problem[0].endswith("endpoint_url") and "such as https://" in problem[1][1]
    parse(GOOD + section.format("http://10.0.0.1:9000"))


def test_an_unknown_field_of_a_searcher_names_the_near_one() -> None:
    found, allowed = problems_of(
        "entrypoint: x\nsearcher: {name: random, metric: m, max_trials: 1, max_trails: 2}"
    )["<config>.searcher.max_trails"]
    assert found == "an unknown field"
    assert "did you mean max_trials?" in allowed


@pytest.mark.parametrize(
    ("yaml", "path"),
    [
        ("searcher: {name: random, metric: m}", ".searcher.max_trials"),
        ("searcher: {name: random, metric: m, max_trials: 0}", ".searcher.max_trials"),
        ("searcher: {name: adaptive_asha, metric: m, max_trials: 4}", ".searcher"),
        ("searcher: {name: adaptive_asha, metric: m, max_trials: 4, time_metric: t}", ".searcher"),
        (
            "searcher: {name: adaptive_asha, metric: m, max_trials: 4, max_length: 9, divisor: 1}",
            ".searcher.divisor",
        ),
        (
            "searcher: {name: adaptive_asha, metric: m, max_trials: 4, max_length: 9, mode: x}",
            ".searcher.mode",
        ),
        ("searcher: {name: async_halving, metric: m, max_trials: 4, max_length: 9}", ".searcher.num_rungs"),
        ("searcher: {name: single, metric: m, max_length: 0}", ".searcher.max_length"),
        ("searcher: {name: single, metric: m, max_length: 1.5}", ".searcher.max_length"),
        ("searcher: {name: single, metric: m, max_length: {batches: 1, epochs: 1}}", ".searcher.max_length"),
        ("searcher: {name: single, metric: m, max_length: {hours: 1}}", ".searcher.max_length.hours"),
        (
            "searcher: {name: single, metric: m, source_checkpoint_uuid: x}",
            ".searcher.source_checkpoint_uuid",
        ),
        ("searcher: {metric: m}", ".searcher.name"),
        ("searcher: {name: sigle, metric: m}", ".searcher.name"),
        ("searcher: 3", ".searcher"),
        ("{}", ".searcher"),
    ],
)
def test_each_searcher_checks_its_own_parameters(yaml: str, path: str) -> None:
    text = "entrypoint: x\n" + (yaml if yaml != "{}" else "")
    assert f"<config>{path}" in problems_of(text)


@pytest.mark.parametrize("name", ["sync_halving", "adaptive", "adaptive_simple", "pbt"])
def test_an_ended_searcher_says_that_it_has_ended(name: str) -> None:
    allowed = problems_of(f"entrypoint: x\nsearcher: {{name: {name}, metric: m}}")["<config>.searcher.name"][
        1
    ]
    assert "was removed" in allowed


def test_a_grid_needs_a_count_for_each_range_at_any_depth() -> None:
    text = """
entrypoint: x
searcher: {name: grid, metric: m}
hyperparameters:
  a: {type: int, minval: 1, maxval: 3}
  b: {c: {type: log, base: 10, minval: -3, maxval: -1}}
  d: {type: categorical, vals: [1, 2]}
"""
    assert set(problems_of(text)) == {
        "<config>.hyperparameters.a.count",
        "<config>.hyperparameters.b.c.count",
    }


@pytest.mark.parametrize(
    ("yaml", "path"),
    [
        ("{type: intt}", ".type"),
        ("{type: int, minval: 3, maxval: 3}", ".minval"),
        ("{type: int, minval: 1.5, maxval: 3}", ".minval"),
        ("{type: double, minval: 1}", ".maxval"),
        ("{type: log, base: 0, minval: 1, maxval: 2}", ".base"),
        ("{type: categorical, vals: []}", ".vals"),
        ("{type: const}", ".val"),
    ],
)
def test_a_wrong_hyperparameter_is_named(yaml: str, path: str) -> None:
    assert f"<config>.hyperparameters.a{path}" in problems_of(GOOD + f"hyperparameters: {{a: {yaml}}}")


def test_bare_hyperparameters_are_constants_and_maps_nest() -> None:
    text = (
        GOOD
        + "hyperparameters: {lr: 1e-3, layers: [1, 2], on: null, "
        + "opt: {name: adam, x: {type: const, val: null}}}"
    )
    assert parse(text).effective()["hyperparameters"] == {
        "lr": {"type": "const", "val": 0.001},
        "layers": {"type": "const", "val": [1, 2]},
        "on": {"type": "const", "val": None},
        "opt": {"name": {"type": "const", "val": "adam"}, "x": {"type": "const", "val": None}},
    }


def test_older_forms_become_the_present_ones() -> None:
    text = """
entrypoint: model_def:MnistTrial
searcher: {name: single, metric: loss, max_length: 1e3}
min_validation_period: 50
bind_mounts: ["/data:/mnt/data:ro", {host_path: /a, container_path: b}]
resources: {devices: ["/dev/x:/dev/y"], shm_size: 4g}
environment:
  environment_variables: {gpu: [A=1], cpu: {B: 2, C: true}}
  image: some/image
log_policies: [{pattern: "out of memory", action: {type: cancel_retries}}]
labels: [a, b, a]
"""
    config = parse(text)
    found = config.effective()
    assert (
        "torch_distributed --trial model_def:MnistTrial`" in older_forms.of_entrypoint(found["entrypoint"])[0]
    )
    assert older_forms.of_entrypoint("python3 a:b") == []
    assert runs.entrypoint(found)[-1] == "model_def:MnistTrial"
    assert found["searcher"]["max_length"] == 1000
    assert found["min_validation_period"] == {"batches": 50}
    assert found["bind_mounts"][0] == {
        "host_path": "/data",
        "container_path": "/mnt/data",
        "read_only": True,
        "propagation": "rprivate",
    }
    assert found["resources"]["devices"] == [
        {"host_path": "/dev/x", "container_path": "/dev/y", "mode": "mrw"}
    ]
    assert found["environment"]["environment_variables"] == {
        "cpu": ["B=2", "C=true"],
        "cuda": ["A=1"],
        "rocm": [],
    }
    assert found["log_policies"][-1]["action"] == "cancel_retries"
    assert found["labels"] == ["a", "b"]
    assert variables(found["environment"]["environment_variables"], "cuda") == {"A": "1"}
    assert any("environment.image" in remark for remark in config.remarks())


@pytest.mark.parametrize(
    "entrypoint", ["python3 -m determined.launch.torch_distributed train.py", "a b:c", ["a:B"]]
)
def test_a_command_is_not_taken_for_the_legacy_form(entrypoint: object) -> None:
    assert runs.entrypoint({"entrypoint": entrypoint}) == entrypoint


@pytest.mark.parametrize(
    ("section", "wrong"),
    [
        ("s3, bucket: b", None),
        ("s3, bucket: b, access_key: a, secret_key: s", None),
        ("s3, bucket: b, access_key: a", ".secret_key"),
        ("s3, bucket: b, prefix: a/../b", ".prefix"),
        ("gcs, bucket: b", None),
        ("azure, container: c", ""),
        ("azure, container: c, connection_string: s", None),
        ("azure, container: c, connection_string: s, account_url: u", ""),
    ],
)
def test_storage_in_clouds_is_addressed_in_full(section: str, wrong: str | None) -> None:
    text = GOOD + f"checkpoint_storage: {{type: {section}}}"
    if wrong is None:
        parse(text)
    else:
        assert f"<config>.checkpoint_storage{wrong}" in problems_of(text)


def test_shared_storage_stays_below_its_host_path() -> None:
    text = GOOD + "checkpoint_storage: {type: shared_fs, host_path: /mnt, storage_path: %s}"
    parse(text % "a/b")
    parse(text % "/mnt/a")
    for outside in ("../a", "/mntx", "/etc"):
        assert "<config>.checkpoint_storage.storage_path" in problems_of(text % outside)


def test_the_hosts_own_sdk_needs_a_storage_that_it_knows() -> None:
    own = GOOD + "environment: {sdk: installed}\n"
    found, allowed = problems_of(own)["<config>.checkpoint_storage.type"]
    assert "server" in found and "environment.sdk is installed" in allowed
    parse(own + "checkpoint_storage: {type: directory, container_path: /kept}\n")


def test_text_that_is_not_yaml_is_refused_with_line_and_column() -> None:
    assert "line 2, column 2" in problems_of("a: [1\nb: 2")["<config>"][0]
    assert "line 2, column 1" in problems_of("a: 1\na: 2")["<config>"][0]
    assert problems_of("")["<config>"] == ("an empty text", "a map")
    assert problems_of("- 1")["<config>"] == ("[1]", "a map")


def test_overrides_are_yaml_values_at_a_path() -> None:
    config = parse(
        GOOD, ["resources.slots_per_trial=2", "data.rate=1e-4", "labels=[a, b]", "name=a=b"]
    ).effective()
    assert config["resources"]["slots_per_trial"] == 2
    assert config["data"] == {"rate": 0.0001}
    assert config["labels"] == ["a", "b"]
    assert config["name"] == "a=b"
    assert "--config nonsense" in problems_of(GOOD, "nonsense")
    assert "--config entrypoint.x=1" in problems_of(GOOD, "entrypoint.x=1")


def test_a_secret_is_not_repeated_in_a_problem() -> None:
    for text in (
        "environment: {environment_variables: ['hunter2']}",
        "environment: {registry_auth: {password: [hunter2]}}",
        "environment: {environment_variables: {cuda: {A: [hunter2]}}}",
        "checkpoint_storage: {type: s3, bucket: b, secret_key: [hunter2]}",
    ):
        assert "hunter2" not in str(problems_of(GOOD + text))


def test_a_detached_experiment_needs_no_entrypoint() -> None:
    assert parse("searcher: {name: single, metric: x}", managed=False).entrypoint is None


def test_a_template_may_leave_anything_out_but_holds_nothing_wrong() -> None:
    assert check_template("searcher: {metric: x}") == {"searcher": {"metric": "x"}}
    with pytest.raises(ConfigError, match=r"invalid template: <config>\.resources\.priority: found 0"):
        check_template("resources: {priority: 0}")
    with pytest.raises(ConfigError, match="an unknown field"):
        check_template("template: other")


#: the first draw of text is slow on a busy machine
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@patient
@given(st.dictionaries(st.sampled_from(sorted(ExperimentConfig.model_fields)), json_values, max_size=6))
def test_any_values_give_a_config_or_named_problems(values: dict[str, object]) -> None:
    try:
        config = parse(json.dumps(values))
    except ConfigError as error:
        assert error.problems
        assert all(problem.path and problem.found and problem.allowed for problem in error.problems)
    else:
        assert parse(json.dumps(config.effective())).effective() == config.effective()


@patient
@given(st.text())
def test_any_text_gives_a_config_or_named_problems(text: str) -> None:
    try:
        parse(text)
    except ConfigError as error:
        assert error.problems


EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "examples").rglob("*.yaml"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_the_configs_of_the_examples_are_good(file: Path) -> None:
    parse(file.read_text())


def test_what_is_wrong_in_a_map_is_not_said_of_the_map_too() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("entrypoint: a\nsearcher: {name: single, metric: loss, max_length: {batches: '3'}}")
    assert [problem.path for problem in caught.value.problems] == ["<config>.searcher.max_length.batches"]

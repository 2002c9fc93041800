"""A template and a config become one: the promises of the documented merge."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments.config import ConfigError, check_template, merge, parse
from trainmaster import yamltext


def test_fields_of_both_are_kept_and_the_configs_scalar_wins() -> None:
    assert merge({"a": 1, "b": 1}, {"b": 2, "c": 2}) == {"a": 1, "b": 2, "c": 2}


def test_a_list_is_the_templates_entries_then_the_configs() -> None:
    assert merge({"data": {"l": [1, 2]}}, {"data": {"l": [2, 3]}}) == {"data": {"l": [1, 2, 2, 3]}}


def test_the_hosts_of_the_config_replace_those_of_the_template() -> None:
    template = {"resources": {"hosts": ["gpu1"]}}
    assert merge(template, {"resources": {"hosts": "gpu2"}}) == {"resources": {"hosts": "gpu2"}}
    config = "entrypoint: x\nsearcher: {name: single, metric: loss, max_length: 1}\n"
    assert parse(config, template=template).resources.hosts == ["gpu1"]
    for text, found in (("gpu2", ["gpu2"]), ("[gpu2, gpu3]", ["gpu2", "gpu3"]), ("[]", [])):
        hosts = f"resources: {{hosts: {text}}}"
        assert parse(f"{config}{hosts}", template=template).resources.hosts == found
    assert parse(config, ["resources.hosts=[gpu2,gpu3]"]).resources.hosts == ["gpu2", "gpu3"]
    with pytest.raises(ConfigError, match=r"resources\.hosts"):
        parse(f"{config}resources: {{hosts: [3]}}")


def test_a_null_counts_as_absent() -> None:
    assert merge({"name": "t"}, {"name": None}) == {"name": "t"}


def test_a_mount_of_the_template_gives_way_to_the_configs_at_the_same_container_path() -> None:
    template = {
        "bind_mounts": [{"host_path": "/t", "container_path": "/x"}, "/t:/y"],
        "resources": {"devices": ["/dev/a:/dev/x", "/dev/b:/dev/z"]},
    }
    config = {
        "bind_mounts": [{"host_path": "/c", "container_path": "/y"}],
        "resources": {"devices": [{"host_path": "/dev/c", "container_path": "/dev/x"}]},
    }
    assert merge(template, config) == {
        "bind_mounts": [
            {"host_path": "/t", "container_path": "/x"},
            {"host_path": "/c", "container_path": "/y"},
        ],
        "resources": {"devices": ["/dev/b:/dev/z", {"host_path": "/dev/c", "container_path": "/dev/x"}]},
    }


def test_a_place_in_the_container_is_the_same_however_it_is_written() -> None:
    merged = merge({"bind_mounts": ["/t:/x/", "/t:a/../b"]}, {"bind_mounts": ["/c:/x", "/d:b"]})
    assert merged == {"bind_mounts": ["/c:/x", "/d:b"]}


@pytest.mark.parametrize(
    ("template", "config", "both"),
    [
        ("a", "c", "c"),
        ({"cpu": "a", "cuda": "b"}, "c", "c"),
        ({"cpu": "a", "cuda": "b"}, {"cpu": "c"}, {"cpu": "c", "cuda": "b"}),
        ({"gpu": "b"}, {"cuda": "c", "cpu": None}, {"cuda": "c"}),
        ("a", {"gpu": "c"}, {"cpu": "a", "cuda": "c", "rocm": "a"}),
    ],
)
def test_an_image_is_merged_by_the_kind_of_slot(template: Any, config: Any, both: Any) -> None:
    merged = merge({"environment": {"image": template}}, {"environment": {"image": config}})
    assert merged == {"environment": {"image": both}}


def test_a_typed_hyperparameter_is_one_value_and_a_map_of_them_is_not() -> None:
    template = {
        "hyperparameters": {"lr": {"type": "double", "minval": 0, "maxval": 1}, "net": {"a": 1, "b": [1]}}
    }
    config = {"hyperparameters": {"lr": {"type": "const", "val": 3}, "net": {"b": [2]}}}
    assert merge(template, config)["hyperparameters"] == {
        "lr": {"type": "const", "val": 3},
        "net": {"a": 1, "b": [2]},
    }
    assert merge({"hyperparameters": {"x": {"y": 1}}}, {"hyperparameters": {"x": 2}})["hyperparameters"] == {
        "x": 2
    }


def test_entrypoint_lengths_and_the_searchers_lists_are_one_value() -> None:
    template = {
        "entrypoint": ["a", "b"],
        "searcher": {"name": "adaptive_asha", "bracket_rungs": [1, 2], "max_length": {"batches": 5}},
    }
    config = {
        "entrypoint": "c",
        "searcher": {"name": "adaptive_asha", "bracket_rungs": [3], "max_length": {"epochs": 2}},
    }
    assert merge(template, config) == config


def test_another_kind_of_searcher_or_storage_takes_only_what_it_knows() -> None:
    template = {
        "searcher": {"name": "random", "max_trials": 4, "metric": "m"},
        "checkpoint_storage": {"type": "s3", "bucket": "b", "save_trial_best": 3},
    }
    config = {"searcher": {"name": "single"}, "checkpoint_storage": {"type": "shared_fs", "host_path": "/x"}}
    assert merge(template, config) == {
        "searcher": {"metric": "m", "name": "single"},
        "checkpoint_storage": {"save_trial_best": 3, "type": "shared_fs", "host_path": "/x"},
    }


def test_variables_are_joined_template_first_whatever_their_form() -> None:
    def joined(template: object, config: object) -> object:
        def environment(value: object) -> dict[str, object]:
            return {"environment": {"environment_variables": value}}

        return merge(environment(template), environment(config))["environment"]["environment_variables"]

    assert joined(["A=1"], ["A=2"]) == ["A=1", "A=2"]
    assert joined(["A=1"], {"gpu": ["B=2"]}) == {"cpu": ["A=1"], "cuda": ["A=1", "B=2"], "rocm": ["A=1"]}
    typed = joined({"cuda": {"DEBUG": True, "N": 2}}, ["A=1"])
    assert typed == {"cpu": ["A=1"], "cuda": ["DEBUG=true", "N=2", "A=1"], "rocm": ["A=1"]}, (
        "as without a template"
    )
    wrong = {"cuda": {"X": None}}
    assert joined(["A=1"], wrong) == wrong == joined(wrong, ["A=1"]), "left for validation to refuse"


def test_kinds_that_cannot_be_joined_are_a_named_problem() -> None:
    with pytest.raises(
        ConfigError, match=r"<config>\.data\.a: found \[1\], allowed: a map, as in the template"
    ):
        merge({"data": {"a": {"b": 1}}}, {"data": {"a": [1]}})


def test_a_merged_config_is_checked_as_one() -> None:
    template = {"searcher": {"name": "single", "metric": "loss"}, "resources": {"priority": 50}}
    config = parse("entrypoint: x\nresources: {slots_per_trial: 2}", template=template).effective()
    assert config["resources"]["priority"] == 50
    assert config["resources"]["slots_per_trial"] == 2


def test_the_split_of_the_documented_example_gives_the_whole_again() -> None:
    """Shared storage in a template, and a config that names only what is its own."""
    template = check_template(
        "description: template-tf-gpu\ncheckpoint_storage: {type: s3, access_key: my-access-key, "
        "secret_key: my-secret-key, bucket: my-bucket-name}\n"
    )
    config = {
        "description": "mnist_tf_const",
        "entrypoint": "model_def:MNISTTrial",
        "data": {"training_data": "train-images-idx3-ubyte.gz"},
        "hyperparameters": {"base_learning_rate": 0.001, "global_batch_size": 64},
        "searcher": {
            "name": "single",
            "metric": "error",
            "max_length": {"batches": 500},
            "smaller_is_better": True,
        },
    }
    merged = merge(template, config)
    assert merged == {**config, "checkpoint_storage": template["checkpoint_storage"]}
    assert (
        parse(yamltext.dump(config), template=template).effective()["checkpoint_storage"]["bucket"]
        == "my-bucket-name"
    )
    with pytest.raises(ConfigError, match=r"<config>\.template: found an unknown field"):
        check_template("template: another")


#: a shared machine may be slow
ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

maps = st.recursive(
    st.integers() | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=10,
)


@ANY_SPEED
@given(st.dictionaries(st.sampled_from("abc"), maps))
def test_merging_with_nothing_changes_nothing(config: dict[str, object]) -> None:
    before = repr(config)
    assert merge({}, config) == config == merge(config, {})
    assert repr(config) == before


@ANY_SPEED
@given(st.dictionaries(st.sampled_from("abc"), maps), st.dictionaries(st.sampled_from("abc"), maps))
def test_every_field_of_both_is_in_the_result(template: dict[str, object], config: dict[str, object]) -> None:
    try:
        assert set(merge(template, config)) == {*template, *config}
    except ConfigError as error:
        assert "as in the template" in str(error)

"""`--config path.to.field=VALUE`, as it reaches the checked config."""

from __future__ import annotations

import pytest

from experiments.config import ConfigError, parse

GOOD = """
entrypoint: python3 train.py
searcher: {name: single, metric: loss, max_length: {batches: 10}}
hyperparameters: {lr: {type: double, minval: 0, maxval: 1}, net: {depth: 3}}
resources: {slots_per_trial: 4}
bind_mounts: ["/a:/b"]
"""


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("resources.slots_per_trial=2", "resources.slots_per_trial", 2),
        ("resources.slots_per_trial=", "resources.slots_per_trial", 1),  # a null counts as absent
        ("resources.max_time=1h30m", "resources.max_time", 5400),
        ("searcher.max_length.batches=1e3", "searcher.max_length.batches", 1000),
        ("searcher.max_length={epochs: 2}", "searcher.max_length", {"epochs": 2}),
        ("searcher.smaller_is_better=false", "searcher.smaller_is_better", False),
        ('labels=["a", "b=c"]', "labels", ["a", "b=c"]),
        ("labels=[]", "labels", []),
        ('name="7"', "name", "7"),
        ("description=a: b", None, "found a map with the keys a, allowed: text"),
        ("description=[", None, "not YAML"),
        ("entrypoint=[python3, other.py, --a=b]", "entrypoint", ["python3", "other.py", "--a=b"]),
        ("entrypoint=python3 other.py --a=b", "entrypoint", "python3 other.py --a=b"),
        ('data={"deep": {"rate": 1e-4, "list": [1, {"a": null}]}}', "data.deep.rate", 0.0001),
        ("data.deep.er.rate=0.5", "data.deep.er.rate", 0.5),
        ("hyperparameters.lr=0.1", "hyperparameters.lr", {"type": "const", "val": 0.1}),
        ("hyperparameters.lr.maxval=5", "hyperparameters.lr.maxval", 5.0),
        ("hyperparameters.net.depth=4", "hyperparameters.net.depth.val", 4),
        ("bind_mounts=[]", "bind_mounts", []),
        ("environment.environment_variables=[A=1]", "environment.environment_variables.cuda", ["A=1"]),
        ("resources.slots_per_trial=two", None, "<config>.resources.slots_per_trial: found \"two\""),
        ("resources.slot_per_trial=2", None, "did you mean slots_per_trial?"),
        ("bind_mounts.0.host_path=/c", None, "bind_mounts, which is not a map"),
        ("entrypoint.x=1", None, "entrypoint, which is not a map"),
        ("nonsense", None, "path.to.field=value"),
        ("a..b=1", None, "path.to.field=value"),
    ],
)  # fmt: skip
def test_an_override_is_a_yaml_value_at_a_path(override: str, path: str | None, value: object) -> None:
    if path is None:
        with pytest.raises(ConfigError) as caught:
            parse(GOOD, [override])
        assert str(value) in str(caught.value)
        return
    found = parse(GOOD, [override]).effective()
    for step in path.split("."):
        found = found[step]
    assert found == value


def test_later_overrides_win_and_lie_over_a_template() -> None:
    template = {"resources": {"priority": 50, "slots_per_trial": 8}, "labels": ["of template"]}
    overrides = ["resources.slots_per_trial=2", "resources.slots_per_trial=3", "labels=[own]"]
    found = parse(GOOD, overrides, template=template).effective()
    assert found["resources"]["slots_per_trial"] == 3 and found["resources"]["priority"] == 50
    assert found["labels"] == ["of template", "own"]

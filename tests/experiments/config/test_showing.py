"""Configs are shown in the order of their documentation, whatever order the database gives."""

from typing import Any

from commands import config as commands
from experiments.config import masked, parse, shown
from trainmaster import yamltext

CONFIG = """
name: digits
entrypoint: python3 train.py
searcher: {name: adaptive_asha, metric: loss, max_length: {batches: 100}, max_trials: 4}
hyperparameters:
  lr: {type: log, base: 10, minval: -4, maxval: -1}
  net: {width: 3, count: {type: int, minval: 1, maxval: 2}, vals: {type: categorical, vals: [{b: 1, a: 2}]}}
checkpoint_storage: {type: s3, bucket: team, access_key: team, secret_key: hush}
bind_mounts: [{host_path: /a, container_path: /b}]
data: {zeta: {b: 1, a: 2}, alpha: 3}
"""


def stored(value: Any) -> Any:
    """As PostgreSQL's jsonb gives it back: shorter names first."""
    if isinstance(value, dict):
        return {name: stored(value[name]) for name in sorted(value, key=lambda name: (len(name), name))}
    return [stored(entry) for entry in value] if isinstance(value, list) else value


def test_each_section_stands_in_the_order_of_its_documentation() -> None:
    config = parse(CONFIG).effective()
    found = shown(stored(config))
    assert found == masked(config) and found["checkpoint_storage"]["secret_key"] == "********"
    assert list(found)[:8] == [
        "name", "description", "labels", "workspace", "project", "entrypoint", "data", "debug",
    ]  # fmt: skip
    assert list(found["searcher"])[:3] == ["name", "metric", "smaller_is_better"]
    assert list(found["resources"])[:2] == ["slots_per_trial", "max_slots"]
    assert next(iter(found["checkpoint_storage"])) == "type" == next(iter(found["hyperparameters"]["lr"]))
    assert list(found["hyperparameters"]["lr"]) == ["type", "base", "minval", "maxval", "count"]
    assert list(found["hyperparameters"]["net"]["width"]) == ["type", "val"]
    assert list(found["data"]) == ["alpha", "zeta"] and list(found["data"]["zeta"]) == ["a", "b"]
    assert yamltext.dump(found) == yamltext.dump(shown(found)), "the same whatever came in"


def test_so_do_those_of_commands() -> None:
    config = commands.parse("{entrypoint: ls, resources: {slots: 2}}").effective()
    found = commands.shown(stored(config))
    assert found == config and list(found)[:3] == ["description", "entrypoint", "resources"]
    assert next(iter(found["resources"])) == "slots"

"""Rules between fields. They read the config as written, so they speak even when other fields are wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeGuard

from searching.hyperparameters import is_typed
from submissions.config.problems import NOTHING, Problem, at, look_up, shown
from submissions.config.section import UNITS

_ENTRYPOINT = "a command that starts the training, such as python3 train.py"
Config = dict[str, Any]
Path = tuple[str, ...]
Rule = Callable[[Config], Iterator[Problem]]


def broken_rules(config: Config, *, managed: bool) -> Iterator[Problem]:
    """What is wrong beyond single fields. A detached (not managed) experiment needs no entrypoint."""
    if managed and config.get("entrypoint") is None:
        yield Problem(at(("entrypoint",)), NOTHING, _ENTRYPOINT)
    yield from contradictions(config, complete=True)


def contradictions(config: Config, *, complete: bool = False) -> Iterator[Problem]:
    """What of the config cannot stand beside each other; only a `complete` one may lack nothing."""
    for rule in (*_CONTRADICTIONS, *(_COMPLETENESS if complete else ())):
        yield from rule(config)
    grid = complete and look_up(config, ("searcher", "name")) == "grid"
    yield from _hyperparameters(config.get("hyperparameters"), ("hyperparameters",), grid)


def _project_needs_workspace(config: Config) -> Iterator[Problem]:
    workspace, project = config.get("workspace") or "", config.get("project") or ""
    if bool(workspace) != bool(project):
        absent = "project" if workspace else "workspace"
        yield Problem(at((absent,)), NOTHING, "workspace and project together, or neither")


def _not_both(section: str, one: str, other: str, config: Config) -> Iterator[Problem]:
    if look_up(config, (section, one)) is not None and look_up(config, (section, other)) is not None:
        yield Problem(at((section,)), f"{one} and {other}", f"either {one} or {other}, not both")


def _halving_needs_a_length(config: Config) -> Iterator[Problem]:
    searcher = config.get("searcher")
    if not isinstance(searcher, dict) or searcher.get("name") not in ("adaptive_asha", "async_halving"):
        return
    given = [
        name
        for name in ("max_length", "max_steps", "time_metric", "max_time")
        if searcher.get(name) is not None
    ]
    if given not in (["max_length"], ["max_steps"], ["max_length", "max_steps"], ["time_metric", "max_time"]):
        found = " and ".join(given) or "neither max_length nor max_time"
        yield Problem(at(("searcher",)), found, "either max_length, or time_metric together with max_time")


def _one_unit(config: Config) -> Iterator[Problem]:
    for path in (("min_checkpoint_period",), ("min_validation_period",), ("searcher", "max_length")):
        value = look_up(config, path)
        if isinstance(value, dict) and sum(value.get(unit) is not None for unit in UNITS) != 1:
            yield Problem(at(path), shown(value), f"exactly one of {', '.join(UNITS)}")


def _profiling_begins_first(config: Config) -> Iterator[Problem]:
    path = ("profiling", "begin_on_batch")
    begin, end = look_up(config, path), look_up(config, ("profiling", "end_after_batch"))
    if type(begin) is int and type(end) is int and begin > end:
        # the sentence of Determined (features.md 5.1), which lets both be equal
        allowed = f"at most {end}: begin_on_batch must be less than end_after_batch"
        yield Problem(at(path), shown(begin), allowed)


def _storage_is_below_host_path(config: Config) -> Iterator[Problem]:
    host = look_up(config, ("checkpoint_storage", "host_path"))
    path = ("checkpoint_storage", "storage_path")
    below = look_up(config, path)
    if not isinstance(host, str) or not isinstance(below, str):
        return
    inside = not below.startswith("/") or f"{below}/".startswith(host.rstrip("/") + "/")
    if ".." in below.split("/") or not inside:
        yield Problem(at(path), shown(below), f"a path below {host}, without ..")


def _keys_come_in_pairs(config: Config) -> Iterator[Problem]:
    storage = config.get("checkpoint_storage")
    if not isinstance(storage, dict):
        return
    if storage.get("type") == "s3" and bool(storage.get("access_key")) != bool(storage.get("secret_key")):
        absent = "secret_key" if storage.get("access_key") else "access_key"
        yield Problem(
            at(("checkpoint_storage", absent)), NOTHING, "access_key and secret_key together, or neither"
        )
    if storage.get("type") == "azure" and bool(storage.get("connection_string")) == bool(
        storage.get("account_url")
    ):
        found = "both" if storage.get("account_url") else NOTHING
        yield Problem(
            at(("checkpoint_storage",)), found, "either connection_string, or account_url with credential"
        )


def _installed_sdk_stores_by_itself(config: Config) -> Iterator[Problem]:
    path = ("checkpoint_storage", "type")
    if look_up(config, ("environment", "sdk")) == "installed" and look_up(config, path) in (None, "server"):
        allowed = (
            "a storage type that the host's own determined supports, such as shared_fs or directory "
            "(environment.sdk is installed, and that package cannot store on the Trainmaster server)"
        )
        yield Problem(at(path), shown(look_up(config, path) or "server"), allowed)


def _is_number(value: Any) -> TypeGuard[int | float]:
    return type(value) in (int, float)


def _hyperparameters(value: Any, path: Path, grid: bool) -> Iterator[Problem]:
    if not isinstance(value, dict):
        return
    if not is_typed(value):
        for name, inner in value.items():
            yield from _hyperparameters(inner, (*path, name), grid)
        return
    if value["type"] not in ("int", "double", "log"):
        return
    low, high = value.get("minval"), value.get("maxval")
    if _is_number(low) and _is_number(high) and low >= high:
        yield Problem(at((*path, "minval")), shown(low), f"less than maxval, which is {shown(high)}")
    if grid and value.get("count") is None:
        yield Problem(at((*path, "count")), NOTHING, "1 or more (required by the grid searcher)")


#: what two fields together cannot be, in a template too
_CONTRADICTIONS: tuple[Rule, ...] = (
    partial(_not_both, "environment", "python", "activate"),
    partial(_not_both, "searcher", "source_trial_id", "source_checkpoint_uuid"),
    partial(_not_both, "searcher", "max_steps", "max_length"),
    _one_unit,
    _profiling_begins_first,
    _storage_is_below_host_path,
    partial(_not_both, "checkpoint_storage", "connection_string", "credential"),
)
#: what a whole config cannot do without
_COMPLETENESS: tuple[Rule, ...] = (
    _project_needs_workspace,
    _halving_needs_a_length,
    _keys_come_in_pairs,
    _installed_sdk_stores_by_itself,
)

"""Samples and grids of hyperparameters: const, int, double, log, categorical, and maps of them to any depth.

Names are walked in sorted order, because a JSON store may give them back in another order than they were
written in, and the same seed must give the same sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from searching.drawing import Draws, power
from searching.events import BadSearch

Found = TypeVar("Found")
TYPES = ("const", "int", "double", "log", "categorical")


def is_typed(value: object) -> bool:
    """Whether `value` is one hyperparameter, not a map of them or a bare constant."""
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def sample(hparams: dict[str, Any], draws: Draws) -> dict[str, Any]:
    """One value for each hyperparameter, nested as they are."""
    return _mapped(hparams, lambda spec: _sampled(spec, draws))


def varies(hparams: dict[str, Any]) -> bool:
    """Can two samples differ?"""
    return any(len(ends) > 1 for ends in _collected(hparams, _ends))


def grid_size(hparams: dict[str, Any]) -> int:
    """Points of the grid. No axis is written out: a count may be a billion."""
    return math.prod(_collected(hparams, _steps_of))


def grid_point(hparams: dict[str, Any], number: int) -> dict[str, Any]:
    """Point `number` (from 0) of the grid; the last name in sorted order changes fastest."""
    values: list[Any] = []
    for spec in reversed(_collected(hparams, lambda spec: spec)):
        number, index = divmod(number, _steps_of(spec))
        values.append(_step_of(spec, index))
    return _mapped(hparams, lambda _: values.pop())


def check(hparams: dict[str, Any], grid: bool) -> None:
    """Raise BadSearch at the first hyperparameter that cannot be sampled (or, with `grid`, enumerated)."""
    _walk(hparams, "hyperparameters", lambda spec, path: _check_one(spec, path, grid))


def _walk(hparams: dict[str, Any], path: str, visit: Callable[[dict[str, Any], str], None]) -> None:
    for name in sorted(hparams):
        value = hparams[name]
        if is_typed(value):
            visit(value, f"{path}.{name}")
        elif isinstance(value, dict):
            _walk(value, f"{path}.{name}", visit)


def _mapped(hparams: dict[str, Any], value_of: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name in sorted(hparams):
        spec = hparams[name]
        if is_typed(spec):
            result[name] = value_of(spec)
        elif isinstance(spec, dict):
            result[name] = _mapped(spec, value_of)
        else:
            result[name] = spec
    return result


def _collected(hparams: dict[str, Any], of: Callable[[dict[str, Any]], Found]) -> list[Found]:
    """What `of` says of each hyperparameter, in the order of their names."""
    found: list[Found] = []
    _walk(hparams, "", lambda spec, _: found.append(of(spec)))
    return found


def _sampled(spec: dict[str, Any], draws: Draws) -> Any:
    kind = spec["type"]
    if kind == "const":
        return spec.get("val")
    if kind == "categorical":
        return draws.one_of(spec["vals"])
    if kind == "int":
        return draws.between(spec["minval"], spec["maxval"])
    value = draws.uniform(spec["minval"], spec["maxval"])
    return power(spec["base"], value) if kind == "log" else value


def _ends(spec: dict[str, Any]) -> list[Any]:
    if spec["type"] == "const":
        return [spec.get("val")]
    if spec["type"] == "categorical":
        return list(spec["vals"])
    return [spec["minval"]] if spec["minval"] == spec["maxval"] else [spec["minval"], spec["maxval"]]


def _steps_of(spec: dict[str, Any]) -> int:
    """How many values a grid takes of a hyperparameter."""
    kind = spec["type"]
    if kind in ("const", "categorical"):
        return len(spec["vals"]) if kind == "categorical" else 1
    count = int(spec["count"])
    return min(count, spec["maxval"] - spec["minval"] + 1) if kind == "int" else count


def _step_of(spec: dict[str, Any], index: int) -> Any:
    """Value `index` (from 0) of those that a grid takes."""
    kind = spec["type"]
    if kind in ("const", "categorical"):
        return spec["vals"][index] if kind == "categorical" else spec.get("val")
    value = _spaced(spec["minval"], spec["maxval"], _steps_of(spec), index)
    if kind == "int":
        return _rounded(value)
    return power(spec["base"], value) if kind == "log" else value


def _spaced(low: float, high: float, count: int, index: int) -> float:
    """One of `count` evenly spaced values, both ends included; a single value is the middle."""
    if count == 1:
        return (low + high) / 2
    return high if index == count - 1 else low + (high - low) / (count - 1) * index


def _rounded(value: float) -> int:
    """To the nearest integer; halves away from zero."""
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def _check_one(spec: dict[str, Any], path: str, grid: bool) -> None:
    kind = spec["type"]
    if kind not in TYPES:
        raise BadSearch(f"{path}.type", kind, f"one of {', '.join(TYPES)}")
    if kind == "const":
        return
    if kind == "categorical":
        if not isinstance(spec.get("vals"), list) or not spec["vals"]:
            raise BadSearch(f"{path}.vals", spec.get("vals"), "a list with at least one value")
        return
    number = int if kind == "int" else (int, float)
    for end in ("minval", "maxval"):
        if (
            not isinstance(spec.get(end), number)
            or isinstance(spec.get(end), bool)
            or not _is_float(spec[end])
        ):
            raise BadSearch(f"{path}.{end}", spec.get(end), "a whole number" if kind == "int" else "a number")
    if spec["minval"] > spec["maxval"]:
        raise BadSearch(f"{path}.minval", spec["minval"], f"less than maxval ({spec['maxval']})")
    if kind == "log":
        _check_powers(spec, path)
    if grid and (not isinstance(spec.get("count"), int) or spec["count"] < 1):
        raise BadSearch(f"{path}.count", spec.get("count"), "1 or more (required by the grid searcher)")


def _check_powers(spec: dict[str, Any], path: str) -> None:
    base = spec.get("base")
    if not isinstance(base, (int, float)) or not _is_float(base) or base <= 0:
        raise BadSearch(f"{path}.base", base, "a number greater than 0")
    for end in ("minval", "maxval"):
        try:
            value = power(base, spec[end])
        except ArithmeticError:
            value = math.inf
        if not math.isfinite(value):
            raise BadSearch(
                f"{path}.{end}", spec[end], f"an exponent for which {base} to its power is finite"
            )


def _is_float(value: float) -> bool:
    """False for infinities, NaN and whole numbers beyond what a float holds."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False

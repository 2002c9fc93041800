"""Values of training code as JSON: NaN and the infinities by name, the impossible left out."""

from __future__ import annotations

import datetime
import enum
import json
import logging
import math
import uuid
from typing import Any, Dict, List, Mapping, Tuple

logger = logging.getLogger("trainmaster.core")


class _Unserialisable(Exception):
    pass


def encode_metrics(metrics: Mapping[str, Any], where: str) -> Dict[str, Any]:
    """`metrics` without the values that cannot be sent; a warning names each of those and says `where`."""
    kept: Dict[str, Any] = {}
    for name, value in metrics.items():
        if not isinstance(name, str):
            raise ValueError(
                f"The metric name {name!r} in {where} is a {type(name).__name__}, it must be text."
            )
        try:
            kept[name] = _plain(value)
        except _Unserialisable:
            logger.warning("%s: the metric %r is a %s and is left out.", where, name, type(value).__name__)
    return kept


def encode_strict(value: Any, where: str) -> Any:
    """`value` as plain JSON; ValueError when any part of it cannot be sent."""
    try:
        return _plain(value)
    except _Unserialisable as error:
        raise ValueError(f"{where} holds a {error}, which JSON cannot hold.") from None


def to_line(record: Mapping[str, Any]) -> bytes:
    """One record as one line."""
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    # numpy's and torch's scalars and arrays, without importing either.
    if callable(getattr(value, "tolist", None)):
        return _plain(value.tolist())
    raise _Unserialisable(type(value).__name__)


def _number(value: float) -> Any:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(value)


def merge_metadata(parts: List[Tuple[int, Mapping[str, Any]]]) -> Dict[str, Any]:
    """The metadata of all ranks as one; RuntimeError names what two ranks say differently."""
    merged: Dict[str, Any] = {}
    conflicts: List[str] = []
    for rank, part in parts:
        _merge_into(merged, part, "", rank, conflicts)
    if conflicts:
        raise RuntimeError(
            "Metadata conflict between the ranks of a sharded checkpoint: " + "; ".join(conflicts) + "."
        )
    return merged


def _merge_into(
    target: Dict[str, Any], part: Mapping[str, Any], at: str, rank: int, conflicts: List[str]
) -> None:
    for key, value in part.items():
        path = f"{at}.{key}" if at else str(key)
        if key not in target:
            target[key] = dict(value) if isinstance(value, Mapping) else value
        elif isinstance(value, Mapping) and isinstance(target[key], dict):
            target[key] = dict(target[key])
            _merge_into(target[key], value, path, rank, conflicts)
        elif target[key] != value:
            conflicts.append(f"{path} is {target[key]!r} and, on rank {rank}, {value!r}")

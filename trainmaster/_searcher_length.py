"""Whether the searcher's length is the one that another package's trainer keeps: a trial has one length."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple


def check_length(
    searcher: Dict[str, Any], max_steps: int, max_epochs: Optional[float], arguments: Tuple[str, str]
) -> None:
    """ValueError when the section `searcher` has a length in batches or epochs that is another than the trainer's.

    `max_steps` is -1 for a trainer that counts epochs; `arguments` are the names of the two numbers.
    """
    found = _length(searcher)
    if found is None:
        return
    field, unit, length = found
    own = ("batches", max_steps) if max_steps > -1 else ("epochs", max_epochs)
    if (unit, length) != own:
        argument = arguments[0] if max_steps > -1 else arguments[1]
        raise ValueError(
            f"{field} in the config is {length} {unit}, but {argument} of the trainer is {own[1]} {own[0]}: "
            f"make them equal, or omit {field}."
        )


def _length(searcher: Dict[str, Any]) -> Optional[Tuple[str, str, Any]]:
    """(field, unit, length)."""
    length = searcher.get("max_length")
    if isinstance(length, dict):
        unit = next(iter(length), "")
        return "searcher.max_length", unit, length.get(unit)
    if length is not None:
        return "searcher.max_length", "(without a unit)", length
    unit = searcher.get("time_metric")
    if unit in ("batches", "epochs"):
        return "searcher.max_time", unit, searcher.get("max_time")
    return None

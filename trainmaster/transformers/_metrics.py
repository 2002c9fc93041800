"""What of a Trainer's log is reported, and in which group."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

_GROUPS = {"eval_": "validation", "test_": "test"}
_SPEEDS = ("_runtime", "_per_second", "_compilation_time")


def group_of(logs: Dict[str, Any]) -> str:
    """`validation` or `test` by the prefix that the Trainer gives such metrics, else `training`."""
    for prefix, group in _GROUPS.items():
        if any(name.startswith(prefix) for name in logs):
            return group
    return "training"


def reported(
    logs: Dict[str, Any], filters: Optional[List[str]], step: int, epoch: Optional[float]
) -> Dict[str, Any]:
    """The metrics to report: without speeds, those that a filter is part of, and `batches` and `epochs`.

    The Trainer's own `epoch` is rounded, `epochs` is not.
    """
    kept = {
        name: value
        for name, value in logs.items()
        if name != "epoch"
        and not name.endswith(_SPEEDS)
        and (not filters or any(part in name for part in filters))
    }
    return {"batches": step, "epochs": epoch, **kept}

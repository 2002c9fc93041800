"""Which of a Lightning Trainer's metrics are of training, and which of validation: it keeps all of them in one dict."""

from __future__ import annotations

from typing import Any, Dict, Set


class Sorted:
    """A metric is of the group in which it was seen to change; of both, where both log one of its name."""

    def __init__(self) -> None:
        self._seen: Dict[str, float] = {}
        self._names: Dict[str, Set[str]] = {}

    def look(self, metrics: Dict[str, Any]) -> Dict[str, float]:
        """The numbers that are new or other than at the last look."""
        numbers = {name: float(value) for name, value in metrics.items()}
        changed = {
            name: value
            for name, value in numbers.items()
            if name not in self._seen or self._seen[name] != value
        }
        self._seen = numbers
        return changed

    def of(self, group: str, metrics: Dict[str, Any]) -> Dict[str, float]:
        """The group's metrics."""
        names = self._names.setdefault(group, set())
        names.update(self.look(metrics))
        return {name: value for name, value in self._seen.items() if name in names}

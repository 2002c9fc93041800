"""Who may use a pool, as people write it: `group:vision`, `workspace:3`. The server checks it."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List

FORM = "group:NAME or workspace:NUMBER"


def read(texts: Iterable[str]) -> Dict[str, List[Any]]:
    """The rule; empty means everyone. Raises ValueError with what is allowed."""
    found: Dict[str, List[Any]] = {}
    for text in texts:
        kind, _, name = text.partition(":")
        if kind == "group" and name:
            found.setdefault("groups", []).append(name)
        elif kind == "workspace" and name.isdecimal():
            found.setdefault("workspaces", []).append(int(name))
        else:
            raise ValueError(f"Found {text!r}; allowed: {FORM}.")
    return found


def written(rule: Dict[str, List[Any]]) -> str:
    """The same in text."""
    return " ".join(f"{kind}:{name}" for kind in ("group", "workspace") for name in rule.get(f"{kind}s", []))

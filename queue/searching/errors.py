"""What is wrong with a searcher or a hyperparameter, as sentences that name the field."""

from __future__ import annotations


class BadSearch(ValueError):
    """The search cannot be made; the text says which field, what was found and what is allowed."""

    def __init__(self, field: str, found: object, allowed: str) -> None:
        self.field = field
        super().__init__(f"{field}: found {found!r}, allowed: {allowed}")

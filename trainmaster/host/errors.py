"""How a verb says no."""

from __future__ import annotations


class VerbError(Exception):
    """Answered as {"error": code, "message": sentence}; the verb's exit code stays 0."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)

"""How a verb says no, and to which requests every verb does."""

from __future__ import annotations

from typing import Any, Dict

from trainmaster.protocol import check_run_key


class VerbError(Exception):
    """Answered as {"error": code, "message": sentence}; the verb's exit code stays 0."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


def objects_of(request: Dict[str, Any], needs: str) -> Dict[str, Dict[str, Any]]:
    """What a request wants of each run, by run key. VerbError with the sentence `needs`, or ProtocolError."""
    runs = request.get("runs")
    if not isinstance(runs, dict) or not all(isinstance(wanted, dict) for wanted in runs.values()):
        raise VerbError("bad_request", needs)
    return {check_run_key(key): wanted for key, wanted in runs.items()}

"""How a verb says no: to the whole request, or for one run alone."""

from __future__ import annotations

import errno
from typing import Any, Callable, Dict, Iterable

from trainmaster.protocol import check_run_key

#: of a folder that others mount too, and that can be used again without anything being changed in it
AWAY = (errno.EIO, errno.ENOSPC, errno.EROFS, errno.ESTALE)
#: what work on a folder into which a job may have put anything can raise
_SPOILED = (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError)


class VerbError(Exception):
    """Answered as {"error": code, "message": sentence}; the verb's exit code stays 0."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


def of_system(error: OSError, sentence: str) -> Dict[str, Any]:
    """The answer where the system refuses something."""
    return {"error": "away" if error.errno in AWAY else "os", "message": sentence}


def objects_of(request: Dict[str, Any], needs: str) -> Dict[str, Dict[str, Any]]:
    """What a request wants of each run, by run key. VerbError with the sentence `needs`, or ProtocolError."""
    runs = request.get("runs")
    if not isinstance(runs, dict) or not all(isinstance(wanted, dict) for wanted in runs.values()):
        raise VerbError("bad_request", needs)
    return {check_run_key(key): wanted for key, wanted in runs.items()}


def answer_each(keys: Iterable[str], answer_of: Callable[[str], Dict[str, Any]]) -> Dict[str, Any]:
    """The answer for each run; what is wrong with the folder of one is the answer for that one alone."""
    answers: Dict[str, Any] = {}
    for key in keys:
        try:
            answers[key] = answer_of(key)
        except _SPOILED as error:
            message = f"The folder of {key} cannot be used: {type(error).__name__}: {error}."
            answers[key] = {"error": "folder", "message": message}
    return {"runs": answers}

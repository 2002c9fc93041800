"""Beside the step of a job in Slurm: tells the server that the job has begun, until it knows.

The server then asks Slurm at once rather than in some seconds. Where it cannot be reached from the node, it notices the
job all the same.
"""

from __future__ import annotations

import json
import random
import sys
import time
from typing import Any, Dict
from urllib.parse import quote

from trainmaster.http import Answered, HttpError, Later, ServerClient

#: after which the server asks Slurm anyway
_SECONDS = 60.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 10.0
_REQUEST_SECONDS = 5.0


def tell_begun(attempt: str) -> int:
    """Read where the server is from stdin, and tell it. The exit code is 0: nothing depends on it."""
    word = json.loads(sys.stdin.readline())
    until, pause = time.monotonic() + _SECONDS, _FIRST_PAUSE_SECONDS
    while not _is_seen(word, attempt) and time.monotonic() < until:
        time.sleep(pause * random.uniform(0.8, 1.2))
        pause = min(_LONGEST_PAUSE_SECONDS, pause * 1.5)
    return 0


def _is_seen(word: Dict[str, Any], attempt: str) -> bool:
    """Whether there is nothing more to tell: the server knows, or none of its addresses wants to."""
    refused = 0
    for url in word["urls"]:
        try:
            with ServerClient(url, word["token"], word["cert_sha256"], _REQUEST_SECONDS) as server:
                answer = server.post(f"/runner/v1/slurm/{quote(attempt, safe='')}/begun").json()
        except (HttpError, ValueError) as error:  # what answers there may be something else, as a proxy is
            refused += isinstance(error, Answered) and not isinstance(error, Later)
            continue
        return bool(isinstance(answer, dict) and answer.get("seen"))
    return refused == len(word["urls"])

"""What a job waits for, said where its log has nothing to show yet."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Optional

from trainmaster.cli.output import say
from trainmaster.cli.prefixes import SHOWN
from trainmaster.client import Client
from trainmaster.http import Answered

Json = Dict[str, Any]
START_SECONDS = 3.0  # within which a job starts when nothing is in its way


def tell_what_it_waits_for(
    client: Client, queued_job: Callable[[], Optional[str]], poll_seconds: float = 0.3
) -> None:
    """Where nothing has started after a moment, say why. `queued_job`: the id of the job while it is queued."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        job_id = queued_job()
        if job_id is None:
            return
        if time.monotonic() > deadline:
            break
        time.sleep(poll_seconds)
    try:
        tasks = client.explain_job(job_id)["tasks"]
    except Answered as error:
        if error.status == 404:  # it has ended meanwhile, or the server is an older one
            return
        raise
    reasons = [blocker["sentence"] for task in tasks[:1] for blocker in task.get("blockers") or []]
    if reasons:
        say(f"It waits: {reasons[0]}. All reasons: trainmaster job explain {job_id[:SHOWN]}", "yellow")

"""What the kernels of hosts report, asked along with the state of their runs, and what follows from it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from dispatch.going_on import going_on
from hosts.health import signs
from jobs import quarantine

question = signs.question


def take_in(host_id: uuid.UUID, answer: Mapping[str, Any]) -> None:
    """Keep what the host told if it was asked, and take out of use what has a fault. Nonsense harms no other host."""
    if "kernel" not in answer:
        return
    with going_on(f"the kernel's log of host {host_id}"):
        signs.take_in(host_id, answer["kernel"])
        quarantine.judge(host_id)

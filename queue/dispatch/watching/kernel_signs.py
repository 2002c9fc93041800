"""What the kernels of hosts report, asked along with the state of their runs, and what follows from it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import Any

from hosts.health import signs
from hosts.models import Host
from jobs import quarantine

log = logging.getLogger(__name__)

question = signs.question


def take_in(host_id: uuid.UUID, answer: Mapping[str, Any]) -> None:
    """Keep what the host told, and take out of use what has a fault. A host that tells nonsense harms no other."""
    try:
        quarantine.judge(host_id, signs.take_in(host_id, answer))
    except Host.DoesNotExist:
        log.info("the host %s is gone", host_id)

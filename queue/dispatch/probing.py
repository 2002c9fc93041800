"""Keeps the last contact with idle hosts fresh; hosts with runs are asked by the reconciler anyway."""

from __future__ import annotations

import logging
import random
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone

from dispatch import host_samples, outsiders, remote
from hosts.models import Host

log = logging.getLogger(__name__)

#: A host that stays silent is asked less and less often, up to this.
_PAUSE_MAX_SECONDS = 60.0
_STATUS_TIMEOUT_SECONDS = 20.0


def probe_due() -> int:
    """Ask every host whose turn it is, some at a time; the number of them."""
    hosts, wanted = _claim()
    if hosts:
        questions = host_samples.questions(wanted) if wanted else {}
        with ThreadPoolExecutor(min(settings.HOST_PROBES_AT_ONCE, len(hosts))) as pool:
            answers = pool.map(lambda host: (host.pk, host.name, _probe(host, questions.get(host.pk))), hosts)
        host_samples.store(answers)
    return len(hosts)


def _claim() -> tuple[list[Host], list[Host]]:
    """(hosts that nobody heard of for HOST_PROBE_SECONDS, those of them of which a sample is due).

    They are claimed by moving the time of their next probe, in the same statement as that of their next sample.
    """
    now = timezone.now()
    fresh = now - timedelta(seconds=settings.HOST_PROBE_SECONDS)
    due = Q(probe_after=None) | Q(probe_after__lt=now)
    quiet = Q(last_seen_at=None) | Q(last_seen_at__lt=fresh)
    waiting = Host.objects.filter(due, quiet, admission=Host.Admission.READY)
    if not waiting.exists():
        return [], []
    with transaction.atomic():
        hosts = list(waiting.select_for_update(skip_locked=True))
        sampled = [host for host in hosts if host_samples.due(host, now)]
        for host in hosts:
            host.probe_after = now + timedelta(seconds=_pause(host) * random.uniform(0.9, 1.1))
            host.save(update_fields=["probe_after", "sampled_at"])
    return hosts, sampled


def _pause(host: Host) -> float:
    """Seconds until the next probe: grows with the silence."""
    if host.contact != Host.Contact.SILENT or host.last_seen_at is None:
        return float(settings.HOST_PROBE_SECONDS)
    silent = (timezone.now() - host.last_seen_at).total_seconds()
    return min(_PAUSE_MAX_SECONDS, max(float(settings.HOST_PROBE_SECONDS), silent / 10))


def _probe(host: Host, sample: dict[str, Any] | None) -> dict[str, Any]:
    """The host's answer, empty without one."""
    try:
        request = {"runs": [], **outsiders.question(host), **(sample or {})}
        answer = remote.verb(host, "status", request, timeout_seconds=_STATUS_TIMEOUT_SECONDS)
        outsiders.take_in(host.pk, answer)
        return answer
    except remote.RemoteError as error:
        log.info("probe of %s: %s", host.name, error)
        return {}
    finally:
        connection.close()  # this thread ends with the round

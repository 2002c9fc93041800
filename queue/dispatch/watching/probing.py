"""Keeps the last contact with idle hosts fresh; hosts with runs are asked by the reconciler anyway."""

from __future__ import annotations

import logging
import random
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from dispatch.ssh import remote
from dispatch.ssh.threads import ask_all
from dispatch.watching import host_samples, host_signs, outsiders
from events import presence
from events.prepared import cursor
from hosts.models import Host
from jobs.models import Member
from jobs.states import MemberState

log = logging.getLogger(__name__)

#: A host that stays silent is asked less and less often, up to this.
_PAUSE_MAX_SECONDS = 60.0
_STATUS_TIMEOUT_SECONDS = 20.0


#: Each beat asks for this every few seconds. Rather too much than too little: who is asked is up to `_claim`.
_DUE = """
SELECT EXISTS (SELECT FROM hosts_host WHERE (admission = 'admitting' AND state_reason = '')
    OR (transport <> 'slurm' AND admission IN ('ready', 'failed') AND (contact = 'silent' OR last_seen_at IS NULL
      OR last_seen_at < statement_timestamp() - %(fresh)s * interval '1 second'
      OR last_seen_at > statement_timestamp())))
  OR EXISTS (SELECT FROM hosts_pairsearch WHERE ended_at IS NULL)
  OR EXISTS (SELECT FROM hosts_slurmfacts facts JOIN hosts_host login USING (pool_id)
    WHERE (facts.read_after IS NULL OR facts.read_after < statement_timestamp()) AND login.transport = 'login'
      AND (login.admission = 'ready' OR (login.admission = 'failed' AND facts.read_at IS NOT NULL)))
"""


def anything_due() -> bool:
    """Whether a host may have to be asked, admitted or declared lost, a test of pairs continued, a cluster read."""
    with cursor() as asks:
        asks.execute(_DUE, {"fresh": settings.HOST_PROBE_SECONDS})
        return bool(asks.fetchone()[0])


def probe_due() -> int:
    """Ask every host whose turn it is, some at a time; the number of them."""
    hosts, wanted = _claim()
    if hosts:
        samples = host_samples.questions(wanted) if wanted else {}
        questions = {host.pk: {**samples.get(host.pk, {}), **host_signs.question(host)} for host in wanted}
        answers = ask_all(
            lambda host: _probe(host, questions.get(host.pk)), hosts, settings.HOST_PROBES_AT_ONCE
        )
        host_samples.store(
            [(host.pk, host.name, answer) for host, answer in zip(hosts, answers, strict=True)]
        )
    return len(hosts)


def _claim() -> tuple[list[Host], list[Host]]:
    """(hosts that nobody heard of for HOST_PROBE_SECONDS, those of them of which a sample is due).

    They are claimed by moving the time of their next probe, in the same statement as that of their next sample.
    A time in the future that none can be is from before the clock was set back.
    """
    now = presence.database_now()
    fresh = now - timedelta(seconds=settings.HOST_PROBE_SECONDS)
    latest = now + timedelta(seconds=2 * max(_PAUSE_MAX_SECONDS, settings.HOST_PROBE_SECONDS))
    due = Q(probe_after=None) | Q(probe_after__lt=now) | Q(probe_after__gt=latest)
    quiet = Q(last_seen_at=None) | Q(last_seen_at__lt=fresh) | Q(last_seen_at__gt=now)
    living = Member.objects.filter(host=OuterRef("pk")).exclude(state=MemberState.ENDED)
    # one whose new admission failed may still have runs, and somebody has to hear of it again
    wanted = Q(admission=Host.Admission.READY) | Q(Exists(living), admission=Host.Admission.FAILED)
    waiting = Host.objects.filter(due, quiet, wanted).exclude(transport=Host.Transport.SLURM)
    if not waiting.exists():
        return [], []
    with transaction.atomic():
        # with their slots, of which each question would ask the database by itself
        hosts = list(waiting.select_for_update(skip_locked=True).prefetch_related("slots"))
        sampled = [host for host in hosts if host_samples.due(host, now)]
        for host in hosts:
            host.probe_after = now + timedelta(seconds=_pause(host, now) * random.uniform(0.9, 1.1))
            host.save(update_fields=["probe_after", "sampled_at"])
    return hosts, sampled


def _pause(host: Host, now: datetime) -> float:
    """Seconds until the next probe: grows with the silence."""
    if host.contact != Host.Contact.SILENT or host.last_seen_at is None:
        return float(settings.HOST_PROBE_SECONDS)
    silent = (now - host.last_seen_at).total_seconds()
    return min(_PAUSE_MAX_SECONDS, max(float(settings.HOST_PROBE_SECONDS), silent / 10))


def _probe(host: Host, more: dict[str, Any] | None) -> dict[str, Any]:
    """The host's answer, empty without one."""
    try:
        request = {"runs": [], **outsiders.question(host), **(more or {})}
        answer = remote.verb(host, "status", request, timeout_seconds=_STATUS_TIMEOUT_SECONDS)
        host_signs.take_in(host.pk, answer, request)
        outsiders.take_in(host.pk, answer)
        return answer
    except remote.RemoteError as error:
        log.info("probe of %s: %s", host.name, error)
        return {}

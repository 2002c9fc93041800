"""Samples of hosts and GPUs that no run measures: one now and then, brought along by an answer to another question.

A run measures its host and its own GPUs each second. What is left (idle hosts, free GPUs of busy ones) is added to the
`status` request, so that nothing runs on hosts for it, and a round of probes stores all its answers at once.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Exists, OuterRef, Q

from hosts.models import Host, Slot
from jobs.models import Member, SlotHold
from jobs.states import MemberState
from metrics import sample_store

Question = dict[str, Any]
#: host id, its name, and what it answered
Answered = tuple[uuid.UUID, str, Mapping[str, Any]]


def due(host: Host, now: datetime) -> bool:
    """Whether it is time for a sample of this host. The caller keeps `sampled_at`, which then is now."""
    seconds = settings.HOST_SAMPLE_SECONDS
    if seconds <= 0 or (host.sampled_at is not None and now - host.sampled_at < timedelta(seconds=seconds)):
        return False
    host.sampled_at = now
    return True


def claim(host: Host, now: datetime) -> bool:
    """Claim the turn to sample a host that others may sample at the same time; the first one gets it."""
    before = host.sampled_at
    return due(host, now) and bool(
        Host.objects.filter(pk=host.pk, sampled_at=before).update(sampled_at=host.sampled_at)
    )


def questions(hosts: Sequence[Host]) -> dict[uuid.UUID, Question]:
    """What to add to the `status` request of each; hosts where runs measure everything are left out."""
    measuring = Q(state=MemberState.RUNNING) if settings.SAMPLE_SECONDS > 0 else Q(pk__in=[])
    busy = set(Member.objects.filter(measuring, host__in=hosts).values_list("host_id", flat=True))
    measured = SlotHold.objects.filter(
        slot=OuterRef("pk"), released_at=None, member__in=Member.objects.filter(measuring)
    )
    free = Slot.objects.filter(~Exists(measured), host__in=hosts, missing=False).exclude(uuid="")
    gpus: dict[uuid.UUID, list[str]] = {}
    for host_id, gpu in free.order_by("index").values_list("host_id", "uuid"):
        gpus.setdefault(host_id, []).append(gpu)
    return {
        host.pk: {"sample": {"host": host.pk not in busy, "gpus": gpus.get(host.pk, [])}}
        for host in hosts
        if host.pk not in busy or host.pk in gpus
    }


def store(answers: Iterable[Answered]) -> int:
    """Keep the samples in what hosts answered to `status`; how many hosts had one."""
    found = [(pk, name, answer["sample"]) for pk, name, answer in answers if _has_sample(answer)]
    return sample_store.store_of_hosts(found)


def _has_sample(answer: Mapping[str, Any]) -> bool:
    return isinstance(answer.get("sample"), dict)

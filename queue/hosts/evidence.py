"""What speaks against a host: contacts that failed, counted by this control plane since it was last whole.

Any answer and any heartbeat ends the series (`failed_contacts` is 0 again), and so does an absence of the control
plane (events.presence): a series belongs to one era. The age of a row alone is never evidence. All times are the
database's.
"""

from __future__ import annotations

import uuid
from datetime import timedelta

from django.conf import settings
from django.db.models import (
    Case,
    DurationField,
    Exists,
    ExpressionWrapper,
    F,
    OuterRef,
    Q,
    QuerySet,
    Value,
    When,
)
from django.db.models.functions import Now

from events import presence
from hosts.models import Host

#: Contacts that fail together, as around a launch, count as one.
_CONTACT_EVERY_SECONDS = 1.0


def contact_failed(host_id: uuid.UUID) -> None:
    """One contact with the host was made and failed. Go on with its series, or begin one."""
    era = presence.era()
    same = Q(failed_contacts__gt=0, failing_era=era)
    at_once = Q(failed_at__gt=Now() - timedelta(seconds=_CONTACT_EVERY_SECONDS), failed_at__lte=Now())
    Host.objects.filter(pk=host_id).update(
        failed_contacts=Case(
            When(same & at_once, then=F("failed_contacts")),
            When(same, then=F("failed_contacts") + 1),
            default=1,
        ),
        failing_since=Case(When(same, then=F("failing_since")), default=Now()),
        failed_at=Now(),
        failing_era=era,
    )


def suspects() -> QuerySet[Host]:
    """Silent hosts that their pool's rule declares lost: enough contacts have failed, over the limit's time.

    Only while the control plane is whole, and only while another host answers, if there are others: when none does,
    the fault is more likely on this side, and there is nowhere to start the work again.
    """
    ruled = Host.objects.filter(contact=Host.Contact.SILENT, pool__host_lost_after_seconds__isnull=False)
    whole = presence.whole() if ruled.exists() else None
    if whole is None:
        return Host.objects.none()
    limit = ExpressionWrapper(
        F("pool__host_lost_after_seconds") * Value(timedelta(seconds=1)), output_field=DurationField()
    )
    others = Host.objects.filter(transport=Host.Transport.SSH, admission=Host.Admission.READY).exclude(
        pk=OuterRef("pk")
    )
    recent = whole.now - timedelta(seconds=settings.HOST_SILENT_AFTER_SECONDS)
    answering = others.filter(last_seen_at__gt=recent)
    return ruled.filter(
        Exists(answering) | ~Exists(others),
        transport=Host.Transport.SSH,  # the host `local` is where the server is
        admission__in=[Host.Admission.READY, Host.Admission.FAILED],
        failed_contacts__gte=settings.HOST_LOST_CONTACTS,
        failing_era=whole.era,
        failing_since__gte=whole.since,
        failed_at__gte=F("failing_since") + limit,
    )

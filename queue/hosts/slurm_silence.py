"""Nodes of a Slurm pool are heard of through its login node alone, so their silence is derived from that one's."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from events.prepared import cursor
from events.presence import Whole
from hosts.models import Host
from hosts.transitions import set_contact
from trainmaster.quantities import duration

#: after so many readings that did not come about
_READINGS = 5

_UNHEARD = """
SELECT DISTINCT node.pool_id, coalesce(login.name, ''), coalesce(login.contact, '') = 'reachable',
  facts.read_at IS NOT NULL, coalesce(facts.error, '')
FROM hosts_host node
LEFT JOIN hosts_host login
  ON login.pool_id = node.pool_id AND login.transport = 'login' AND login.admission <> 'removed'
LEFT JOIN hosts_slurmfacts facts ON facts.pool_id = node.pool_id
WHERE node.transport = 'slurm' AND node.contact = 'reachable' AND node.admission <> 'removed'
  AND (coalesce(login.contact, '') <> 'reachable' OR facts.read_at IS NULL
    OR (%(aged)s AND (facts.read_at < %(oldest)s OR facts.read_at > %(latest)s)))
"""


def note(whole: Whole) -> None:
    """Mark nodes silent whose login node is not reachable, or whose cluster nobody has been able to read for long.

    Time in which the workers themselves were away does not count.
    """
    seconds = _READINGS * settings.SLURM_FACTS_SECONDS
    times: dict[str, bool | datetime] = {
        "aged": whole.lasts(seconds),
        "oldest": whole.now - timedelta(seconds=seconds),
        "latest": whole.latest,
    }
    with cursor() as asks:
        asks.execute(_UNHEARD, times)
        unheard = asks.fetchall()
    for pool_id, login, answers, was_read, error in unheard:
        if not answers:
            why = f"The login node {login} does not answer." if login else "The pool has no login node."
        elif not was_read:
            why = "The cluster has not been read yet."
        else:
            why = f"The cluster could not be read for {duration(seconds)}. {error}".strip()
        silence(pool_id, why)


@transaction.atomic
def silence(pool_id: int, why: str) -> None:
    """Mark all nodes of the pool silent; `why` is a sentence."""
    nodes = Host.objects.select_for_update(skip_locked=True).filter(
        pool=pool_id, transport=Host.Transport.SLURM, contact=Host.Contact.REACHABLE
    )
    for node in nodes:
        node.contact_error = why
        node.save(update_fields=["contact_error"])
        set_contact(node, Host.Contact.SILENT, silent_for=None)

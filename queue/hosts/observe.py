"""What dispatch and the runners have seen of a host.

Only differences leave an event; nothing here contacts anybody.
"""

from __future__ import annotations

import uuid
from datetime import timedelta

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from events import presence
from events.announce import announce, wake
from events.prepared import cursor
from events.presence import Whole
from hosts import evidence, slurm_silence
from hosts.models import Host
from hosts.transitions import note, set_admission, set_contact

DOCTOR = "dispatch.host_tasks.doctor"
#: Heartbeats come with every batch of every run; the row is written once in this time.
_HEARTBEAT_EVERY_SECONDS = 1.0
#: The same for answers, which come in bursts around a launch.
_SEEN_EVERY_SECONDS = 1.0


#: Whether all is as it was and the answer is noted, now or a moment ago; each contact with each host asks this. It is
#: not noted if another transaction marks the host silent at the same time.
_SEEN = f"""
WITH host AS (
  SELECT id, contact = 'reachable' AND (%(boot)s = '' OR boot_id = %(boot)s) AS fine, contact_error <> ''
    OR failed_contacts > 0 OR last_seen_at IS NULL OR abs(extract(epoch FROM statement_timestamp() - last_seen_at))
    >= {_SEEN_EVERY_SECONDS} AS old
  FROM hosts_host WHERE id = %(host)s
), noted AS (
  UPDATE hosts_host SET last_seen_at = statement_timestamp(), contact_error = '', failed_contacts = 0
  FROM host WHERE hosts_host.id = host.id AND hosts_host.contact = 'reachable' AND fine AND old
  RETURNING hosts_host.id
)
SELECT fine AND (NOT old OR EXISTS (SELECT FROM noted)) FROM host
"""


def seen(host_id: uuid.UUID, *, boot_id: str = "") -> None:
    """The host has answered over SSH. A new boot id leaves an event: what ran there before is gone."""
    with cursor() as asks:
        asks.execute(_SEEN, {"host": host_id, "boot": boot_id})
        row = asks.fetchone()
    if row is None or row[0]:
        return
    with transaction.atomic():
        host = Host.objects.select_for_update().get(pk=host_id)
        silent_for = presence.database_now() - host.last_seen_at if host.last_seen_at else None
        set_contact(host, Host.Contact.REACHABLE, silent_for=silent_for)
        _note_boot(host, boot_id)
        Host.objects.filter(pk=host_id).update(
            boot_id=host.boot_id, last_seen_at=Now(), contact_error="", failed_contacts=0
        )


def _note_boot(host: Host, boot_id: str) -> None:
    if not boot_id or host.boot_id == boot_id:
        return
    if host.boot_id:
        wake(DOCTOR, str(host.pk))  # its GPUs may be others now, or another machine may answer at its address
        note(host, "restarted", f"host:{host.name}", {"boot_id": boot_id})
    host.boot_id = boot_id


def no_answer(host_id: uuid.UUID, sentence: str) -> None:
    """The host was called and did not answer. One such contact changes nothing: `note_silence` looks at the time."""
    evidence.contact_failed(host_id)
    not_asked(host_id, sentence)


def not_asked(host_id: uuid.UUID, sentence: str) -> None:
    """A call did not get as far as the host, which says nothing about it. Keep the sentence."""
    if Host.objects.filter(pk=host_id).exclude(contact_error=sentence).update(contact_error=sentence):
        announce("hosts")


def spoke(host_id: uuid.UUID, sentence: str = "") -> None:
    """The host's sshd answered, although not as it should: it is there, so the series of failed contacts is over."""
    Host.objects.filter(pk=host_id, failed_contacts__gt=0).update(failed_contacts=0)
    if sentence:
        not_asked(host_id, sentence)


#: Whether a host may be silent, asked in each sweep.
_QUIET = """
SELECT EXISTS (SELECT FROM hosts_host WHERE contact = 'reachable' AND admission <> 'removed' AND transport <> 'slurm'
  AND (last_seen_at IS NULL OR last_seen_at < %(oldest)s OR last_seen_at > %(latest)s))
"""


def note_silence(whole: Whole) -> int:
    """Mark hosts silent that have not answered for HOST_SILENT_AFTER_SECONDS; return how many.

    Time in which the workers themselves were away does not count. A last answer in the future is from before the clock
    was set back, and counts as none. The nodes of Slurm pools follow their login nodes.
    """
    if not whole.lasts(settings.HOST_SILENT_AFTER_SECONDS):
        return 0
    found = _note_quiet(whole)
    slurm_silence.note(whole)
    return found


def _note_quiet(whole: Whole) -> int:
    oldest = whole.now - timedelta(seconds=settings.HOST_SILENT_AFTER_SECONDS)
    with cursor() as asks:
        asks.execute(_QUIET, {"oldest": oldest, "latest": whole.latest})
        if not asks.fetchone()[0]:
            return 0
    quiet = Q(last_seen_at__lt=oldest) | Q(last_seen_at__gt=whole.latest)
    quiet |= Q(last_seen_at=None, registered_at__lt=oldest)
    with transaction.atomic():
        hosts = list(
            Host.objects.select_for_update(skip_locked=True)
            .filter(quiet, contact=Host.Contact.REACHABLE)
            .exclude(admission=Host.Admission.REMOVED)
            .exclude(transport=Host.Transport.SLURM)
        )
        for host in hosts:
            seen_at = host.last_seen_at or host.registered_at
            heard = max(seen_at, whole.since) if seen_at <= whole.now else whole.since
            set_contact(host, Host.Contact.SILENT, silent_for=whole.now - heard)
    return len(hosts)


#: A runner on the host `{host_id}` has spoken to the server: written at most once in a while, and never waited for:
#: whoever has the row has heard of the host too, or the next heartbeat is kept. It ends the series of failed contacts.
HEARTBEAT = f"""
  UPDATE hosts_host SET last_heartbeat_at = statement_timestamp(), failed_contacts = 0 WHERE id = (
    SELECT host.id FROM hosts_host host WHERE host.id = {{host_id}}
      AND (host.last_heartbeat_at IS NULL OR host.failed_contacts > 0 OR host.last_heartbeat_at NOT BETWEEN
        statement_timestamp() - interval '{_HEARTBEAT_EVERY_SECONDS} seconds' AND statement_timestamp())
    FOR NO KEY UPDATE SKIP LOCKED)
"""
#: waits for no disk either: should the database crash, the next heartbeat makes it good
_HEARTBEAT = HEARTBEAT.format(host_id="%(host)s") + "RETURNING set_config('synchronous_commit', 'off', true)"


def heartbeat(host_id: uuid.UUID) -> None:
    """A runner there has spoken to the server over HTTP. In no transaction, which would wait for no disk either."""
    with connection.cursor() as cursor:
        cursor.execute(_HEARTBEAT, {"host": host_id})


def heartbeat_of(host: Host) -> None:
    """Note a heartbeat for a row that was just read; nothing is written if this second's is already stored.

    It is the database that stores the time, so where the clock here differs from it, the database is asked each time.
    """
    noted = host.last_heartbeat_at
    if noted is None or not 0 <= (timezone.now() - noted).total_seconds() < _HEARTBEAT_EVERY_SECONDS:
        heartbeat(host.pk)


def key_changed(host_id: uuid.UUID, offered: str, sentence: str, *, hop: int) -> bool:
    """The host (or jump host number `hop` before it) shows another key: suspend it, leave its runs alone.

    Returns whether it was suspended now. Whoever dialled with the key from before it was accepted is late.
    """
    with transaction.atomic():
        host = Host.objects.select_for_update().get(pk=host_id)
        pinned = host.jumps[hop].get("host_key") if hop < len(host.jumps) else host.host_key
        if pinned == offered:
            return False
        keep_offered(host, offered, hop)
        host.contact_error = sentence
        host.save(update_fields=["offered_host_key", "jumps", "contact_error"])
        return set_admission(
            host,
            Host.Admission.SUSPENDED,
            reason="key_changed",
            actor=f"host:{host.name}",
            sentence=sentence,
            detail={"sentence": sentence},
        )


def keep_offered(host: Host, offered: str, hop: int) -> None:
    """Keep the key that a hop has shown, so that a person can compare and accept it (the caller saves)."""
    if hop < len(host.jumps):
        host.jumps[hop]["offered_host_key"] = offered
    else:
        host.offered_host_key = offered

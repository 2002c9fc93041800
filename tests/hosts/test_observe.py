import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from django.conf import LazySettings
from django.db import connection, transaction
from django.utils import timezone

from events.models import Event
from hosts import observe
from hosts.models import Host
from hosts.pools import default_pool
from tests.rig import pace
from tests.rig.world import be_whole

pytestmark = pytest.mark.django_db


@pytest.fixture
def host() -> Host:
    return Host.objects.create(name="gpu1", pool=default_pool(), admission=Host.Admission.READY)


def reasons(host: Host) -> list[str]:
    return list(Event.objects.filter(subject=str(host.pk)).order_by("id").values_list("reason", flat=True))


def test_answers_make_one_event_and_silence_another(host: Host, settings: LazySettings) -> None:
    settings.HOST_SILENT_AFTER_SECONDS = 30
    for _ in range(3):
        observe.seen(host.pk, boot_id="b1")
    whole = be_whole()

    def noted(seconds: float) -> int:
        return observe.note_silence(replace(whole, now=whole.now + timedelta(seconds=seconds)))

    assert (noted(29), noted(31), noted(60)) == (0, 1, 0)
    host.refresh_from_db()
    assert host.contact == Host.Contact.SILENT and host.last_seen_at is not None and host.boot_id == "b1"
    observe.seen(host.pk)
    host.refresh_from_db()
    assert host.contact == Host.Contact.REACHABLE
    assert reasons(host) == ["answered", "silent", "answered"]


def test_an_unanswered_call_keeps_its_sentence_and_judges_nothing(host: Host) -> None:
    observe.seen(host.pk)
    observe.no_answer(host.pk, "gpu1 refuses connections.")
    host.refresh_from_db()
    assert (host.contact, host.contact_error) == ("reachable", "gpu1 refuses connections.")
    observe.seen(host.pk)
    host.refresh_from_db()
    assert host.contact_error == ""


@pytest.mark.survive(8)
def test_another_boot_id_is_a_restart_the_first_one_is_not(host: Host) -> None:
    observe.seen(host.pk, boot_id="b1")
    observe.seen(host.pk, boot_id="b2")
    host.refresh_from_db()
    assert host.boot_id == "b2" and reasons(host) == ["answered", "restarted"]


def test_a_changed_key_suspends_once_and_keeps_what_was_offered(host: Host) -> None:
    assert observe.key_changed(host.pk, "ssh-ed25519 AAAA", "It shows another key.", hop=0)
    assert not observe.key_changed(host.pk, "ssh-ed25519 BBBB", "It shows another key.", hop=0)
    host.refresh_from_db()
    assert (host.admission, host.offered_host_key) == ("suspended", "ssh-ed25519 BBBB")
    assert host.state_reason == "It shows another key." and reasons(host) == ["key_changed"]


def test_a_call_that_began_before_its_key_was_accepted_suspends_nothing(host: Host) -> None:
    accepted = "ssh-ed25519 BBBB"
    jumps = [{"address": "jump", "port": 22, "host_key": accepted}]
    Host.objects.filter(pk=host.pk).update(host_key=accepted, jumps=jumps, admission=Host.Admission.ADMITTING)
    for hop in (0, 1):
        assert not observe.key_changed(host.pk, accepted, "It shows another key.", hop=hop)
    host.refresh_from_db()
    assert (host.admission, host.offered_host_key, host.state_reason) == ("admitting", "", "")


def test_heartbeats_are_written_once_a_second(host: Host) -> None:
    observe.heartbeat(host.pk)
    host.refresh_from_db()
    first = host.last_heartbeat_at
    observe.heartbeat(host.pk)
    host.refresh_from_db()
    assert first is not None and host.last_heartbeat_at == first


def test_the_most_pressing_word_is_said_first(host: Host) -> None:
    assert host.state == "unknown"
    host.contact = Host.Contact.REACHABLE
    assert host.state == "ready"
    host.draining = True
    assert host.state == "draining"
    host.contact = Host.Contact.SILENT
    assert host.state == "silent"
    host.admission = Host.Admission.LOST
    assert host.state == "lost"


@pytest.mark.django_db(transaction=True)
def test_an_answer_counts_while_the_host_is_marked_silent(redis_server: object) -> None:
    host = Host.objects.create(
        name="gpu1",
        pool=default_pool(),
        admission=Host.Admission.READY,
        contact=Host.Contact.REACHABLE,
        boot_id="b1",
        last_seen_at=timezone.now() - timedelta(minutes=1),
    )

    def answer() -> None:
        observe.seen(host.pk, boot_id="b1")
        connection.close()

    answering = threading.Thread(target=answer)
    with transaction.atomic():
        Host.objects.filter(pk=host.pk).update(contact=Host.Contact.SILENT)
        answering.start()
        assert pace.wait_until(_waits_for_a_lock, 20)
    answering.join()
    host.refresh_from_db()
    assert host.contact == Host.Contact.REACHABLE


def _waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
        return bool(cursor.fetchone()[0])

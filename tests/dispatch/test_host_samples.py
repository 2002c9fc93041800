"""Hosts and GPUs that no run measures: a sample now and then with the answer that is asked for anyway."""

from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import LazySettings
from django.utils import timezone

from dispatch.runs import reconcile
from dispatch.watching import host_samples, probing
from hosts.models import Host, Slot
from jobs.models import SlotHold
from jobs.states import MemberState
from metrics import sample_store, samples
from metrics.models import SampleChunk
from tests.dispatch.test_probing import ready_host, rest
from tests.rig.rows import make_gang

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_server")]


def names_of(host: Host) -> set[str]:
    return {each.name for each in samples.of_host(host.pk)}


def again(host: Host) -> None:
    """Make it the host's turn to be probed, and to be measured."""
    rest(host)
    Host.objects.filter(pk=host.pk).update(sampled_at=timezone.now() - timedelta(hours=1))


def test_an_idle_host_is_measured_with_its_probe_and_rates_are_since_the_look_before(tmp_path: Path) -> None:
    host = ready_host("idle", tmp_path, transport="local")
    rest(host)
    assert probing.probe_due() == 1
    assert "memory_free" in names_of(host) and "cpu_util_simple" not in names_of(host)
    rest(host)
    assert probing.probe_due() == 1  # asked, but not for a sample: that is due every HOST_SAMPLE_SECONDS
    assert SampleChunk.objects.count() == 1
    again(host)
    assert probing.probe_due() == 1
    assert {"cpu_util_simple", "net_throughput_sent"} <= names_of(host)
    (memory,) = samples.of_host(host.pk, ["memory_free"])
    assert len(memory.times) == 2 and memory.mean.min() > 0
    assert SampleChunk.objects.filter(task=None, host="idle").count() == 2


def test_what_a_run_measures_is_not_asked_for_again(tmp_path: Path, settings: LazySettings) -> None:
    (member,) = make_gang()
    host = member.host
    held, free = (
        Slot.objects.create(host=host, index=index, kind="cuda", uuid=f"GPU-{index}") for index in range(2)
    )
    SlotHold.objects.create(slot=held, member=member)
    type(member).objects.filter(pk=member.pk).update(state=MemberState.RUNNING)
    assert host_samples.questions([host]) == {host.pk: {"sample": {"host": False, "gpus": [free.uuid]}}}
    free.delete()
    assert host_samples.questions([host]) == {}
    settings.SAMPLE_SECONDS = 0  # runs do not measure
    assert host_samples.questions([host]) == {host.pk: {"sample": {"host": True, "gpus": [held.uuid]}}}
    settings.HOST_SAMPLE_SECONDS = 0
    assert not host_samples.due(host, timezone.now())


def test_the_reconciler_asks_for_it_too_and_two_at_once_ask_once(tmp_path: Path) -> None:
    (member,) = make_gang()
    host = member.host
    Host.objects.filter(pk=host.pk).update(workdir=str(tmp_path), python="", admission="ready")
    reconcile.host(host.pk)  # the member was never launched, so nothing measures the host
    assert "memory_free" in names_of(host)
    now = timezone.now() + timedelta(hours=1)
    first, second = Host.objects.get(pk=host.pk), Host.objects.get(pk=host.pk)
    assert host_samples.claim(first, now) and not host_samples.claim(second, now)


def test_they_are_merged_read_and_forgotten_as_those_of_runs(settings: LazySettings) -> None:
    host = make_gang()[0].host
    begin = 1_790_000_100.0  # a quarter of an hour begins here

    def answer(at: float) -> dict[str, object]:
        return {"sample": {"k": "samples", "t": [at], "v": {"cpu_util_simple": [at - begin]}}}

    for second in range(0, 900, 30):
        assert host_samples.store([(host.pk, host.name, answer(begin + second)), (host.pk, "x", {})]) == 1
    assert sample_store.merge_due(60, now=begin + 2000) == 28
    (fine,) = samples.of_host(host.pk, first_time=begin, last_time=begin + 900)
    (coarse,) = samples.of_host(host.pk, first_time=begin, last_time=begin + 900, points=20)
    assert len(fine.times) == 30 and (fine.low == fine.high).all()
    assert len(coarse.times) == 15 and coarse.high.max() == 870
    settings.SAMPLE_POINTS_HOURS, settings.HOST_SAMPLE_RETENTION_DAYS = 1.0, 1.0
    assert sample_store.remove_due(60, now=begin + 90_000) == 2 and samples.of_host(host.pk) == []

import pytest

from hosts import slots
from hosts.models import Host, Slot
from hosts.slots import FoundSlot
from jobs.models import SlotHold
from tests.rig.rows import make_gang

pytestmark = pytest.mark.django_db


def gpu(uuid: str) -> FoundSlot:
    return FoundSlot(Slot.Kind.CUDA, uuid, "H100", 81559)


def rows(host: Host) -> list[tuple[int, str, bool]]:
    return list(host.slots.order_by("index").values_list("index", "uuid", "missing"))


@pytest.fixture
def host() -> Host:
    return make_gang()[0].host


def test_gpus_keep_their_row_by_uuid_whatever_their_order(host: Host) -> None:
    slots.register(host, [gpu("A"), gpu("B")])
    first = dict(host.slots.values_list("uuid", "pk"))
    slots.register(host, [gpu("B"), gpu("C"), gpu("A")])
    assert rows(host) == [(0, "A", False), (1, "B", False), (2, "C", False)]
    assert {uuid: pk for uuid, pk in host.slots.values_list("uuid", "pk") if uuid in first} == first


def test_a_gpu_that_is_gone_loses_its_row_or_is_marked_where_history_points_at_it(host: Host) -> None:
    slots.register(host, [gpu("A"), gpu("B")])
    SlotHold.objects.create(slot=host.slots.get(uuid="A"), member=host.members.get())
    slots.register(host, [gpu("D")])
    assert rows(host) == [(0, "A", True), (1, "D", False)]
    slots.register(host, [gpu("D"), gpu("A")])
    assert rows(host) == [(0, "A", False), (1, "D", False)]


def test_cpu_slots_follow_their_number(host: Host) -> None:
    cpu = FoundSlot(Slot.Kind.CPU)
    slots.register(host, [cpu] * 3)
    slots.register(host, [cpu])
    assert rows(host) == [(0, "", False)]
    slots.register(host, [gpu("A")])
    assert rows(host) == [(0, "A", False)]

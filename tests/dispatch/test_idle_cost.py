"""What a server that has nothing to do asks of PostgreSQL: a beat brings hundreds of messages a minute."""

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from dispatch import tasks
from dispatch.passes import pool_pass
from dispatch.ssh import tunnel
from hosts.models import Host
from hosts.pools import default_pool
from notifications import outbox
from notifications import tasks as notifications
from tests.rig.world import make_host, submit_experiment

pytestmark = pytest.mark.django_db

#: task -> the most statements that it needs to see that there is nothing to do
STATEMENTS: list[tuple[Callable[[], Any], int]] = [
    (tasks.tick, 1),
    (notifications.look, 2),
    # its stamp, what is forgotten (2), who is due, who may be lost (whether this server is whole, then which)
    (tasks.probe_all, 7),
    # whether a service is unused, whether a host needs a tunnel, its lease, whether there is work, which hosts are
    # silent (in a transaction), which are lost
    (tasks.sweep, 9),
]


@pytest.mark.parametrize(("task", "most"), STATEMENTS)
def test_an_idle_server_asks_little(
    task: Callable[[], Any], most: int, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    make_host("gpu1", 1)
    while pool_pass.run(default_pool().pk):
        pass
    for _ in range(2):  # the cursor comes to the end of what has happened in two looks
        outbox.look(timezone.now())
    with django_assert_max_num_queries(most):
        task()


def test_what_is_open_is_looked_at_in_every_sweep(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    make_host("gpu1", 1)
    submit_experiment()
    pool_pass.run(default_pool().pk)
    with django_assert_max_num_queries(100) as asked:
        tasks.sweep()
    assert len(asked) > 10


def test_a_sweep_asks_for_other_tasks_only_when_they_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(tasks, "wake", lambda name, *_: asked.append(name))
    host = make_host("gpu1", 1)
    tasks.sweep()
    assert asked == []
    Host.objects.filter(pk=host.pk).update(server_route=tunnel.ROUTE)
    tasks.sweep()
    assert asked == ["dispatch.host_tasks.keep_tunnels"]


def test_notifications_look_when_an_event_was_written() -> None:
    outbox.look(timezone.now())
    make_host("gpu1", 1)
    submit_experiment()
    assert outbox.anything_new()

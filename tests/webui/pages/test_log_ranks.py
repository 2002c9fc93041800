"""What the rank box asks: which ranks an expression chooses now."""

import pytest
from django.test import Client

from accounts.models import User
from jobs.models import Allocation, Task
from jobs.states import AllocationState, Reason
from logs import pulse
from logs.models import RankSeen
from logs.rank_expression import NOBODY
from tests.rig.rows import make_command


@pytest.fixture
def command(db: None) -> str:
    """The address of a command of two hosts with four ranks each; rank 2 fell silent, rank 3 is stopped,
    rank 5 failed first in an attempt before."""
    found = make_command(hosts=2)
    task: Task = found.task
    for rank in range(8):
        RankSeen.objects.create(
            task=task,
            rank=rank,
            host=f"gpu-{1 + rank // 4}",
            lines=10,
            last_time=1000.0 if rank != 2 else 980.0,
        )
    RankSeen.objects.create(task=task, rank=-1, host="gpu-1", lines=3, last_time=900.0)
    said = [
        {"rank": rank, "pid": rank, "state": "T" if rank == 3 else "S", "state_seconds": 20.0}
        for rank in range(4)
    ]
    pulse.keep(task.allocations.get().members.get(index=0).pk, said)
    RankSeen.objects.create(task=task, rank=7, host="gpu-1", lines=3, last_time=900.0)  # before it moved
    Allocation.objects.create(
        id=f"{task.pk}.0",
        task=task,
        number=0,
        pool=task.job.pool,
        slots=2,
        state=AllocationState.TERMINATED,
        exit_reason=Reason.RANK_FAILED,
        exit_detail={"rank": 5, "code": 1},
    )
    return f"/commands/{found.pk}/ranks"


@pytest.fixture
def client() -> Client:
    client = Client()
    client.force_login(User.objects.create(username="ada", role=User.Role.VIEWER))
    return client


@pytest.mark.parametrize(
    ("text", "ranks", "count"),
    [
        ("", [], 8),
        ("0-2", [0, 1, 2], 3),
        ("silent", [2], 1),
        ("failed", [5], 1),
        ("marked", [3], 1),
        ("host:gpu-2", [4, 5, 6, 7], 4),
        ("one-per-host", [0, 4], 2),
        ("none", [-1], 0),
        ("host:gpu-9", [NOBODY], 0),
    ],
)
def test_an_expression_is_answered_with_its_ranks(
    command: str, client: Client, text: str, ranks: list[int], count: int
) -> None:
    answer = client.get(command, {"ranks": text}).json()
    assert (answer["ranks"], answer["count"], answer["of"]) == (ranks, count, 8)
    assert answer["changes"] is (text not in ("", "0-2", "none"))


def test_a_fault_is_answered_with_a_sentence(command: str, client: Client) -> None:
    answer = client.get(command, {"ranks": "0-7 quiet"}).json()
    assert answer["fault"].startswith("'quiet' is not a rank expression; allowed: ")


def test_the_columns_are_a_page_of_commands_and_trials(command: str, client: Client) -> None:
    page = client.get(command.replace("/ranks", "/logs/columns"), {"ranks": "0,1,5"})
    assert page.status_code == 200
    assert command.removesuffix("/ranks") in page.content.decode()
    assert client.get("/trials/999999/logs/columns").status_code == 404
    assert client.get("/trials/999999/ranks").status_code == 404

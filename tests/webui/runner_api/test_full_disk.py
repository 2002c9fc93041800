"""The server's own disk is full: nothing is stored by half, pages are served, and runners go on where they stood."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from django.conf import LazySettings
from django.db import OperationalError, connection
from django.test import Client

from accounts.models import User
from logs import store
from logs.lines import NewLine, blocks_of
from logs.streams import stored
from tests.rig.rows import RUN_TOKEN, make_gang
from tests.rig.web import Web
from tests.webui.runner_api.test_checkpoints import make_checkpoint, make_trial
from tests.webui.runner_api.test_streams import records, send, texts
from webui.api.errors import describe

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.survive(9)]
MIB = 1024 * 1024


@pytest.fixture
def runner(web: Web) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {RUN_TOKEN}"}
    with httpx.Client(base_url=f"{web.url}/runner/v1", headers=headers, timeout=60) as client:
        yield client


@contextmanager
def full_database() -> Iterator[None]:
    """PostgreSQL answers each new log line as it does when it finds no space for it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION "
            "'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$"
        )
        cursor.execute(
            "CREATE TRIGGER full_disk BEFORE INSERT ON logs_chunk FOR EACH ROW EXECUTE FUNCTION full_disk()"
        )
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION full_disk() CASCADE")


def test_a_full_database_takes_nothing_and_goes_on_at_the_same_offset(web: Web, runner: httpx.Client) -> None:
    member, body = make_gang()[0], records("one", "two")
    with full_database():
        answer = send(runner, member, 0, body)
        assert answer.status_code == 507 and int(answer.headers["retry-after"]) > 0
        assert "database is full" in answer.json()["message"]
        assert stored(member.pk) == 0 and texts(member) == []
        assert httpx.get(f"{web.url}/login").status_code == 200
        assert runner.post(f"/streams/{member.allocation_id}/0/heartbeat", json={}).status_code == 200
    assert send(runner, member, 0, body).json()["offset"] == len(body)
    assert texts(member) == ["one", "two"]


@pytest.fixture
def small_disk(web: Web) -> Iterator[Path]:
    """Files that grow are on a file system of 1 MiB."""
    incoming = web.data_dir / "checkpoints" / ".incoming"
    incoming.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(incoming)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        yield incoming
    finally:
        subprocess.run(["umount", "-l", str(incoming)], check=True)


def test_a_full_disk_keeps_what_has_come_and_goes_on_behind_it(
    web: Web, runner: httpx.Client, small_disk: Path
) -> None:
    model = os.urandom(2 * MIB)
    part = model[: 3 * MIB // 2]
    member = make_gang()[0]
    checkpoint = make_checkpoint(make_trial(member), member, {"model.pt": model})
    path = f"/checkpoints/{checkpoint.pk}/parts/model.pt"
    query = {"offset": 0, "size": len(model)}
    full = runner.put(path, params=query, content=part)
    assert full.status_code == 507 and int(full.headers["retry-after"]) > 0, full.text
    assert full.json()["message"].startswith("The server's disk is full.")
    assert httpx.get(f"{web.url}/login").status_code == 200
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    offset = runner.get(path).json()["offset"]
    assert 0 < offset <= MIB
    rest = runner.put(path, params={**query, "offset": offset}, content=part[offset:])
    assert rest.json() == {"offset": len(part)}, rest.text
    (landed,) = small_disk.iterdir()
    assert landed.read_bytes() == part


def test_pages_warn_before_it_is_full(client: Client, settings: LazySettings, tmp_path: Path) -> None:
    client.force_login(User.objects.create_user("ada"))
    settings.DATA_DIR = tmp_path
    assert "nearly full" not in client.get("/settings").content.decode()
    settings.DISK_NEARLY_FULL_BYTES = 2**62
    assert f"left in {tmp_path}" in client.get("/settings").content.decode()


def test_rest_says_that_the_disk_is_full() -> None:
    task = make_gang()[0].allocation.task_id
    with full_database(), pytest.raises(OperationalError) as caught:
        store.append(task, None, "", blocks_of([NewLine(1.0, None, "server", "INFO", "x")]))
    code, sentence = describe(caught.value)
    assert code == 507 and "database is full" in sentence

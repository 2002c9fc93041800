"""Ranks of a log in a real browser: chips for few, a box and a heat map for many, columns side by side."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from accounts.models import User
from commands.models import Command
from jobs.models import Member
from logs import store
from logs.lines import NewLine, blocks_of
from tests.rig.browser import Browser, programs, running_browser
from tests.rig.rows import make_command
from tests.rig.web import Web, running_web
from webui.embedded.redis import Redis

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

LOCAL_RANKS = 8
SHOWN = 'return [...new Set([...document.querySelectorAll(".log-row[data-rank]")].map((row) => Number(row.dataset.rank)))].sort((a, b) => a - b)'


@pytest.fixture(scope="module")
def web(
    django_db_setup: None, redis_server: Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Web]:
    folder: Path = tmp_path_factory.mktemp("web")
    with running_web(folder) as process:
        yield process


@pytest.fixture(scope="module")
def window(web: Web) -> Iterator[Browser]:
    if programs() is None:
        pytest.skip("needs chromium and chromedriver")
    with running_browser(web.url) as browser:
        browser.look(dark=False, width=1440)
        yield browser


@pytest.fixture
def browser(window: Browser, client: Client, db: None) -> Browser:
    """Logged in anew: each test has a database of its own."""
    client.force_login(User.objects.create(username="ada", role=User.Role.ADMIN))
    window.open("/login")
    window.driver.delete_all_cookies()
    name = settings.SESSION_COOKIE_NAME
    window.driver.add_cookie({"name": name, "value": client.cookies[name].value})
    return window


def gang(hosts: int) -> tuple[Command, list[Member]]:
    command = make_command(hosts)
    return command, list(command.task.allocations.get().members.order_by("index"))


def write(member: Member, rank: int | None, *texts: str, at: float | None = None) -> int:
    """Lines of one rank, as its runner ships them; says the number of the last."""
    lines = [NewLine(at or time.time(), rank, "stdout", None, text) for text in texts]
    return store.append(member.allocation.task_id, member, member.host.name, blocks_of(lines))[1]


def write_all(members: list[Member], count: int = 1) -> None:
    for member in members:
        for local in range(LOCAL_RANKS):
            rank = member.index * LOCAL_RANKS + local
            write(member, rank, *(f"rank {rank} line {number}" for number in range(1, count + 1)))

"""Pages do not stand behind the lines that jobs flood the server with: an order of events, whatever the speed."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
from django.conf import settings
from django.test import Client

from accounts.models import User
from jobs.models import Member
from tests.rig.rows import make_gang
from tests.rig.web import Web
from tests.webui.runner_api.test_budget import shipper

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.survive(28)]
FLOODS = 6


class Flood:
    """Jobs that ship as fast as they are let until they are told to end."""

    def __init__(self, web: Web) -> None:
        self.stored = [0] * FLOODS
        self.members = [make_gang(token=f"flood-{number}")[0] for number in range(FLOODS)]
        self.over = threading.Event()
        self.began = threading.Barrier(FLOODS + 1)
        self._web = web

    def ship(self, number: int, member: Member) -> None:
        for answer in shipper(self._web, member, f"flood-{number}", 20_000):
            assert answer.status_code in (200, 429), answer.text
            self.stored[number] += answer.status_code == 200
            if self.stored[number] == 1 and answer.status_code == 200:
                self.began.wait(120)
            if self.over.is_set():
                return


@contextmanager
def flooding(web: Web) -> Iterator[Flood]:
    """A flood that has begun, of every job, and ends with the block alone."""
    flood = Flood(web)
    with ThreadPoolExecutor(FLOODS) as pool:
        ships = [pool.submit(flood.ship, number, member) for number, member in enumerate(flood.members)]
        try:
            flood.began.wait(120)
            yield flood
            assert not any(ship.done() for ship in ships), "the flood was not to end before its pages"
        finally:
            flood.over.set()
        for ship in ships:
            ship.result(120)


def test_a_page_that_is_asked_for_in_a_flood_is_answered_before_the_flood_ends(
    web: Web, client: Client
) -> None:
    client.force_login(User.objects.create_user("ada"))
    cookies = {settings.SESSION_COOKIE_NAME: client.cookies[settings.SESSION_COOKIE_NAME].value}
    with httpx.Client(base_url=web.url, cookies=cookies, timeout=120) as browser, flooding(web):
        for page in ("/jobs", "/hosts", "/experiments", "/api/v1/job-queues-v2"):
            answer = browser.get(page)
            assert answer.status_code == 200, f"{page}: {answer.text[:300]}"

"""Usage and shares in a real browser: the chart with its numbers, grouped and dated by the address, and its files."""

import pytest

from tests.browser.test_pages import look_at
from tests.rig.browser import WIDE, programs, running_browser
from tests.rig.server import Server

pytestmark = pytest.mark.browser

#: six users over 14 days in two pools, and who of them holds and wants slots of a fair-share pool now
CROWD = """
from datetime import timedelta
from django.utils import timezone
from accounts.models import User
from hosts import pool_edits
from hosts.models import Host, PoolChange, ResourcePool, Slot
from hosts.pools import default_pool
from jobs.models import Allocation, Job, Member, SlotHold, Task, UsageRecord

now = timezone.now()
pools = [default_pool(), pool_edits.create("a100", {}, actor="user:admin")]
names = ["admin", "ada", "bob", "carol-with-a-rather-long-name", "dan", "eve"]
users = [User.objects.get_or_create(username=name)[0] for name in names]
labels = [["llm"], ["llm", "night"], [], ["vision"]]
UsageRecord.objects.bulk_create(
    UsageRecord(run_key=f"t{day}-{n}.1.0", kind="TRIAL", owner=user, pool=pools[n % 2], slots=1 + n,
                labels=labels[(day + n) % 4], started_at=now - timedelta(days=day, hours=n),
                ended_at=now - timedelta(days=day - 0.05 * (1 + (day * n) % 7), hours=n))
    for day in range(1, 60) for n, user in enumerate(users)
)
ResourcePool.objects.filter(pk=pools[1].pk).update(scheduler="fair_share")
host = Host.objects.create(name="gpu1", pool=pools[1], admission="ready", contact="reachable", address="10.9.0.1",
                           last_seen_at=now + timedelta(days=1),
                           probe_after=now + timedelta(seconds=100))
slots = Slot.objects.bulk_create(Slot(host=host, index=index, kind="cuda", brand="H200") for index in range(8))
for n, user in enumerate(users[:4]):
    job = Job.objects.create(kind="EXPERIMENT", name=f"train-{user}", owner=user, pool=pools[1], position=n)
    running = Task.objects.create(id=f"r{n}", job=job, kind="TRIAL", name="t", slots=2, state="RUNNING")
    Task.objects.create(id=f"w{n}", job=job, kind="TRIAL", name="t", slots=1 + n)
    allocation = Allocation.objects.create(id=f"r{n}.1", task=running, number=1, pool=pools[1], slots=2,
                                           state="RUNNING")
    member = Member.objects.create(allocation=allocation, index=0, host=host, slots=2, state="RUNNING",
                                   launched_at=now, started_at=now)
    SlotHold.objects.bulk_create(SlotHold(slot=slots[2 * n + i], member=member) for i in range(2))
PoolChange.objects.create(pool=pools[1])
"""
FITS = """
const drawn = document.querySelector(".main-svg");
return !drawn || Math.abs(drawn.getBoundingClientRect().width - drawn.closest(".chart").clientWidth) < 2;
"""


def test_usage_is_charted_grouped_and_downloaded(empty_server: Server) -> None:
    if programs() is None:
        pytest.skip("needs chromium and chromedriver")
    with running_browser(empty_server.url) as window:
        window.look(dark=False, width=WIDE)
        window.login("admin", empty_server.password)
        wrong = look_at(window, "/usage", {})
        assert "No slots were held" in window.text("main")
        empty_server.shell(CROWD)
        window.open("/jobs/a100")
        window.wait(lambda: "your fair share is 2" in window.text("#queue-share"), "the next pass, live")
        for address in ("/usage", "/usage?by=month&group=label", "/pools/a100", "/jobs/a100"):
            wrong += look_at(window, address, {})
            name = address.replace("/", "_").partition("?")[0] + ("-month" if "month" in address else "")
            window.keep(name, until=FITS)
        window.look(dark=False, width=WIDE)
        window.open("/usage")
        window.wait(lambda: window.all("#charts .main-svg"), "the chart")
        assert "Slot-hours by user, 14 days" in str(window.attributes("#charts .chart", "aria-label"))
        window.click('[aria-label="Grouped by"] a[href*="group=pool"]')
        window.wait(lambda: "Resource pool" in window.text(".usage table"), "the pools")
        assert window.run("return location.search") == "?group=pool"
        window.one("form.filters button").click()
        window.wait(lambda: "from=" in window.run("return location.search"), "the period in the address")
        [link] = window.attributes('a[href^="/resources/allocation/aggregated"]', "href")
        file = window.driver.execute_async_script(
            "const done = arguments[1]; fetch(arguments[0]).then((answer) => answer.text()).then(done)", link
        )
        assert (
            file.startswith("aggregation_type,aggregation_key,date,seconds\n")
            and "resource_pool,a100" in file
        )
    assert not wrong, "\n".join(wrong)

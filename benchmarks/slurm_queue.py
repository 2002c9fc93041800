"""What the queue of a full Slurm pool costs beside that of a full pool of hosts: a pass, and the queue's page.

    WAITING=5000 HOSTS=1000 python -m benchmarks.slurm_queue

Two pools of the same machines, all of whose slots others use, and the same work that waits in each. Statements, and
milliseconds of processor here and in PostgreSQL, in turns. How long the 10,000 jobs of others take to read is measured
by `benchmarks.slurm_answers`.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import database
from benchmarks.rows import Row, finish, size

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
os.environ["DJANGO_SETTINGS_MODULE"] = "webui.settings"
os.environ["TRAINMASTER_SECRET_KEY"] = "benchmark"
os.environ["TRAINMASTER_LOG_LEVEL"] = "WARNING"

WAITING = size("WAITING", 5_000, quick=500)
HOSTS = size("HOSTS", 1_000, quick=100)
ROUNDS = size("ROUNDS", 7, quick=3)
#: of the same for a pool of hosts, at most
MOST = {"pass": 1.25, "statements": 1.0, "page": 1.25}
REPORT = Path(__file__).parent / "reports" / "slurm_queue.md"
NAMES = ("hosts", "slurm")


def make_pool(name: str, owner: Any) -> Any:
    """A pool of hosts whose slots others use, and what waits there."""
    from benchmarks import one_pass
    from hosts.models import Slot

    pool = one_pass.make_pool(name, HOSTS)
    outside = {"user": "eve", "pid": None, "command": "Slurm job 7"}
    Slot.objects.filter(host__pool=pool).update(outside=outside)
    one_pass.make_waiting(pool, owner, WAITING)
    return pool


def make_slurm(pool: Any) -> None:
    """Its hosts become the nodes of a cluster, with a login node."""
    from hosts.models import Host, ResourcePool

    Host.objects.filter(pool=pool).update(transport=Host.Transport.SLURM)
    ready = {"admission": Host.Admission.READY, "contact": Host.Contact.REACHABLE}
    Host.objects.create(
        name=f"{pool.name}-login", pool=pool, transport=Host.Transport.LOGIN, workdir="/shared", **ready
    )
    ResourcePool.objects.filter(pk=pool.pk).update(
        slurm={"login": "stars"}, allow_login_account=True, shared_account=True
    )


def seen_page(client: Any, pool: Any) -> tuple[int, float]:
    """Statements and milliseconds of processor of the queue's page."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    begun = time.process_time()
    with CaptureQueriesContext(connection) as asked:
        answer = client.get(f"/jobs/{pool.name}", {"show": "all"})
    assert answer.status_code == 200, (answer.status_code, answer.headers)
    return len(asked), (time.process_time() - begun) * 1000


def measured() -> dict[str, dict[str, list[float]]]:
    """Pool -> figure -> its values."""
    from tests.rig.parts import private_folder

    with ExitStack() as stack:
        folders = [stack.enter_context(private_folder(name)) for name in ("postgres", "redis")]
        stack.enter_context(database.parts(folders[0], folders[1]))
        from django.db import connection
        from django.test import Client

        from accounts.models import User
        from benchmarks.one_pass import timed_pass

        owner = User.objects.create_user("bench", role=User.Role.EDITOR)
        pools = {name: make_pool(name, owner) for name in NAMES}
        make_slurm(pools["slurm"])
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
        client = Client(headers={"host": "127.0.0.1"})
        client.force_login(owner, backend="django.contrib.auth.backends.ModelBackend")
        found: dict[str, dict[str, list[float]]] = {
            name: {"pass": [], "statements": [], "page": []} for name in NAMES
        }
        for number in range(ROUNDS + 1):
            for name, pool in pools.items():
                parts = timed_pass(pool)["processor"]
                statements, page = seen_page(client, pool)
                if number:  # the first has everything to read
                    found[name]["pass"].append(
                        sum(sum(each) for part, each in parts.items() if part != "forecast")
                    )
                    found[name]["statements"].append(statements)
                    found[name]["page"].append(page)
        return found


def main() -> int:
    found = measured()
    middle = {
        name: {what: statistics.median(values) for what, values in each.items()}
        for name, each in found.items()
    }
    ratios = {what: middle["slurm"][what] / middle["hosts"][what] for what in middle["hosts"]}
    words = {
        "pass": "a pass, ms of processor",
        "statements": "the queue's page, statements",
        "page": "the queue's page, ms",
    }
    lines = [
        "# The queue of a Slurm pool",
        "",
        f"{WAITING:,} trials wait in each of two pools with {HOSTS:,} machines of 8 slots, all of which others use; "
        f"medians of {ROUNDS} rounds in turns on {os.cpu_count()} cores, load {os.getloadavg()[1]:.0f}. Passes are "
        "without their forecasts: those of a pool of hosts are played, those of a Slurm pool are read.",
        "",
        "| | pool of hosts | Slurm pool | ratio |",
        "|---|---|---|---|",
        *(
            f"| {words[what]} | {middle['hosts'][what]:.0f} | {middle['slurm'][what]:.0f} | {ratios[what]:.2f} |"
            for what in words
        ),
        "",
    ]
    rows = [
        Row(
            f"{WAITING:,} waiting in a Slurm pool: {words[what]}", ratio, "x a pool of hosts", most=MOST[what]
        )
        for what, ratio in ratios.items()
    ]
    return finish(REPORT, "\n".join(lines), rows)


if __name__ == "__main__":
    sys.exit(main())

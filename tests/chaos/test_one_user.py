"""One user who asks for all that a server will give: it stays small, and others are served. `-s` prints the figures."""

from __future__ import annotations

import json
import socket
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from django.test import Client
from websockets.sync.client import ClientConnection, connect

from accounts.models import LoginToken, User
from dispatch.passes import pool_pass
from dispatch.runs import intake
from embedded.redis import Redis
from jobs.models import Job, Member
from logs import read, store
from logs.lines import NewLine, blocks_of
from tests.rig import pace
from tests.rig.rows import make_gang
from tests.rig.stack import config
from tests.rig.web import Web, running_web
from tests.rig.world import make_host, make_user, members_of, submit_experiment, trial_of

pytestmark = [pytest.mark.chaos, pytest.mark.django_db(transaction=True)]

MEBIBYTE = 1024**2


@pytest.fixture
def served(redis_server: Redis, tmp_path: Path) -> Iterator[Web]:
    with running_web(tmp_path) as web:
        yield web


def memory(web: Web) -> int:
    """Bytes of memory that the web process has in use."""
    for line in Path(f"/proc/{web.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the web process is gone")


def work(web: Web) -> float:
    """Seconds of processor time that the web process has used."""
    fields = Path(f"/proc/{web.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def login_of(user: User) -> dict[str, str]:
    return {"Authorization": f"Bearer {LoginToken.issue(user)}"}


@contextmanager
def asking(web: Web, user: User, path: str = "/api/v1/me") -> Iterator[list[float]]:
    """Ask as this user twice a second until the block ends: the times of the answers, all of them with status 200."""
    times: list[float] = []
    statuses: Counter[int] = Counter()
    is_over, headers = threading.Event(), login_of(user)

    def ask() -> None:
        with httpx.Client(base_url=web.url, headers=headers, timeout=120) as client:
            while not is_over.is_set():
                begun = time.monotonic()
                statuses[client.get(path).status_code] += 1
                times.append(time.monotonic() - begun)
                is_over.wait(0.5)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield times
    finally:
        is_over.set()
        thread.join()
    assert set(statuses) == {200}, statuses


def told(times: list[float]) -> str:
    return f"{len(times)} answers to another user, median {statistics.median(times):.2f} s, slowest {max(times):.2f} s"


def write(member: Member, first: int, count: int) -> None:
    """Lines of about 100 bytes, in batches as runners send them."""
    for begin in range(first, first + count, 1000):
        lines = [
            NewLine(time.time(), 0, "stdout", None, f"line {begin + i:08} {'x' * 86}") for i in range(1000)
        ]
        store.append(member.allocation.task_id, member, member.host.name, blocks_of(lines))


def path_of(member: Member) -> str:
    return f"/ws/tasks/{member.allocation.task_id}/logs"


@contextmanager
def open_log(web: Web, member: Member, user: User) -> Iterator[ClientConnection]:
    address, headers = f"{web.socket_url}{path_of(member)}", login_of(user)
    with connect(address, additional_headers=headers, max_size=None, open_timeout=120) as opened:
        opened.send(json.dumps({"after": 0}))
        yield opened


def read_until(viewer: ClientConnection, number: int) -> None:
    while json.loads(viewer.recv(timeout=120)).get("upto", 0) < number:
        pass


def test_fifty_live_views_of_a_log_of_one_user(served: Web) -> None:
    member, bob = make_gang()[0], make_user("bob")
    owner, lines = member.allocation.task.job.owner, 20_000
    write(member, 0, lines)
    before, used = memory(served), work(served)
    with ExitStack() as opened, asking(served, bob) as times:
        viewers = [opened.enter_context(open_log(served, member, owner)) for _ in range(50)]
        readers = [threading.Thread(target=read_until, args=(viewer, lines)) for viewer in viewers]
        begun = time.monotonic()
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        took, grown = time.monotonic() - begun, memory(served) - before
        print(f"50 views read {lines:,} lines each in {took:.1f} s, {work(served) - used:.1f} s of work; "
              f"{grown / MEBIBYTE:.0f} MiB more; {told(times)}")  # fmt: skip
        threads = [threading.Thread(target=_drain, args=(viewer,), daemon=True) for viewer in viewers]
        for thread in threads:
            thread.start()
        used = work(served)
        time.sleep(20)
        print(f"idle, they take {(work(served) - used) / 20:.1%} of a processor")
    assert grown < 150 * MEBIBYTE and max(times) < 20 * pace.factor()


def _drain(viewer: ClientConnection) -> None:
    try:
        while True:
            viewer.recv()
    except Exception:
        return


def raw_view(web: Web, member: Member, user: User) -> socket.socket:
    """A viewer's connection as bytes, with a small buffer on this side."""
    at = urlsplit(web.url)
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.connect((at.hostname, at.port))
    head = [f"GET {path_of(member)} HTTP/1.1", f"Host: {at.netloc}", "Upgrade: websocket", "Connection: Upgrade",
            "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==",
            f"Authorization: {login_of(user)['Authorization']}", "", ""]  # fmt: skip
    raw.sendall("\r\n".join(head).encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += raw.recv(1)
    assert b" 101 " in answer, answer
    wish = json.dumps({"after": 0}).encode()
    raw.sendall(bytes([0x81, 0x80 | len(wish), 0, 0, 0, 0]) + wish)  # a frame whose mask is zero
    return raw


def test_viewers_that_read_a_kilobyte_a_second_while_a_run_prints_fast(served: Web) -> None:
    member, bob = make_gang()[0], make_user("bob")
    owner, lines = member.allocation.task.job.owner, 300_000
    write(member, 0, 1000)
    with ExitStack() as opened, asking(served, bob) as times:
        slow = [opened.enter_context(raw_view(served, member, owner)) for _ in range(20)]
        is_over, got = threading.Event(), Counter[int]()

        def sip(index: int) -> None:
            while not is_over.wait(1):
                got[index] += len(slow[index].recv(1000))

        sipping = [threading.Thread(target=sip, args=(index,)) for index in range(len(slow))]
        fast = opened.enter_context(open_log(served, member, owner))
        follower = threading.Thread(target=read_until, args=(fast, lines))
        before, peak = memory(served), 0
        begun = time.monotonic()
        for thread in (*sipping, follower):
            thread.start()
        for first in range(1000, lines, 10_000):
            write(member, first, min(10_000, lines - first))
            peak = max(peak, memory(served))
        wrote = time.monotonic() - begun
        follower.join()
        took = time.monotonic() - begun
        peak = max(peak, memory(served))
        is_over.set()
        for thread in sipping:
            thread.join()
        print(f"{lines:,} lines (some {lines * 100 // MEBIBYTE} MiB) written in {wrote:.0f} s, read by another "
              f"view after {took:.0f} s; 20 slow views read {min(got.values()):,} to {max(got.values()):,} bytes; "
              f"{(peak - before) / MEBIBYTE:.0f} MiB more at most; {told(times)}")  # fmt: skip
    assert min(got.values()) > 0
    assert took < wrote + 30 * pace.factor(), "the fast viewer is held up"
    assert peak - before < 150 * MEBIBYTE and max(times) < 20 * pace.factor()


def test_frames_that_come_a_byte_a_second_hold_up_nobody(served: Web) -> None:
    member, bob = make_gang()[0], make_user("bob")
    owner = member.allocation.task.job.owner
    write(member, 0, 1000)
    before = memory(served)
    with ExitStack() as opened, asking(served, bob) as times:
        slow = [opened.enter_context(raw_view(served, member, owner)) for _ in range(50)]
        for raw in slow:  # a frame of a megabyte, of which nearly nothing comes
            raw.sendall(bytes([0x81, 0x80 | 127]) + MEBIBYTE.to_bytes(8, "big") + bytes(4))
        for _ in range(15):
            for raw in slow:
                raw.sendall(b"x")
            time.sleep(1)
        read_until(opened.enter_context(open_log(served, member, owner)), 1000)
        grown = memory(served) - before
        print(f"50 slow senders: {grown / MEBIBYTE:.0f} MiB more; {told(times)}")
    assert grown < 100 * MEBIBYTE and max(times) < 10 * pace.factor()


#: lower than by default, for a machine that takes fewer than 1,000 a minute
SUBMISSIONS = 100


@pytest.fixture
def strict(redis_server: Redis, tmp_path: Path) -> Iterator[Web]:
    with running_web(tmp_path, TRAINMASTER_SUBMISSIONS_PER_MINUTE=str(SUBMISSIONS)) as web:
        yield web


def test_ten_thousand_submissions_in_a_minute(strict: Web) -> None:
    served = strict
    ada, bob = make_user("ada"), make_user("bob")
    make_host("gpu1", 1)
    headers, body = login_of(ada), {"config": config(1, "true"), "modelDefinition": [], "activate": True}
    answers: Counter[int] = Counter()
    sentences: Counter[str] = Counter()
    taken = threading.Lock()
    left, until = iter(range(10_000)), time.monotonic() + 60

    def submit() -> None:
        with httpx.Client(base_url=served.url, headers=headers, timeout=120) as client:
            while time.monotonic() < until:
                with taken:
                    if next(left, None) is None:
                        return
                answer = client.post("/api/v1/experiments", json=body)
                with taken:
                    answers[answer.status_code] += 1
                    if answer.status_code != 200:
                        sentences[answer.json()["message"]] += 1

    before, used, begun = memory(served), work(served), time.monotonic()
    with asking(served, bob) as times, asking(served, bob, "/api/v1/experiments?limit=10") as lists:
        senders = [threading.Thread(target=submit) for _ in range(16)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        took, grown = time.monotonic() - begun, memory(served) - before
        mine = httpx.post(f"{served.url}/api/v1/experiments", json=body, headers=login_of(bob), timeout=120)
    print(
          f"{sum(answers.values()):,} requests in {took:.0f} s: {dict(answers)}, {work(served) - used:.0f} s of work; "
          f"{grown / MEBIBYTE:.0f} MiB more; {told(times)}; lists: {told(lists)}; {sentences.most_common(3)}"
    )  # fmt: skip
    assert mine.status_code == 200, mine.text
    assert (
        set(answers) <= {200, 429} and 0 < answers[200] <= SUBMISSIONS * (1 + took // 60) + 6
    )  # that were under way together
    assert (
        all(f"within a minute; allowed: at most {SUBMISSIONS}. Submit" in sentence for sentence in sentences)
        and sentences
    )
    assert answers[200] == Job.objects.filter(owner=ada).count()
    assert grown < 150 * MEBIBYTE and max(*times, *lists) < 20 * pace.factor()


def records(group: str, first: int, count: int) -> bytes:
    values = {f"metric {number:07}": 0.5 for number in range(first, first + count)}
    data = {"type": "metrics", "group": group, "steps_completed": 1, "metrics": values, "t": 1.0}
    return json.dumps({"k": "core", "d": data}).encode() + b"\n"


@pytest.mark.parametrize(
    "group_of", [lambda _: "training", lambda part: f"group {part}"], ids=["one group", "many groups"]
)
def test_a_million_metric_names(served: Web, group_of: Callable[[int], str]) -> None:
    make_host("gpu1", 1)
    experiment = submit_experiment()
    pool_pass.run(experiment.job.pool_id)
    member, trial = members_of(experiment)[0], trial_of(experiment)
    offset, part, begun = 0, 10_000, time.monotonic()
    for first in range(0, 1_000_000, part):
        body = records(group_of(first // part), first, part)
        assert intake.store(member.pk, offset, body).offset == offset + len(body)
        offset += len(body)
    took = time.monotonic() - begun
    said = {line.text for line in read.forward(member.allocation.task_id).lines if "metrics" in line.text}
    trial.refresh_from_db()
    names = sum(len(group) for group in trial.summary_metrics.values())
    print(
        f"taken in {took:.0f} s; {names:,} names kept; the log has {len(said)} sentences, such as {sorted(said)[:1]}"
    )
    before = memory(served)
    pages = [f"/trials/{trial.pk}", f"/experiments/{experiment.pk}", "/experiments", f"/api/v1/trials/{trial.pk}",
             f"/api/v1/experiments/{experiment.pk}/trials"]  # fmt: skip
    browser = Client()
    browser.force_login(experiment.owner)
    cookies = {name: morsel.value for name, morsel in browser.cookies.items()}
    with httpx.Client(base_url=served.url, cookies=cookies, timeout=300) as client:
        for path in pages:
            asked = time.monotonic()
            answer = client.get(path)
            assert answer.status_code == 200, path
            seconds = time.monotonic() - asked
            print(f"{path}: {seconds:.2f} s, {len(answer.content):,} bytes")
            assert seconds < 20 * pace.factor(), path
    print(f"the web process has {(memory(served) - before) / MEBIBYTE:.0f} MiB more")
    assert names <= 20_000 and said

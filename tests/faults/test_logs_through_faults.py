"""Every part between a rank and the reader fails once while a gang of eight prints, poison among its lines.

At the end each rank's bytes are stored once and in order, and a browser that was open all the time shows exactly what
is stored."""

import re
import urllib.request
from collections.abc import Iterator

import pytest

from tests.rig.browser import Browser, programs, running_browser
from tests.rig.hosts import HostRig
from tests.rig.log_page import read_through
from tests.rig.stack import LAUNCHER, Stack, config, running_stack

pytestmark = [pytest.mark.chaos, pytest.mark.hosts, pytest.mark.browser]

SLOTS = 4
RANKS = 2 * SLOTS
#: Each rank prints until it is told to stop, keeps a copy of its bytes beside it, and some lines are poison.
WORKER = r"""
import pathlib, sys, time

POISON = [
    b"a NUL \0 within", b"a lone surrogate \xed\xa0\x80 in UTF-8", b"no UTF-8 \xff\xfe at all", b"",
    b"\x1b[31mred\x1b[0m and \x1b]0;a title\x07 and \x1b[2J gone", b"<script>document.title = 'owned'</script>",
    "right to left \u202e and a fox \U0001f98a".encode(), b"five megabytes " + b"x" * 5_000_000, b"last of the poison",
]
rank, number = int(sys.argv[1]), 0
with open(f"written.{rank}", "wb") as copy:
    while not pathlib.Path("stop").exists():
        number += 1
        lines = [b"line %d" % number]
        if number % 40 == 0 and rank in (1, 6):
            lines += [poison for poison in POISON if number == 40 or len(poison) < 100]
        text = b"".join(line + b"\n" for line in lines)
        copy.write(text)
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
        time.sleep(0.1)
"""
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\))")


@pytest.fixture(scope="module")
def stack(host_rig: HostRig) -> Iterator[Stack]:
    """The server on the hosts' bridge, and two hosts of four slots, each with a link to cut."""
    with running_stack(host_rig) as stack:
        if not stack.hosts[0].isolated:
            pytest.skip("needs network namespaces to cut a link")
        stack.add_hosts(slots=SLOTS)
        yield stack


@pytest.fixture
def browser(stack: Stack) -> Iterator[Browser]:
    """A window of its own, logged in, that is never loaded again."""
    if programs() is None:
        pytest.skip("needs chromium and chromedriver")
    with running_browser(stack.server.url) as window:
        window.look(dark=False, width=1440)
        window.login("admin", stack.server.password)
        yield window


def test_nothing_is_lost_doubled_or_shown_otherwise(stack: Stack, browser: Browser) -> None:
    experiment = stack.submit({"launch.py": LAUNCHER, "worker.py": WORKER}, config(RANKS))
    stack.wait_lines(experiment, 8)
    trial = int(stack.trial(experiment)["id"])
    browser.open(f"/trials/{trial}/logs")
    browser.wait(lambda: browser.all(".log-row"), "the first lines")
    folders = [
        host.workdir / "runs" / key / "code"
        for host, key in zip(stack.hosts, stack.run_keys(experiment), strict=True)
    ]
    for part in ("web", "worker", "redis", "postgres"):
        victim = stack.server.kill_part(part)
        stack.server.wait_replaced(part, victim)
        more_lines(stack, trial)
    cut_one_link(stack)
    more_lines(stack, trial)
    for folder in folders:
        (folder / "stop").touch()
    assert stack.wait_end(experiment) == "STATE_COMPLETED"
    assert stack.trial(experiment)["restarts"] == 0

    for rank in range(RANKS):
        written = (folders[rank // SLOTS] / f"written.{rank}").read_bytes()
        assert raw(stack, trial, rank) == written, f"rank {rank} is not stored as it was written"
    browser.wait(lambda: browser.text("#log-state") == "Complete", "the log to be complete", 60)
    stored = [record["log"].removesuffix("\n") for record in stack.records(trial)]
    shown = read_through(browser, len(stored))
    assert shown == [on_the_page(text) for text in stored]
    assert browser.driver.title != "owned"


def on_the_page(text: str) -> str:
    """A stored line as it reads there: terminal escapes are left out, what turns text around is made visible."""
    return _ESCAPES.sub("", text).replace("\u202e", "\ufffd")


def newest(stack: Stack, trial: int) -> int:
    """The number of lines that all ranks have stored, by the slowest of them; 0 while the server is away."""
    try:
        return min(raw(stack, trial, rank).count(b"\nline ") for rank in (0, RANKS - 1))  # one of either host
    except OSError:
        return 0


def more_lines(stack: Stack, trial: int) -> None:
    """Until both hosts have shipped lines that they printed after the fault was over."""
    stack.wait(lambda: newest(stack, trial), 60, "the log to be readable again")
    before = newest(stack, trial)
    stack.wait(lambda: newest(stack, trial) > before + 10, 60, "further lines of both hosts")


def cut_one_link(stack: Stack) -> None:
    host = stack.hosts[1]
    host.cut()
    try:
        stack.wait(lambda: stack.host_state(host.name) == "silent", 60, "the host to be silent")
    finally:
        host.restore()


def raw(stack: Stack, trial: int, rank: int) -> bytes:
    """The bytes of a rank's log."""
    request = urllib.request.Request(
        f"{stack.server.url}/api/v1/trials/{trial}/logs/raw?rankIds={rank}",
        headers={"Authorization": f"Bearer {stack.token}"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return bytes(answer.read())

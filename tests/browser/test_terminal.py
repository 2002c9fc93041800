"""A terminal in the browser: a login to a running shell on a real host, its size, a flood, and how it ends."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator

import httpx
import psutil
import pytest
from selenium.webdriver.common.keys import Keys
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from tests.rig.browser import LOOKS, WIDE, Browser
from tests.rig.stack import Stack
from webui.live.terminal import WINDOW_BYTES

pytestmark = [pytest.mark.browser, pytest.mark.hosts]
LIMIT_SECONDS = 60.0
#: what a flood may add to the web process: the windows of one terminal are far below it
GROWN_BYTES_MAX = 40 * 1024**2
SHOWN = "return [...document.querySelectorAll('.xterm-rows > div')].map((row) => row.textContent).join('\\n')"


@pytest.fixture(scope="module")
def shell(stack: Stack) -> Iterator[str]:
    made = str(stack.post("/api/v1/shells", {"config": {"resources": {"slots": 0}}})["shell"]["id"])
    at = f"/api/v1/shells/{made}"
    stack.wait(lambda: stack.get(at)["shell"]["ready"], LIMIT_SECONDS, "the shell")
    yield made
    stack.post(f"{at}/kill")
    stack.wait(lambda: "endTime" in stack.get(at)["shell"], LIMIT_SECONDS, "its end")


def shown(browser: Browser) -> str:
    return str(browser.run(SHOWN)).replace("\xa0", " ")


def sees(browser: Browser, words: str) -> None:
    browser.wait(lambda: words in shown(browser), f"{words!r} in the terminal")


def log_in(browser: Browser, shell: str) -> None:
    browser.open(f"/tasks/{shell}/terminal")
    browser.wait(lambda: browser.text("#terminal-state") == "Connected", "the login")


def test_a_command_that_is_typed_is_answered(browser: Browser, shell: str) -> None:
    browser.open(f"/tasks/{shell}")
    browser.click("a[href$='/terminal']")
    browser.wait(lambda: browser.text("#terminal-state") == "Connected", "the login")
    browser.press("echo $((6 * 7)) $TRAINMASTER_RUN é" + Keys.ENTER)
    sees(browser, f"42 {shell}.1.0 é")
    browser.press("echo begins; sleep 600" + Keys.ENTER)
    sees(browser, "\nbegins")
    browser.press("c", held=Keys.CONTROL)
    browser.press("k", held=Keys.CONTROL)  # is the shell's, not the search's
    browser.press("echo 'after' it" + Keys.ENTER)
    sees(browser, "after it")
    assert not browser.all("dialog#find[open]")
    assert browser.complaints() == []


def test_a_long_paste_arrives_whole_and_bytes_are_kept(browser: Browser, shell: str) -> None:
    log_in(browser, shell)
    browser.press("stty -echo; echo rea''dy; head -c 600000 | md5sum" + Keys.ENTER)
    sees(browser, "\nready")  # before, the shell's own prompt would mark what is pasted
    lines = ("x" * 99 + "\n") * 6000
    browser.run(
        "const data = new DataTransfer(); data.setData('text/plain', arguments[0]);"
        "document.querySelector('#terminal textarea').dispatchEvent("
        "new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true}))",
        lines,
    )
    sees(browser, hashlib.md5(lines.encode()).hexdigest())


def test_the_shell_knows_the_size_of_the_window(browser: Browser, shell: str) -> None:
    browser.look(dark=False, width=WIDE)
    log_in(browser, shell)
    found: list[list[int]] = []

    def size() -> list[int]:
        browser.press("clear; stty size" + Keys.ENTER)
        answered = [line.split() for line in shown(browser).splitlines()]
        numbers = [
            list(map(int, words)) for words in answered if len(words) == 2 and all(map(str.isdigit, words))
        ]
        return numbers[-1] if numbers else []

    def is_told(narrower_than: int) -> bool:
        found[:] = [now] if (now := size()) and now[1] < narrower_than else []
        return bool(found)

    browser.wait(lambda: is_told(1000), "the size")
    (wide,) = found
    rows = browser.run("return document.querySelectorAll('.xterm-rows > div').length")
    assert (wide[0], wide[1] > 100) == (rows, True)
    browser.look(dark=False, width=390)
    browser.wait(lambda: is_told(60), "the size of a narrow window")
    browser.look(dark=False, width=WIDE)


def test_the_keyboard_leads_out_of_it_and_every_look_is_sound(browser: Browser, shell: str) -> None:
    log_in(browser, shell)
    browser.press("printf '\\033[31mred\\033[0m \\033[1;34mblue\\033[0m\\n'" + Keys.ENTER)
    sees(browser, "red blue")
    browser.press(Keys.TAB)
    assert browser.run("return document.activeElement.closest('#terminal') !== null")
    browser.press(Keys.F6, held=Keys.SHIFT)
    assert browser.run("return document.activeElement.id") == "terminal-reader"
    browser.press(Keys.SPACE)
    browser.wait(lambda: browser.all("#terminal .xterm-accessibility"), "the lines for screen readers")
    browser.press(Keys.SPACE)
    for dark, width in LOOKS:
        browser.look(dark=dark, width=width)
        assert browser.sticking_out() == [] and browser.violations() == []
    browser.keep("terminal")


def test_a_shell_that_is_left_says_so_and_is_entered_again(browser: Browser, shell: str) -> None:
    log_in(browser, shell)
    browser.press("exit" + Keys.ENTER)
    browser.wait(lambda: browser.text("#terminal-state") == "You are logged out of the shell.", "the end")
    browser.wait(lambda: browser.run("return document.activeElement.id") == "terminal-again", "the focus")
    browser.press(Keys.ENTER)
    browser.wait(lambda: browser.text("#terminal-state") == "Connected", "the next login")


def address(stack: Stack, shell: str) -> str:
    return f"{stack.server.url.replace('http', 'ws', 1)}/ws/tasks/{shell}/terminal"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def read_until(socket: ClientConnection, words: bytes) -> None:
    said = b""
    while words not in said:
        frame = socket.recv(LIMIT_SECONDS)
        if isinstance(frame, bytes):
            said = said[-len(words) :] + frame
            socket.send(json.dumps({"taken": len(frame)}))


def test_a_flood_waits_for_whoever_reads_it_and_delays_nobody(stack: Stack, shell: str) -> None:
    web = psutil.Process(stack.server.children()["web"].pid)
    with connect(address(stack, shell), additional_headers=bearer(stack.token)) as socket:
        socket.send(b"yes 'a line of a flood'\r")
        read_until(socket, b"flood\r\na line of a flood")
        before, untaken = web.memory_info().rss, 0
        with pytest.raises(
            TimeoutError
        ):  # nothing is said of what has been taken: the window is all that comes
            while True:
                untaken += len(socket.recv(5))
        assert 0 < untaken < 2 * WINDOW_BYTES
        until = time.monotonic() + 5
        while time.monotonic() < until:  # as a browser does that keeps up
            socket.send(json.dumps({"taken": untaken}))
            untaken = len(socket.recv(LIMIT_SECONDS))
        begun = time.monotonic()
        assert httpx.get(f"{stack.server.url}/login", timeout=LIMIT_SECONDS).status_code == 200
        assert time.monotonic() - begun < 5
        assert web.memory_info().rss - before < GROWN_BYTES_MAX
        socket.send(json.dumps({"taken": untaken}))
        socket.send(b"\x03echo 'still' here\r")
        read_until(socket, b"still here")


def test_who_types_more_than_is_taken_is_closed(stack: Stack, shell: str) -> None:
    with connect(address(stack, shell), additional_headers=bearer(stack.token)) as socket:
        with pytest.raises(ConnectionClosed) as closed:
            socket.send(b"x" * 200_000)
            while True:
                socket.recv(LIMIT_SECONDS)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009


def test_it_is_closed_when_its_login_is_revoked(stack: Stack, shell: str) -> None:
    given = stack.post("/api/v1/tokens", {"scope": "write"})
    with connect(address(stack, shell), additional_headers=bearer(given["token"])) as socket:
        socket.send(b"echo $((6 * 7))\r")
        read_until(socket, b"42")
        stack.server.request(
            "PATCH", f"/api/v1/tokens/{given['tokenId']}", {"setRevoked": True}, token=stack.token
        )
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                socket.recv(LIMIT_SECONDS)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 4401
        assert closed.value.rcvd.reason == "Not logged in: log in first."


def test_another_user_and_another_site_are_refused(stack: Stack, shell: str) -> None:
    user = {"username": "grace", "active": True}
    stack.post("/api/v1/users", {"user": user, "password": "Right1234", "isHashed": False})
    login = stack.post(
        "/api/v1/auth/login", {"username": "grace", "password": "Right1234", "isHashed": False}
    )
    with (
        connect(address(stack, shell), additional_headers=bearer(login["token"])) as socket,
        pytest.raises(ConnectionClosed) as closed,
    ):
        socket.recv(LIMIT_SECONDS)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 4403
    with pytest.raises(InvalidStatus), connect(address(stack, shell), origin=Origin("https://elsewhere")):
        pass

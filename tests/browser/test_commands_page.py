"""The pages of tasks, by their commands: how one ends shows without F5, its log, Kill, the filters; every look."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from tests.rig.browser import LOOKS, WIDE, Browser
from tests.rig.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.hosts]


def run(stack: Stack, entrypoint: str, **resources: object) -> str:
    body = {"config": {"entrypoint": entrypoint, "resources": resources}}
    return str(stack.post("/api/v1/commands", body)["command"]["id"])


def run_what_never_fits(stack: Stack) -> str:
    stack.server.request("PATCH", "/api/v1/resource-pools/default", {"launchError": False}, stack.token)
    return run(stack, "echo never", slots=9)


def end(stack: Stack, command_id: str) -> None:
    stack.post(f"/api/v1/commands/{command_id}/kill")
    path = f"/api/v1/commands/{command_id}"
    stack.wait(lambda: "endTime" in stack.get(path)["command"], 60, "the command to end")


def test_without_a_command_the_page_says_how_to_run_one(browser: Browser) -> None:
    browser.open("/commands")
    assert "trainmaster command run nvidia-smi" in browser.text("main")
    assert browser.text("a.room[aria-current]").startswith("Tasks")
    assert browser.driver.current_url.endswith("/tasks?type=commands")


def test_a_command_is_watched_from_its_start_to_its_kill(browser: Browser, stack: Stack) -> None:
    command_id = run(stack, "echo first words; sleep 600")
    browser.open("/commands")
    browser.wait(lambda: "Running" in browser.text("tbody"), "the list to follow")
    browser.click("tbody a.name")
    browser.wait(lambda: browser.path() == f"/commands/{command_id}", "the command's page")
    browser.wait(lambda: "first words" in browser.text("#log-view"), "its first line")
    browser.click("button.danger")
    browser.wait(lambda: "is not started again" in browser.text("dialog.confirm"), "the question")
    browser.click("dialog.confirm .primary")
    browser.wait(lambda: "Canceled" in browser.text(".head"), "the end")
    browser.wait(lambda: "Ended: killed by admin, exit code 143." in browser.text("main"), "how it ended")
    browser.wait(lambda: "The task has ended" in browser.text("#log-view"), "the log's last line")
    browser.wait(lambda: not browser.all("button.danger"), "nothing left to kill")


def test_filters_stand_in_the_address(browser: Browser, stack: Stack) -> None:
    failed, waits = run(stack, "exit 3"), run_what_never_fits(stack)
    browser.open("/commands?state=failed")
    browser.wait(lambda: "exit code 3 on" in browser.text("tbody"), "the failed one")
    assert "exit 3" in browser.text("tbody")
    assert "echo never" not in browser.text("tbody")
    browser.click(".pills a[href*='queued']")
    browser.wait(lambda: "state=queued" in browser.driver.current_url, "the other chip")
    browser.wait(lambda: "echo never" in browser.text("tbody"), "the queued one")
    browser.wait(lambda: "needs 9 slots on one host" in browser.text("tbody"), "the reason")
    browser.one("#q").send_keys(failed[:8] + Keys.ENTER)
    browser.wait(lambda: "No tasks match" in browser.text("main"), "no match among the queued")
    end(stack, waits)


#: what a script of a page gets from an address: the status and where the answer came from, or that there is none
FETCHED = """
const [path, done] = arguments;
const told = ({ status, url }) => done(`${status} ${new URL(url).pathname}`);
fetch(path, {headers: {Accept: "text/html"}}).then(told, () => done("nothing"));
"""


def test_a_page_of_a_task_reads_no_page_of_the_console(browser: Browser, stack: Stack) -> None:
    text = (Path(__file__).parent.parent / "rig" / "small_service.py").read_bytes()
    file = {
        "path": "service.py",
        "type": 48,
        "content": base64.b64encode(text).decode(),
        "mtime": "0",
        "mode": 0o644,
    }
    config = {
        "entrypoint": ["python3", "service.py", "8124"],
        "environment": {"proxy_ports": [{"proxy_port": 8124}]},
        "resources": {"slots": 0},
    }
    command_id = str(stack.post("/api/v1/commands", {"config": config, "files": [file]})["command"]["id"])
    base = f"/proxy/{command_id}/"

    def fetched(path: str) -> str:
        return str(browser.driver.execute_async_script(FETCHED, path))

    def shows_the_task() -> bool:
        browser.open(base)
        return browser.path() == base and "headers" in browser.text("body")

    browser.wait(shows_the_task, "the page of the task")
    assert fetched(f"{base}x") == f"200 {base}x"
    assert [fetched(path) for path in ("/api/v1/me", "/experiments")] == ["nothing", "nothing"]
    assert browser.run("return document.cookie") == "mine=1"
    end(stack, command_id)
    # the page is still open: its script asks for an address of its own that has only the console's page to show
    browser.wait(lambda: not fetched(f"{base}x").startswith("502"), "the end to be known")
    assert fetched(f"{base}x") == f"410 {base}x"
    browser.open(f"{base}x")
    browser.wait(lambda: browser.path() == f"/tasks/{command_id}", "the console's page about the task")
    browser.complaints()


def test_every_look_of_the_pages_is_whole(browser: Browser, stack: Stack) -> None:
    ended = run(stack, "seq 1 200; echo " + "long " * 60)
    waits = run_what_never_fits(stack)
    path = f"/api/v1/commands/{ended}"
    stack.wait(lambda: "endTime" in stack.get(path)["command"], 60, "the command to end")
    browser.complaints()
    tabs = [f"/commands/{ended}/{tab}" for tab in ("log", "config", "timeline")]
    wrong = []
    for address in ["/tasks", "/commands", f"/commands/{waits}", *tabs]:
        browser.open(address)
        browser.live()
        for dark, width in LOOKS:
            browser.look(dark=dark, width=width)
            where = f"{address} at {width} px, {'dark' if dark else 'light'}"
            wrong += [f"{where}: {each}" for each in browser.sticking_out() + browser.violations()]
        wrong += [f"{address}: {each}" for each in browser.complaints()]
    browser.look(dark=False, width=WIDE)
    end(stack, waits)
    assert not wrong, "\n".join(wrong)

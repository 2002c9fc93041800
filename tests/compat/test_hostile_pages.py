"""What scripts in the pages of a real JupyterLab and a real TensorBoard can do to the console, in Chromium."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.rig import parts
from tests.rig.browser import Browser, programs, running_browser
from tests.rig.server import Server
from tests.rig.stack import Stack, local_host

pytestmark = [
    pytest.mark.compat,
    pytest.mark.skipif(programs() is None, reason="needs chromium and chromedriver"),
]

LIMIT_SECONDS = 240
#: each of these tries to read the console or to act there, and says what it got; `console` is its origin
ATTACKS = """
const [console_origin, base, done] = arguments;
const tries = {
  read_me: async () => (await fetch(`${console_origin}/api/v1/me`, {credentials: "include"})).text(),
  read_page: async () => (await fetch(`${console_origin}/experiments`, {credentials: "include"})).text(),
  post: async () => (await fetch(`${console_origin}/logout`, {method: "POST", credentials: "include"})).status,
  blind_post: async () => (await fetch(`${console_origin}/logout`,
    {method: "POST", mode: "no-cors", credentials: "include"})).type,
  old_request: () => new Promise((good, bad) => {
    const request = new XMLHttpRequest();
    request.onload = () => good(request.responseText); request.onerror = () => bad(new Error("refused"));
    request.open("GET", `${console_origin}/api/v1/me`); request.withCredentials = true; request.send();
  }),
  socket: () => new Promise((good, bad) => {
    const socket = new WebSocket(`${console_origin.replace("http", "ws")}/ws/pages?topics=hosts`);
    socket.onmessage = (event) => good(event.data); socket.onerror = () => bad(new Error("refused"));
    socket.onclose = () => bad(new Error("closed"));
  }),
  events: () => new Promise((good, bad) => {
    const events = new EventSource(`${console_origin}/api/v1/me`, {withCredentials: true});
    events.onopen = () => good("open"); events.onerror = () => bad(new Error("refused"));
  }),
  frame: () => new Promise((good, bad) => {
    const frame = document.createElement("iframe");
    frame.src = `${console_origin}/experiments`;
    frame.onload = () => { try { good(frame.contentDocument.body.innerText); } catch (error) { bad(error); } };
    document.body.append(frame);
    setTimeout(() => bad(new Error("nothing loaded")), 5000);
  }),
  script: () => new Promise((good, bad) => {
    const script = document.createElement("script");
    script.src = `${console_origin}/static/js/confirm.js`;
    script.onload = () => good("loaded"); script.onerror = () => bad(new Error("refused"));
    document.body.append(script);
  }),
  worker: async () => (await navigator.serviceWorker.register(`${base}files/attack.js`, {scope: "/"})).scope,
  own_worker: async () => (await navigator.serviceWorker.register(`${base}files/attack.js`)).scope,
  window: async () => {
    const opened = window.open(`${console_origin}/experiments`);
    if (!opened) throw new Error("no window");
    await new Promise((good) => setTimeout(good, 3000));
    const text = opened.document.body.innerText;
    opened.close();
    if (!text.trim()) throw new Error("an empty window");
    return text;
  },
  opener: async () => {
    if (!window.opener) throw new Error("no opener");
    return window.opener.document.body.innerText;
  },
  cookies: async () => {
    if (!/sessionid|csrftoken/.test(document.cookie)) throw new Error("none of the console's");
    return document.cookie;
  },
};
(async () => {
  const got = {};
  for (const [name, attack] of Object.entries(tries)) {
    const late = new Promise((_, bad) => setTimeout(() => bad(new Error("late")), 8000));
    try { got[name] = String(await Promise.race([attack(), late])).slice(0, 200); } catch (error) { void error; }
  }
  done(got);
})();
"""


@contextmanager
def running(name: str, apart: bool) -> Iterator[Stack]:
    with parts.private_folder(name) as path:
        path.chmod(0o711)
        server = Server(path / "data")
        if apart:
            server.settings["TRAINMASTER_PROXY_ORIGIN"] = f"http://*.localhost:{server.port}"
        try:
            with local_host(server.start(), name, slots=1) as stack:
                yield stack
                for plural in ("notebooks", "tensorboards"):
                    for each in stack.get(f"/api/v1/{plural}")[plural]:
                        stack.post(f"/api/v1/{plural}/{each['id']}/kill")
        finally:
            server.close()


def started(stack: Stack, plural: str, python: str, **more: Any) -> str:
    """The path of a new one that is ready."""
    config = {"environment": {"python": python}, "resources": {"slots": 0}}
    noun = plural[:-1]
    made = stack.post(f"/api/v1/{plural}", {"config": config, **more})[noun]
    at = f"/api/v1/{plural}/{made['id']}"
    stack.wait(lambda: bool(stack.get(at)[noun]["ready"]), LIMIT_SECONDS, f"the {noun}")
    return str(made["serviceAddress"])


def put_file(stack: Stack, base: str, name: str, text: str) -> None:
    login = {"Authorization": f"Bearer {stack.token}"}
    with httpx.Client(base_url=stack.server.url, headers=login, timeout=60) as client:
        client.get(f"{base}lab")
        body = {"type": "file", "format": "text", "content": text}
        answer = client.put(
            f"{base}api/contents/{name}", json=body, headers={"X-XSRFToken": client.cookies["_xsrf"]}
        )
        assert answer.status_code in {200, 201}, answer.text


def attacked(browser: Browser, stack: Stack, base: str, path: str) -> dict[str, str]:
    """What the attacks got in the page at this path. The login is still there afterwards."""
    browser.open(path)
    stack.wait(lambda: browser.run("return document.readyState === 'complete'"), 60, "the page")
    assert base in browser.path(), browser.path()
    browser.driver.set_script_timeout(300)
    got: dict[str, str] = browser.driver.execute_async_script(ATTACKS, stack.server.url, base)
    browser.open("/experiments")
    assert browser.path() == "/experiments", "the login is gone"
    return got


ORIGINS = pytest.mark.parametrize(
    "apart", [False, True], ids=["on the console's origin", "on an origin of its own"]
)


@ORIGINS
def test_a_notebooks_page_neither_reads_the_console_nor_acts_there(apart: bool, services_python: str) -> None:
    with running("hostile", apart) as stack, running_browser(stack.server.url) as browser:
        base = started(stack, "notebooks", services_python)
        put_file(stack, base, "attack.js", "self.onfetch = () => {}")
        put_file(stack, base, "attack.html", "<!doctype html><title>attack</title><body>attack</body>")
        browser.login("admin", stack.server.password)
        for page in ("lab", "files/attack.html"):
            got = attacked(browser, stack, base, f"{base}{page}")
            assert not got, f"{page}: {json.dumps(got, indent=1)}"


@ORIGINS
def test_a_tensorboards_page_neither_reads_the_console_nor_acts_there(
    apart: bool, services_python: str
) -> None:
    config = {"name": "short", "entrypoint": "true", "hyperparameters": {}, "max_restarts": 0,
              "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
              "resources": {"slots_per_trial": 1}}  # fmt: skip
    with running("hostile", apart) as stack, running_browser(stack.server.url) as browser:
        experiment_id = stack.submit({"train.py": ""}, json.dumps(config))
        stack.wait_end(experiment_id, LIMIT_SECONDS)
        base = started(stack, "tensorboards", services_python, experimentIds=[experiment_id])
        browser.login("admin", stack.server.password)
        got = attacked(browser, stack, base, base)
        assert not got, json.dumps(got, indent=1)

"""A real Chromium over WebDriver, and what tests read from its pages."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.rig.pace import wait_until
from tests.rig.page_element import LIMIT_SECONDS, NOT_NOW, Element

#: the first that is installed is used: the headless shell is the same engine without the browser's own windows, and
#: takes a third of the processor time that the whole browser takes to start and show ten pages. What Debian has on the
#: path is a script that starts it as a child, and the driver would end the script alone.
CHROMIUMS = (
    "/usr/lib/chromium/chromium-headless-shell",
    "chromium-headless-shell",
    "chrome-headless-shell",
    "chromium",
    "google-chrome",
    "chromium-browser",
)
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
#: in which a page gets itself in order after its size or theme has changed
SETTLED_SECONDS = 20.0
#: for what a page works out, such as all of what axe looks at on a long one
SCRIPT_SECONDS = 300.0
#: what a condition may answer while the page is being changed
UNREADABLE = (WebDriverException, AssertionError, LookupError, TypeError, AttributeError)
#: pixels of a desktop and of a phone
WIDE, NARROW = 1440, 390
#: (dark, width): each theme and each width once, since contrast depends on the theme alone and overflow on the width;
#: the wide one last, since charts below the end of a narrow window are not drawn
LOOKS = ((True, NARROW), (False, WIDE))
#: Rows of a table are made by one template, and to look at each takes axe minutes: three of them are looked at.
MORE_ROWS = "tbody tr:nth-child(n + 4)"
NETWORK_CHANGED = "ERR_NETWORK_CHANGED"
FIRST_PAINT = """
const paints = performance.getEntriesByType("paint").filter((entry) => entry.name === "first-contentful-paint");
return paints.length ? paints[0].startTime : null;
"""
#: What makes the page wider than the window, for the message of a failed test: the two widths, then each box and each
#: text that ends beyond the window and that nothing clips. What a closed <details> holds has no box; a text may end
#: beyond the box of its element; a scroller does not clip what is positioned from outside of it.
STICKING_OUT = """
const { scrollWidth, clientWidth } = document.documentElement;
if (scrollWidth <= clientWidth) return [];
const clipped = (element) => {
  let position = getComputedStyle(element).position;
  for (let at = element.parentElement; at && at !== document.body; at = at.parentElement) {
    const style = getComputedStyle(at);
    if (position === "fixed" || (position === "absolute" && style.position === "static")) continue;
    if (style.overflowX !== "visible") return true;
    position = style.position;
  }
  return position === "fixed";
};
const ends = (box) => Math.max(0, ...[...box.getClientRects()].map(({ right }) => right));
const said = (element) => `${element.tagName.toLowerCase()}#${element.id}.${element.className}`;
const found = [];
for (const element of document.querySelectorAll("body *")) {
  if (!element.checkVisibility() || clipped(element)) continue;
  const clipsItself = getComputedStyle(element).overflowX !== "visible";
  if (ends(element) > clientWidth) found.push([ends(element), said(element)]);
  for (const text of clipsItself ? [] : element.childNodes) {
    if (text.nodeType !== Node.TEXT_NODE) continue;
    const range = document.createRange();
    range.selectNodeContents(text);
    if (ends(range) > clientWidth) found.push([ends(range), `${said(element)}: ${text.data.trim().slice(0, 60)}`]);
  }
}
const words = found.map(([end, what]) => `${what} ends at ${end.toFixed(1)}`);
return [`${scrollWidth} px in a window of ${clientWidth}`, ...words];
"""


def programs() -> tuple[str, str] | None:
    """Return the paths of Chromium and of its driver, or None if one is missing."""
    chromium = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    driver = shutil.which("chromedriver")
    return (chromium, driver) if chromium and driver else None


class Browser:
    """One window that shows pages of one server."""

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver = driver
        self.url = url
        self._heard: list[dict[str, Any]] = []

    def open(self, path: str) -> None:
        """Load a page, again where Chromium dropped a part of it because other tests had an interface come or go."""
        for last in (False, False, True):
            try:
                self.driver.get(self.url + path)
            except WebDriverException as error:
                if last or NETWORK_CHANGED not in str(error):
                    raise
                continue
            heard = self._console()
            if last or not any(NETWORK_CHANGED in entry["message"] for entry in heard):
                self._heard += heard
                return

    def _console(self) -> list[dict[str, Any]]:
        """What was written on the console since the last look."""
        entries: list[dict[str, Any]] = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return entries

    def login(self, user: str, password: str) -> None:
        """Log in by the form, as a person does."""
        self.open("/login")
        self.one("#username").send_keys(user)
        self.one("#password").send_keys(password)
        self.one("button.primary").click()
        self.wait(lambda: self.path() != "/login", "the login to succeed")

    def path(self) -> str:
        return str(self.run("return location.pathname"))

    def look(self, *, dark: bool, width: int, height: int = 860, scale: int = 1) -> None:
        """Set the system's theme and the exact size of the window; a page at 200 % has half the size and scale 2."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def one(self, selector: str) -> Element:
        """The first such element, whenever it is there: nothing is looked for until it is used."""
        return Element(self.driver, selector)

    def all(self, selector: str) -> list[Element]:
        """As many as there are now."""
        found = self.driver.find_elements(By.CSS_SELECTOR, selector)
        return [Element(self.driver, selector, place) for place in range(len(found))]

    def click(self, selector: str) -> None:
        self.one(selector).click()

    def press(self, *keys: str, held: str = "") -> None:
        """Press keys, wherever the focus is, while another one is held."""
        actions = ActionChains(self.driver)
        if held:
            actions.key_down(held)
        actions.send_keys(*keys)
        if held:
            actions.key_up(held)
        actions.perform()

    def press_until(self, selector: str, key: str, condition: Callable[[], Any], what: str) -> None:
        """Press a key on an element, again while nothing comes of it: a chart that is being drawn hears none."""

        def came() -> bool:
            if not condition():
                self.one(selector).focus()
                self.press(key)
            return wait_until(lambda: bool(condition()), SETTLED_SECONDS / 4)

        self.wait(came, what)

    def drag(self, selector: str, to: str, *, down: int = 0, drop: bool = True) -> None:
        """Drag one element to so many pixels below the middle of another, and drop it there."""

        def dragged() -> bool:
            actions = ActionChains(self.driver).click_and_hold(self.one(selector).found())
            actions.move_to_element_with_offset(self.one(to).found(), 0, down)
            try:
                (actions.release() if drop else actions).perform()
            except NOT_NOW:
                self.press(Keys.ESCAPE)
                self.let_go()
                return False
            return True

        self.wait(dragged, f"{selector} to be dragged to {to}")

    def hold(self, selector: str) -> None:
        """Press the pointer's button on an element, and leave it pressed."""
        self.one(selector).use(
            lambda element: ActionChains(self.driver).click_and_hold(element).perform(), "pressed"
        )

    def let_go(self) -> None:
        """Let go of what is held or dragged, where the pointer is."""
        ActionChains(self.driver).release().perform()

    def text(self, selector: str) -> str:
        """The text of the first such element, empty without one."""
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def texts(self, selector: str) -> list[str]:
        """The texts of all such elements, of one moment."""
        script = "return [...document.querySelectorAll(arguments[0])].map((each) => each.innerText.trim())"
        return [str(text) for text in self.run(script, selector)]

    def attributes(self, selector: str, name: str) -> list[str | None]:
        """An attribute of all such elements, as it is written, of one moment."""
        script = "return [...document.querySelectorAll(arguments[0])].map((each) => each.getAttribute(arguments[1]))"
        return list(self.run(script, selector, name))

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: Callable[[], Any], what: str, limit_seconds: float = LIMIT_SECONDS) -> None:
        """Until a condition holds. One that cannot be read yet does not hold yet; its last fault is told at the end."""
        fault = ""

        def holds() -> bool:
            nonlocal fault
            try:
                fault = ""
                return bool(condition())
            except UNREADABLE as error:
                fault = f" ({type(error).__name__}: {error})"
                return False

        assert wait_until(holds, limit_seconds), (
            f"waited {limit_seconds} s for {what}{fault} on {self.driver.current_url}: {self.text('main')[-1500:]}"
        )

    def live(self) -> None:
        """Until the page follows its topics."""
        self.wait(lambda: self.text("#connection .word") == "Connected", "the connection")

    def complaints(self) -> list[str]:
        """Errors and warnings on the console since the last look."""
        entries, self._heard = [*self._heard, *self._console()], []
        return [entry["message"] for entry in entries if entry["level"] in {"SEVERE", "WARNING"}]

    def first_paint_ms(self) -> float | None:
        """Milliseconds from the navigation to the first contentful paint."""
        found = self.run(FIRST_PAINT)
        return None if found is None else float(found)

    def sticking_out(self) -> list[str]:
        """What makes the page wider than the window, and goes on to once charts and live parts have followed it."""
        found: list[str] = []

        def fits() -> bool:
            found[:] = [str(element) for element in self.run(STICKING_OUT)]
            return not found

        wait_until(fits, SETTLED_SECONDS)
        return found

    def violations(self) -> list[str]:
        """What axe-core finds on the page, and goes on to find: a part may be replaced while it looks."""
        found: list[str] = []

        def is_clean() -> bool:
            found[:] = self._violations()
            return not found

        wait_until(is_clean, SETTLED_SECONDS / 4)
        return found

    def _violations(self) -> list[str]:
        from axe_selenium_python import axe  # its script is a part of the package

        if not self.run("return Boolean(window.axe)"):
            self.run(Path(axe._DEFAULT_SCRIPT).read_text())
        found = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "axe.run(arguments[0], {resultTypes: ['violations']}).then((result) => done(result.violations),"
            " (error) => done([{id: String(error), nodes: []}]))",
            {"exclude": [[MORE_ROWS]]},
        )
        return [
            f"{each['id']}: {node['html'][:160]} {node['any'][0]['message'] if node['any'] else ''}"
            for each in found
            for node in each["nodes"] or [{"html": "", "any": []}]
        ]

    def save(self, path: Path) -> None:
        path.write_bytes(self.driver.get_screenshot_as_png())

    def keep(self, name: str, *, height: int = 860, until: str = "return true") -> None:
        """Pictures of both themes and widths, each once `until` holds, for people who gave a folder for reports."""
        if folder := os.environ.get("TRAINMASTER_TEST_REPORTS"):
            for dark, width in ((False, WIDE), (True, WIDE), (False, NARROW), (True, NARROW)):
                self.look(dark=dark, width=width, height=height)
                self.wait(lambda: self.run(until), f"the page at {width} pixels")
                self.save(Path(folder) / f"{name}-{'dark' if dark else 'light'}-{width}.png")
            self.look(dark=False, width=WIDE)


_idle: list[webdriver.Chrome] = []


@contextmanager
def running_browser(url: str) -> Iterator[Browser]:
    """A browser as new, whose process has had other tests before: a start costs as much as several pages."""
    driver = _idle.pop() if _idle else _started()
    try:
        yield Browser(driver, url)
    except BaseException:
        _end(driver)
        raise
    try:
        _make_new(driver, url)
    except WebDriverException:
        _end(driver)
    else:
        _idle.append(driver)


def end() -> None:
    """End those that nobody uses."""
    while _idle:
        _end(_idle.pop())


def _started() -> webdriver.Chrome:
    found = programs()
    assert found is not None, "needs chromium and chromedriver"
    options = Options()
    options.binary_location = found[0]
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(found[1]))
    driver.set_script_timeout(SCRIPT_SECONDS)
    return driver


def _make_new(driver: webdriver.Chrome, url: str) -> None:
    """One empty tab, and nothing of what pages and tests have left."""
    for handle in driver.window_handles[1:]:
        driver.switch_to.window(handle)
        driver.close()
    driver.switch_to.window(driver.window_handles[0])
    driver.get("about:blank")
    driver.execute_cdp_cmd(
        "Page.resetNavigationHistory", {}
    )  # of 50 entries Chromium drops those that no user made
    driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
    driver.execute_cdp_cmd("Network.clearBrowserCache", {})
    driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": url, "storageTypes": "all"})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    driver.get_log("browser")  # type: ignore[no-untyped-call]


def _end(driver: webdriver.Chrome) -> None:
    try:
        driver.quit()
    except WebDriverException:
        driver.service.stop()

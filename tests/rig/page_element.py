"""An element of a page in a real browser, by its selector: found anew each time it is used.

Live updates replace elements at any moment, so what was found a moment ago may be gone, hidden or covered when it is
clicked. Each use waits until the page lets it happen, and fails with a sentence at the end of the limit.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    InvalidElementStateException,
    JavascriptException,
    MoveTargetOutOfBoundsException,
    NoSuchElementException,
    StaleElementReferenceException,
    WebDriverException,
)
from selenium.webdriver import Chrome
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.rig import pace

#: what a page answers that is being changed; each of them says that nothing was done
NOT_NOW = (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    InvalidElementStateException,
    JavascriptException,
    MoveTargetOutOfBoundsException,
    NoSuchElementException,
    StaleElementReferenceException,
)
LIMIT_SECONDS = 60.0
PAUSE_SECONDS = 0.05
Found = TypeVar("Found")


class Element:
    """The element at a place among those that a selector finds: the first one, unless told otherwise."""

    def __init__(self, driver: Chrome, selector: str, place: int = 0) -> None:
        self.driver = driver
        self.selector = selector
        self.place = place

    @property
    def text(self) -> str:
        return self.use(lambda element: element.text, "read")

    def get_attribute(self, name: str) -> str | None:
        return self.use(lambda element: element.get_attribute(name), "read")

    def is_displayed(self) -> bool:
        """Whether it is there and seen, now."""
        try:
            return self.found().is_displayed()
        except NOT_NOW:
            return False

    def is_enabled(self) -> bool:
        return self.use(lambda element: element.is_enabled(), "read")

    def click(self) -> None:
        self.use(lambda element: element.click(), "clicked")

    def send_keys(self, *keys: str) -> None:
        """Focus it and type. The driver refuses an element before the first key, so that none is sent twice."""
        self.use(lambda element: element.send_keys(*keys), "typed into")

    def fill(self, *keys: str) -> None:
        """Type into an emptied field."""
        self.use(lambda element: element.clear(), "emptied")
        self.send_keys(*keys)

    def choose(self, value: str) -> None:
        """Choose an option of a <select> by its value, once it has it; the driver's own way tells the page but half."""
        self.use(lambda element: self.driver.execute_script(_CHOOSE, element, value), f"set to {value!r}")

    def focus(self) -> None:
        self.use(lambda element: self.driver.execute_script(_FOCUS, element), "focused")

    def show(self) -> None:
        """Scroll it to the middle of the window."""
        script = "arguments[0].scrollIntoView({ block: 'center' })"
        self.use(lambda element: self.driver.execute_script(script, element), "shown")

    def hover(self, *, right: int = 0, down: int = 0) -> None:
        """Bring the pointer so many pixels beside its middle."""
        self.use(
            lambda element: (
                ActionChains(self.driver).move_to_element_with_offset(element, right, down).perform()
            ),
            "pointed at",
        )

    def right_click(self) -> None:
        self.use(lambda element: ActionChains(self.driver).context_click(element).perform(), "right-clicked")

    def found(self) -> WebElement:
        """The element as it is now, for what the driver has to be told itself; it may be replaced at any moment."""
        elements = self.driver.find_elements(By.CSS_SELECTOR, self.selector)
        if len(elements) <= self.place:
            raise NoSuchElementException(f"{len(elements)} elements are {self.selector}")
        return elements[self.place]

    def use(self, act: Callable[[WebElement], Found], what: str) -> Found:
        """What `act` says of the element, again until the page lets it; `what` it does, for the message."""
        until = time.monotonic() + LIMIT_SECONDS * pace.factor()
        while True:
            try:
                return act(self.found())
            except NOT_NOW as error:
                if time.monotonic() > until:
                    raise AssertionError(self._refused(what, error)) from error
            time.sleep(PAUSE_SECONDS)

    def _refused(self, what: str, error: WebDriverException) -> str:
        which = f"{self.selector} [{self.place}]" if self.place else self.selector
        return f"{which} could not be {what} within {LIMIT_SECONDS:.0f} s on {self.driver.current_url}: {error.msg}"


_FOCUS = """
arguments[0].focus();
if (document.activeElement !== arguments[0]) throw new Error("it does not take the focus");
"""
_CHOOSE = """
const [select, value] = arguments;
const isOffered = [...select.options].some((option) => option.value === value);
if (select.disabled || !isOffered) throw new Error("it is not to be chosen");
select.focus();
if (select.value === value) return;
select.value = value;
for (const name of ["input", "change"]) select.dispatchEvent(new Event(name, { bubbles: true }));
"""

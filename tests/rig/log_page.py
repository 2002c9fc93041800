"""What a person reads on a Logs page who scrolls through the whole of it."""

from tests.rig.browser import Browser

_SEEN = """
const view = document.getElementById("log-view");
if (arguments[0] !== null) view.scrollTop = arguments[0];
const shortened = [...view.querySelectorAll(".more-text")]; // the rest of a very long line comes by a click
for (const button of shortened) button.click();
const isReading = view.querySelector(".log-row.absent") !== null; // rows whose lines are still on their way
return [view.scrollHeight, view.clientHeight, shortened.length || isReading ? [] :
  [...view.querySelectorAll(".log-row[data-number]")].map((row) =>
    [Number(row.dataset.number), row.querySelector(".text").textContent])];
"""


class _Reader:
    """The lines from the first one on, as far as they were read without a gap."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.texts: list[str] = []
        self.known = 0

    def look(self, at: float | None = None) -> tuple[float, float]:
        """Height of the whole and of the view; rows that follow on what was read are read."""
        height, step, rows = self.browser.run(_SEEN, at)
        follows = bool(rows) and rows[0][0] <= len(self.texts) + 1 <= rows[-1][0] + 1
        for number, text in rows if follows else []:
            if number == len(self.texts) + 1:
                self.texts.append(text)
        return float(height), float(step)

    def has_more(self) -> bool:
        """Whether rows have come that follow on the known ones."""
        self.look()
        return len(self.texts) > self.known


def read_through(browser: Browser, last: int) -> list[str]:
    """The text of every line from the first to number `last`. Fails where a line is left out."""
    reader, position = _Reader(browser), 0.0
    while len(reader.texts) < last:
        reader.known = len(reader.texts)
        height, step = reader.look(position)
        # rows come a moment after the scroll
        browser.wait(
            reader.has_more, f"lines at {position:.0f} px of {height:.0f}, behind line {reader.known}"
        )
        position += step / 2
    return reader.texts

"""HTML compared as a browser reads it: line breaks and spaces beside tags mean nothing in a block."""

import re


def squeezed(html: str) -> str:
    """One space for any white space, and none beside `<` and `>`."""
    return re.sub(r" ?([<>]) ?", r"\1", re.sub(r"\s+", " ", html))


def without_tags(html: bytes) -> str:
    """What a reader sees, on one line."""
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", "", html.decode()))


class Html(str):
    """`part in html` holds however either of the two is broken into lines."""

    def __new__(cls, html: "str | bytes") -> "Html":
        return super().__new__(cls, squeezed(html if isinstance(html, str) else html.decode()))

    def __contains__(self, part: object) -> bool:
        assert isinstance(part, str)
        return super().__contains__(squeezed(part).strip())

"""What a pool gives groups, as people write it: `vision=guarantee:8,limit:12,weight:2`. The server checks it."""

from __future__ import annotations

from typing import Any, Dict, Iterable

from trainmaster.quantities import number_or_text

WORDS = ("guarantee", "limit", "weight")
FORM = "GROUP=guarantee:N,limit:N,weight:X"


def read(texts: Iterable[str]) -> Dict[str, Any]:
    """Group -> its share, None for `GROUP=none`. Raises ValueError with what is allowed."""
    found: Dict[str, Any] = {}
    for text in texts:
        name, equals, parts = text.partition("=")
        share: Dict[str, Any] = {}
        for part in parts.split(",") if parts != "none" else ():
            word, colon, number = part.partition(":")
            if not colon:
                raise ValueError(f"Found {text!r}; allowed: {FORM}, or GROUP=none.")
            share[word.strip()] = number_or_text(number.strip())
        if not (name and equals):
            raise ValueError(f"Found {text!r}; allowed: {FORM}, or GROUP=none.")
        found[name] = None if parts == "none" else share
    return found


def written(shares: Dict[str, Any]) -> Iterable[str]:
    """The same in text, one for each group."""
    for name, share in sorted(shares.items()):
        given = [
            f"{word}:{share[word]:g}"
            for word in WORDS
            if share.get(word) is not None and (word, share[word]) != ("guarantee", 0)
        ]
        yield f"{name}={','.join(given)}"

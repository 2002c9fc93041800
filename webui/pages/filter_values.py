"""The values that a filter of an address knows, in singular or plural, and a sentence about one that it does not."""

from __future__ import annotations

from collections.abc import Collection

from django.http import QueryDict


def read(wanted: QueryDict, known: dict[str, Collection[str]]) -> tuple[QueryDict, list[str]]:
    """The filters as their pills are called (`shell`, `Shells` → `shells`), and what is wrong with the others.

    `known`: parameter -> its values. One that is not known is left out: the page is as without it.
    """
    chosen, wrong = wanted.copy(), []
    for name, values in known.items():
        found = wanted.get(name, "")
        meant = next((each for each in values if _stem(each) == _stem(found)), "")
        if found and not meant:
            wrong.append(
                f"The address: found {name}={found}, allowed: {', '.join(values)}. The page is as without it."
            )
        if found:
            chosen[name] = meant
    return chosen, wrong


def _stem(value: str) -> str:
    return value.strip().lower().removesuffix("s")

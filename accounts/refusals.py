"""A wish that cannot be granted: why, as a code for programs and a sentence for people.

Every room raises it. The web floor says once what each code means in HTTP (`webui.refusals`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum


class Code(StrEnum):
    """What kind of refusal it is, for callers that act on it: nobody reads meaning out of a sentence."""

    INVALID = "invalid"  # what was sent is wrong
    UNKNOWN_PERSON = "unknown_person"  # name and password do not belong together
    FORBIDDEN = "forbidden"  # others may do it
    NOT_FOUND = "not_found"  # what it is about does not exist
    TAKEN = "taken"  # another one has the name
    CONFLICT = "conflict"  # the state of things does not allow it now
    TOO_LARGE = "too_large"  # less may be sent
    TOO_MANY = "too_many"  # the same may be sent later
    ENDED = "ended"  # what it is about has ended and never changes again


class Refusal(Exception):
    """`field` names what is wrong of what was sent, where one thing is."""

    def __init__(self, sentence: str, code: Code = Code.INVALID, field: str = "") -> None:
        super().__init__(sentence)
        self.code = code
        self.field = field


class FieldRefusals(Refusal):
    """Several fields are wrong at once: `errors` has a sentence for each."""

    def __init__(self, errors: Mapping[str, str], code: Code = Code.INVALID) -> None:
        super().__init__(" ".join(errors.values()), code, next(iter(errors)))
        self.errors = dict(errors)


@contextmanager
def refused_as(code: Code) -> Iterator[None]:
    """Give refusals another code, where a caller is known to answer with that one."""
    try:
        yield
    except Refusal as refusal:
        raise Refusal(str(refusal), code, refusal.field) from refusal

"""A wish that cannot be granted: why, as a code for programs and a sentence for people.

Every room raises it. The web floor says once what each code means in HTTP (`webui.refusals`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from types import TracebackType


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
    BUSY = "busy"  # another request is at it; the same may be sent in a moment
    FULL = "full"  # the server's disk has no room for it
    ENDED = "ended"  # what it is about has ended and never changes again


class Refusal(Exception):
    """`field` names what is wrong of what was sent, where one thing is."""

    def __init__(self, sentence: str, code: Code = Code.INVALID, field: str = "") -> None:
        super().__init__(sentence)
        self.code = code
        self.field = field

    @property
    def each(self) -> Sequence[Refusal]:
        """The single refusals that it is made of."""
        return [self]


class FieldRefusals(Refusal):
    """Several fields are wrong at once: `errors` has a sentence for each."""

    def __init__(self, errors: Mapping[str, str], code: Code = Code.INVALID) -> None:
        super().__init__(" ".join(errors.values()), code, next(iter(errors)))
        self.errors = dict(errors)


class Refusals(Refusal):
    """Several refusals at once, a line for each."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        codes = {refusal.code for refusal in refusals}
        super().__init__("\n".join(map(str, refusals)), codes.pop() if len(codes) == 1 else Code.INVALID)
        self._each = list(refusals)

    @property
    def each(self) -> Sequence[Refusal]:
        return self._each


class Together:
    """Steps that do not need each other, in a `with` block: the end of it raises all that they refused, as one."""

    def __init__(self) -> None:
        self.refused: list[Refusal] = []

    @contextmanager
    def step(self) -> Iterator[None]:
        """Run one of them; what it refuses is kept."""
        try:
            yield
        except Refusal as refusal:
            self.refused += refusal.each

    def __enter__(self) -> Together:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Refusal):  # outside of the steps: nothing after it could be tried
            self.refused += error.each
        elif error is not None:
            return
        if self.refused:
            raise self.refused[0] if len(self.refused) == 1 else Refusals(self.refused)


@contextmanager
def refused_as(code: Code) -> Iterator[None]:
    """Give refusals another code, where a caller is known to answer with that one."""
    try:
        yield
    except Refusal as refusal:
        raise Refusal(str(refusal), code, refusal.field) from refusal

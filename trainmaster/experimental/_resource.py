"""What the client's classes share: each holds one thing of the server, as of its last `reload`."""

from __future__ import annotations

import dataclasses
import re
from typing import Callable, ClassVar, List, Optional, Type, TypeVar
from urllib.parse import quote

from trainmaster.experimental._session import Json, Query, Session

Kind = TypeVar("Kind", bound="Resource")


@dataclasses.dataclass(init=False, repr=False, eq=False)
class Resource:
    """Its fields are named as in the dialect, in snake case; they are None until the server has been asked.

    `_NOUN` names it in paths and answers, `_KEY` its id in a record, `_ARGUMENT` its id in the constructor.
    """

    _NOUN: ClassVar[str]
    _ARGUMENT: ClassVar[str]
    _KEY: ClassVar[str] = "id"

    def __init__(self, session: Session, key: object) -> None:
        self._session = session
        self._path = f"/api/v1/{self._NOUN}s/{quote(str(key), safe='')}"

    def reload(self) -> None:
        """Ask the server again."""
        self._hydrate(self._session.get(self._path)[self._NOUN])

    def _reloaded(self: Kind) -> Kind:
        self.reload()
        return self

    def _patch(self, changes: Json) -> None:
        self._hydrate(self._session.call("PATCH", self._path, changes)[self._NOUN])

    def _hydrate(self, record: Json) -> None:
        for field in dataclasses.fields(self):
            name = re.sub("_(.)", lambda found: found[1].upper(), field.name)
            setattr(self, field.name, record.get(name))

    @classmethod
    def _of(cls: Type[Kind], session: Session, record: Json) -> Kind:
        make: Callable[..., Kind] = cls  # some take the session first, some the id
        found = make(**{"session": session, cls._ARGUMENT: record[cls._KEY]})
        found._hydrate(record)
        return found

    @classmethod
    def _all(
        cls: Type[Kind], session: Session, query: Query = (), path: Optional[str] = None, limit: int = 0
    ) -> List[Kind]:
        """All of a list, or the first `limit` of it."""
        nouns = f"{cls._NOUN}s"
        rows = session.pages(path or f"/api/v1/{nouns}", nouns, query, limit)
        return [cls._of(session, row) for row in rows]

"""Users, as scripts hold them."""

from __future__ import annotations

import dataclasses
import re
from typing import Optional

from trainmaster.credentials import salted_hash
from trainmaster.experimental._resource import Resource
from trainmaster.experimental._session import Json, Session

PASSWORD_CHARACTERS_MIN = 8


@dataclasses.dataclass(init=False, repr=False, eq=False)
class User(Resource):
    """One user. What it says of itself is of its last `reload`."""

    _NOUN, _ARGUMENT = "user", "user_id"

    username: Optional[str] = None
    admin: Optional[bool] = None
    active: Optional[bool] = None
    remote: Optional[bool] = None
    agent_uid: Optional[int] = None
    agent_gid: Optional[int] = None
    agent_user: Optional[str] = None
    agent_group: Optional[str] = None
    display_name: Optional[str] = None

    def __init__(self, user_id: int, session: Session) -> None:
        super().__init__(session, user_id)
        self.user_id = user_id

    def rename(self, new_username: str) -> None:
        self._patch({"username": new_username})

    def activate(self) -> None:
        self._patch({"active": True})

    def deactivate(self) -> None:
        self._patch({"active": False})

    def change_display_name(self, display_name: str) -> None:
        self._patch({"displayName": display_name})

    def change_password(self, new_password: str, old_password: Optional[str] = None) -> None:
        """Set a password; your own only with the old one. ValueError when it is too weak."""
        old = {} if old_password is None else {"oldPassword": salted_hash(old_password)}
        self._patch({"password": strong_hash(new_password), "isHashed": True, **old})

    def link_with_agent(
        self,
        agent_uid: Optional[int] = None,
        agent_gid: Optional[int] = None,
        agent_user: Optional[str] = None,
        agent_group: Optional[str] = None,
    ) -> None:
        """The Unix account on hosts that this user's jobs run as."""
        group = {
            "agentUid": agent_uid,
            "agentGid": agent_gid,
            "agentUser": agent_user,
            "agentGroup": agent_group,
        }
        self._patch({"agentUserGroup": group})

    def _hydrate(self, record: Json) -> None:
        super()._hydrate({"remote": False, **record, **(record.get("agentUserGroup") or {})})


def strong_hash(password: Optional[str]) -> str:
    """What stands for a password on the wire. ValueError when it is weak: the server sees only this."""
    found = password or ""
    kinds = ("[A-Z]", "[a-z]", "[0-9]")
    if len(found) < PASSWORD_CHARACTERS_MIN or not all(re.search(kind, found) for kind in kinds):
        raise ValueError(
            f"The password is too weak: {PASSWORD_CHARACTERS_MIN} characters or more are required, including "
            "an upper-case letter, a lower-case letter and a digit."
        )
    return salted_hash(found)

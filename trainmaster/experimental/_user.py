"""Users, as scripts hold them."""

from __future__ import annotations

import re
from typing import Optional

from trainmaster.credentials import salted_hash
from trainmaster.experimental._session import Json, Session

PASSWORD_CHARACTERS_MIN = 8


class User:
    """One user. What it says of itself is of its last `reload`."""

    def __init__(self, user_id: int, session: Session) -> None:
        self.user_id = user_id
        self._session = session
        self.username: Optional[str] = None
        self.admin: Optional[bool] = None
        self.active: Optional[bool] = None
        self.remote: Optional[bool] = None
        self.agent_uid: Optional[int] = None
        self.agent_gid: Optional[int] = None
        self.agent_user: Optional[str] = None
        self.agent_group: Optional[str] = None
        self.display_name: Optional[str] = None

    def reload(self) -> None:
        """Ask the server anew."""
        self._hydrate(self._session.get(self._path())["user"])

    def rename(self, new_username: str) -> None:
        self._patch({"username": new_username})

    def activate(self) -> None:
        self._patch({"active": True})

    def deactivate(self) -> None:
        self._patch({"active": False})

    def change_display_name(self, display_name: str) -> None:
        self._patch({"displayName": display_name})

    def change_password(self, new_password: str) -> None:
        """ValueError when it is too weak."""
        self._patch({"password": strong_hash(new_password), "isHashed": True})

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

    def _patch(self, changes: Json) -> None:
        self._hydrate(self._session.call("PATCH", self._path(), changes)["user"])

    def _path(self) -> str:
        return f"/api/v1/users/{self.user_id}"

    def _hydrate(self, record: Json) -> None:
        group = record.get("agentUserGroup") or {}
        self.username = record["username"]
        self.admin = record["admin"]
        self.active = record["active"]
        self.remote = record.get("remote", False)
        self.display_name = record.get("displayName")
        self.agent_uid = group.get("agentUid")
        self.agent_gid = group.get("agentGid")
        self.agent_user = group.get("agentUser")
        self.agent_group = group.get("agentGroup")

    @classmethod
    def _of(cls, session: Session, record: Json) -> User:
        user = cls(record["id"], session)
        user._hydrate(record)
        return user


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

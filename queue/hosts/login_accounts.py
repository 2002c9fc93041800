"""Under which Unix account work runs, and where work of users without one of their own is refused.

A host whose login is root, or may switch to other accounts by sudo, isolates users with a linked account from each
other. Work that ran as that login itself could read and end everybody else's, so only a pool that allows it in so many
words gets such work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accounts.models import User
from accounts.refusals import Code, Refusal
from hosts.models import Host, ResourcePool
from hosts.states import Admission
from scheduling import reasons

#: the same as `may_switch`, of a row of hosts_host
MAY_SWITCH_SQL = "coalesce(facts->'account'->>'switch', 'none') <> 'none'"


def unix_user(pool: ResourcePool, linked: str) -> str | None:
    """The account that owns a run of a user with this linked account; None: the one that the server logs in with."""
    return None if pool.shared_account else linked or None


def may_switch(facts: Mapping[str, Any]) -> bool:
    """Is the login root, or may it become others? As the last probe of the host found it."""
    return bool((facts.get("account") or {}).get("switch", "none") != "none")


def refuse_as_login(pool: ResourcePool, linked: str) -> None:
    """Refuse work that could only run as a login which may become others. Raises Refusal.

    `linked`: the account of the work's owner, empty without one. A pool some of whose hosts are safe takes the work.
    """
    if pool.allow_login_account or unix_user(pool, linked) is not None:
        return
    facts = dict(
        Host.objects.filter(pool=pool)
        .exclude(admission=Admission.REMOVED)
        .order_by("name")
        .values_list("name", "facts")
    )
    if facts and all(may_switch(each) for each in facts.values()):
        reason = reasons.lacks_account(list(facts), pool.name, shared=pool.shared_account)
        raise Refusal(f"{reason.sentence}.", Code.FORBIDDEN, field="pool")


def submitters_as_login(pool: ResourcePool) -> list[str]:
    """Names of the users who may submit and whose work in this pool runs as the login account."""
    users = User.objects.filter(is_active=True).exclude(role=User.Role.VIEWER)
    if not pool.shared_account:
        users = users.filter(unix_user="")
    return list(users.order_by("username").values_list("username", flat=True))

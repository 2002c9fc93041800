"""Under which Unix account work runs, and where work of users without one of their own is refused.

A host whose login is root, or may switch to other accounts by sudo, isolates users with a linked account from each
other. Work that ran as that login itself could read and end everybody else's, so only a pool that allows it explicitly
gets such work. A login that may use the Docker daemon of root can become root, too, but isolates nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from accounts.models import User
from accounts.refusals import Code, Refusal
from events.announce import wake
from hosts.models import Host, ResourcePool
from hosts.pools import mark_dirty
from hosts.slurm.settings import SlurmSettings
from hosts.states import Admission
from scheduling import reasons
from scheduling.reasons import listed
from trainmaster.protocol import UnixIds

JUDGE_ACCOUNTS = "dispatch.host_tasks.judge_accounts"
#: the same as `may_become_root`, of a row of hosts_host
MAY_BECOME_ROOT_SQL = """
  (coalesce(facts->'account'->>'switch', 'none') <> 'none' OR coalesce(facts->'account'->>'root_by', '') <> '')"""


def is_shared(pool: ResourcePool) -> bool:
    """Whether all jobs of the pool run under one account, that of the login; of a Slurm pool that is the usual."""
    if pool.slurm:
        return not SlurmSettings.of(pool.slurm).has_own_accounts
    return pool.shared_account


def unix_user(pool: ResourcePool, linked: str) -> str | None:
    """The account that owns a run of a user with this linked account; None: the one that the server logs in with."""
    return None if is_shared(pool) else linked or None


def unix_ids(owner: User, account: str | None) -> UnixIds | None:
    """Numbers that the linked account must have; None for the login's, and for one of an earlier link."""
    if account is None or account != owner.unix_user:
        return None
    return {"uid": owner.unix_uid, "gid": owner.unix_gid}


def may_switch(facts: Mapping[str, Any]) -> bool:
    """Is the login root, or may it become others? As the last probe of the host found it."""
    return bool((facts.get("account") or {}).get("switch", "none") != "none")


def may_become_root(facts: Mapping[str, Any]) -> bool:
    """Is the login root, or may it become root: by sudo, or by a daemon of root's that starts containers for it?"""
    return may_switch(facts) or bool((facts.get("account") or {}).get("root_by"))


def may_run(pool: ResourcePool, account: str | None, facts: Mapping[str, Any]) -> bool:
    """May work run under this account, None for that of the login, on a host of the pool with these facts?

    A user who is linked with the login itself has no account of their own there.
    """
    if pool.allow_login_account or not may_become_root(facts):
        return True
    return account not in (None, facts["account"].get("name"))


def refuse_as_login(pool: ResourcePool, linked: str) -> None:
    """Refuse work that could only run as a login which may become root. Raises Refusal.

    `linked`: the account of the work's owner, empty without one. A pool some of whose hosts are safe takes the work.
    """
    facts = dict(
        Host.objects.filter(pool=pool)
        .exclude(admission=Admission.REMOVED)
        .order_by("name")
        .values_list("name", "facts")
    )
    account = unix_user(pool, linked)
    if facts and not any(may_run(pool, account, each) for each in facts.values()):
        reason = reasons.lacks_account(list(facts), pool.name, shared=is_shared(pool))
        raise Refusal(f"{reason.sentence}.", Code.FORBIDDEN, field="pool")


def accounts_changed(**_: object) -> None:
    """Somebody has another account, role or state: what waits for that is looked at, and what the doctor says of it."""
    hosts = Host.objects.exclude(admission=Admission.REMOVED).extra(where=[MAY_BECOME_ROOT_SQL])
    wake(JUDGE_ACCOUNTS)
    for pool_id in set(hosts.values_list("pool_id", flat=True)):
        mark_dirty(pool_id)


def submitters_as_login(pool: ResourcePool, logins: Collection[str]) -> list[str]:
    """Names of the users who may submit and whose work in this pool runs as one of these login accounts.

    That is work of users who are linked with the login itself, too.
    """
    users = User.objects.filter(is_active=True).exclude(role=User.Role.VIEWER)
    if not is_shared(pool):
        users = users.filter(unix_user__in=["", *logins])
    return list(users.order_by("username").values_list("username", flat=True))


def linked_like_root(facts: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(user, account, groups) of those who may submit and whose linked account can become root on such a host."""
    like_root: Mapping[str, list[str]] = (facts.get("account") or {}).get("like_root") or {}
    users = User.objects.filter(is_active=True, unix_user__in=like_root).exclude(role=User.Role.VIEWER)
    pairs = users.order_by("username").values_list("username", "unix_user")
    return [(user, account, listed(like_root[account])) for user, account in pairs]

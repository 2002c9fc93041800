"""How far the users of this server have to trust each other, by how it is set up (docs/security.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from django.conf import settings
from django.db.models import Count

from accounts.models import User
from hosts import login_accounts
from hosts.models import Host, ResourcePool
from hosts.states import Admission
from scheduling.reasons import listed


class Kind(StrEnum):
    """Who uses the server; the words of docs/security.md."""

    ONE_PERSON = "one person"
    TRUSTING = "a team whose members trust each other"
    APART = "a team whose members are kept apart"


@dataclass(frozen=True)
class Trust:
    """`gaps`: what does not keep users apart, sentences without a full stop; empty unless the kind is TRUSTING."""

    kind: Kind
    gaps: list[str] = field(default_factory=list)

    @property
    def sentence(self) -> str:
        said = f"This server is set up for {self.kind}"
        return f"{said}: {'; '.join(self.gaps)}." if self.gaps else f"{said}."


def of_server() -> Trust:
    """What is true now, by the rows of users, pools and hosts, and by the settings."""
    submitters = User.objects.filter(is_active=True).exclude(role=User.Role.VIEWER)
    if submitters.count() <= 1:
        return Trust(Kind.ONE_PERSON)
    gaps = [gap for pool in ResourcePool.objects.all() for gap in _of_pool(pool)]
    shared = (
        submitters.exclude(unix_user="").values("unix_user").annotate(users=Count("pk")).filter(users__gt=1)
    )
    gaps += [
        f"{row['users']} users are linked with the account {row['unix_user']}"
        for row in shared.order_by("unix_user")
    ]
    if not settings.PROXY_ORIGIN:
        gaps.append("pages of notebooks and other tasks share the console's origin (--proxy-origin)")
    if not settings.S3_ENDPOINTS:
        gaps.append("configs may name any S3 address (TRAINMASTER_S3_ENDPOINTS)")
    if settings.SHELLS_WITHOUT_LOGIN:
        gaps.append(
            "the key of a shell works after its owner's login has ended (TRAINMASTER_SHELLS_WITHOUT_LOGIN)"
        )
    if settings.INSECURE_HTTP:
        gaps.append("it is served without TLS (--insecure-http)")
    return Trust(Kind.TRUSTING if gaps else Kind.APART, gaps)


def _of_pool(pool: ResourcePool) -> list[str]:
    hosts = Host.objects.filter(pool=pool).exclude(admission=Admission.REMOVED).order_by("name")
    facts = dict(hosts.values_list("name", "facts"))
    if not facts:
        return []
    gaps = _of_logins(pool, facts)
    if not login_accounts.is_shared(pool):
        gaps += [gap for name, found in facts.items() for gap in _of_linked(name, found)]
    if not pool.strict:
        gaps.append(f"editors may change each other's jobs in the queue of pool {pool.name} (--strict)")
    return gaps


def _of_logins(pool: ResourcePool, facts: dict[str, dict[str, Any]]) -> list[str]:
    """Whose jobs run under the same account, which is that of the login."""
    if login_accounts.is_shared(pool):
        by = "accounts=one" if pool.slurm else "--shared-account"
        return [f"pool {pool.name} runs all jobs under one account ({by})"]
    gaps = []
    bound = [name for name, found in facts.items() if not login_accounts.may_switch(found)]
    if bound:
        gaps.append(f"all jobs on {listed(bound)} share the login account, which cannot switch to others")
    others = [found["account"].get("name", "") for name, found in facts.items() if name not in bound]
    as_login = login_accounts.submitters_as_login(pool, others) if others else []
    if as_login and pool.allow_login_account:
        gaps.append(
            f"jobs of {listed(as_login)} in pool {pool.name} run as the login account (--allow-login-account)"
        )
    return gaps


def _of_linked(name: str, facts: dict[str, Any]) -> list[str]:
    if not login_accounts.may_switch(facts):
        return []
    return [
        f"jobs of {user} can become root on {name}: their account {account} is in the group {groups}"
        for user, account, groups in login_accounts.linked_like_root(facts)
    ]

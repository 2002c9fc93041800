"""The host doctor: asks the host for its facts, tries the way back to the server, and writes the report."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace

from django.db import transaction

from dispatch.ssh import connections, remote, server_route, tunnel
from dispatch.ssh.dialling import endpoint_of
from dispatch.watching import slurm_people
from dispatch.watching.doctor_checks import Check, Said, checks, slots_of
from dispatch.watching.doctor_checks import examine as examine_facts
from events.announce import announce
from hosts import admitting, identity, login_accounts, registry, slots, slurm_nodes, trust
from hosts.models import Host
from hosts.pools import mark_dirty
from hosts.slurm_pool import tunnel_address
from scheduling.reasons import listed

PROBE_TIMEOUT_SECONDS = 120.0
#: of a login node
_SAME_WAY = (
    " The nodes must reach it in the same way; if they cannot, set tunnel=ADDRESS in the pool's settings."
)
_NEEDS_TUNNEL = (
    "The nodes can use a tunnel of the login node: set tunnel=ADDRESS in the pool's settings, with an address of the "
    "login node that they reach."
)


def run(host_id: uuid.UUID) -> None:
    """Examine a host again and bring its slots in line; one that does not answer gets that as its report."""
    host = Host.objects.filter(pk=host_id).exclude(admission=Host.Admission.REMOVED).first()
    if host is None or not host.workdir:
        return
    try:
        probe(host)
        examine(host)
    except remote.RemoteError as error:
        report = checks({"contact": ("fail", str(error))})
        admitting.examined(host, report, skew_seconds=host.clock_skew_seconds)
        return
    if host.transport == Host.Transport.LOGIN:
        slurm_nodes.read_soon(host.pool)
    elif host.admission == Host.Admission.READY:
        register(host)


def probe(host: Host) -> None:
    """Bring the host its bundle and ask for its facts; both are noted on the row object. Raises RemoteError."""
    host.bundle_sha256 = remote.push(host)
    found = remote.verb(host, "probe", {}, timeout_seconds=PROBE_TIMEOUT_SECONDS)
    # what was found of people's accounts lasts until they are tried again
    host.facts = found | {name: host.facts[name] for name in ("people",) if name in host.facts}


@transaction.atomic
def register(host: Host) -> None:
    """Bring the slots of a host that is in use in line with its facts.

    Of two that find the same GPUs the younger is taken out. One for which a number of CPU slots was asked has these.
    """
    identity.lock()
    twin = identity.same_gpus(host)
    if twin is None or host.wanted_slots is not None:
        slots.register(host, slots_of(host.facts, host.wanted_slots, without_gpus=twin is not None))
        mark_dirty(host.pool_id)
    elif twin.registered_at < host.registered_at:
        admitting.taken_out(host.pk, twin.refusal(host.name))
    else:
        admitting.taken_out(twin.id, replace(twin, name=host.name).refusal(twin.name))
        slots.register(host, slots_of(host.facts, host.wanted_slots))


def _machine(host: Host) -> Said | None:
    """Whether another host in use is this very machine; nothing is said where none is."""
    if host.transport == Host.Transport.LOGIN:
        return None  # it has no slots
    if twin := identity.same_gpus(host):
        if host.wanted_slots is None:
            return "fail", twin.refusal(host.name)
        return "warn", (
            f"Its GPUs are slots of {twin.name}, so it has only the requested {host.wanted_slots} CPU slots."
        )
    if twin := identity.same_machine(host):
        return "warn", twin.warning(host.name)
    return None


def examine(host: Host) -> list[Check]:
    """Judge the facts on the row, measure the clock, find the way back; store all of it. Raises RemoteError."""
    skew = clock_skew(host)
    report = examine_facts(host.facts, host.python, host.activate, skew)
    report = [_of_cluster(check, host) if host.pool.slurm else check for check in report]
    admitting.found_so_far(host, report)
    tried = {
        "route": _find_route(host),
        "forwarding": _ways(host),
        "machine": _machine(host),
        "bundle": ("ok", f"Host bundle {host.bundle_sha256[:12]} is installed in {host.workdir}."),
        "account": _account(host),
        "linked": _linked(host),
        "people": slurm_people.check(host),
        "users": ("ok", trust.of_server().sentence),
    }
    report += checks(tried)
    admitting.examined(host, report, skew_seconds=skew)
    tunnel.tell_untold(host.pk)
    return report


def _of_cluster(check: Check, host: Host) -> Check:
    """The check of a login node: where its pool has one account for all, it matters not whom the login may become."""
    if check["name"] != "isolation" or not login_accounts.is_shared(host.pool):
        return check
    name = host.facts["account"]["name"]
    sentence = (
        f"All jobs of pool {host.pool.name} run under {name} (accounts=one) and are not kept from each other."
    )
    return {**check, "state": "warn", "sentence": sentence}


def judge_accounts() -> None:
    """Bring up to date what the reports say of accounts, without a question to any host.

    It follows from users and the rules of pools, which change more often than hosts do.
    """
    users: Said = ("ok", trust.of_server().sentence)
    for host in registry.present().exclude(doctor={}).select_related("pool"):
        about = {"account": _account(host), "linked": _linked(host), "users": users}
        kept = [check for check in host.doctor["checks"] if check["name"] not in about]
        judged = host.doctor | {"checks": kept + checks(about)}
        if judged != host.doctor:  # not over what has been found meanwhile
            Host.objects.filter(pk=host.pk, doctor=host.doctor).update(doctor=judged)
            announce("hosts")


def _account(host: Host) -> Said | None:
    """Who would run as a login that may become root; nothing is said of a login that may not."""
    if not login_accounts.may_become_root(host.facts):
        return None
    account, pool = host.facts["account"], host.pool
    by = account["switch"] if account["switch"] != "none" else account["root_by"]
    login = "root" if by == "root" else f"{account['name']}, which may become root by {by}"
    unlinked = login_accounts.submitters_as_login(pool, [account["name"]])
    if not unlinked:
        return "ok", "All users who may submit have a linked account; no job runs as the login account."
    shared = login_accounts.is_shared(pool)
    whose = "All jobs" if shared else f"Jobs of {listed(unlinked)}"
    if pool.allow_login_account:
        return "warn", (
            f"{whose} run as {login}: each of them can read and end everything here. Pool {pool.name} allows it."
        )
    link = "" if shared else " Link accounts with `trainmaster user link-with-agent-user`, or"
    allow = f"allow it with `trainmaster pool edit {pool.name} --allow-login-account`."
    return "fail", (
        f"{whose} would run as {login}, so they are refused here.{link} {allow if link else allow.capitalize()}"
    )


def _linked(host: Host) -> Said | None:
    """Which linked accounts can become root there, and so are not kept from the others."""
    if login_accounts.is_shared(host.pool) or not login_accounts.may_switch(host.facts):
        return None
    found = login_accounts.linked_like_root(host.facts)
    if not found:
        return None
    who = listed([f"{account} (of {user}; {groups})" for user, account, groups in found])
    return "warn", (
        f"These linked accounts are in groups whose members can become root here: {who}. "
        "Their jobs may then be able to read and end everything here; link accounts that are in no such group."
    )


def clock_skew(host: Host) -> float:
    """Seconds by which the host's clock is ahead of ours, good to about half of a verb's round trip."""
    sent = time.time()
    answer = remote.verb(host, "status", {"runs": []})
    return float(answer["now"]) - (sent + time.time()) / 2


def _ways(host: Host) -> Said | None:
    """Whether what listens in a task there can be reached; on this machine it always can."""
    if host.transport == Host.Transport.LOCAL:
        return None
    if refusal := connections.way_refused(endpoint_of(host)):
        return "warn", (
            f"{refusal} Until this is fixed, shells, notebooks, TensorBoards and ports of commands do not work "
            "here; other jobs do."
        )
    return "ok", "Shells and notebooks can be reached through SSH."


def _find_route(host: Host) -> Said:
    """Choose the way back and note it on the row object. Raises RemoteError."""
    is_login = host.transport == Host.Transport.LOGIN
    found = server_route.find(host)
    if isinstance(found, server_route.Route):
        host.server_route, host.server_url = found.kind, found.url
        return "ok", f"{found.sentence}{_SAME_WAY if is_login else ''}"
    if host.transport == Host.Transport.LOCAL:
        return "fail", found.sentence
    if is_login and not tunnel_address(host):
        return "fail", f"{found.sentence} {_NEEDS_TUNNEL}"
    try:
        url = tunnel.open_for(host)
    except remote.RemoteError as error:
        return "fail", f"{found.sentence} A tunnel cannot be opened either: {error}"
    host.server_route, host.server_url = "tunnel", url
    if problem := server_route.answers_at(host, url):
        return "fail", f"{found.sentence} The tunnel at {url} does not work either: {problem}."
    return "ok", f"{found.sentence} {'They use' if is_login else 'It uses'} an SSH tunnel at {url}."

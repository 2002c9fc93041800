"""Whether the jobs of people reach Slurm under their own accounts (accounts=own), tried on the login node for each.

What is tried is what a submission needs: the login may become the account, which reads Trainmaster's programs in the
folder, and Slurm takes a job from it.
"""

from __future__ import annotations

import time

from accounts.models import User
from dispatch.ssh import slurm_login
from dispatch.ssh.remote import RemoteError, VerbFailed
from dispatch.ssh.slurm_login import Person, SlurmRefused
from dispatch.watching import slurm_facts
from dispatch.watching.doctor_checks import Said
from hosts import admitting, login_accounts
from hosts.models import Host
from hosts.slurm.settings import SlurmSettings
from scheduling.reasons import listed

#: people whose accounts are tried; each takes a few tenths of a second
_TRIED_MOST = 50
#: no further one is tried after that: some may not answer
_TRIED_SECONDS = 120.0
_SHOWN = 3


def check(host: Host) -> Said | None:
    """What the doctor says of them; None for a host that is not such a login node. Faults are kept in its facts."""
    if host.transport != Host.Transport.LOGIN or login_accounts.is_shared(host.pool):
        host.facts.pop("people", None)
        return None
    account = host.facts["account"]
    if account["switch"] == "none":
        return "fail", (
            f"accounts=own: {account['name']} cannot switch to other accounts. Log in as root, give it a sudo rule "
            "that names the accounts of your users, or use accounts=one."
        )
    users = User.objects.filter(is_active=True).exclude(role=User.Role.VIEWER).exclude(unix_user="")
    people = list(users.order_by("username"))
    faults, tried, until = dict[User, str](), 0, time.monotonic() + _TRIED_SECONDS
    for user in people[:_TRIED_MOST]:
        if time.monotonic() > until:
            break
        tried += 1
        if fault := _fault(host, user):
            faults[user] = fault
    host.facts["people"] = {user.unix_user: fault for user, fault in faults.items()}
    if not people:
        return "warn", (
            "accounts=own: no user who may submit is linked with an account. Link them with "
            "`trainmaster user link-with-agent-user`."
        )
    more = f" of {len(people)}" if len(people) > tried else ""
    if not faults:
        by = "root" if account["switch"] == "root" else "sudo"
        count = "The account" if tried == 1 else f"All {tried}{more} accounts"
        sentence = (
            f"{count} of users who may submit can be reached through {by}, and Slurm takes jobs from them."
        )
        return "ok", sentence
    shown = [f"{user.username} ({user.unix_user}): {fault}" for user, fault in list(faults.items())[:_SHOWN]]
    left = f" And {len(faults) - _SHOWN} more." if len(faults) > _SHOWN else ""
    state = "fail" if len(faults) == tried else "warn"
    names = listed([user.username for user in faults])
    return state, f"Jobs of {names} cannot be handed to Slurm. {' '.join(shown)}{left}"


def _fault(host: Host, user: User) -> str:
    """Why the jobs of a user would not be taken, as a sentence; empty if they would.

    Raises RemoteError where the login node itself could not be asked: that is nobody's fault.
    """
    rules = SlurmSettings.of(host.pool.slurm)
    person = Person(user.unix_user, login_accounts.unix_ids(user, user.unix_user))
    admitting.goes_on(host)
    try:
        slurm_login.ask(host, slurm_facts.trial(rules, rules.partition), person=person)
    except SlurmRefused as error:
        return f"Slurm would not take a job: {slurm_facts.in_a_line(error.said)}."
    except RemoteError as error:
        if (
            isinstance(error, VerbFailed) or type(error) is RemoteError
        ):  # as where the account finds no sbatch
            return str(error)
        raise
    return ""

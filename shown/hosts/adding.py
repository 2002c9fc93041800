"""A host on its way into a pool, step by step: what was typed, what it waits for, and what can be chosen at the end."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import IntEnum
from urllib.parse import urlencode

from accounts.refusals import Refusal
from hosts import chosen
from hosts.models import Host
from hosts.registry import NewHost
from shown.hosts import keys
from trainmaster.cli.errors import CliError
from trainmaster.cli.host_rows import interpreter_lines
from trainmaster.cli.ssh_config import Target, parse_target

LOCAL = "local"
#: the steps that a person sees; a stage is the number of the current one
STEPS = ("Address", "Host key", "Doctor", "Python and slots")


class Stage(IntEnum):
    """How far a host has come, by its row alone: whoever opens the page again sees the same."""

    CONTACT = 0  # the server looks for it
    KEY = 1  # someone has to accept its key, or that of a jump host
    DOCTOR = 2
    CHOICE = 3  # someone has to choose its interpreter and slots
    DONE = 4  # it is in use


@dataclass(frozen=True)
class Adding:
    """`is_stuck`: it went no further, and `host.why_not_used` says why."""

    host: Host
    stage: Stage
    is_stuck: bool

    @property
    def steps(self) -> list[tuple[str, str]]:
        return steps_at(self.stage)

    @property
    def is_before_login(self) -> bool:
        """The server has not logged in yet: its key may still have to be brought there, and the address changed."""
        return self.stage < Stage.DOCTOR or (self.is_stuck and not self.host.facts)

    @property
    def is_new(self) -> bool:
        """It has never been in use: it may be taken back, or get another address."""
        is_unused = chosen.is_being_added(self.host) or not self.host.slots.exists()
        return self.stage < Stage.DONE and is_unused

    @property
    def may_join(self) -> bool:
        """Whether its key may be the last question: with it accepted, it gets work once the doctor is content."""
        return chosen.is_being_added(self.host) and not self.is_stuck

    @property
    def typed(self) -> str:
        """The query of the form that shows again what was typed."""
        host = self.host
        jumps = [f"{hop['user']}@{hop['address']}".lstrip("@") + f":{hop['port']}" for hop in host.jumps]
        values = {
            "target": host.address or host.name,
            "pool": host.pool.name,
            "user": host.login_user,
            "port": host.port,
            "jumps": ", ".join(jumps),
            "name": host.name if host.address else "",
        }
        return urlencode({name: value for name, value in values.items() if value})

    @property
    def login(self) -> str:
        """Whose authorized_keys gets the server's key."""
        return self.host.login_user or "the login"


def steps_at(stage: Stage) -> list[tuple[str, str]]:
    """(step, what aria-current says of it)."""
    return [(name, "step" if number == stage else "") for number, name in enumerate(STEPS)]


def of(host: Host) -> Adding:
    return Adding(host, _stage(host), host.admission in (Host.Admission.FAILED, Host.Admission.LOST))


def _stage(host: Host) -> Stage:
    if keys.to_accept(host):
        return Stage.KEY
    if host.admission == Host.Admission.READY:
        return Stage.CHOICE if chosen.is_being_added(host) else Stage.DONE
    if host.transport == Host.Transport.SSH and not host.host_key:
        return Stage.CONTACT
    return Stage.DOCTOR


def interpreters(host: Host) -> list[tuple[str, str]]:
    """(path, "/usr/bin/python3: Python 3.11.2, no torch") of those that the doctor found."""
    found = host.facts.get("interpreters") or []
    return list(
        zip([str(each["path"]) for each in found], interpreter_lines({"interpreters": found}), strict=True)
    )


def refuses_jobs(host: Host) -> bool:
    """Whether jobs of some users are refused there until the pool allows them; the doctor has said whose."""
    checks = host.doctor.get("checks", [])
    return any(each["name"] == "account" and each["state"] == "fail" for each in checks)


def new_host(
    target: str, *, name: str = "", user: str = "", port: int | None = None, jumps: str = ""
) -> NewHost:
    """What was typed as a host. A bare ssh name is left for the server's own ssh to look up; an address is kept.

    Raises Refusal with the field that is wrong.
    """
    if target == LOCAL:
        return NewHost(name=name or LOCAL, transport=Host.Transport.LOCAL)
    found = _parsed(target, "target")
    if user:
        _parsed(f"{user}@{LOCAL}", "user")
    return NewHost(
        name=name or found.host,
        address="" if name in ("", found.host) and not _is_address(found.host) else found.host,
        port=port or found.port or 0,
        login_user=user or found.user or "",
        jumps=[
            {"address": hop.host, "port": hop.port or 22, "user": hop.user or "", "host_key": ""}
            for hop in (_parsed(each.strip(), "jumps") for each in jumps.split(",") if each.strip())
        ],
    )


def _parsed(text: str, field: str) -> Target:
    try:
        return parse_target(text)
    except CliError as error:
        sentence = f"Found {text!r}; allowed: a name, an address, or user@address:port."
        raise Refusal(sentence, field=field) from error


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True

"""The menus of hosts and slots: what a person may do with each, and what is asked before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from accounts.models import User
from hosts import chosen
from shown.hosts.rows import HostRow, SlotRow


@dataclass(frozen=True)
class MenuAction:
    """A link (`href`), or an address that is posted to. `asks`: what is said before; `danger`: it stands apart."""

    label: str
    href: str = ""
    post: str = ""
    asks: str = ""
    danger: bool = False


def of_host(row: HostRow, user: User) -> Iterator[MenuAction]:
    host, at = row.host, f"/hosts/{row.host.name}"
    yield MenuAction("View", at)
    if not user.is_admin:
        return
    if chosen.is_being_added(host):
        yield MenuAction("Continue adding…", f"{at}/adding")
    yield MenuAction("Edit…", f"{at}/edit")
    yield MenuAction("Run doctor", post=f"{at}/doctor")
    yield MenuAction("Start burn-in", post=f"{at}/burn-in")
    if host.quarantine:
        yield MenuAction("Release", post=f"{at}/release")
    elif not host.enabled or host.draining:
        yield MenuAction("Enable", post=f"{at}/enable")
    else:
        yield MenuAction("Drain", post=f"{at}/drain")
    if host.enabled:
        held = f"Its runs ({row.held} slot{'s' * (row.held != 1)}) are stopped and start elsewhere."
        asks = f"Disable {host.name}? {held if row.held else 'It gets no new work.'}"
        yield MenuAction("Disable…", post=f"{at}/disable", asks=asks, danger=True)
    if row.state == "silent":
        asks = f"Declare {host.name} lost? Its runs end, and their trials start elsewhere from their last checkpoint."
        yield MenuAction("Declare lost…", post=f"{at}/lost", asks=asks, danger=True)
    asks = f"Remove {host.name} from Trainmaster?"
    yield MenuAction("Remove…", post=f"{at}/remove", asks=asks, danger=True)


def of_slot(row: HostRow, each: SlotRow, user: User) -> Iterator[MenuAction]:
    """Nothing for those who may not change it."""
    slot = each.slot
    at = f"/hosts/{row.host.name}/slots/{slot.index}"
    if not user.is_admin:
        return
    if slot.quarantine:
        yield MenuAction("Release", post=f"{at}/release")
    elif not slot.enabled or slot.draining:
        yield MenuAction("Enable", post=f"{at}/enable")
    else:
        yield MenuAction("Drain", post=f"{at}/drain")
    if slot.enabled:
        name = each.holder.name if each.holder else ""
        asks = (
            f"{name} is stopped on all its hosts and starts again elsewhere."
            if name
            else "It gets no new work."
        )
        yield MenuAction(
            "Disable…", post=f"{at}/disable", asks=f"Disable slot {slot.index}? {asks}", danger=True
        )

"""Why a request waits for the groups of its owner."""

from __future__ import annotations

from scheduling.reasons import Reason, WaitCode, slots


def group_limit(name: str, held: int, asks: int, most: int) -> Reason:
    text = f"group {name} holds {held} of at most {slots(most)}; this needs {asks} more"
    return Reason(WaitCode.GROUP_LIMIT, text, {"group": name, "held": held, "asks": asks, "limit": most})


def over_group_limit(name: str, asks: int, most: int) -> Reason:
    text = f"needs {slots(asks)}; group {name} may hold at most {most}"
    return Reason(WaitCode.OVER_GROUP_LIMIT, text, {"group": name, "asks": asks, "limit": most})


def not_reclaimable(held: int, asks: int, most: int) -> Reason:
    """`most`: slots that are guaranteed to no group."""
    text = (
        f"it is not preemptible, and such work may borrow only the {slots(most)} that are guaranteed to no group: "
        f"it holds {held} of them and this needs {asks}"
    )
    return Reason(WaitCode.NOT_RECLAIMABLE, text, {"held": held, "asks": asks, "most": most})


def group_share(name: str, held: int, guaranteed: int, waits_within: bool) -> Reason:
    """`waits_within`: what waits would be within the guarantee."""
    borrowed = max(0, held - guaranteed)
    text = f"group {name} holds {slots(held)}, {min(held, guaranteed)} of them guaranteed"
    if borrowed:
        text += f"; {borrowed} {'is' if borrowed == 1 else 'are'} borrowed and may be reclaimed"
    elif waits_within:
        text += f" of {guaranteed}, so borrowed slots are reclaimed for this as soon as that is enough"
    data = {"group": name, "held": held, "guaranteed": guaranteed, "borrowed": borrowed}
    return Reason(WaitCode.GROUP_SHARE, text, data)

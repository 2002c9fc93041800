"""The scheduling policies that a pool can have."""

from __future__ import annotations

from scheduling.fair_share import FairShare
from scheduling.policy import Policy
from scheduling.priority import Priority

_POLICIES: tuple[Policy, ...] = (Priority(), FairShare())
_BY_NAME = {policy.name: policy for policy in _POLICIES}

#: the policy of a pool that names none
DEFAULT = _POLICIES[0].name
#: (name, label) of each
CHOICES = [(policy.name, policy.label) for policy in _POLICIES]
#: (name, description) of each, for people who choose one
DESCRIPTIONS = tuple((policy.name, f"{policy.label.lower()}: {policy.summary}") for policy in _POLICIES)


def of(name: str) -> Policy:
    """The policy of this name. An unknown name raises KeyError."""
    return _BY_NAME[name]

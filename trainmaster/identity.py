"""How a server proves to a run that it is the run's own (docs/protocol.md, "Who answers").

The run sends a fresh challenge with every request; the true server adds a proof to its answer. The key of it comes
with spec.json over SSH and never travels by HTTP.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import NamedTuple, Optional

from trainmaster.protocol import Spec

CHALLENGE_HEADER = "X-Trainmaster-Challenge"
PROOF_HEADER = "X-Trainmaster-Proof"
#: answers without a login, so a new connection is proved here before a token is sent on it
IDENTITY_PATH = "/runner/v1/identity"


class Identity(NamedTuple):
    """What an attempt knows of its server: the cluster's id, and the key that the two of them share."""

    allocation_id: str
    cluster_id: str
    key: str

    def challenge(self) -> Challenge:
        """A new one, for one request."""
        return Challenge(self, os.urandom(16).hex())


class Challenge(NamedTuple):
    """What one request asks the server to prove itself by."""

    identity: Identity
    nonce: str

    @property
    def header(self) -> str:
        """The value of X-Trainmaster-Challenge."""
        return f"{self.identity.allocation_id} {self.nonce}"

    def is_met(self, given: Optional[str], status: int) -> bool:
        """Whether `given`, the value of X-Trainmaster-Proof, shows that the server gave this very status."""
        expected = proof(self.identity.key, self.identity.cluster_id, self.nonce, status)
        return hmac.compare_digest(expected.encode(), (given or "").encode("utf-8", "replace"))


def proof(key: str, cluster_id: str, nonce: str, status: int) -> str:
    """The hex HMAC-SHA256 that only this cluster and this attempt can make."""
    text = f"answer|{cluster_id}|{nonce}|{status}"
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def identity_of(spec: Spec) -> Optional[Identity]:
    """The identity in a spec; None in one that a server before these proofs has made."""
    cluster = spec["cluster"]
    key = cluster.get("proof_key")
    return Identity(spec["allocation_id"], cluster["id"], key) if key else None

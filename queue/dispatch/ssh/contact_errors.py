"""What may go wrong between the server and a host: one type per kind, each with a sentence for people.

Callers act on the type: `SshBusy` is tried again soon and never held against the host; `Unreachable` is
silence, which is not death, and not even that when it is `NotAsked`; `HostKeyRefused` suspends the host;
`VerbFailed` is the host's own answer.
"""

from __future__ import annotations


class RemoteError(Exception):
    """No answer was had from a host. `str(error)` is a sentence that may be shown to anybody.

    `may_pass`: trying again later may help without anybody doing something. `delivered`: the host may have
    got the order and acted on it, although its answer did not arrive.
    """

    may_pass = False

    def __init__(self, sentence: str, *, delivered: bool = False) -> None:
        super().__init__(sentence)
        self.delivered = delivered


class Unreachable(RemoteError):
    """The host could not be reached, or the link broke before the answer came."""

    may_pass = True


class NotAsked(Unreachable):
    """The host itself was not asked, since a jump host or this server's own network was in the way."""


class WayRefused(Unreachable):
    """The host answers, and its sshd lets nobody through to the host's own ports."""


class ForwardRefused(Unreachable):
    """The host answers, and does not open the port."""


class SshBusy(RemoteError):
    """The host's sshd (or a jump host's) is at one of its limits (MaxStartups, MaxSessions)."""

    may_pass = True


class LoginRefused(RemoteError):
    """The host does not accept the server's key for this account."""


class HostKeyRefused(RemoteError):
    """The host showed a key that is not the pinned one; nothing was sent to it.

    `offered` is the key as one line of OpenSSH (`ssh-ed25519 AAAA…`), `hop` counts from 0, the jump host
    nearest to the server; the host itself is the last hop.
    """

    def __init__(self, sentence: str, *, offered: str, hop: int) -> None:
        super().__init__(sentence)
        self.offered = offered
        self.hop = hop


class HostKeyUnknown(HostKeyRefused):
    """No key is pinned yet: somebody has to accept the offered one first."""


class HostKeyChanged(HostKeyRefused):
    """Another key is pinned: the host was reinstalled, or it is not the same host."""


class NoPython(RemoteError):
    """The host has no Python at the place where it is expected, or none at all."""


class VerbFailed(RemoteError):
    """The host answered that it could not do it. `code` is from docs/protocol.md, or `broke`.

    `delivered`: the verb broke after it had begun, so nobody knows what it did.
    """

    def __init__(self, code: str, sentence: str, *, delivered: bool = False) -> None:
        super().__init__(sentence, delivered=delivered)
        self.code = code


class FolderAway(VerbFailed):
    """The folder that a cluster shares is not mounted, full, or cannot be used now. Nothing was started there.

    `delivered`: the run may lie in it all the same, where its job would begin it.
    """

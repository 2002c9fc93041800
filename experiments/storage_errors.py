"""What can be wrong with where checkpoints are kept."""

from __future__ import annotations


class NotHere(OSError):
    """The server cannot reach these files; the sentence says where they are."""

"""Exceptions that training code raises or catches."""

from __future__ import annotations


class InvalidHP(Exception):
    """Raised inside `core.init` by training code to say that its hyperparameters make no sense.

    The searcher is told, and the trial ends without an error.
    """


class CheckpointStateException(Exception):
    """A checkpoint is in a state in which its files cannot be read: still being uploaded, failed, or deleted."""

"""Exceptions that training code raises."""

from __future__ import annotations


class InvalidHP(Exception):
    """Raised inside `core.init` by training code to say that its hyperparameters make no sense.

    The searcher is told, and the trial ends without an error.
    """

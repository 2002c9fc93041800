"""How far a host has come with being added, whether it answers, and the legal steps of both.

This module is the table; `hosts.transitions` is the only writer (law 2).
"""

from __future__ import annotations

from django.db import models


class Admission(models.TextChoices):
    """How far the host has come with being added."""

    ADMITTING = "admitting"
    READY = "ready"
    FAILED = "failed"
    SUSPENDED = "suspended"  # its host key changed: nothing is sent, running jobs are left alone
    LOST = "lost"  # declared by a person or by the pool's rule; its runs are over
    REMOVED = "removed"  # taken out by a person; the row stays for the history that points at it


class Contact(models.TextChoices):
    UNKNOWN = "unknown"
    REACHABLE = "reachable"
    SILENT = "silent"


_A = Admission
_BY_PEOPLE = frozenset({_A.ADMITTING, _A.LOST, _A.REMOVED})  # at any time: try again, declare lost, remove
ADMISSION_STEPS: dict[Admission, frozenset[Admission]] = {
    _A.ADMITTING: _BY_PEOPLE | {_A.READY, _A.FAILED, _A.SUSPENDED},
    _A.READY: _BY_PEOPLE | {_A.FAILED, _A.SUSPENDED},
    _A.FAILED: _BY_PEOPLE,
    _A.SUSPENDED: _BY_PEOPLE | {_A.FAILED},
    _A.LOST: frozenset({_A.ADMITTING, _A.REMOVED}),
    _A.REMOVED: frozenset({_A.ADMITTING}),  # added again
}

#: Nobody steps back to UNKNOWN: that is how a host begins, and begins again once it was removed.
CONTACT_STEPS: dict[Contact, frozenset[Contact]] = {
    Contact.UNKNOWN: frozenset({Contact.REACHABLE}),
    Contact.REACHABLE: frozenset({Contact.SILENT}),
    Contact.SILENT: frozenset({Contact.REACHABLE}),
}

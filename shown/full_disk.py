"""A disk of the server that is full, or nearly: the database's, or that of the files it keeps."""

from __future__ import annotations

import errno
import shutil

from django.conf import settings
from django.db import OperationalError

from trainmaster import quantities

_OF_FILES = (errno.ENOSPC, errno.EDQUOT)
_OF_DATABASE = "53100"  # SQLSTATE disk_full


def sentence_of(error: BaseException) -> str:
    """What to say of an error that a full disk has caused; empty for any other. Nothing of the request was stored."""
    if isinstance(error, OSError) and error.errno in _OF_FILES:
        return "The server's disk is full. Free some space there; the data is stored when sent again."
    if isinstance(error, OperationalError) and getattr(error.__cause__, "sqlstate", "") == _OF_DATABASE:
        return "The disk of the server's database is full. Free some space there; the data is stored when sent again."
    return ""


def warning() -> str:
    """A sentence for the pages while the data folder has less than DISK_NEARLY_FULL_BYTES left, else nothing."""
    try:
        free = shutil.disk_usage(settings.DATA_DIR).free
    except OSError:  # it is made with the first file
        return ""
    if free >= settings.DISK_NEARLY_FULL_BYTES:
        return ""
    return (
        f"The server's disk is nearly full: {quantities.size(free)} left in {settings.DATA_DIR}. When it is full, "
        "logs, metrics and checkpoints wait on their hosts until there is space."
    )

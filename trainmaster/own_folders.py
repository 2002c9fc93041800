"""Whether a folder of Trainmaster's on a host may be used: what another account made there would run as this one.

A workdir may lie on a disk where everybody writes. It imports the standard library alone, because the
installer of bundles carries this text (trainmaster.bundle).
"""

import grp
import os
import pwd
import stat
from typing import Iterable

#: for /bin/sh: `ours PLACE...` fails, with a sentence, unless all are folders of root or of the account that asks
SHELL = (
    'ours() { me=$(id -u); for place; do [ "$(find "$place" -prune -type d -user "$me" 2>/dev/null)" ] || '
    '[ "$(find "$place" -prune -type d -user 0 2>/dev/null)" ] || '
    '{ echo "trainmaster: $place is not a folder of this account, so nothing runs from there." >&2; '
    "return 1; }; done; }"
)


def refusal(place: str, trusted: Iterable[int] = ()) -> str:
    """Return why the folder may not be used, as a sentence; empty if it is ours or is not there.

    `trusted`: user ids that may own it besides root and this account.
    """
    for path in {place, os.path.realpath(place)}:  # a link and where it leads
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            continue
        if status.st_uid not in (0, os.getuid(), *trusted):
            return "%s belongs to uid %d. Remove it, or choose another workdir." % (path, status.st_uid)
        if stat.S_ISLNK(status.st_mode) or status.st_mode & stat.S_ISVTX:
            continue
        private = status.st_gid == os.getgid() and _is_private(status.st_gid)
        if status.st_mode & (0o002 if private else 0o022):
            return "Other accounts may write into %s. Run chmod go-w on it, or choose another workdir." % path
    return ""


def _is_private(gid: int) -> bool:
    """Whether the group has the name of this account, which many systems create for each account alone."""
    try:
        return grp.getgrgid(gid).gr_name == pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return False

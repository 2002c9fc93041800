"""`clean`: what is left of runs that are over, and its end.

It needs neither the run's folder nor any file that the run could write. The first sign of a run is the marker in the
environment that the kernel keeps of a process, or of one of its ancestors, under the run's account: anyone can set it.
A process can clear it, so the second sign is the device: what computes on a GPU that the run had, under its account,
and began while it had it.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import time
from typing import Any, Dict, List, Optional, Set

from trainmaster.host.accounts import answers_of, ask_by_sudo, uid_of
from trainmaster.host.errors import objects_of
from trainmaster.host.gpu_users import account_of, ancestors, command_of, on_gpus
from trainmaster.paths import Workdir
from trainmaster.processes import (
    age_seconds,
    boot_id,
    is_alive,
    marked,
    marker_of,
    owner_of,
    real_uid,
    reference,
    state_of,
)
from trainmaster.protocol import KEEPER_MARKER, MARKER, ProcessRef

_SIGNALS = {"TERM": signal.SIGTERM, "KILL": signal.SIGKILL}
#: how long it is waited for that signaled processes are gone; whatever lives then is answered
_WAIT_SECONDS = 2.0
_POLL_SECONDS = 0.02
_SHOWN = 16


def clean(request: Dict[str, Any], workdir: Workdir) -> Dict[str, Any]:
    """Signal all that is left of each run; answers {"runs": {run key: {"left": [process…], "count": number}}}.

    "runs": {run key: {"signal": "TERM" or "KILL", "account": its own or null, "devices": [GPU UUID…],
    "launched_seconds" and "ended_seconds" ago, "strangers": [pid…]}}. A process is {"pid", "user", "command", "state"}
    (the kernel's letter). Those in `strangers` are left alone unless they carry the run's marker under its
    account.
    """
    orders = objects_of(request, 'The verb `clean` needs {"runs": {run key: {…}}}.')
    own = {key: order for key, order in orders.items() if not _is_anothers(order)}
    others: Dict[str, Dict[str, Any]] = {}
    for key, order in orders.items():
        if key not in own:
            others.setdefault(str(order["account"]), {})[key] = order
    asked = [ask_by_sudo(user, "clean", its, workdir) for user, its in others.items()]
    return {"boot_id": boot_id(), "runs": {**_clean(own), **answers_of(asked)}}


def _is_anothers(order: Dict[str, Any]) -> bool:
    """Whether this account may neither see nor signal the run's processes: root may."""
    user: Optional[str] = order.get("account")
    return os.getuid() != 0 and user is not None and user != pwd.getpwuid(os.getuid()).pw_name


def _clean(orders: Dict[str, Any]) -> Dict[str, Any]:
    """All are signaled first and waited for together."""
    boot, signaled = boot_id(), []
    for key, order in orders.items():
        number = _SIGNALS.get(str(order.get("signal")))
        if number is None:
            continue
        for process in _of_run(key, order):
            _send(process, boot, number)
            signaled.append(process)
    until = time.monotonic() + _WAIT_SECONDS
    while any(is_alive(process, boot) for process in signaled) and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
    # also what those have started meanwhile
    left = {key: _of_run(key, order) for key, order in orders.items()}
    return {
        key: {"left": [_shown(process) for process in here[:_SHOWN]], "count": len(here)}
        for key, here in left.items()
    }


def _of_run(key: str, order: Dict[str, Any]) -> List[ProcessRef]:
    """The living processes of the run, in the order of their pids; never this one or those that it lives of."""
    own = {os.getpid(), *ancestors(os.getpid())}
    carriers = marked().get(key, [])
    found = {one["pid"]: one for one in carriers if _is_marked(one["pid"], key, MARKER, order)}
    for pid in _on_devices(order):
        process = reference(pid)
        if process is not None and pid not in found and _is_of(pid, key, order):
            found[pid] = process
    return [found[pid] for pid in sorted(found) if pid not in own]


def _on_devices(order: Dict[str, Any]) -> Set[int]:
    """The pids that compute on the run's devices; the driver is not asked for a run that had none."""
    devices = set(order.get("devices") or ())
    return {pid for uuid, pid in on_gpus() or () if uuid in devices} if devices else set()


def _is_of(pid: int, key: str, order: Dict[str, Any]) -> bool:
    """Whether a process on one of the run's devices belongs to it, though its environment does not say so."""
    if marker_of(pid) is not None:  # this run's would have been found by it
        return False
    if _is_marked(pid, key, KEEPER_MARKER, order):
        return True
    uid = _uid(order)
    if uid is None or owner_of(pid) != uid or pid in set(order.get("strangers") or ()):
        return False
    age = age_seconds(pid)
    launched, ended = (order.get(name) for name in ("launched_seconds", "ended_seconds"))
    return age is not None and launched is not None and (ended or 0.0) <= age <= launched


def _is_marked(pid: int, key: str, variable: str, order: Dict[str, Any]) -> bool:
    """Whether a process carries the run's marker under its account, or an ancestor does."""
    uid = _uid(order)
    return any(
        marker_of(each, variable) == key and (uid is None or real_uid(each) == uid)
        for each in (pid, *ancestors(pid))
    )


def _uid(order: Dict[str, Any]) -> Optional[int]:
    """The uid of the run's account, None where the host has lost that."""
    user: Optional[str] = order.get("account")
    return os.getuid() if user is None else uid_of(user)


def _send(process: ProcessRef, boot: str, number: int) -> None:
    if is_alive(process, boot):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process["pid"], number)


def _shown(process: ProcessRef) -> Dict[str, Any]:
    pid = process["pid"]
    return {"pid": pid, "user": account_of(pid), "command": command_of(pid), "state": state_of(pid)}

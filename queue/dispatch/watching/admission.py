"""The way of a new host into its pool: dial, key, Python, folder, bundle, facts, slots, the way back, the report.

Idempotent: it may be begun again at any time and keeps what was chosen. Each failure ends as a sentence on the row.
"""

from __future__ import annotations

import logging
import shlex
import sys
import uuid

from django.db import transaction

from accounts.refusals import Refusal
from dispatch.ssh import remote
from dispatch.watching import doctor, slurm_facts
from dispatch.watching.doctor_checks import best_python, checks, slots_of
from hosts import admitting, identity, observe
from hosts.models import Host
from trainmaster.cli import ssh_config
from trainmaster.cli.errors import CliError

log = logging.getLogger(__name__)

SYSTEM_WORKDIR = "/var/lib/trainmaster"

_VERSIONS = " ".join(f"python3.{minor}" for minor in range(14, 7, -1))
_PLACES = " ".join(
    [
        "python3 /usr/bin/python3 /usr/local/bin/python3 /opt/conda/bin/python3",
        *(f'"$HOME/{name}/bin/python3"' for name in ("miniconda3", "miniforge3", "mambaforge", "anaconda3")),
        '"$HOME/.pyenv/shims/python3"',
        _VERSIONS,
        '"$HOME"/.pyenv/versions/*/bin/python3 "$HOME"/.local/share/uv/python/*/bin/python3',
    ]
)
#: Says where the first Python from 3.8 on is; the versions of older ones go to stderr.
_FIND_PYTHON = (
    f'for p in {_PLACES}; do command -v "$p" >/dev/null 2>&1 || continue; '
    '"$p" -S -E -c "import sys; sys.version_info >= (3, 8) or sys.exit(sys.executable + str(\' is Python \') '
    '+ sys.version.split()[0]); print(sys.executable)" && exit 0; done; exit 127'
)
#: Says which folder is ours: the system's with root or sudo, else one in the home folder named by the host's id.
_FIND_WORKDIR = (
    'd={system}; if [ "$(id -u)" = 0 ]; then mkdir -p "$d"; '
    'elif [ ! -O "$d" ] && [ ! -e "$d" ] && command -v sudo >/dev/null 2>&1; then '
    'sudo -n install -d -m 755 -o "$(id -u)" -g "$(id -g)" "$d" 2>/dev/null; fi; '
    '[ -O "$d" ] && [ -w "$d" ] || d="$HOME/.trainmaster/hosts/{host}"; '
    'umask 022; mkdir -p "$d" && [ -w "$d" ] && cd "$d" && pwd -P'
)


def admit(host_id: uuid.UUID) -> None:
    """Take a host that waits for its admission as far as it gets."""
    host = admitting.claim(host_id)
    if host is None:
        return
    try:
        _admit(host)
    except remote.HostKeyUnknown as error:
        admitting.key_offered(host_id, error.offered, error.hop, str(error))
    except remote.HostKeyChanged as error:
        observe.key_changed(host_id, error.offered, str(error), hop=error.hop)
    except (remote.RemoteError, Refusal) as error:
        admitting.failed(host_id, str(error))
    except Exception:
        admitting.failed(
            host_id, "Adding the host failed with an internal error. See the server's log, then try again."
        )
        raise


def _admit(host: Host) -> None:
    _resolve(host)
    given = host.python
    host.python = _find_python(host)
    reached = ("ok", f"{host.name} answers, and the server can log in.")
    admitting.found_so_far(host, checks({"contact": reached, "python": ("ok", f"Found {host.python}.")}))
    host.workdir = _find_workdir(host)
    doctor.probe(host)
    if not given and not host.activate:
        host.python = best_python(host.facts, host.python)
    admitting.chosen(host)
    report = doctor.examine(host)
    broken = [check["sentence"] for check in report if check["state"] == "fail" and check["name"] in _NEEDED]
    if broken:
        admitting.failed(host.pk, " ".join(broken), examined=True)
        return
    if host.transport == Host.Transport.LOGIN:
        slurm_facts.admit(host)
    _ready(host)


def _resolve(host: Host) -> None:
    """Where a name leads for the ssh of the server's account, if the host was added without an address."""
    if host.transport not in {Host.Transport.SSH, Host.Transport.LOGIN} or host.address:
        return
    user, port = host.login_user and f"{host.login_user}@", f":{host.port}" if host.port else ""
    try:
        route = ssh_config.resolve(f"{user}{host.name}{port}")
    except CliError as error:
        raise remote.NotAsked(f"The server cannot look up {host.name} in its ssh config: {error}") from error
    host.address, host.port, host.login_user = route.target[:3]
    host.jumps = host.jumps or [
        {"address": hop.address, "port": hop.port, "user": hop.user, "host_key": ""} for hop in route.jumps
    ]
    admitting.found_at(host)


#: Checks without which no run could do its work, or not alone; the others are told and left to the person.
_NEEDED = {"disk", "route", "machine", "people"}


@transaction.atomic
def _ready(host: Host) -> None:
    """Another name of this machine may have been admitted since the doctor looked: of two at once one is refused.

    A login node has no slots of its own, so it may be one of the nodes, or the login node of other pools.
    """
    if host.transport == Host.Transport.LOGIN:
        admitting.ready(host.pk, [])
        return
    identity.lock()
    twin = identity.same_gpus(host)
    if twin is not None and host.wanted_slots is None:
        admitting.failed(host.pk, twin.refusal(host.name), examined=True)
        return
    admitting.ready(host.pk, slots_of(host.facts, host.wanted_slots, without_gpus=twin is not None))


def _find_python(host: Host) -> str:
    """The interpreter that was named, tried; on this machine the server's own; else the first that is new enough."""
    if host.python:
        question = "import sys; sys.version_info >= (3, 8) or sys.exit(sys.version.split()[0]); print(sys.executable)"
        answer = remote.shell(host, _expanded(host.python) + " -S -E -c " + shlex.quote(question))
        if answer.code == 0:
            return _last_line(answer.stdout)
        said = _last_line(answer.stderr) or f"exit code {answer.code}"
        raise remote.NoPython(f"{host.python} on {host.name} is not Python 3.8 or later: {said}.")
    if host.transport == Host.Transport.LOCAL:  # its environment need not be on PATH
        return sys.executable
    answer = remote.shell(host, f"/bin/sh -c {shlex.quote(_FIND_PYTHON)}")
    path = _last_line(answer.stdout)
    if answer.code == 0 and path.startswith("/"):
        return path
    too_old = [line for line in answer.stderr.decode(errors="replace").splitlines() if " is Python " in line]
    found = f" ({'; '.join(too_old)})" if too_old else ""
    raise remote.NoPython(
        f"{host.name} has no Python 3.8 or later{found}. Install one, or give its location with --python PATH."
    )


def _expanded(path: str) -> str:
    """The path quoted for the shell, `~/` left to it."""
    return f'"$HOME"/{shlex.quote(path[2:])}' if path.startswith("~/") else shlex.quote(path)


def _find_workdir(host: Host) -> str:
    if host.workdir:
        line = f"umask 022; mkdir -p {_expanded(host.workdir)} && cd {_expanded(host.workdir)} && [ -w . ] && pwd -P"
    else:
        line = _FIND_WORKDIR.format(system=SYSTEM_WORKDIR, host=host.pk)
    answer = remote.shell(host, f"/bin/sh -c {shlex.quote(line)}")
    path = _last_line(answer.stdout)
    if answer.code == 0 and path.startswith("/"):
        return path
    said = _last_line(answer.stderr) or f"exit code {answer.code}"
    wanted = host.workdir or f"{SYSTEM_WORKDIR} or ~/.trainmaster"
    raise remote.VerbFailed("workdir", f"No folder could be created at {wanted} on {host.name}: {said}.")


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""

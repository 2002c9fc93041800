"""`probe`: the facts about a host on which the doctor and the placement rely."""

from __future__ import annotations

import contextlib
import grp
import os
import platform
import pwd
import re
import shutil
import socket
import stat
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterable, List, Tuple

from trainmaster.host import condition, kernel_log, own_scope
from trainmaster.host.accounts import name_of
from trainmaster.host.asking import output_of, text_of
from trainmaster.host.interfaces import interfaces
from trainmaster.host.interpreters import find_interpreters
from trainmaster.host.nvidia import find_gpus
from trainmaster.paths import Workdir
from trainmaster.processes import boot_id
from trainmaster.protocol import PROTOCOL
from trainmaster.runner import container_runtimes, mount_namespace

_NETWORK_SYSTEMS = re.compile(
    r"nfs\d?|cifs|smb\d?|lustre|gpfs|ceph|glusterfs|beegfs|afs|9p|fuse\.(sshfs|glusterfs|ceph|s3fs|juicefs|gcsfuse)"
)
_LOGIND = ("/usr/lib/systemd/logind.conf", "/etc/systemd/logind.conf")
_LOGIND_FOLDERS = (
    "/usr/lib/systemd/logind.conf.d",
    "/run/systemd/logind.conf.d",
    "/etc/systemd/logind.conf.d",
)
_SUDO_SECONDS = 5
#: of daemons that start containers as root for whoever may write to their socket
_DAEMONS = (
    ("docker", "/run/docker.sock"),
    ("docker", "/var/run/docker.sock"),
    ("podman", "/run/podman/podman.sock"),
    ("containerd", "/run/containerd/containerd.sock"),
    ("lxd", "/var/lib/lxd/unix.socket"),
    ("lxd", "/var/snap/lxd/common/lxd/unix.socket"),
    ("incus", "/var/lib/incus/unix.socket"),
)
_GROUPS_LIKE_ROOT = ("docker", "lxd", "incus-admin", "sudo", "wheel", "admin", "disk")
_NOBODY = 65534
#: what containers of one machine have of their own; one that shares these too is the machine itself
_NAMESPACES = ("pid", "net", "uts")


def probe(request: Dict[str, Any], workdir: Workdir) -> Dict[str, Any]:
    """All facts, as docs/protocol.md lists them; changes nothing on the host."""
    gpus, source = find_gpus()
    logind = logind_facts()
    return {
        "protocol": PROTOCOL,
        "hostname": socket.gethostname(),
        "boot_id": boot_id(),
        "machine": _machine(),
        "arch": platform.machine(),
        "kernel": platform.release(),
        "os": _os_name(),
        "now": time.time(),
        "python": {"path": sys.executable, "version": platform.python_version()},
        "cpus": {"count": os.cpu_count() or 1, "usable": len(os.sched_getaffinity(0))},
        "memory": _memory(Path("/proc/meminfo").read_text()),
        "disk": _disk(workdir.root),
        "home": _folder(Path.home()),
        "gpus": gpus,
        "gpu_source": source,
        "signs": _signs(gpus, workdir),
        "interpreters": find_interpreters(),
        "isolation": _isolation(),
        "view": _view(),
        "containers": container_runtimes.facts(),
        "logind": logind,
        "service": own_scope.facts(logind["detached_runs_survive"]),
        "account": _account(),
        "interfaces": interfaces(),
        "ssh_connection": _ssh_connection(os.environ.get("SSH_CONNECTION", "")),
    }


def _signs(gpus: List[Dict[str, Any]], workdir: Workdir) -> Dict[str, Any]:
    """{"kernel": where the kernel's log is read, "denied": [sentence about what cannot be read]}."""
    log = kernel_log.look({})
    denied = [log["denied"]] if "denied" in log else []
    return {"kernel": log["source"], "denied": [*denied, *condition.problems(gpus, workdir)]}


def _machine() -> Dict[str, Any]:
    """{"id", "namespaces": {name: inode}}: with the boot id, which machine this is and which part of it is seen."""
    namespaces = {}
    for name in _NAMESPACES:
        with contextlib.suppress(OSError):
            namespaces[name] = Path(f"/proc/self/ns/{name}").stat().st_ino
    return {"id": text_of(Path("/etc/machine-id")).strip(), "namespaces": namespaces}


def _os_name() -> str:
    match = re.search(r'^PRETTY_NAME="?([^"\n]*)', text_of(Path("/etc/os-release")), re.MULTILINE)
    return match.group(1) if match else platform.system()


def _memory(meminfo: str) -> Dict[str, int]:
    values = dict(re.findall(r"^(\w+):\s+(\d+) kB", meminfo, re.MULTILINE))
    return {
        "total_bytes": int(values.get("MemTotal", 0)) * 1024,
        "available_bytes": int(values.get("MemAvailable", 0)) * 1024,
    }


def _disk(folder: Path) -> Dict[str, Any]:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    usage = shutil.disk_usage(existing)
    facts = _folder(existing)
    facts.update(path=str(folder), total_bytes=usage.total, free_bytes=usage.free)
    facts["writable"] = os.access(existing, os.W_OK)
    return facts


def _folder(folder: Path) -> Dict[str, Any]:
    """{"path", "filesystem", "network"}: whether other hosts may see the same files."""
    system = filesystem_of(folder, Path("/proc/self/mountinfo").read_text())
    return {"path": str(folder), "filesystem": system, "network": bool(_NETWORK_SYSTEMS.fullmatch(system))}


def filesystem_of(folder: Path, mountinfo: str) -> str:
    """The type of the file system that holds `folder`, by a text like /proc/self/mountinfo."""
    path = str(folder.resolve())
    best: Tuple[int, str] = (-1, "unknown")
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        point = re.sub(r"\\(\d{3})", lambda code: chr(int(code.group(1), 8)), fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best[0]:  # the last of several on one place is on top
            best = (len(point), right.split()[0])
    return best[1]


def _isolation() -> Dict[str, Any]:
    controllers = Path("/sys/fs/cgroup/cgroup.controllers")
    return {
        "cgroup_v2": controllers.exists(),
        "cgroup_controllers": controllers.read_text().split() if controllers.exists() else [],
        "systemd": Path("/run/systemd/system").is_dir(),
        "systemd_run": shutil.which("systemd-run") is not None,
        "user_namespaces": _user_namespaces(),
    }


def _user_namespaces() -> bool:
    try:
        most = int(Path("/proc/sys/user/max_user_namespaces").read_text())
        closed = Path("/proc/sys/kernel/unprivileged_userns_clone")
        return most > 0 and (not closed.exists() or closed.read_text().strip() != "0")
    except (OSError, ValueError):
        return False


def _view() -> Dict[str, Any]:
    """{"login", "account"}: why a run of this account, or of another, can have no view of its own; null if it can."""
    own = mount_namespace.problem()
    return {"login": own, "account": mount_namespace.problem(_NOBODY) if os.getuid() == 0 else own}


def logind_facts() -> Dict[str, Any]:
    """Whether processes survive the end of their login session here."""
    files = [Path(path) for path in _LOGIND]
    for folder in _LOGIND_FOLDERS:
        if Path(folder).is_dir():
            files.extend(sorted(Path(folder).glob("*.conf")))
    texts = [path.read_text(errors="replace") for path in files if path.is_file()]
    running = Path("/run/systemd/seats").is_dir()
    name = name_of(os.getuid())
    kills, excluded = kills_user_processes(texts, name)
    linger = Path("/var/lib/systemd/linger", name).exists()
    return {
        "running": running,
        "kill_user_processes": kills,
        "linger": linger,
        "detached_runs_survive": not running or not kills or excluded or linger,
    }


def kills_user_processes(texts: Iterable[str], user: str) -> Tuple[bool, bool]:
    """(KillUserProcesses, whether `user` is excluded from it), by logind's files in the order they apply."""
    kills, excluded = False, {"root"}
    for text in texts:
        for key, value in re.findall(
            r"^\s*(KillUserProcesses|KillExcludeUsers)\s*=\s*(.*?)\s*$", text, re.MULTILINE
        ):
            if key == "KillUserProcesses":
                kills = value.lower() in ("yes", "true", "on", "1")
            else:
                excluded = set(value.split())
    return kills, user in excluded


def _account() -> Dict[str, Any]:
    """Who we are, and how we could become others: `root`, `sudo` (without a password) or `none`.

    `root_by`: whose daemon, which runs as root, obeys us. `like_root`: {account: its groups that can become root}.
    """
    switch = "root" if os.getuid() == 0 else "sudo" if _sudo_allows() else "none"
    return {
        "name": name_of(os.getuid()),
        "uid": os.getuid(),
        "switch": switch,
        "root_by": "" if switch == "root" else obeying_daemon(_DAEMONS),
        "like_root": in_groups(_GROUPS_LIKE_ROOT),
    }


def obeying_daemon(sockets: Iterable[Tuple[str, str]]) -> str:
    """The first daemon of root's whose socket this account may use: it starts containers that see all files as root.

    A daemon of the account's own (rootless) has its socket elsewhere, and a socket of its own.
    """
    for name, path in sockets:
        with contextlib.suppress(OSError):
            status = Path(path).stat()
            if stat.S_ISSOCK(status.st_mode) and status.st_uid == 0 and os.access(path, os.W_OK):
                return name
    return ""


def in_groups(names: Iterable[str]) -> Dict[str, List[str]]:
    """{account: those of the groups that it is in}, without root."""
    found: Dict[str, List[str]] = {}
    accounts = pwd.getpwall()  # once: a directory server may have to list them
    for name in names:
        with contextlib.suppress(KeyError):
            group = grp.getgrnam(name)
            first = [entry.pw_name for entry in accounts if entry.pw_gid == group.gr_gid]
            for account in sorted({*group.gr_mem, *first} - {"root"}):
                found.setdefault(account, []).append(name)
    return found


def _sudo_allows() -> bool:
    return b"NOPASSWD" in (output_of(["sudo", "-n", "-l"], _SUDO_SECONDS) or b"")


def _ssh_connection(text: str) -> Dict[str, Any]:
    """{"client", "server"}: the two addresses of this login as the host sees them; empty outside of one."""
    parts: List[str] = text.split()
    return {"client": parts[0], "server": parts[2]} if len(parts) == 4 else {}

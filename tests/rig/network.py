"""A network for test hosts inside this machine: a bridge, and a namespace per host with a link to cut."""

import contextlib
import ctypes
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from embedded import processes
from tests.rig import pace, parts

FIRST_SUBNET, LAST_SUBNET = 1, 250  # the third byte of 10.203.x.y
FOLDERS = Path("/tmp")
PREFIX = "trainmaster-rig-"
SWEEP_LOCK, SWEEP_SECONDS = FOLDERS / "trainmaster-sweep.lock", 60.0
CLONE_NEWNET = 0x40000000  # linux/sched.h


class NotAllowed(Exception):
    """This machine refuses network namespaces; the text says what it answered."""


def ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotAllowed(f"`ip {' '.join(arguments)}` answered: {done.stderr.strip()}")
    return done.stdout


def leave() -> None:
    """Go on in a network of this process's own, with loopback and nothing else; as before where that is refused.

    A browser drops what it is loading whenever an address of its machine comes or goes, as hosts' links do: test
    processes that run side by side would break one another's pages, and take one another's ports. The calling
    thread moves, and what it starts from then on.
    """
    if os.geteuid() != 0 or shutil.which("ip") is None or ctypes.CDLL(None).unshare(CLONE_NEWNET) != 0:
        return
    ip("link", "set", "lo", "up")
    # Slurm's daemons find no address to listen on where a machine has none but 127.0.0.1 (AI_ADDRCONFIG)
    ip("addr", "add", "192.0.2.1/32", "dev", "lo")


class Network:
    """One bridge with the address 10.203.<subnet>.1 here. Its folder is the claim on the subnet."""

    def __init__(self) -> None:
        if os.geteuid() != 0 or shutil.which("ip") is None:
            raise NotAllowed("network namespaces need root and iproute2")
        sweep()
        self.subnet, self.folder = self._claim()
        self.bridge = f"tmrig{self.subnet}"
        try:
            self._set_up()
        except BaseException:
            remove(self.subnet)
            raise

    @property
    def address(self) -> str:
        return f"10.203.{self.subnet}.1"

    def _claim(self) -> tuple[int, Path]:
        """A subnet that nobody has: names of namespaces are one set for the whole machine, whatever its networks."""
        candidates = list(range(FIRST_SUBNET, LAST_SUBNET + 1))
        random.shuffle(candidates)
        for subnet in candidates[:20]:
            folder = FOLDERS / f"{PREFIX}{subnet}"
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o711)
                return subnet, folder
        raise NotAllowed("every subnet that was tried is taken, in 20 tries")

    def _set_up(self) -> None:
        me = processes.identify(os.getpid())
        assert me is not None
        (self.folder / "owner.json").write_text(json.dumps(asdict(me)))
        take_down(
            self.subnet
        )  # a claim may have been swept from another network, where its bridge was not seen
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", f"{self.address}/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        self._try_out()

    def _try_out(self) -> None:
        """Containers may allow a bridge, but neither namespaces nor mounts in them."""
        namespace = f"{self.bridge}-0"
        ip("netns", "add", namespace)
        mount = "mount -t tmpfs tmpfs /run && mount --bind /etc/passwd /etc/group && hostname trial"
        ip(
            "netns",
            "exec",
            namespace,
            "unshare",
            "--mount",
            "--uts",
            "--propagation",
            "private",
            "sh",
            "-ec",
            mount,
        )
        ip("netns", "del", namespace)

    def add(self, number: int) -> tuple[str, str, str]:
        """A namespace wired to the bridge: (its name, its address, the link's name on this side)."""
        namespace, link, address = (
            f"{self.bridge}-{number}",
            f"tmv{self.subnet}-{number}",
            f"10.203.{self.subnet}.{10 + number}",
        )
        ip("netns", "add", namespace)
        ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        ip("link", "set", link, "master", self.bridge, "up")
        ip("-n", namespace, "addr", "add", f"{address}/24", "dev", "eth0")
        ip("-n", namespace, "link", "set", "lo", "up")
        ip("-n", namespace, "link", "set", "eth0", "up")
        return namespace, address, link

    def close(self) -> None:
        remove(self.subnet)


def make() -> Network:
    """A network, tried again where refused: NotAllowed, or RuntimeError where one has worked in this run of tests.

    Tests without it are skipped, which is to happen on a machine that allows none, and never by bad luck.
    """
    has_worked = parts.shared_folder() / "network.worked"
    for last in (False, False, True):
        try:
            made = Network()
        except NotAllowed as error:
            if last and has_worked.exists():
                raise RuntimeError(
                    f"network namespaces have worked in this run of tests, and now: {error}"
                ) from error
            if last:
                raise
        else:
            has_worked.touch()
            return made
    raise AssertionError("three tries have neither made it nor failed")


def pids(namespace: str) -> list[int]:
    """Every process in the namespace, whoever started it."""
    with contextlib.suppress(NotAllowed):
        return [int(pid) for pid in ip("netns", "pids", namespace).split()]
    return []


def kill_all(namespace: str) -> None:
    """End every process in the namespace, until none is left."""

    def emptied() -> bool:
        left = [pid for pid in pids(namespace) if processes.identify(pid) is not None]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    if not pace.wait_until(emptied, 60):
        raise NotAllowed(f"processes {pids(namespace)} in {namespace} do not end")


def remove(subnet: int) -> None:
    """Take down one network with all that runs in it, and give up the claim on it."""
    try:
        take_down(subnet)
    finally:
        shutil.rmtree(FOLDERS / f"{PREFIX}{subnet}", ignore_errors=True)


def take_down(subnet: int) -> None:
    """Remove the namespaces with all that runs in them, the links and the bridge, as many of them as there are."""
    bridge = f"tmrig{subnet}"
    for line in ip("netns", "list").splitlines():
        namespace = line.split()[0]
        if namespace.startswith(f"{bridge}-"):
            kill_all(namespace)
            with contextlib.suppress(
                NotAllowed
            ):  # refused with half a set-up; the rest is taken down all the same
                ip("netns", "del", namespace)
    for entry in json.loads(ip("-j", "link", "show", "type", "veth") or "[]"):
        if entry.get("ifname", "").startswith(f"tmv{subnet}-"):  # goes with its namespace, but not at once
            with contextlib.suppress(NotAllowed):
                ip("link", "del", entry["ifname"])
    with contextlib.suppress(NotAllowed):
        ip("link", "del", bridge)


def sweep() -> None:
    """Remove what test sessions that were killed have left.

    One process at a time: a second one that took down what the first has removed would take it from its next owner.
    """
    with SWEEP_LOCK.open("w") as lock:
        if not pace.wait_until(lambda: _locked(lock), SWEEP_SECONDS):
            return  # the next session sweeps
        for folder in FOLDERS.glob(f"{PREFIX}*/"):
            try:
                owner = processes.Process(**json.loads((folder / "owner.json").read_text()))
            except (FileNotFoundError, ValueError, TypeError):
                continue
            if not owner.alive():
                # what is refused keeps its claim: another subnet is taken, and the next session tries again
                with contextlib.suppress(NotAllowed):
                    take_down(int(folder.name.removeprefix(PREFIX)))
                    shutil.rmtree(folder, ignore_errors=True)


def _locked(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

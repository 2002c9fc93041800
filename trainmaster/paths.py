"""Where everything of a run lies on a host. No other module spells a path inside the workdir."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union

from trainmaster.protocol import RUN_DIR, check_run_key

#: of a rank's sign of life: each write replaces all of it
SIGN_BYTES = 128
_RANK_FILE = re.compile(r"(?:core\.)?rank(\d+)\.(?:stdout|stderr|jsonl)")


class _Below:
    """A path below the `root` of the folder that has it as an attribute."""

    def __init__(self, *parts: str) -> None:
        self._parts = parts

    def __get__(self, folder: Union[Workdir, RunPaths], kind: object) -> Path:
        return folder.root.joinpath(*self._parts)


@dataclass(frozen=True)
class Workdir:
    """The folder of Trainmaster on one host."""

    root: Path

    bundles = _Below("bundle")
    runs = _Below("runs")
    #: Made when a Slurm pool is admitted: where it is missing, the folder that the cluster shares is not mounted.
    shared = _Below(".shared")
    #: The counters of the last look at the whole host (trainmaster.host.measuring).
    measured = _Below("measured.json")
    #: The questions that were not answered in time, and the processes that still ask (trainmaster.host.in_time).
    looking = _Below("looking.json")

    def bundle(self, sha256: str) -> Path:
        return self.bundles / sha256

    def run(self, key: str) -> RunPaths:
        """The run's paths, whether it exists or not; ProtocolError for a key that is no safe file name."""
        return RunPaths(self.runs / check_run_key(key))

    def lock(self, key: str) -> Path:
        """Held while a run is made and started; lies outside the run folder because it comes first."""
        return self.run(key).launch_lock

    def unfinished(self, key: str) -> Path:
        """The folder in which a run is prepared before it is renamed into place."""
        return self.runs / f".{check_run_key(key)}.new"


@dataclass(frozen=True)
class RunPaths:
    """The one owner of a run's paths (docs/protocol.md, "Folders on a host")."""

    root: Path

    spec = _Below("spec.json")
    server = _Below("server.json")
    #: The server's, where it serves HTTPS with one of its own; PEM.
    certificate = _Below("server.pem")
    code = _Below("code")
    #: Where the root of a run's own view is put together, in its own namespace: outside it is empty.
    view = _Below("view")
    #: In which Slurm job the run is to be started; there only in a Slurm pool.
    ticket = _Below("slurm.json")
    #: What is to start it: a link to the runner of the bundle that came with it; there only in a
    #: Slurm pool whose nodes have folders of their own.
    program = _Below("program")
    state = _Below("state.json")
    #: Held while state.json is read, changed and replaced.
    state_lock = _Below(".state.lock")
    exit = _Below("exit.json")
    checkpoints = _Below("checkpoints")
    #: Which processes are the ranks here of a run that its user has started; there only in detached runs.
    ranks = _Below("ranks.json")
    #: Where Python processes of the run write their stacks when they are asked for them.
    stacks = _Below("stacks")

    control = _Below("control")
    preempt = _Below("control", "preempt.json")
    storage_mark = _Below("control", "storage_mark.json")
    storage_fault = _Below("control", "storage.json")
    image_fault = _Below("control", "image.json")
    hook_fault = _Below("control", "hook.json")
    #: Which runtime has a container of the run, and its name there; gone with the container.
    container = _Below("control", "container.json")
    #: The folder of a login file, there only while an image is fetched.
    registry_login = _Below("control", "registry_login")
    stop = _Below("control", "stop.json")
    #: Held by the one process that carries out the stop sequence.
    stop_lock = _Below("control", ".stop.lock")

    spool = _Below("spool")
    outbox = _Below("spool", "outbox")
    #: How far the outbox covers each source, as of some byte of it; a runner starts from here.
    index = _Below("spool", ".index.json")
    #: How far the outbox is stored by the server, and whether all work of the runner is done.
    shipped = _Below("spool", ".shipped.json")
    #: Checkpoints whose files still have to be uploaded.
    uploads = _Below("spool", ".uploads.json")
    #: Held by the living runner, so that there is one.
    runner_lock = _Below("spool", ".runner.lock")
    #: What launcher and runner have to say about themselves; stays on the host.
    runner_log = _Below("spool", ".runner.log")

    @classmethod
    def from_environment(cls) -> Optional[RunPaths]:
        """The run that this process belongs to, or None off the cluster."""
        folder = os.environ.get(RUN_DIR)
        return cls(Path(folder)) if folder else None

    @property
    def key(self) -> str:
        return self.root.name

    def is_slurms(self) -> bool:
        """Whether a Slurm job runs it, so that the processes of this machine say nothing of whether it lives."""
        return os.path.lexists(self.ticket)

    def is_ours(self) -> bool:
        """Whether the folder is this account's, where other accounts could make one in its place. Raises OSError."""
        if not self.root.parent.stat().st_mode & 0o022:
            return True
        status = self.root.lstat()
        return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()

    @property
    def launch_lock(self) -> Path:
        return self.root.parent / f".{self.root.name}.lock"

    @property
    def revoked(self) -> Path:
        """There once the server has given up the launch of the run: whoever launches it later starts nothing."""
        return self.root.parent / f".{self.root.name}.revoked"

    def is_revoked(self) -> bool:
        """Whether the server has given up the launch. A login with sudo lets every account write into the folder of
        runs, so only a file of the run's account or of that folder's owner counts."""
        try:
            return self.revoked.lstat().st_uid in (os.getuid(), self.root.parent.stat().st_uid)
        except FileNotFoundError:
            return False

    def launcher_stream(self, stream: str) -> Path:
        """`stream` is `stdout` or `stderr`."""
        return self.spool / f"launcher.{stream}"

    def rank_stream(self, rank: int, stream: str) -> Path:
        """Where the launch modules send a rank's `stdout` or `stderr` (opened with O_APPEND)."""
        return self.spool / f"rank{rank}.{stream}"

    def core_records(self, rank: int) -> Path:
        """Where the SDK of one rank appends its records, one whole JSON line per write."""
        return self.spool / f"core.rank{rank}.jsonl"

    def sign(self, rank: int) -> Path:
        """A rank's sign of life, which the SDK overwrites in place."""
        return self.spool / f"sign.rank{rank}"

    def rank_end(self, rank: int) -> Path:
        """What a rank of a detached run says about its end."""
        return self.root / f"rank{rank}.end.json"

    def tee_lock(self, rank: int) -> Path:
        """Held while what a rank of a detached run writes is on its way into the spool."""
        return self.spool / f".rank{rank}.tee.lock"

    def checkpoint(self, uuid: str) -> Path:
        """Files of a checkpoint in `server` storage until they are uploaded."""
        return self.checkpoints / uuid


def rank_of(file_name: str) -> Optional[int]:
    """The rank that a spool file's name says, None for the launcher's."""
    match = _RANK_FILE.fullmatch(file_name)
    return int(match.group(1)) if match else None

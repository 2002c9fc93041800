"""Where everything of a run lies on a host. No other module spells a path inside the workdir."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from trainmaster.protocol import RUN_DIR, check_run_key

#: of a rank's sign of life: each write replaces all of it
SIGN_BYTES = 128
_RANK_FILE = re.compile(r"(?:core\.)?rank(\d+)\.(?:stdout|stderr|jsonl)")


@dataclass(frozen=True)
class Workdir:
    """The folder of Trainmaster on one host."""

    root: Path

    @property
    def bundles(self) -> Path:
        return self.root / "bundle"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def measured(self) -> Path:
        """The counters of the last look at the whole host (trainmaster.host.measuring)."""
        return self.root / "measured.json"

    def bundle(self, sha256: str) -> Path:
        return self.bundles / sha256

    def run(self, key: str) -> RunPaths:
        """The run's paths, whether it exists or not; ProtocolError for a key that is no safe file name."""
        return RunPaths(self.runs / check_run_key(key))

    def lock(self, key: str) -> Path:
        """Held while a run is made and started; lies outside the run folder because it comes first."""
        return self.runs / f".{check_run_key(key)}.lock"

    def unfinished(self, key: str) -> Path:
        """The folder in which a run is prepared before it is renamed into place."""
        return self.runs / f".{check_run_key(key)}.new"


@dataclass(frozen=True)
class RunPaths:
    """The one owner of a run's paths (docs/protocol.md, "Folders on a host")."""

    root: Path

    @classmethod
    def from_environment(cls) -> Optional[RunPaths]:
        """The run that this process belongs to, or None off the cluster."""
        folder = os.environ.get(RUN_DIR)
        return cls(Path(folder)) if folder else None

    @property
    def key(self) -> str:
        return self.root.name

    @property
    def spec(self) -> Path:
        return self.root / "spec.json"

    @property
    def server(self) -> Path:
        return self.root / "server.json"

    @property
    def certificate(self) -> Path:
        """The server's, where it serves HTTPS with one of its own; PEM."""
        return self.root / "server.pem"

    @property
    def code(self) -> Path:
        return self.root / "code"

    @property
    def state(self) -> Path:
        return self.root / "state.json"

    @property
    def revoked(self) -> Path:
        """There once the server has given up the launch of the run: whoever launches it later starts nothing."""
        return self.root.parent / f".{self.root.name}.revoked"

    @property
    def state_lock(self) -> Path:
        """Held while state.json is read, changed and replaced."""
        return self.root / ".state.lock"

    @property
    def exit(self) -> Path:
        return self.root / "exit.json"

    @property
    def control(self) -> Path:
        return self.root / "control"

    @property
    def preempt(self) -> Path:
        return self.control / "preempt.json"

    @property
    def storage_mark(self) -> Path:
        return self.control / "storage_mark.json"

    @property
    def storage_fault(self) -> Path:
        return self.control / "storage.json"

    @property
    def image_fault(self) -> Path:
        return self.control / "image.json"

    @property
    def container(self) -> Path:
        """Which runtime has a container of the run, and its name there; gone with the container."""
        return self.control / "container.json"

    @property
    def registry_login(self) -> Path:
        """The folder of a login file, there only while an image is fetched."""
        return self.control / "registry_login"

    @property
    def stop(self) -> Path:
        return self.control / "stop.json"

    @property
    def stop_lock(self) -> Path:
        """Held by the one process that carries out the stop sequence."""
        return self.control / ".stop.lock"

    @property
    def spool(self) -> Path:
        return self.root / "spool"

    @property
    def outbox(self) -> Path:
        return self.spool / "outbox"

    @property
    def index(self) -> Path:
        """How far the outbox covers each source, as of some byte of it; a runner starts from here."""
        return self.spool / ".index.json"

    @property
    def shipped(self) -> Path:
        """How far the outbox is stored by the server, and whether all work of the runner is done."""
        return self.spool / ".shipped.json"

    @property
    def uploads(self) -> Path:
        """Checkpoints whose files still have to be uploaded."""
        return self.spool / ".uploads.json"

    @property
    def runner_lock(self) -> Path:
        """Held by the living runner, so that there is one."""
        return self.spool / ".runner.lock"

    @property
    def runner_log(self) -> Path:
        """What launcher and runner have to say about themselves; stays on the host."""
        return self.spool / ".runner.log"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

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

    @property
    def ranks(self) -> Path:
        """Which processes are the ranks here of a run that its user has started; there only in detached runs."""
        return self.root / "ranks.json"

    def rank_end(self, rank: int) -> Path:
        """What a rank of a detached run says about its end."""
        return self.root / f"rank{rank}.end.json"

    def tee_lock(self, rank: int) -> Path:
        """Held while what a rank of a detached run writes is on its way into the spool."""
        return self.spool / f".rank{rank}.tee.lock"

    @property
    def stacks(self) -> Path:
        """Where Python processes of the run write their stacks when they are asked for them."""
        return self.root / "stacks"

    def checkpoint(self, uuid: str) -> Path:
        """Files of a checkpoint in `server` storage until they are uploaded."""
        return self.checkpoints / uuid


def rank_of(file_name: str) -> Optional[int]:
    """The rank that a spool file's name says, None for the launcher's."""
    match = _RANK_FILE.fullmatch(file_name)
    return int(match.group(1)) if match else None

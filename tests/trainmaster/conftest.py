"""A host of its own for each test: an installed bundle in a temporary workdir, and a small stream server."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig import pace
from tests.rig.bundles import install
from tests.trainmaster.stream_server import PROOF_KEY, TOKEN, StreamServer
from trainmaster.bundle import host_command
from trainmaster.paths import RunPaths, Workdir
from trainmaster.processes import alive, marked
from trainmaster.protocol import KEEPER_MARKER
from trainmaster.runner.state import read_state
from trainmaster.runner.warm import SPARE_ARGUMENT_BYTES, SPARE_VARIABLE, SPARE_VARIABLE_BYTES


@pytest.fixture
def stream_server() -> Iterator[StreamServer]:
    server = StreamServer()
    yield server
    server.down()


@pytest.fixture
def host(stream_server: StreamServer) -> Iterator["TestHost"]:
    # Not tmp_path: pytest makes that 0700, and other accounts have to reach the bundle.
    with tempfile.TemporaryDirectory(prefix="trainmaster-host-") as folder:
        Path(folder).chmod(0o755)
        test_host = TestHost(Path(folder), stream_server)
        yield test_host
        test_host.end_everything()


# The system's own Python, as on a host: other accounts may not reach that of the tests. Set it to try an older one.
PYTHON = (
    os.environ.get("TRAINMASTER_TEST_PYTHON")
    or shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
    or sys.executable
)


class TestHost:
    """Runs verbs as dispatch does, by one process that serves them; for another account by a command of its own."""

    __test__ = False

    def __init__(self, root: Path, server: StreamServer) -> None:
        self.workdir = Workdir(root)
        self.bundle = install(root)
        self.server = server
        self.keys: list[str] = []
        self._serving: subprocess.Popen[bytes] | None = None
        self._calls = 0

    def verb(
        self, name: str, request: object = None, more: bytes = b"", account: str | None = None
    ) -> dict[str, Any]:
        """The answer of a verb; AssertionError if it broke."""
        line = json.dumps(request).encode() + b"\n" if request is not None else b""
        if account is None:
            return self.served(name, line + more)
        return self.alone(name, line + more, account)

    def served(self, name: str, stdin: bytes) -> dict[str, Any]:
        """Done by the process that serves verbs, which is started with the first."""
        if self._serving is None:
            command = host_command(PYTHON, str(self.workdir.root), self.bundle.name, "serve")
            spare = {SPARE_VARIABLE: " " * SPARE_VARIABLE_BYTES}
            self._serving = subprocess.Popen(
                [command[0], "-S", "-E", *command[1:], " " * SPARE_ARGUMENT_BYTES],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **spare},
            )
            assert self._serving.stdout is not None
            assert json.loads(self._serving.stdout.readline())["serving"] == 1
        assert self._serving.stdin is not None and self._serving.stdout is not None
        self._calls += 1
        header = json.dumps({"id": self._calls, "verb": name, "bytes": len(stdin)}).encode()
        self._serving.stdin.write(header + b"\n" + stdin)
        self._serving.stdin.flush()
        said = json.loads(self._serving.stdout.readline())
        assert said["id"] == self._calls
        answer: dict[str, Any] = said["answer"]
        assert answer.get("error") != "broke", answer
        return answer

    def hang_up(self) -> None:
        """End the process that serves verbs, as the end of its connection does."""
        if self._serving is not None:
            assert self._serving.stdin is not None and self._serving.stdout is not None
            self._serving.stdin.close()
            self._serving.wait(60)
            self._serving.stdout.close()
            self._serving = None

    def alone(self, name: str, stdin: bytes, account: str | None = None) -> dict[str, Any]:
        """Done by a program of its own."""
        command = host_command(PYTHON, str(self.workdir.root), self.bundle.name, name)
        if account is not None:
            command = ["runuser", "-u", account, "--", *command]
        result = subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)
        assert result.returncode == 0, result.stderr.decode()
        answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
        return answer

    def spec(self, entrypoint: list[str] | str, **changes: Any) -> dict[str, Any]:
        """A whole spec with a run key of its own."""
        allocation = f"t{uuid.uuid4().hex[:10]}.1"
        limits = {"grace_seconds": 5, "heartbeat_seconds": 0.2, **changes.pop("limits", {})}
        spec = {
            "protocol": 1,
            "run_key": f"{allocation}.0",
            "allocation_id": allocation,
            "member": 0,
            "members": 1,
            "task_id": allocation.rpartition(".")[0],
            "task_type": "TRIAL",
            "job_id": str(uuid.uuid4()),
            "cluster": {"id": "c1", "name": "test", "proof_key": PROOF_KEY},
            "host": {"id": "h1", "name": "gpu1"},
            "token": TOKEN,
            "python": PYTHON,
            "entrypoint": entrypoint,
            "environment": {},
            "slots": [],
            "gang": {
                "addresses": ["127.0.0.1"],
                "slot_counts": [0],
                "ports": {},
                "interface": None,
                "secret": "ab",
            },
            "user_data": {},
            "checkpoint_storage": {"type": "server"},
            "limits": limits,
        }
        return {**spec, **changes}

    def launch(
        self, entrypoint: list[str] | str, files: dict[str, str] | None = None, **changes: Any
    ) -> tuple[RunPaths, dict[str, Any]]:
        """Launch a run of these context files; (its paths, the answer)."""
        spec = self.spec(entrypoint, **changes)
        code = code_archive(files or {})
        answer = self.launch_spec(spec, code)
        return self.workdir.run(spec["run_key"]), answer

    def launch_spec(self, spec: dict[str, Any], code: bytes, account: str | None = None) -> dict[str, Any]:
        self.keys.append(spec["run_key"])
        request = {"spec": spec, "server": self.server.address, "code_bytes": len(code)}
        return self.verb("launch", request, code, account)

    def run_script(self, script: str, **changes: Any) -> RunPaths:
        """Launch `python3 job.py` with this text; the run's paths."""
        paths, answer = self.launch(["python3", "job.py"], {"job.py": script}, **changes)
        assert answer.get("state") == "launched", answer
        return paths

    def status(self, paths: RunPaths) -> dict[str, Any]:
        answer: dict[str, Any] = self.verb("status", {"runs": [paths.key]})["runs"][paths.key]
        return answer

    def end_everything(self) -> None:
        """End what this test's runs left, by their own pids, and assert nothing about it."""
        self.hang_up()
        for key in self.keys:
            wait_until(lambda key=key: not self._kill_all(key))
        shutil.rmtree(self.workdir.runs, ignore_errors=True)

    def _kill_all(self, key: str) -> bool:
        state = read_state(self.workdir.run(key))
        if alive(state, "launcher"):
            kill(state["launcher"]["pid"])
        left = marked(KEEPER_MARKER).get(key, []) + marked().get(key, [])
        for process in left:
            kill(process["pid"])
        return bool(left)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def code_archive(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text.encode()), 0o644
            tar.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def wait_until(true: Callable[[], Any], seconds: float = 60.0) -> Any:
    """The first true value of `true`, which may look for what is not there yet; AssertionError after `seconds`."""
    until = time.monotonic() + seconds * pace.factor()
    while not (value := _now(true)):
        assert time.monotonic() < until, f"not within {seconds} s"
        time.sleep(0.02)
    return value


def _now(true: Callable[[], Any]) -> Any:
    try:
        return true()
    except (LookupError, FileNotFoundError, ProcessLookupError):
        return None

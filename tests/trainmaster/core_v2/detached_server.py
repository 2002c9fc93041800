"""The stream server with the few REST answers that a detached run begins with, and scripts that are such runs."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.trainmaster.made_run import ROOT, SITE
from tests.trainmaster.stream_server import PROOF_KEY, TOKEN, Handler, StreamServer
from trainmaster.paths import RunPaths

USER_TOKEN = "token-of-a-user"


class DetachedServer(StreamServer):
    """Knows one experiment and one trial; `asked` has what was asked of REST: (method, path, body)."""

    def __init__(self) -> None:
        self.task = f"7.{uuid.uuid4().hex[:8]}"
        self.asked: list[tuple[str, str, Any]] = []
        self.latest_checkpoint: dict[str, Any] | None = None
        self.steps_completed = 0
        super().__init__()

    def handler(self) -> type[BaseHTTPRequestHandler]:
        return _WithRest

    def rest(self, method: str, path: str, body: Any) -> dict[str, Any]:
        self.asked.append((method, path, body))
        if path == "/api/v1/me":
            return {"user": {"username": "ada"}}
        if path.endswith("/start"):
            return self._started(body)
        return {"trial": {"id": 9}} if path == "/api/v1/trials" else {"experiment": {"id": 7}}

    def config(self) -> dict[str, Any]:
        """The config of the experiment as it was asked for."""
        body = next(body for _, path, body in self.asked if path.startswith("/api/v1/experiments"))
        return dict(json.loads(body["config"]))

    def _started(self, body: Any) -> dict[str, Any]:
        config = self.config()
        run = {
            "allocationId": f"{self.task}.1", "taskId": self.task, "jobId": "j",
            "experimentId": 7, "trialId": 9, "runId": 1,
            "trialSeed": 3, "token": TOKEN, "members": body["members"], "hosts": body["hosts"],
            "cluster": {"id": "c1", "name": "test", "proof_key": PROOF_KEY},
            "hparams": config.get("hyperparameters", {}), "config": config,
            "checkpointStorage": config.get("checkpoint_storage", {"type": "server"}),
            "limits": {"heartbeat_seconds": 0.2, "sample_seconds": 0},
        }  # fmt: skip
        return {
            "trialRunId": 1,
            "stepsCompleted": self.steps_completed,
            "latestCheckpoint": self.latest_checkpoint,
            "run": run,
        }


class _WithRest(Handler):
    def do_POST(self) -> None:
        if not self._did_rest():
            super().do_POST()

    def do_PUT(self) -> None:
        if not self._did_rest():
            super().do_PUT()

    def do_GET(self) -> None:
        if not self._did_rest():
            super().do_GET()

    def _did_rest(self) -> bool:
        path = urlsplit(self.path).path
        if not path.startswith("/api/"):
            return False
        server = self.stream_server
        assert isinstance(server, DetachedServer)
        body = json.loads(self._body()) if self.headers["Content-Length"] else None
        if self.headers["Authorization"] != f"Bearer {USER_TOKEN}":
            self._answer(401, {"message": "Log in."})
        else:
            self._answer(200, server.rest(self.command, path, body))
        return True


class Script:
    """A Python program as a detached run, in folders of its own."""

    def __init__(self, folder: Path, server: DetachedServer, text: str, *words: str, **more: str) -> None:
        self.server = server
        script = folder / "train.py"
        script.write_text(text)
        self.home = folder / "home"
        self.home.mkdir(exist_ok=True)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TRAINMASTER_", "DET_", "XDG_"))
        }
        self.environment = {
            **kept,
            "PYTHONPATH": f"{SITE}{os.pathsep}{ROOT}",
            "HOME": str(self.home),
            "DET_MASTER": server.address["urls"][0],
            "DET_USER_TOKEN": USER_TOKEN,
            **more,
        }
        self.process = subprocess.Popen(
            [sys.executable, *words, str(script)],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    @property
    def paths(self) -> RunPaths:
        folder = self.home / ".local" / "share" / "trainmaster" / "detached"
        return RunPaths(folder / f"{self.server.task}.1.0")

    def result(self, seconds: float = 60) -> tuple[int, str, str]:
        """(exit code, stdout, stderr)."""
        out, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, out.decode(errors="replace"), err.decode(errors="replace")

    def end(self) -> None:
        """Whatever is left of it: the script, and its runner by the number that it has noted."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        with contextlib.suppress(OSError, ValueError, KeyError):
            os.kill(json.loads(self.paths.state.read_text())["runner"]["pid"], signal.SIGKILL)

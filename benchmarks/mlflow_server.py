"""MLflow's tracking server with two workers, on a database of its own in the benchmark's PostgreSQL."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

#: `MLFLOW` names another one than `make bench` installs.
PROGRAM = Path(
    os.environ.get("MLFLOW") or Path(__file__).parent.parent / ".venv" / "mlflow" / "bin" / "mlflow"
)
WORKERS = 2
_START_SECONDS = 180.0


class MLflow:
    """A client over one connection: what its Python client and its pages send, without the time that they take."""

    def __init__(self, port: int, pid: int) -> None:
        self.pid = pid
        self._link = http.client.HTTPConnection("127.0.0.1", port, timeout=300)

    def send(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The answer, which must be a success."""
        self._link.request(method, path, body, {"Content-Type": "application/json"})
        answer = self._link.getresponse()
        said = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"MLflow answered {answer.status} to {path}: {said[:500]!r}")
        return said

    def reconnect(self) -> None:
        """The next request opens a connection: an idle one may have been closed."""
        self._link.close()

    def new_run(self) -> str:
        self.reconnect()
        body = json.dumps({"experiment_id": "0", "start_time": int(1000 * time.time())}).encode()
        made = json.loads(self.send("POST", "/api/2.0/mlflow/runs/create", body))
        return str(made["run"]["info"]["run_id"])

    def log_batch(self, body: bytes) -> None:
        self.send("POST", "/api/2.0/mlflow/runs/log-batch", body)

    def log_metric(self, body: bytes) -> None:
        self.send("POST", "/api/2.0/mlflow/runs/log-metric", body)

    def chart(
        self, run: str, metric: str, first_step: int | None = None, last_step: int | None = None
    ) -> Any:
        """The points of a curve as its page asks for them: at most 320 of them."""
        query: dict[str, Any] = {"run_ids": run, "metric_key": metric, "max_results": 320}
        if first_step is not None:
            query |= {"start_step": first_step, "end_step": last_step}
        path = f"/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval?{urlencode(query)}"
        return json.loads(self.send("GET", path))["metrics"]

    def stored(self, run: str) -> int:
        """The last step of the run's loss."""
        found = json.loads(self.send("GET", f"/api/2.0/mlflow/runs/get?run_id={run}"))
        return max(int(each["step"]) for each in found["run"]["data"]["metrics"])


@contextmanager
def running(folder: Path) -> Iterator[MLflow]:
    """The server beside Django's database, until the block ends; its output is in `folder`/mlflow.log."""
    if not PROGRAM.exists():
        raise SystemExit(
            f"There is no MLflow at {PROGRAM}; `make bench` installs it, MLFLOW=… names another."
        )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DJANGO"))},
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
    }
    command = [
        str(PROGRAM), "server", "--backend-store-uri", _database(), "--host", "127.0.0.1", "--port", str(port),
        "--workers", str(WORKERS), "--default-artifact-root", str(folder / "artifacts"),
        "--uvicorn-opts", "--timeout-worker-healthcheck 120",  # on a busy machine it ends workers that import
    ]  # fmt: skip
    with (folder / "mlflow.log").open("wb") as log:
        child = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, cwd=folder, start_new_session=True
        )
    try:
        _wait(port, child, folder / "mlflow.log")
        yield MLflow(port, child.pid)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGTERM)  # its own session: the workers too
            try:
                child.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()


def database_url() -> str:
    """Where its tables are."""
    from django.conf import settings

    entry = settings.DATABASES["default"]
    return f"postgresql://{entry['USER']}@/mlflow?host={quote(str(entry['HOST']))}"


def _database() -> str:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE mlflow")
    return database_url().replace("postgresql:", "postgresql+psycopg2:", 1)


def _wait(port: int, child: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        if child.poll() is not None:
            break
        try:
            link = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            link.request("GET", "/health")
            if link.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"MLflow did not start:\n{log.read_text()[-4000:]}")

"""A checkpoint of 1 GB from a host into the server's own store and back, beside `cp` and `curl -T` onto the same disk.

`python -m benchmarks.checkpoint_upload` writes benchmarks/reports/checkpoint_upload.md. The runner's own code sends,
one web process with a real PostgreSQL takes; both, and curl's plain receiver, share this machine. BYTES=100000000 and
ROUNDS=1 shorten it.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from benchmarks import database
from benchmarks.logs_ingest import cpu_seconds
from benchmarks.rows import Row, finish, size

if TYPE_CHECKING:
    from experiments.models import Checkpoint
    from jobs.models import Member

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
os.environ["DJANGO_SETTINGS_MODULE"] = "webui.settings"
os.environ["TRAINMASTER_SECRET_KEY"] = "benchmark"
os.environ["TRAINMASTER_LOG_LEVEL"] = "WARNING"

BYTES = size("BYTES", 1_000_000_000, quick=100_000_000)
ROUNDS = size("ROUNDS", 3, quick=1)
PLAIN, UPLOAD, DOWNLOAD = (
    "curl -T to a plain receiver", "upload to the server, checked", "download from the server, checked"
)  # fmt: skip
REPORT = ROOT / "benchmarks" / "reports" / "checkpoint_upload.md"
_BLOCK_BYTES = 1 << 20


class PlainReceiver(BaseHTTPRequestHandler):
    """Writes what `curl -T` sends to a file, durably, and nothing else."""

    protocol_version = "HTTP/1.1"
    target: Path

    def do_PUT(self) -> None:
        left = int(self.headers["Content-Length"])
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        with self.target.open("wb") as file:
            while left:
                block = self.rfile.read(min(_BLOCK_BYTES, left))
                file.write(block)
                left -= len(block)
            file.flush()
            os.fsync(file.fileno())
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


def seconds(action: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", source, target], check=True)
    with target.open("rb") as file:
        os.fsync(file.fileno())


def in_turns(ways: dict[str, Callable[[], Any]], clean: Callable[[], Any]) -> dict[str, list[float]]:
    """Seconds of each way, in turns so that all share the machine's moods."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            clean()
            took[name].append(seconds(way))
    return took


def report(took: dict[str, list[float]], web_cpu: float, grown_mb: float) -> tuple[str, list[Row]]:
    own_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    lines = [
        f"| {name} | {statistics.median(each):.1f} s | {BYTES / 1e6 / statistics.median(each):,.0f} MB/s |"
        for name, each in took.items()
    ]
    plain = statistics.median(took[PLAIN])
    found = [
        Row(f"{way} of {BYTES / 1e9:g} GB, checked", statistics.median(took[name]) / plain, "x curl's upload")
        for way, name in (("upload", UPLOAD), ("download", DOWNLOAD))
    ]
    found += [Row("the web process grows by", grown_mb, "MB"), Row("its processor an upload", web_cpu, "s")]
    text = "\n".join(
        [
            "# A checkpoint into the server's store",
            "",
            f"One file of {BYTES / 1e9:g} GB, median of {ROUNDS} rounds in turns, all durable (fsync); sender, "
            f"receiver and whatever else ran shared {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}. The runner "
            "hashes what it sends and the server what it gets (SHA-256 each); cp and curl check nothing.",
            "",
            "| way | time | rate |",
            "|---|---|---|",
            *lines,
            "",
            f"An upload took {web_cpu:.1f} s of CPU of the web process, whose memory grew by {grown_mb:.0f} MB; "
            f"the sender's peak is {own_mb:.0f} MB, Django and all.",
            "",
        ]
    )
    return text, found


def peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def partial_checkpoint(member: Member) -> Checkpoint:
    """One of a file `model.pt` that is still to be uploaded."""
    from django.utils import timezone

    from experiments.models import Checkpoint
    from experiments.states import CheckpointState
    from tests.webui.runner_api.test_checkpoints import make_trial

    return Checkpoint.objects.create(
        trial=make_trial(member),
        allocation_id=member.allocation_id,
        run_key=member.run_key,
        state=CheckpointState.PARTIAL,
        steps_completed=1,
        resources={"model.pt": BYTES},
        storage={"type": "server"},
        reported_at=timezone.now(),
    )


def fill(path: Path) -> None:
    """With bytes that nothing can compress."""
    with path.open("wb") as file:
        for _ in range(-(-BYTES // _BLOCK_BYTES)):
            file.write(os.urandom(_BLOCK_BYTES))
        file.truncate(BYTES)


def plain_receiver(stack: ExitStack, target: Path) -> str:
    """The address of a PlainReceiver that writes to `target`, until the stack's end."""
    bound = cast(Any, type("Bound", (PlainReceiver,), {"target": target}))
    receiver = ThreadingHTTPServer(("127.0.0.1", 0), bound)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    stack.callback(receiver.shutdown)
    return f"http://127.0.0.1:{receiver.server_address[1]}/"


def measure(stack: ExitStack, folder: Path) -> tuple[str, list[Row]]:
    from tests.rig.rows import RUN_TOKEN, make_gang
    from tests.rig.web import running_web
    from trainmaster.core._server_storage import _download
    from trainmaster.http import ServerClient
    from trainmaster.jsonfile import write_json
    from trainmaster.paths import RunPaths
    from trainmaster.protocol import Spec
    from trainmaster.runner.file_uploads import FileUpload
    from trainmaster.runner.link import Link, Weather

    web = stack.enter_context(running_web(folder, TRAINMASTER_LOG_LEVEL="WARNING"))
    member = make_gang()[0]
    checkpoint = partial_checkpoint(member)
    run = folder / "run"
    run.mkdir()
    source = run / "model.pt"
    fill(source)
    paths = RunPaths(run)
    write_json(paths.server, {"urls": [web.url], "cert_sha256": None})
    spec = {
        "token": RUN_TOKEN,
        "allocation_id": member.allocation_id,
        "member": 0,
        "cluster": {"id": "c", "name": "test"},
    }
    link = Link(paths, cast(Spec, spec), Weather())
    base = f"/runner/v1/checkpoints/{checkpoint.pk}"
    stored, copied, plain, back = (
        web.data_dir / "checkpoints" / str(checkpoint.pk) / "model.pt",
        *(folder / name for name in ("copied", "plain", "back")),
    )
    curl = plain_receiver(stack, plain)
    spent: list[float] = []

    def upload() -> None:
        stored.unlink(missing_ok=True)
        before = cpu_seconds(web.pid)
        FileUpload(link, base, run, "model.pt", lambda count: None).to_server()
        spent.append(cpu_seconds(web.pid) - before)

    def download() -> None:
        with ServerClient(web.url, RUN_TOKEN) as client:
            assert _download(client, f"{base}/files/model.pt", back, BYTES) is None

    def clean() -> None:
        for path in (copied, plain, back):
            path.unlink(missing_ok=True)

    before = peak_mb(web.pid)
    took = in_turns(
        {
            "cp": lambda: copy(source, copied),
            PLAIN: lambda: subprocess.run(
                ["curl", "-s", "-T", str(source), curl], check=True, stdout=subprocess.DEVNULL
            ),
            UPLOAD: upload,
            DOWNLOAD: download,
        },
        clean,
    )
    assert stored.stat().st_size == BYTES
    return report(took, statistics.median(spent), peak_mb(web.pid) - before)


def main() -> int:
    from tests.rig.parts import private_folder

    with ExitStack() as stack:
        folders = [stack.enter_context(private_folder(name)) for name in ("postgres", "redis", "web")]
        stack.enter_context(database.parts(folders[0], folders[1]))
        return finish(REPORT, *measure(stack, folders[2]))


if __name__ == "__main__":
    sys.exit(main())

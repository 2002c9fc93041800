"""What people get wrong: each mistake has one clear sentence in command line and REST, and leaves nothing behind."""

import base64
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.rig.hosts import Host, HostRig
from tests.rig.stack import Stack, config, running_stack

pytestmark = pytest.mark.hosts

SYSTEM_PYTHON = "/usr/bin/python3"
GOOD = """\
name: mistakes
entrypoint: python3 worker.py
searcher: {name: single, metric: loss, max_length: {batches: 1}}
resources: {slots_per_trial: 1}
max_restarts: 0
"""
#: Tables that a submission writes to.
TABLES = ["experiments_experiment", "experiments_trial", "submissions_context", "jobs_job", "jobs_task"]


@pytest.fixture(scope="module")
def stack(host_rig: HostRig) -> Iterator[Stack]:
    """Two hosts of eight slots each whose jobs run the system's Python, and a third that nobody has added."""
    with running_stack(host_rig, hosts=3) as stack:
        stranger = stack.hosts.pop()
        stack.add_hosts(slots=8, python=SYSTEM_PYTHON if Path(SYSTEM_PYTHON).exists() else "")
        stack.hosts.append(stranger)
        yield stack


@pytest.fixture
def nothing_is_left(stack: Stack) -> Iterator[None]:
    """A refused submission has made no row and no run folder."""
    before = rows(stack), folders(stack)
    yield
    assert (rows(stack), folders(stack)) == before


def rows(stack: Stack) -> dict[str, int]:
    with psycopg.connect(stack.server.database_url) as connection:
        counts = {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in TABLES}
    return {table: int(row[0]) for table, row in counts.items() if row}


def folders(stack: Stack) -> list[Path]:
    return sorted(path for host in stack.hosts if host.isolated for path in host.workdir.glob("runs/*"))


def create(stack: Stack, folder: Path, text: str = GOOD, **files: str) -> "Any":
    """`e create` of the config and a folder with these files."""
    code = folder / "code"
    code.mkdir(exist_ok=True)
    for name, content in {"worker.py": "print('line 1')", **files}.items():
        (code / name).write_text(content)
    (folder / "config.yaml").write_text(text)
    return stack.server.cli("e", "create", str(folder / "config.yaml"), str(code))


def refused_by_rest(stack: Stack, text: str, definition: list[Any] | None = None) -> str:
    body = {"config": text, "modelDefinition": definition or [], "activate": True}
    status, sentence = stack.refused("POST", "/api/v1/experiments", body)
    assert status == 400, sentence
    return str(json.loads(sentence.split(": ", 1)[1])["message"])


MISTAKES = {
    "not YAML": (GOOD.replace("{name: single,", "{name: single"), ["line 3, column"]),
    "tab": (GOOD + "\thyperparameters: {}\n", ["line 6, column 1"]),
    "unknown field": (
        GOOD.replace("slots_per_trial: 1", "slots_per_trail: 1"),
        ["resources.slots_per_trail"],
    ),
    "unknown top field": (GOOD + "entry_point: x\n", ["entry_point"]),
    "wrong type": (GOOD.replace("max_restarts: 0", "max_restarts: many"), ["max_restarts", "many"]),
    "missing entrypoint": (GOOD.replace("entrypoint: python3 worker.py\n", ""), ["entrypoint"]),
    "missing searcher": ("entrypoint: python3 worker.py\n", ["searcher"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.usefixtures("nothing_is_left")
def test_a_wrong_config_is_refused_by_a_sentence_that_says_where(
    stack: Stack, tmp_path: Path, mistake: str
) -> None:
    text, words = MISTAKES[mistake]
    done = create(stack, tmp_path, text)
    assert done.returncode not in {0, None}
    assert "Traceback" not in done.stderr + done.stdout
    sentence = refused_by_rest(stack, text)
    for word in words:
        assert word in done.stderr, done.stderr
        assert word in sentence, sentence


@pytest.mark.usefixtures("nothing_is_left")
def test_a_context_that_is_too_large_names_its_largest_files(stack: Stack, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    for name, size in {"data.bin": 90 << 20, "more.bin": 20 << 20, "small.txt": 10}.items():
        with (code / name).open("wb") as file:
            file.truncate(size)  # sparse: it takes no room and no time
    done = create(stack, tmp_path)
    assert done.returncode != 0
    assert "95" in done.stderr
    assert done.stderr.index("data.bin") < done.stderr.index("more.bin")


def uploaded(path: str, kind: str, content: str) -> dict[str, Any]:
    return {
        "path": path,
        "type": ord(kind),
        "content": base64.b64encode(content.encode()).decode(),
        "mode": 0o644,
    }


@pytest.mark.parametrize(
    ("file", "word"),
    [
        (uploaded("../evil.py", "0", "x"), ".."),
        (uploaded("a/../../evil.py", "0", "x"), ".."),
        (uploaded("/etc/evil.py", "0", "x"), "absolute"),
        (uploaded("link", "2", "/etc/passwd"), "link"),
        (uploaded("sub/link", "2", "../../etc"), "link"),
        (uploaded("device", "3", ""), "device"),
    ],
    ids=lambda value: value["path"] if isinstance(value, dict) else "",
)
@pytest.mark.usefixtures("nothing_is_left")
def test_a_file_that_leaves_the_folder_is_refused(stack: Stack, file: dict[str, Any], word: str) -> None:
    sentence = refused_by_rest(stack, GOOD, [file])
    assert file["path"] in sentence
    assert word in sentence


def test_twelve_slots_on_hosts_of_eight_stay_queued_and_say_why(stack: Stack, tmp_path: Path) -> None:
    done = create(stack, tmp_path, GOOD.replace("slots_per_trial: 1", "slots_per_trial: 12"))
    assert done.returncode == 0, done.stderr
    reason = "needs 12 slots; hosts here have 8: ask for 8 or fewer, or a multiple of 8"
    assert reason in done.stderr + done.stdout
    experiment = int(done.stdout.split()[-1])
    try:
        job = stack.experiment(experiment)["jobId"]
        stack.wait(lambda: reason in str(queue_row(stack, job).get("reason")), 60, "the queue to say why")
        assert queue_row(stack, job)["summary"]["state"] == "STATE_QUEUED"
        explained = stack.get(f"/api/v1/jobs/{job}/explain")["tasks"]
        assert [task["reason"]["sentence"] for task in explained] == [reason]
        assert reason in stack.server.cli("job", "list", "-o", "json").stdout
        stack.wait_free()
    finally:
        stack.post(f"/api/v1/experiments/{experiment}/kill")
    assert stack.wait_end(experiment) == "STATE_CANCELED"


def queue_row(stack: Stack, job: str) -> dict[str, Any]:
    rows = stack.get("/api/v1/job-queues-v2")["jobs"]
    found = [row.get("full") or row for row in rows if (row.get("full") or row)["jobId"] == job]
    return dict(found[0]) if found else {}


def test_a_host_without_torch_is_warned_of_and_its_jobs_say_so(stack: Stack) -> None:
    host = stack.get(f"/api/v1/hosts/{stack.hosts[0].name}")["host"]
    torch = next(check for check in host["doctor"]["checks"] if check["name"] == "torch")
    if torch["state"] == "ok":
        pytest.skip(f"{SYSTEM_PYTHON} has torch here")
    assert f"{host['python']} has no torch" in torch["sentence"]
    text = config(1, "python3 -m determined.launch.torch_distributed train.py")
    experiment = stack.submit({"train.py": "import torch"}, text)
    assert stack.wait_end(experiment) == "STATE_ERROR"
    words = " ".join(record["log"] for record in stack.records(stack.trial(experiment)["id"]))
    assert "torch" in words
    assert "Traceback" not in words, words
    assert host["python"] in words, words


@contextlib.contextmanager
def forgotten_afterwards(stack: Stack, name: str) -> Iterator[None]:
    try:
        yield
    finally:
        stack.server.request("DELETE", f"/api/v1/hosts/{name}", token=stack.token)


def add_by_cli(stack: Stack, host: Host, *more: str) -> Any:
    target = f"{host.logins[0]}@{host.address}:{host.port}"
    return stack.server.cli("host", "add", target, "--name", host.name, "--no-key", "--yes", *more)


def test_a_host_that_refuses_the_servers_key_is_told_of_in_a_sentence(stack: Stack) -> None:
    host = stack.hosts[2]
    done = add_by_cli(stack, host)
    with forgotten_afterwards(stack, host.name):
        assert done.returncode != 0
        assert "Traceback" not in done.stderr
        shown = stack.get(f"/api/v1/hosts/{host.name}")["host"]
        assert shown["state"] == "failed"
        assert "key" in shown["stateReason"] and host.logins[0] in shown["stateReason"]
        assert shown["stateReason"] in done.stderr
        assert shown["slots"] == []


def test_a_host_without_python_is_told_of_in_a_sentence(stack: Stack) -> None:
    host = stack.hosts[2]
    if not host.isolated:
        pytest.skip("needs a host with mounts of its own")
    host.authorize(stack.get("/api/v1/hosts/server-key")["publicKey"])
    hide_every_python(host)
    try:
        done = add_by_cli(stack, host)
        with forgotten_afterwards(stack, host.name):
            assert done.returncode != 0
            sentence = f"{host.name} has no Python 3.8 or later"
            assert sentence in done.stderr, done.stderr
            shown = stack.get(f"/api/v1/hosts/{host.name}")["host"]
            assert shown["state"] == "failed" and sentence in shown["stateReason"]
        assert not list(host.workdir.glob("*")) if host.workdir.exists() else True
    finally:
        host.reset()


def hide_every_python(host: Host) -> None:
    """Lay /dev/null over each interpreter that the host could find, in its own mounts."""
    assert host.sshd is not None
    places = f"{Path(sys.executable).parent} /usr/local/sbin /usr/local/bin /usr/sbin /usr/bin /sbin /bin"
    script = (
        f'for d in {places} "$HOME"/.pyenv/versions/*/bin "$HOME"/.pyenv/shims; do for p in "$d"/python3*; do '
        'f=$(readlink -f "$p") && [ -f "$f" ] && [ -x "$f" ] && mount --bind /dev/null "$f"; done; done; true'
    )
    subprocess.run(["nsenter", "-t", str(host.sshd.pid), "-m", "sh", "-c", script], check=True)

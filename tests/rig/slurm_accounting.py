"""A Slurm cluster that keeps accounts: slurmdbd with a MariaDB of its own, on loopback."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from benchmarks.slurm import Slurm
from tests.rig.ports import free_port

_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
_STORES = """
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={folder}/munge.sock
"""
_DBD = """
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=root
StorageLoc=slurm
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
"""


def installed() -> bool:
    return all(shutil.which(name, path=_PATH) for name in ("slurmdbd", "mariadbd"))


class AccountedSlurm(Slurm):
    """Its jobs are told by `sacct`."""

    def __init__(self, folder: Path, nodes: int, cpus_per_node: int) -> None:
        self._port = free_port()
        more = _STORES.format(folder=folder, port=self._port)
        super().__init__(folder, nodes, cpus_per_node, more)

    def _start_nodes(self) -> None:
        database, folder = free_port(), self._folder
        (folder / "database" / "mysql").mkdir(parents=True)  # without tables of accounts: loopback is enough
        self._spawn(
            "mariadbd", "mariadbd", "--no-defaults", f"--datadir={folder}/database", f"--port={database}",
            "--user=root", "--bind-address=127.0.0.1", f"--socket={folder}/db.sock", f"--pid-file={folder}/db.pid",
            "--skip-grant-tables", "--innodb-buffer-pool-size=64M",
        )  # fmt: skip
        self._wait((folder / "db.sock").exists, "MariaDB made no socket")
        conf = folder / "slurmdbd.conf"
        host = os.uname().nodename
        conf.write_text(_DBD.format(folder=folder, host=host, port=self._port, database=database))
        conf.chmod(0o600)
        self._spawn("slurmdbd", "env", f"SLURM_CONF={conf}", "slurmdbd", "-D")
        log = folder / "slurmdbd.log"
        self._wait(lambda: log.exists() and "started" in log.read_text(), "slurmdbd did not start")
        super()._start_nodes()

"""`DistributedContext`: who this worker is among its peers, and how they exchange values."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import socket
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from trainmaster._info import ClusterInfo, get_cluster_info
from trainmaster.core._sign import sign_of
from trainmaster.core._star import Chief, Star, Worker, join, listen

DEFAULT_PORT = 12360
DEFAULT_PORT_2 = 12376  # Determined's second port: accepted by the constructor, one is enough here
SECRET_VARIABLE = "TRAINMASTER_GANG_SECRET"
_LOOPBACK = "127.0.0.1"
#: below the ports that systems give to connections; an odd number of them, so that neighbors stay apart
_LOWEST_PORT, _PORTS = 10000, 22001
_NAMES_OF_LAUNCH = ("MASTER_PORT", "TORCHELASTIC_RUN_ID")

_RANKS = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")


class DistributedContext:
    """A worker's rank and the collectives `gather`, `allgather`, `broadcast` and their `_local` forms.

    All six rank values must be given, or none of them (ValueError). `chief_ip` is needed when the ranks are
    on several hosts (AssertionError). In a run the port and the secret are the gang's; elsewhere the port is
    `pub_port` + `port_offset` (or the variable INTER_TRAIN_PROCESS_COMM_PORT_1, or one of its own for each
    MASTER_PORT of torchrun), and the secret is the variable TRAINMASTER_GANG_SECRET, which ranks on several hosts
    need, or a file of this user (~/.trainmaster/gang.key).
    """

    def __init__(
        self,
        *,
        rank: Optional[int] = None,
        size: Optional[int] = None,
        local_rank: Optional[int] = None,
        local_size: Optional[int] = None,
        cross_rank: Optional[int] = None,
        cross_size: Optional[int] = None,
        chief_ip: Optional[str] = None,
        pub_port: int = DEFAULT_PORT,
        pull_port: int = DEFAULT_PORT_2,
        port_offset: int = 0,
        force_tcp: bool = False,
    ) -> None:
        values = _checked([rank, size, local_rank, local_size, cross_rank, cross_size])
        self.rank, self.size, self.local_rank, self.local_size, self.cross_rank, self.cross_size = values
        self._star: Optional[Star] = None
        self._local_star: Optional[Star] = None
        info = get_cluster_info()
        self._sign = sign_of(info, self.rank)
        if self.size == 1:
            return
        if self.local_size != self.size:
            assert chief_ip is not None, "chief_ip is required when the ranks are on more than one host."
        address = (_chief_address(self, chief_ip), _port(info, pub_port, port_offset))
        secret = _secret(info)
        self._star = join("global", self.rank, self.size, address, secret)
        self._local_star = self._star if self.local_size == self.size else self._join_locals(secret)

    @classmethod
    def from_torch_distributed(cls, chief_ip: Optional[str] = None) -> DistributedContext:
        """From the variables that torchrun sets; ValueError names those that are missing.

        `chief_ip` defaults to DET_CHIEF_IP, then to torchrun's MASTER_ADDR.
        """
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
        ranks = _from_variables("from_torch_distributed()", names, "determined.launch.torch_distributed")
        return cls(**ranks, chief_ip=chief_ip or _known_chief())

    @classmethod
    def from_deepspeed(cls, chief_ip: Optional[str] = None) -> DistributedContext:
        """From the variables that DeepSpeed's launcher sets; ValueError names those that are missing.

        `chief_ip` defaults to DET_CHIEF_IP, then to MASTER_ADDR.
        """
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
        ranks = _from_variables("from_deepspeed()", names, "determined.launch.deepspeed")
        return cls(**ranks, chief_ip=chief_ip or _known_chief())

    @classmethod
    def from_horovod(cls, hvd: Any, chief_ip: Optional[str] = None) -> DistributedContext:
        """From Horovod's module, such as horovod.torch, after its init() (ValueError before).

        `chief_ip` defaults to DET_CHIEF_IP.
        """
        if not hvd.is_initialized():
            raise ValueError("from_horovod(hvd) needs an initialized Horovod: call hvd.init() first.")
        ranks = {name: getattr(hvd, name)() for name in _RANKS}
        return cls(**ranks, chief_ip=chief_ip or os.environ.get("DET_CHIEF_IP"))

    @classmethod
    def from_tf_config(cls) -> Tuple[DistributedContext, Any]:
        """(context, TensorFlow's strategy) of the variable TF_CONFIG, which `launch.tensorflow` sets.

        Several workers make a MultiWorkerMirroredStrategy and a rank each; one with several GPUs a MirroredStrategy.
        RuntimeError for a task that is no worker.
        """
        import tensorflow as tf  # type: ignore[import-not-found, import-untyped, unused-ignore]

        ranks = worker_of(os.environ.get("TF_CONFIG"))
        if ranks is not None:
            return cls(**ranks), tf.distribute.MultiWorkerMirroredStrategy()
        several = len(tf.config.list_physical_devices("GPU")) > 1
        return single(), tf.distribute.MirroredStrategy() if several else tf.distribute.get_strategy()

    def get_rank(self) -> int:
        return self.rank

    def get_local_rank(self) -> int:
        return self.local_rank

    def get_size(self) -> int:
        return self.size

    def get_num_agents(self) -> int:
        return self.cross_size

    def gather(self, stuff: Any) -> Optional[List[Any]]:
        """All ranks call; the chief gets every rank's value in rank order, the others None."""
        if self.size == 1:
            return [stuff]
        with self._sign.collective():
            return self._need().gather(stuff)

    def allgather(self, stuff: Any) -> List[Any]:
        """All ranks call; each gets every rank's value in rank order."""
        if self.size == 1:
            return [stuff]
        with self._sign.collective():
            return self._need().allgather(stuff)

    def broadcast(self, stuff: Any) -> Any:
        """All ranks call; each gets the chief's value."""
        if self.size == 1:
            return stuff
        with self._sign.collective():
            return self._need().broadcast(stuff)

    def gather_local(self, stuff: Any) -> Optional[List[Any]]:
        """`gather` among the ranks of this host, to its local rank 0."""
        return self._need(local=True).gather(stuff) if self.local_size > 1 else [stuff]

    def allgather_local(self, stuff: Any) -> List[Any]:
        """`allgather` among the ranks of this host."""
        return self._need(local=True).allgather(stuff) if self.local_size > 1 else [stuff]

    def broadcast_local(self, stuff: Any = None) -> Any:
        """`broadcast` among the ranks of this host, from its local rank 0."""
        return self._need(local=True).broadcast(stuff) if self.local_size > 1 else stuff

    def close(self) -> None:
        """Leave the group; the other ranks may still finish what they have received."""
        self._sign.leave()
        if self._local_star is not None and self._local_star is not self._star:
            self._local_star.close()
        if self._star is not None:
            self._star.close()

    def _need(self, local: bool = False) -> Star:
        if local:
            self._sign.beat()
        star = self._local_star if local else self._star
        assert star is not None  # a group of more than one rank has joined its star
        return star

    def _join_locals(self, secret: bytes) -> Optional[Star]:
        """The star of this host: its chief takes a free loopback port and says so through the global star."""
        assert self._star is not None
        leads = self.local_rank == 0 and self.local_size > 1
        listener = listen((_LOOPBACK, 0), self.local_size) if leads else None
        own = (self.cross_rank, listener.getsockname()[1]) if listener else None
        ports = dict(place for place in self._star.allgather(own) if place is not None)
        if self.local_size == 1:
            return None
        if listener is not None:
            return Chief("local", self.local_size, listener, secret)
        return Worker(self.local_rank, self.local_size, (_LOOPBACK, ports[self.cross_rank]), secret)


def single() -> DistributedContext:
    """The context of a training with one worker."""
    return DistributedContext(rank=0, size=1, local_rank=0, local_size=1, cross_rank=0, cross_size=1)


def worker_of(tf_config: Optional[str]) -> Optional[Dict[str, Any]]:
    """The constructor's values for a TF_CONFIG: each worker is a rank on a host of its own.

    None without one, or with a single worker. RuntimeError for a task that is no worker.
    """
    if not tf_config:
        return None
    found = json.loads(tf_config)
    task, workers = found["task"], found["cluster"].get("worker", [])
    if task["type"] != "worker":
        raise RuntimeError(
            f"TF_CONFIG makes this task a {task['type']}: from_tf_config() only supports workers, as used by "
            "MultiWorkerMirroredStrategy."
        )
    if len(workers) < 2:
        return None
    rank, size = int(task["index"]), len(workers)
    chief = workers[0].rpartition(":")[0].strip("[]")
    each = {"rank": rank, "size": size, "local_rank": 0, "local_size": 1}
    return {**each, "cross_rank": rank, "cross_size": size, "chief_ip": chief}


def _from_variables(asked: str, names: Tuple[str, ...], module: str) -> Dict[str, Any]:
    """The six rank values from `names`, which are in the order of the constructor's."""
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise ValueError(
            f"{asked} needs variables that are not set: {', '.join(missing)}. "
            f"Start the script with `python3 -m {module}` or with the launcher that it uses."
        )
    return {field: int(os.environ[names[place]]) for place, field in enumerate(_RANKS)}


def _known_chief() -> Optional[str]:
    return os.environ.get("DET_CHIEF_IP") or os.environ.get("MASTER_ADDR")


def _checked(given: List[Optional[int]]) -> List[int]:
    values = [int(value) for value in given if value is not None]
    if not values:
        return [0, 1, 0, 1, 0, 1]
    if len(values) < len(given):
        raise ValueError(
            "Give either all of rank, size, local_rank, local_size, cross_rank and cross_size, or none."
        )
    for at in (0, 2, 4):  # each is followed by its size
        if not 0 <= values[at] < values[at + 1]:
            raise ValueError(f"{_RANKS[at]} is {values[at]}; it must be from 0 to {values[at + 1] - 1}.")
    return values


def _chief_address(context: DistributedContext, chief_ip: Optional[str]) -> str:
    if context.local_size == context.size or chief_ip is None:
        return _LOOPBACK
    if ":" in chief_ip:
        return chief_ip
    try:
        return socket.gethostbyname(chief_ip)
    except socket.gaierror:  # a name that has an IPv6 address alone
        return str(socket.getaddrinfo(chief_ip, None, socket.AF_INET6, socket.SOCK_STREAM)[0][4][0])


def _port(info: Optional[ClusterInfo], pub_port: int, offset: int) -> int:
    leased = info.ports.get("comm") if info and pub_port == DEFAULT_PORT else None
    if leased:
        return leased
    if pub_port == DEFAULT_PORT:
        named = os.environ.get("INTER_TRAIN_PROCESS_COMM_PORT_1")
        torchruns = os.environ.get("MASTER_PORT", "")
        if named:
            pub_port = int(named)
        elif info is None and torchruns.isdigit():  # one for each training that runs here meanwhile
            pub_port = _LOWEST_PORT + int(torchruns) % _PORTS
    return pub_port + offset


def _secret(info: Optional[ClusterInfo]) -> bytes:
    if info is not None:
        return info._secret.encode()
    named = os.environ.get(SECRET_VARIABLE)
    secret = named.encode() if named else _own_secret()
    return hmac.new(secret, _name_of_launch(), hashlib.sha256).digest()


def _name_of_launch() -> bytes:
    """What torchrun says of this start of it, so that no worker takes another training's chief for its own."""
    return "|".join(os.environ.get(name, "") for name in _NAMES_OF_LAUNCH).encode()


def _own_secret() -> bytes:
    """A secret of this user's, made once: whoever can read this file may already act as the user."""
    path = Path.home() / ".trainmaster" / "gang.key"
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = path.with_name(f".gang.key.{secrets.token_hex(8)}")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(descriptor, secrets.token_hex(32).encode())
            os.close(descriptor)
            os.link(beside, path)  # the first of several ranks wins
        except FileExistsError:
            pass
        finally:
            beside.unlink()
    return path.read_bytes()

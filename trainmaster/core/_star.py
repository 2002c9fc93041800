"""Collectives of a group of processes: a star around rank 0, the chief.

All members must make the same calls in the same order. Losing a member is an error on every other member
that names it: at once when its process ends, within about 40 seconds when its host vanishes; never a hang.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import pickle
import random
import socket
import threading
import time
from collections import deque
from typing import Any, Deque, Dict, List, Optional, Tuple, Union

from trainmaster.core._wire import Closed, NotAPeer, Wire, accept_worker, greet_chief, watch

logger = logging.getLogger("trainmaster.core")

# Until all members have met: they may start apart, a gang's hosts unpack code and import torch.
START_SECONDS = 600.0
_HANDSHAKE_SECONDS = 5.0
_GOODBYE_SECONDS = 5.0
_QUEUED_FRAMES = 64  # per worker at the chief; one that runs ahead then waits
_UNREACHABLE = (ConnectionRefusedError, ConnectionResetError, TimeoutError, socket.timeout)

_CALL, _LOST, _GOODBYE = 0, 1, 2


class PeerLost(RuntimeError):
    """Another rank of the group has ended; the message names it."""


def _pack(kind: int, name: str, value: Any) -> bytes:
    return pickle.dumps((kind, name, value), protocol=pickle.HIGHEST_PROTOCOL)


def _lost(rank: int, worker: _Worker, how: str) -> str:
    return f"Rank {rank} ({worker.where}) was lost: {how}."


def _out_of_step(calls: str) -> RuntimeError:
    return RuntimeError(
        f"The ranks are out of step: {calls}. "
        "Every rank must make the same collective calls in the same order."
    )


class _Worker:
    """The chief's end of one worker: what it has sent and how it went."""

    def __init__(self, wire: Wire, where: str) -> None:
        self.wire = wire
        self.where = where
        self.frames: Deque[Tuple[str, Any]] = deque()
        self.lost: Optional[str] = None  # how it ended
        self.said_goodbye = False


class _Side:
    """Counts this rank's calls, in which all ranks must agree."""

    _calls = 0
    _closed = False

    def _next(self, operation: str) -> str:
        if self._closed:
            raise RuntimeError(f"{operation}() was called after the distributed context was closed.")
        self._calls += 1
        return f"{operation} (call {self._calls})"


class Chief(_Side):
    """Rank 0's side of the star."""

    def __init__(self, name: str, size: int, listener: socket.socket, secret: bytes) -> None:
        self._name = name
        self._size = size
        self._news = threading.Condition()
        self._workers: Dict[int, _Worker] = {}
        self._first_lost: Optional[str] = None
        try:
            self._meet(listener, secret)
        finally:
            listener.close()
        self._readers = [
            threading.Thread(target=self._read, args=(rank, worker), name=f"{name} rank {rank}", daemon=True)
            for rank, worker in self._workers.items()
        ]
        for reader in self._readers:
            reader.start()

    def gather(self, value: Any) -> Optional[List[Any]]:
        return self._collect(self._next("gather"), value)

    def broadcast(self, value: Any) -> Any:
        self._send_to_all(self._next("broadcast"), value)
        return value

    def allgather(self, value: Any) -> List[Any]:
        call = self._next("allgather")
        values = self._collect(call, value)
        self._send_to_all(call, values)
        return values

    def close(self) -> None:
        """Say goodbye; what was sent still arrives."""
        if self._closed:
            return
        self._closed = True
        for worker in self._workers.values():
            with contextlib.suppress(Closed):
                worker.wire.send(_pack(_GOODBYE, "", None), wait_seconds=_GOODBYE_SECONDS)
            worker.wire.shutdown()
        until = time.monotonic() + _GOODBYE_SECONDS
        for reader in self._readers:  # reading to the end: closing before would tear down what is on its way
            reader.join(max(0.0, until - time.monotonic()))
        for worker in self._workers.values():
            worker.wire.close()

    def _meet(self, listener: socket.socket, secret: bytes) -> None:
        until = time.monotonic() + START_SECONDS
        refused = ""
        while len(self._workers) < self._size - 1:
            listener.settimeout(max(0.01, until - time.monotonic()))
            try:
                sock, address = listener.accept()
            except socket.timeout:
                missing = [str(rank) for rank in range(1, self._size) if rank not in self._workers]
                raise PeerLost(
                    f"Of the {self._size} ranks of the {self._name} group, these did not join within "
                    f"{START_SECONDS:.0f} s: {', '.join(missing)}.{refused}"
                ) from None
            try:
                self._welcome(sock, str(address[0]), secret)
            except (Closed, NotAPeer) as error:
                refused = f" A connection from {address[0]} was refused: {error}."
                logger.warning("A connection from %s is refused: %s.", address[0], error)
                sock.close()

    def _welcome(self, sock: socket.socket, where: str, secret: bytes) -> None:
        sock.settimeout(_HANDSHAKE_SECONDS)
        wire, rank, size = accept_worker(sock, secret)
        if size != self._size or not 0 < rank < self._size:
            raise NotAPeer(f"it is rank {rank} of {size}, but this group has {self._size}")
        if rank in self._workers:
            raise NotAPeer(f"rank {rank} has already joined")
        sock.settimeout(None)
        watch(sock)
        self._workers[rank] = _Worker(wire, where)

    def _read(self, rank: int, worker: _Worker) -> None:
        """Take what the worker sends until it ends; then tell the others, who may be waiting for it."""
        try:
            while True:
                kind, name, value = pickle.loads(worker.wire.receive())
                with self._news:
                    if kind == _GOODBYE:
                        worker.said_goodbye = True
                    else:
                        worker.frames.append((name, value))
                    self._news.notify_all()
                    while len(worker.frames) >= _QUEUED_FRAMES:
                        self._news.wait()
        except (Closed, NotAPeer) as error:
            how = "it had left the group" if worker.said_goodbye else str(error)
        except Exception as error:  # its message cannot be unpickled here
            how = f"its message cannot be read: {error!r}"
        with self._news:
            worker.lost = how
            unexpected = not worker.said_goodbye and not self._closed
            if unexpected and self._first_lost is None:
                self._first_lost = _lost(rank, worker, how)
            self._news.notify_all()
        if unexpected:
            self._tell_all(self._first_lost or "")

    def _tell_all(self, text: str) -> None:
        for worker in self._workers.values():
            if worker.lost is None:
                with contextlib.suppress(Closed):
                    worker.wire.send(_pack(_LOST, "", text), wait_seconds=1.0)

    def _collect(self, call: str, own: Any) -> List[Any]:
        return [own, *(self._take(rank, call) for rank in range(1, self._size))]

    def _take(self, rank: int, call: str) -> Any:
        worker = self._workers[rank]
        with self._news:
            while not worker.frames:
                lost = self._why_vain(rank)
                if lost:
                    raise PeerLost(f"{call} cannot be completed. {lost}")
                self._news.wait()
            name, value = worker.frames.popleft()
            self._news.notify_all()
        if name != call:
            error = _out_of_step(f"rank {rank} called {name} while rank 0 called {call}")
            self._tell_all(str(error))
            raise error
        return value

    def _why_vain(self, awaited: int) -> Optional[str]:
        """What makes waiting for a rank vain: any rank that ended without a goodbye, or its own departure."""
        if self._first_lost is not None:  # the others that end after it are its consequence
            return self._first_lost
        worker = self._workers[awaited]
        return _lost(awaited, worker, worker.lost) if worker.lost is not None else None

    def _send_to_all(self, call: str, value: Any) -> None:
        payload = _pack(_CALL, call, value)
        for rank, worker in self._workers.items():
            try:
                worker.wire.send(payload)
            except Closed as error:
                lost = self._first_lost or _lost(rank, worker, str(error))
                raise PeerLost(f"{call} cannot be completed. {lost}") from None


class Worker(_Side):
    """The side of every other rank."""

    def __init__(self, rank: int, size: int, address: Tuple[str, int], secret: bytes) -> None:
        self._where = f"{address[0]}:{address[1]}"
        self._wire = self._join(rank, size, address, secret)

    def gather(self, value: Any) -> Optional[List[Any]]:
        self._send(self._next("gather"), value)
        return None

    def broadcast(self, value: Any) -> Any:
        return self._receive(self._next("broadcast"))

    def allgather(self, value: Any) -> List[Any]:
        call = self._next("allgather")
        self._send(call, value)
        values: List[Any] = self._receive(call)
        return values

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(Closed):
            self._wire.send(_pack(_GOODBYE, "", None))
        self._wire.close()

    def _join(self, rank: int, size: int, address: Tuple[str, int], secret: bytes) -> Wire:
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                sock = socket.create_connection(address, timeout=_HANDSHAKE_SECONDS)
            except OSError as error:
                if time.monotonic() > until:
                    raise PeerLost(
                        f"Rank 0 cannot be reached at {self._where} within {START_SECONDS:.0f} s: {error}."
                    ) from None
                time.sleep(random.uniform(0.02, 0.1) if isinstance(error, _UNREACHABLE) else 0.5)
                continue
            try:
                wire = greet_chief(sock, secret, rank, size)
            except (NotAPeer, Closed) as error:
                sock.close()
                # Closed: the chief was busy with a connection that said nothing, or is not ready yet.
                if isinstance(error, NotAPeer) or time.monotonic() > until:
                    raise PeerLost(f"Rank 0 at {self._where} cannot be joined: {error}.") from None
                continue
            sock.settimeout(None)
            watch(sock)
            return wire

    def _send(self, call: str, value: Any) -> None:
        try:
            self._wire.send(_pack(_CALL, call, value))
        except Closed as error:
            raise PeerLost(f"{call} cannot be completed. {self._farewell(str(error))}") from None

    def _farewell(self, how: str) -> str:
        """The chief's last words, if any: it may name the rank that was lost before it ended itself."""
        with contextlib.suppress(Closed, NotAPeer):
            kind, _, value = pickle.loads(self._wire.receive())
            if kind == _LOST:
                return str(value)
        return f"Rank 0 ({self._where}) was lost: {how}."

    def _receive(self, call: str) -> Any:
        try:
            kind, name, value = pickle.loads(self._wire.receive())
        except (Closed, NotAPeer) as error:
            raise PeerLost(f"{call} cannot be completed. Rank 0 ({self._where}) was lost: {error}.") from None
        if kind == _LOST:
            raise PeerLost(f"{call} cannot be completed. {value}")
        if kind == _GOODBYE:
            raise PeerLost(f"{call} cannot be completed. Rank 0 ({self._where}) has left the group.")
        if name != call:
            raise _out_of_step(f"rank 0 called {name} while this rank called {call}")
        return value


Star = Union[Chief, Worker]


def join(name: str, rank: int, size: int, address: Tuple[str, int], secret: bytes) -> Star:
    """This rank's side of the group `name`, whose chief listens on `address`."""
    if rank == 0:
        return Chief(name, size, listen(address, size), secret)
    return Worker(rank, size, address, secret)


def listen(address: Tuple[str, int], backlog: int) -> socket.socket:
    """A listening socket on this address alone; OSError with a sentence when it is not to be had."""
    sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        try:
            sock.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            # The peers reach this host by an address that is translated on the way: the secret still guards
            # the port.
            logger.warning("%s is not an address of this host; rank 0 listens on all addresses.", address[0])
            sock.bind(("::" if ":" in address[0] else "0.0.0.0", address[1]))
        sock.listen(max(16, backlog))
    except OSError as error:
        sock.close()
        raise OSError(
            error.errno,
            f"Rank 0 cannot listen on {address[0]} port {address[1]} for its peers: {error.strerror}",
        ) from error
    return sock

"""This host's part of a Horovod gang over several hosts, without horovodrun and its SSH.

`python3 -m trainmaster.launch.gloo_ranks MEMBER PORT ADDRESS:SLOTS... -- COMMAND...`

Each host of the run starts its own ranks with the variables that Horovod's gloo controller reads, so that they belong
to the run there. The first host keeps the store in which the ranks find each other: on the gang's address alone, and
like Horovod's own without a password, for it holds addresses and nothing else.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Dict, List, Optional, Sequence, Tuple

_MOST_BYTES = 1024 * 1024


class _Store(BaseHTTPRequestHandler):
    """PUT, GET and DELETE of /scope/key."""

    values: Dict[str, bytes] = {}

    def do_PUT(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        if size > _MOST_BYTES:
            self._answer(413)
            return
        self.values[self.path] = self.rfile.read(size)
        self._answer(200)

    def do_GET(self) -> None:
        value = self.values.get(self.path)
        self._answer(404 if value is None else 200, value or b"")

    def do_DELETE(self) -> None:
        """Said by each rank once it has met the others; late ones may still need what is here."""
        self._answer(200)

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


class _Server6(ThreadingHTTPServer):
    address_family = socket.AF_INET6


def serve_store(address: str, port: int) -> ThreadingHTTPServer:
    """Answer there until the process ends; OSError when the port is taken."""
    server = (_Server6 if ":" in address else ThreadingHTTPServer)((address, port), _Store)
    threading.Thread(target=server.serve_forever, name="rendezvous", daemon=True).start()
    return server


def rank_variables(
    hosts: Sequence[Tuple[str, int]], member: int, local: int, port: int, interface: Optional[str]
) -> Dict[str, str]:
    """What Horovod reads in a rank: `hosts` are (address, slots), in the gang's order."""
    slots = hosts[member][1]
    numbers = {
        "RANK": sum(count for _, count in hosts[:member]) + local,
        "SIZE": sum(count for _, count in hosts),
        "LOCAL_RANK": local,
        "LOCAL_SIZE": slots,
        "CROSS_RANK": sum(count > local for _, count in hosts[:member]),
        "CROSS_SIZE": sum(count > local for _, count in hosts),
        "GLOO_RENDEZVOUS_PORT": port,
    }
    found = {f"HOROVOD_{name}": str(number) for name, number in numbers.items()}
    found["HOROVOD_HOSTNAME"] = hosts[member][0]
    found["HOROVOD_GLOO_RENDEZVOUS_ADDR"] = hosts[0][0]
    found["HOROVOD_CONTROLLER"] = found["HOROVOD_CPU_OPERATIONS"] = "gloo"
    if interface:
        found["HOROVOD_GLOO_IFACE"] = interface
    return found


def main(arguments: Optional[List[str]] = None) -> int:
    """Returns the first exit code that is not 0; who started this ends the other ranks then."""
    words = sys.argv[1:] if arguments is None else arguments
    cut = words.index("--")
    member, port = int(words[0]), int(words[1])
    hosts = [(word.rpartition(":")[0], int(word.rpartition(":")[2])) for word in words[2:cut]]
    if member == 0:
        serve_store(hosts[0][0], port)
    interface = os.environ.get("GLOO_SOCKET_IFNAME")
    ranks = []
    for local in range(hosts[member][1]):
        variables = rank_variables(hosts, member, local, port, interface)
        ranks.append(subprocess.Popen(words[cut + 1 :], env={**os.environ, **variables}))
    codes = [rank.wait() for rank in ranks]
    return next((code if code > 0 else 128 - code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())

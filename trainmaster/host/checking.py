"""`check`: which of the server's URLs and which peers' ports this host reaches."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Optional, Tuple

from trainmaster.http import HttpError, ServerClient
from trainmaster.paths import Workdir

_SECONDS = 3.0
_AT_ONCE = 16


def check(request: Dict[str, Any], workdir: Workdir) -> Dict[str, Any]:
    """{"connect": [{address, port, ok, error}], "urls": [{url, ok, answer, error}]}, in the order asked.

    `answer` is what the URL said to the nonce, at most 500 characters: the server alone can tell if it is right.
    """
    nonce, pin = str(request.get("nonce", "")), request.get("cert_sha256")
    targets = [(str(address), int(port)) for address, port in request.get("connect", [])]
    urls = [str(url) for url in request.get("urls", [])]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        dialled = pool.map(_dial, targets)
        asked = pool.map(lambda url: _ask(url, nonce, pin), urls)
        return {"connect": list(dialled), "urls": list(asked)}


def _dial(target: Tuple[str, int]) -> Dict[str, Any]:
    address, port = target
    answer: Dict[str, Any] = {"address": address, "port": port, "ok": True, "error": None}
    try:
        socket.create_connection(target, timeout=_SECONDS).close()
    except OSError as error:
        answer.update(ok=False, error=str(error))
    return answer


def _ask(url: str, nonce: str, pin: Optional[str]) -> Dict[str, Any]:
    answer: Dict[str, Any] = {"url": url, "ok": True, "answer": None, "error": None}
    try:
        with ServerClient(url, cert_sha256=pin, timeout=_SECONDS) as client:
            reply = client.get("/runner/v1/nonce", query={"value": nonce})
            answer["answer"] = reply.body.decode("utf-8", "replace").strip()[:500]
    except (HttpError, ValueError) as error:
        answer.update(ok=False, error=str(error))
    return answer

"""Clients of the REST dialect for tests."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

from django.test import Client

Json = dict[str, Any]

CONFIG = """
name: digits
entrypoint: python3 train.py
searcher: {name: single, metric: loss, max_length: {batches: 10}}
hyperparameters: {lr: 0.1}
resources: {slots_per_trial: 1}
"""


class Api:
    """A client of the REST dialect, as one person or as nobody."""

    def __init__(self, token: str = "", raise_errors: bool = True) -> None:
        self.client = Client(raise_request_exception=raise_errors, enforce_csrf_checks=True)
        self.headers = {"authorization": f"Bearer {token}"} if token else {}

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status and JSON of the answer."""
        data = b"" if body is None else json.dumps(body).encode()
        url = path if path.startswith("/") else f"/api/v1/{path}"
        answer = self.client.generic(method, url, data, headers={**self.headers, **headers})
        return answer.status_code, json.loads(answer.content or b"null")

    def get(self, path: str) -> Json:
        """The answer, which must be a success."""
        return self._good("GET", path)

    def post(self, path: str, body: Any = None, **headers: str) -> Json:
        return self._good("POST", path, body, **headers)

    def patch(self, path: str, body: Any) -> Json:
        return self._good("PATCH", path, body)

    def put(self, path: str, body: Any = None) -> Json:
        return self._good("PUT", path, body)

    def delete(self, path: str, body: Any = None) -> Json:
        return self._good("DELETE", path, body)

    def _good(self, method: str, path: str, body: Any = None, **headers: str) -> Json:
        status, answer = self.send(method, path, body, **headers)
        assert status in {200, 202}, f"{method} {path}: {status} {answer}"
        return dict(answer)

    def refused(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """Status and sentence of an answer that must be an error in the dialect's form."""
        status, answer = self.send(method, path, body)
        assert status >= 400, f"{method} {path}: {status} {answer}"
        assert answer["error"]["code"] == status
        assert answer["error"]["error"] == answer["message"]
        return status, str(answer["message"])


@dataclass
class Cast:
    admin: Api
    ada: Api
    bob: Api
    vic: Api
    stranger: Api


def uploaded(path: str, content: bytes | str = b"", **more: Any) -> Json:
    """One file as the published client sends it."""
    raw = content.encode() if isinstance(content, str) else content
    return {
        "path": path, "type": 48, "content": base64.b64encode(raw).decode(), "mtime": "1700000000", "mode": 420,
        "uid": 0, "gid": 0, **more,
    }  # fmt: skip

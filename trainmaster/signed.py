"""Requests to addresses that the server signed: to another server than ours, without our token.

Errors are those of trainmaster.http. No message has the address: whoever knows it may do what it allows.
"""

from __future__ import annotations

import http.client
import json
import ssl
from contextlib import contextmanager
from typing import IO, Dict, Iterator, Mapping, Optional, Union
from urllib.parse import urlsplit

from trainmaster.http import Answered, Later, Unreachable, reason_of
from trainmaster.storage_faults import is_of_file

_SHOWN_BYTES = 2000


class StorageUnreachable(Unreachable):
    """The other server cannot be reached; ours may well be."""


@contextmanager
def opened(
    method: str,
    url: str,
    body: Union[bytes, IO[bytes], None] = None,
    *,
    headers: Optional[Mapping[str, str]] = None,
    timeout: float = 60.0,
) -> Iterator[http.client.HTTPResponse]:
    """The answer, to be read. Raises StorageUnreachable, Later (429, 5xx) or Answered: `of_storage`, says the body."""
    parts = urlsplit(url)
    where = f"{parts.scheme}://{parts.netloc}"
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(
            parts.hostname or "", parts.port, timeout=timeout, context=ssl.create_default_context()
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
    try:
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        sent: Dict[str, str] = dict(headers or {})
        connection.request(method, target, body=body, headers=sent)
        response = connection.getresponse()
        if response.status >= 400:
            raise _error(where, method, response)
        yield response
    except (OSError, http.client.HTTPException) as error:
        if is_of_file(error):
            raise
        raise StorageUnreachable(f"{where} cannot be reached: {reason_of(error)}.") from error
    finally:
        connection.close()


def _error(where: str, method: str, response: http.client.HTTPResponse) -> Answered:
    text = response.read(_SHOWN_BYTES).decode("utf-8", "replace")
    code = _between(text, "<Code>", "</Code>") or response.reason
    body = {"message": f"{where} refused {method}: {response.status} {code}.", "of_storage": True}
    kind = Later if response.status >= 500 or response.status == 429 else Answered
    return kind(response.status, body, json.dumps(body))


def _between(text: str, before: str, after: str) -> str:
    return text.partition(before)[2].partition(after)[0]

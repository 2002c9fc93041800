"""A real S3 server on this machine (moto's), and a bucket in it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

KEYS = {"access_key": "AKIATRAINMASTER", "secret_key": "a-secret-key-of-the-bucket"}


@dataclass(frozen=True)
class Bucket:
    url: str
    client: Any
    name: str = "checkpoints"

    def section(self, **more: Any) -> dict[str, Any]:
        return {"type": "s3", "bucket": self.name, "endpoint_url": self.url, "prefix": "team/a", **more}

    def names(self) -> list[str]:
        found = self.client.list_objects_v2(Bucket=self.name).get("Contents") or []
        return sorted(each["Key"] for each in found)


@contextmanager
def s3_server(address: str = "127.0.0.1") -> Iterator[Bucket]:
    import botocore.session
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address=address, port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        session = botocore.session.Session()
        session.set_credentials(*KEYS.values())
        bucket = Bucket(url, session.create_client("s3", region_name="us-east-1", endpoint_url=url))
        bucket.client.create_bucket(Bucket=bucket.name)
        yield bucket
    finally:
        server.stop()

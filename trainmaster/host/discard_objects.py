"""The part of `discard` that needs the job's own Python, with its boto3, gcsfs or adlfs: the request on stdin."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> int:
    """Exit code 1 with a sentence on stderr when it cannot be done."""
    from trainmaster.core._object_storage import object_storage

    request = json.load(sys.stdin)
    try:
        storage = object_storage(request["storage"], Path(), str(request.get("host")))
        storage.discard(request["uuid"], request.get("paths"))
    except OSError as error:
        sys.stderr.write(f"{error}.\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

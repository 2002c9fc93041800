"""`manage.py shell -c CODE` over a server's database, run by a process that has set up Django for that server."""

from __future__ import annotations

import sys
from typing import Any


def _become(given: dict[str, Any]) -> int:
    exec(given["code"], {"__name__": "__console__"})
    return 0


if __name__ == "__main__":
    import os

    import django

    from tests.rig import forks

    os.environ["DJANGO_SETTINGS_MODULE"] = "webui.settings"
    django.setup()
    forks.serve(int(sys.argv[1]), _become)

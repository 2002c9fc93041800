#!/usr/bin/env python3
"""Django's command line for Trainmaster; `./manage.py up` serves everything."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(ROOT / "queue")]  # also without `pip install -e .`


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webui.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()

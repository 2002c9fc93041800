#!/usr/bin/env python3
"""Django's command line for Trainmaster; `./manage.py up` serves everything."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(ROOT / "queue")]  # also without `pip install -e .`


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webui.settings")
    if sys.argv[1:2] == ["up"]:  # it only starts processes and watches them: models would double its memory
        from embedded.management.commands.up import Command

        return Command().run_from_argv(sys.argv)
    from django.core.management import execute_from_command_line

    return execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()

"""queue/ is a folder on the import path. An __init__.py there would hide the standard library's queue."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_queue_is_a_folder_not_a_package() -> None:
    assert not (ROOT / "queue" / "__init__.py").exists()


def test_the_standard_queue_is_importable_from_the_root() -> None:
    subprocess.run([sys.executable, "-c", "import queue; queue.Queue"], cwd=ROOT, check=True)


def test_no_package_hides_a_room_from_the_tests() -> None:
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_the_command_line_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "trainmaster", "--version"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("trainmaster ")

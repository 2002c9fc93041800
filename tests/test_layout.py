"""What the layout of the tree must hold: queue/ is a folder, packages hide no room, programs define what they call."""

import ast
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


def test_a_module_that_is_run_defines_everything_before_it_begins() -> None:
    """What stands below `if __name__ == "__main__"` does not exist yet when the program runs."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, text=True, capture_output=True, check=True)
    below = [
        f"{name}:{statement.lineno}"
        for name in listed.stdout.split()
        for statement in ast.parse((ROOT / name).read_text()).body[:-1]
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "__name__ == '__main__'"
    ]
    assert not below

"""`task pulse` and `task stack` on the whole server with a host that is this machine."""

from __future__ import annotations

import json
from pathlib import Path

from tests.rig import pace
from tests.trainmaster.cli.conftest import CommandLine

PROGRAM = """
import threading
def waits_for_data():
    threading.Event().wait(300)
print("ready", flush=True)
waits_for_data()
"""


def test_the_pulse_is_a_table_and_a_stack_says_what_a_rank_is_doing(
    local_host: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    command_id = local_host(
        "command", "run", "-d", "-c", str(tmp_path), "--", "python3", "train.py"
    ).stdout.strip()
    listed: list[dict[str, str]] = []

    def runs() -> bool:
        listed[:] = json.loads(local_host("task", "list", "--json").stdout)
        return bool(listed)

    assert pace.wait_until(runs, 60)
    task_id = listed[-1]["taskId"]

    def beats() -> bool:
        return bool(json.loads(local_host("task", "pulse", task_id, "--json").stdout or "[]"))

    try:
        assert pace.wait_until(beats, 60)
        shown = local_host("task", "pulse", task_id).stdout.splitlines()
        assert [word.strip() for word in shown[0].split("|")][:3] == ["Rank", "Host", "Step"]
        assert [word.strip() for word in shown[2].split("|")][:2] == ["0", "local"]
        unnamed = local_host("task", "stack", task_id)
        assert unnamed.returncode != 0 and "No rank is marked: choose one with --rank (0)" in unnamed.stderr
        assert "No hang of it was found" in local_host("task", "hangs", task_id).stderr
        named = local_host("task", "stack", task_id, "--rank", "0")
        assert named.stdout.startswith("rank 0 on local: process ") and "in waits_for_data" in named.stdout
        (answer,) = local_host("task", "stack", task_id, "--all", "--json").stdout.splitlines()
        assert "in waits_for_data" in json.loads(answer)["text"]
    finally:
        local_host("command", "kill", command_id)
    assert pace.wait_until(lambda: not beats(), 60)
    over = local_host("task", "stack", task_id, "--rank", "0")
    assert over.returncode != 0 and "is not running" in over.stderr
    nobody = local_host("task", "stack", task_id, "--all")
    assert nobody.returncode != 0 and "No rank is running now" in nobody.stderr

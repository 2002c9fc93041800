"""The last wait of a detached run: as long as anything moves, and no longer."""

import threading
from pathlib import Path

import pytest

from trainmaster.experimental.core_v2 import _farewell
from trainmaster.jsonfile import write_json
from trainmaster.paths import RunPaths


def test_records_that_go_on_do_not_keep_waiting_for_a_checkpoint_that_does_not_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_farewell, "STUCK_SECONDS", 0.3)
    paths = RunPaths(tmp_path)
    paths.spool.mkdir()
    write_json(paths.spec, {})
    write_json(paths.uploads, {"waiting": [{"uuid": "c", "resources": {"w": 1536}}], "done": []})
    over = threading.Event()

    def ship() -> None:
        offset = 0
        while not over.wait(0.02):
            offset += 100
            write_json(paths.shipped, {"offset": offset, "finished": False, "refused": None})

    samples = threading.Thread(target=ship)
    samples.start()
    _farewell.Farewell(paths).wait()
    over.set()
    samples.join()
    assert "Not sent yet: 1 checkpoint (1.5 KiB)" in capsys.readouterr().err

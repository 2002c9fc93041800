"""The beat by itself, without a worker around it, over a Redis of its own whose messages nobody takes."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import redis

from tests.rig import pace, parts
from tests.rig.stepped_clock import SteppedClocks
from tests.rig.web import ROOT

BEAT = [
    "-c",
    "import webui.celery, django; django.setup(); from dispatch.watching.beat import Beat; Beat().run()",
]


@pytest.mark.chaos
@pytest.mark.survive(10)
@pytest.mark.parametrize("seconds", [900, -900])
def test_a_clock_that_is_set_and_set_right_again_stops_nothing(tmp_path: Path, seconds: int) -> None:
    try:
        clocks = SteppedClocks(tmp_path)
    except RuntimeError as error:
        pytest.skip(str(error))
    with parts.private_folder("redis") as path, parts.running_redis(path) as server:
        variables = {
            **os.environ,
            **clocks.of_server(),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "queue")]),
            "DJANGO_SETTINGS_MODULE": "webui.settings",
            "REDIS_URL": server.url(),
            "DATABASE_URL": "postgresql://nobody@127.0.0.1:9/nothing",
            "TRAINMASTER_DATABASE_WAIT_SECONDS": "0.1",
            "TRAINMASTER_SECRET_KEY": "tests",
            "TRAINMASTER_DATA_DIR": str(tmp_path),
        }
        log = tmp_path / "beat.log"
        with log.open("wb") as file:
            beat = subprocess.Popen(
                [sys.executable, *BEAT], env=variables, cwd=ROOT, stdout=file, stderr=file
            )
        try:
            with closing(redis.Redis.from_url(server.url())) as broker:
                wait_for_more(broker, log)
                for wrong in (seconds, 0):
                    clocks.step("beat", wrong)
                    wait_for_more(broker, log)
        finally:
            parts.end(beat, signal.SIGKILL)


def wait_for_more(broker: "redis.Redis", log: Path) -> None:
    """Until the beat has sent as much as it sends in seconds."""
    before = int(str(broker.llen("trainmaster")))
    more = pace.wait_until(lambda: int(str(broker.llen("trainmaster"))) > before + 4, 60)
    assert more, log.read_text()[-2000:]

"""Commands before and after the entrypoint, as a config's `environment.hooks` names them."""

from __future__ import annotations

from pathlib import Path

from tests.trainmaster.conftest import TestHost, wait_until
from tests.trainmaster.stream_server import StreamServer
from trainmaster.processes import of_run


def hooks(**given: object) -> dict[str, object]:
    return {"pre": None, "post": None, "timeout_seconds": 60, **given}


def said(stream_server: StreamServer) -> list[str]:
    """What Trainmaster itself says in the log, without its times."""
    lines = stream_server.texts("launcher.stderr")
    own = [line.partition("trainmaster: ")[2] for line in lines if "trainmaster: " in line]
    return [line.partition(" after ")[0].rstrip(".") for line in own]


def test_hooks_run_around_the_entrypoint_in_its_folder_and_environment(
    host: TestHost, stream_server: StreamServer, tmp_path: Path
) -> None:
    activate = tmp_path / "activate"
    activate.write_text("export ACTIVE=yes\n")
    both = hooks(
        pre="echo pre $ACTIVE $(basename $PWD) $TOLD",
        post=["sh", "-c", "echo post $ACTIVE $TRAINMASTER_EXIT_CODE"],
    )
    host.launch("echo works; exit 4", {}, activate=str(activate), environment={"TOLD": "it"}, hooks=both)
    assert stream_server.wait_for(stream_server.exit)["code"] == 4
    assert stream_server.texts("launcher.stdout") == ["pre yes code it", "works", "post yes 4"]
    assert said(stream_server) == [
        "the pre hook starts", "the pre hook finished", "the post hook starts", "the post hook finished",
    ]  # fmt: skip


def test_a_pre_hook_that_fails_is_the_end_of_the_run_and_the_post_hook_still_cleans_up(
    host: TestHost, stream_server: StreamServer
) -> None:
    host.launch(["touch", "started"], {}, hooks=hooks(pre="exit 9", post="echo cleaned up; exit 3"))
    record = stream_server.wait_for(stream_server.exit)
    told = "the pre hook ended with exit code 9; the entrypoint was not started"
    assert (record["code"], record["hook_fault"]) == (9, told)
    assert stream_server.texts("launcher.stdout") == ["cleaned up"]
    assert said(stream_server) == [
        "the pre hook starts",
        "the pre hook ended with exit code 9; the entrypoint was not started",
        "the post hook starts",
        "the post hook ended with exit code 3; the result of the run is the entrypoint's",
    ]
    assert not list(host.workdir.runs.glob("*/code/started"))


def test_a_hook_that_takes_too_long_is_ended_with_all_that_it_started(
    host: TestHost, stream_server: StreamServer
) -> None:
    slow = hooks(pre="sleep 600 & sleep 600", timeout_seconds=0.2)
    paths, _ = host.launch(["touch", "started"], {}, hooks=slow)
    assert stream_server.wait_for(stream_server.exit)["code"] == 124
    assert (
        said(stream_server)[-1]
        == "the pre hook took longer than 0.2 s and was stopped; the entrypoint was not started"
    )
    wait_until(lambda: of_run(paths.key) == [])


def test_a_stop_leaves_the_post_hook_what_is_left_of_the_grace(
    host: TestHost, stream_server: StreamServer
) -> None:
    its_words = "tr '\\0' '\\n' < /proc/$PPID/cmdline"  # of what runs the hook, and ends it in time
    paths, _ = host.launch("echo up; exec sleep 600", {}, hooks=hooks(post=its_words, timeout_seconds=3600))
    wait_until(lambda: stream_server.texts("launcher.stdout") == ["up"])
    host.verb("stop", {"runs": {paths.key: {"grace_seconds": 120, "reason": "a test"}}})
    record = stream_server.wait_for(stream_server.exit, 60)
    assert (record["signal"], record["stopped"]) == (15, True)
    *_, which, seconds = stream_server.texts("launcher.stdout")
    assert which == "post" and 1 < float(seconds) <= 120
    wait_until(lambda: of_run(paths.key) == [])

"""The pages' socket, against a real web process and Redis."""

import contextlib
import json
import time

import pytest
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import connect

from accounts.models import LoginToken, User
from events.announce import announce
from experiments import metric_reports, reports
from tests.rig.web import Web
from tests.rig.world import make_host, submit_experiment, trial_of
from webui.live.page_topics import SAME_APART_SECONDS, topics_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def headers(db: None) -> dict[str, str]:
    return {"Authorization": f"Bearer {LoginToken.issue(User.objects.create_user('ann'))}"}


def test_a_page_hears_of_its_topics_alone_and_not_too_often(web: Web, headers: dict[str, str]) -> None:
    url = f"{web.socket_url}/ws/pages?topics=experiment:7,hosts"
    with connect(url, additional_headers=headers) as socket:
        heard: list[str] = []

        def listen(seconds: float) -> None:
            heard.extend(json.loads(socket.recv(timeout=seconds)).get("topics", [""]))

        begin = time.monotonic()
        while time.monotonic() - begin < 2 or heard.count("experiment:7") < 3:
            assert time.monotonic() - begin < 60
            announce("experiment:7")
            announce("experiment:8")
            with contextlib.suppress(TimeoutError):
                listen(0.02)
        assert set(heard) - {"", "hosts"} == {"experiment:7"}
        assert heard.count("hosts") <= 1  # a new reader wakes all: it cannot know what it missed
        seconds = time.monotonic() - begin
        assert heard.count("experiment:7") <= 2 + 4 * seconds  # four times a second, and the first at once
        announce("hosts")
        while heard[-1] != "hosts":
            listen(60)


def test_what_is_told_under_two_topics_is_one_frame_and_neither_waits_for_a_third(
    web: Web, headers: dict[str, str]
) -> None:
    url = f"{web.socket_url}/ws/pages?topics=experiment:7,pool:1,plan:1"
    with connect(url, additional_headers=headers) as socket:

        def is_quiet() -> bool:
            try:
                return "topics" not in json.loads(socket.recv(timeout=1.0))
            except TimeoutError:
                return True

        while not is_quiet():  # a new reader is woken at first
            pass
        waits = []
        for _ in range(5):
            announce("plan:1")
            assert json.loads(socket.recv(timeout=60))["topics"] == ["plan:1"]
            begin = time.monotonic()
            announce("experiment:7", "pool:1")
            assert json.loads(socket.recv(timeout=60))["topics"] == ["experiment:7", "pool:1"]
            waits.append(time.monotonic() - begin)
            while not is_quiet():
                pass
        assert min(waits) < SAME_APART_SECONDS / 2


def test_a_list_hears_how_far_and_how_good_experiments_are(web: Web, headers: dict[str, str]) -> None:
    make_host("gpu1", 1)
    experiment = submit_experiment()
    trial = trial_of(experiment)
    validation = {"group": "validation", "steps_completed": 1, "metrics": {"loss": 0.5}}
    with connect(f"{web.socket_url}/ws/pages?topics=progress", additional_headers=headers) as socket:

        def is_woken(seconds: float) -> bool:
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0:
                with contextlib.suppress(TimeoutError):
                    if "topics" in json.loads(socket.recv(timeout=left)):
                        return True
            return False

        while is_woken(1.0):  # a new reader is woken at first
            pass
        reports.progress_reported(experiment, trial, 0.5)
        assert is_woken(60.0)
        while is_woken(1.0):
            pass
        metric_reports.store(experiment, trial, [metric_reports.report_of(trial, validation)])
        assert is_woken(60.0)


def test_nothing_is_missed_after_the_first_word(web: Web, headers: dict[str, str]) -> None:
    for _ in range(5):
        with connect(f"{web.socket_url}/ws/pages?topics=hosts", additional_headers=headers) as socket:
            assert "topics" not in json.loads(socket.recv(timeout=60))
            announce("hosts")
            while json.loads(socket.recv(timeout=60)).get("topics") != ["hosts"]:
                pass


def test_a_ping_says_that_all_is_well(web: Web, headers: dict[str, str]) -> None:
    with connect(f"{web.socket_url}/ws/pages?topics=", additional_headers=headers) as socket:
        frame = json.loads(socket.recv(timeout=60))
        assert abs(frame["at"] - time.time()) < 60 and "topics" not in frame


def test_a_client_that_says_too_much_at_once_is_hung_up_on(web: Web, headers: dict[str, str]) -> None:
    with connect(f"{web.socket_url}/ws/pages?topics=", additional_headers=headers) as socket:
        socket.send("x" * 1_100_000)
        with pytest.raises(ConnectionClosedError, match="1009"):
            while True:
                socket.recv(timeout=60)


def test_only_topics_are_watched() -> None:
    assert topics_of(b"topics=hosts,experiment:7,pool:default,,<x>,a%20b,HOSTS") == [
        "experiment:7",
        "hosts",
        "pool:default",
    ]
    assert len(topics_of(b"topics=" + b",".join(b"experiment:%d" % i for i in range(500)))) == 100

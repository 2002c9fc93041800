"""What stands in front of Django: static files, and addresses that lead nowhere."""

import httpx
import pytest

from tests.rig.web import Web

pytestmark = pytest.mark.django_db(transaction=True)


def test_static_files_are_asked_for_again_and_mostly_unchanged(web: Web) -> None:
    for path in ("/static/css/base.css", "/static/plotly/plotly.min.js", "/static/django_htmx/htmx-2.min.js"):
        first = httpx.get(web.url + path)
        assert first.status_code == 200 and first.headers["cache-control"] == "no-cache", path
        again = httpx.get(web.url + path, headers={"If-None-Match": first.headers["etag"]})
        assert again.status_code == 304


@pytest.mark.parametrize(
    "path", ["/static/", "/static/none.css", "/static/..%2f..%2fmanage.py", "/static/css"]
)
def test_nothing_but_static_files_is_served_as_such(web: Web, path: str) -> None:
    assert httpx.get(web.url + path).status_code == 404


def test_unknown_addresses_of_the_runner_get_a_sentence(web: Web) -> None:
    answer = httpx.get(f"{web.url}/runner/v1/nothing")
    assert answer.status_code == 404 and answer.json()["message"] == "There is nothing at /runner/v1/nothing."
    assert httpx.get(f"{web.url}/runner/v1/streams/a/0").status_code in {404, 405}


def test_the_server_starts_without_complaint(web: Web) -> None:
    log = (web.data_dir / "web.log").read_text()
    assert "Application startup complete" in log and "ERROR" not in log and "lifespan" not in log.lower()

"""What stands in front of Django: static files, and addresses that lead nowhere."""

import gzip
import os
import re
import subprocess
import sys

import httpx
import pytest

from tests.rig.web import ROOT, Web
from webui import collected

FACE = "/static/fonts/ibm-plex-sans-latin-wght-normal.woff2"

pytestmark = pytest.mark.django_db(transaction=True)


def test_static_files_are_asked_for_again_and_mostly_unchanged(web: Web) -> None:
    for path in (
        "/static/css/base.css",
        "/static/plotly/plotly-basic.min.js",
        "/static/django_htmx/htmx-2.min.js",
        FACE,
    ):
        first = httpx.get(web.url + path)
        assert first.status_code == 200 and first.headers["cache-control"] == "no-cache", path
        again = httpx.get(web.url + path, headers={"If-None-Match": first.headers["etag"]})
        assert again.status_code == 304


def test_pages_are_sent_compressed_and_rest_as_it_is(web: Web) -> None:
    page, rest = (httpx.get(web.url + path) for path in ("/login", "/api/v1/master"))
    assert page.headers["content-encoding"] == "gzip" and "Accept-Encoding" in page.headers["vary"]
    assert "content-encoding" not in rest.headers
    plain = httpx.get(web.url + "/login", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers and "<title>" in plain.text and "<title>" in page.text


@pytest.mark.parametrize(
    "path", ["/static/", "/static/none.css", "/static/..%2f..%2fmanage.py", "/static/css"]
)
def test_nothing_but_static_files_is_served_as_such(web: Web, path: str) -> None:
    assert httpx.get(web.url + path).status_code == 404


def test_pages_forbid_scripts_that_are_not_files_of_ours(web: Web) -> None:
    policy = dict(
        each.split(" ", 1)
        for each in httpx.get(f"{web.url}/login").headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'self'" and "script-src" not in policy
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"


def test_unknown_addresses_of_the_runner_get_a_sentence(web: Web) -> None:
    answer = httpx.get(f"{web.url}/runner/v1/nothing")
    assert answer.status_code == 404 and answer.json()["message"] == "There is nothing at /runner/v1/nothing."
    assert httpx.get(f"{web.url}/runner/v1/streams/a/0").status_code in {404, 405}


def test_the_server_starts_without_complaint(web: Web) -> None:
    log, started, _ = web.log().partition("Uvicorn running on")
    assert started and "Application startup complete" in log
    assert "ERROR" not in log and "lifespan" not in log.lower()


def test_collected_static_files_are_kept_by_browsers_and_sent_compressed(web: Web) -> None:
    variables = {**os.environ, "TRAINMASTER_DATA_DIR": str(web.data_dir)}
    collect = [sys.executable, "manage.py", "shell", "-c", "from webui import collected; collected.collect()"]
    subprocess.run(collect, cwd=ROOT, env=variables, check=True)
    named = re.search(r'"/static/([0-9a-f]{16})/css/base\.css"', httpx.get(f"{web.url}/login").text)
    assert named, "pages name the version"
    path = "plotly/plotly-basic.min.js"
    plain = httpx.get(f"{web.url}/static/{named[1]}/{path}", headers={"Accept-Encoding": "br;q=0"})
    assert "immutable" in plain.headers["cache-control"] and "content-encoding" not in plain.headers
    made = ROOT / f"build/assets/{path}.br"  # at set-up, where npm has brought the file
    for offered, coding in (("gzip, deflate, br, zstd", "br"), ("gzip, br;q=0", "gzip")):
        if coding == "br" and not made.exists():
            continue
        with httpx.stream("GET", plain.url, headers={"Accept-Encoding": offered}) as answer:
            raw = b"".join(answer.iter_raw())
            assert (
                answer.headers["content-encoding"] == coding and answer.headers["vary"] == "Accept-Encoding"
            )
            assert answer.headers["content-type"] == plain.headers["content-type"]
        assert raw == made.read_bytes() if coding == "br" else gzip.decompress(raw) == plain.content
    for other in ("0123456789abcdef/", ""):  # of another version, or none: what is here now, asked for again
        answer = httpx.get(f"{web.url}/static/{other}{path}", headers={"Accept-Encoding": ""})
        assert answer.content == plain.content and answer.headers["cache-control"] == "no-cache"

    answer = httpx.get(f"{web.url}/static/{named[1]}/js/metrics/page.js")
    if collected.is_packed_of_these():
        assert answer.content == (ROOT / "build/assets/packed/js/metrics/page.js").read_bytes()
        assert b"./curves.js" not in answer.content
    else:
        assert answer.content == (ROOT / "static/js/metrics/page.js").read_bytes()

    before = sorted((each, each.stat().st_mtime_ns) for each in (web.data_dir / "static").rglob("*.gz"))
    subprocess.run(collect, cwd=ROOT, env=variables, check=True)
    assert before == sorted(
        (each, each.stat().st_mtime_ns) for each in (web.data_dir / "static").rglob("*.gz")
    )

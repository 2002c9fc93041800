"""Settings of the environment that stop the start of the server."""

import pytest
from django.core.exceptions import ImproperlyConfigured

from webui import environment

NAME = "TRAINMASTER_S3_ENDPOINT_URL"


@pytest.mark.parametrize(
    "value", ["minio:9000", "ftp://minio", "https://", "http://minio:none", "http://[minio"]
)
def test_an_address_that_is_none_stops_the_start(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, value)
    with pytest.raises(ImproperlyConfigured, match=f"{NAME} is .*; allowed: an address, such as https://"):
        environment.http_url(NAME)


def test_a_list_of_addresses_has_no_other_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, "https://s3.example.com, http://minio:9000")
    assert environment.http_urls(NAME) == ["https://s3.example.com", "http://minio:9000"]
    monkeypatch.setenv(NAME, "https://s3.example.com,minio")
    with pytest.raises(ImproperlyConfigured, match=f"{NAME} is 'minio'"):
        environment.http_urls(NAME)


def test_an_address_may_be_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NAME, raising=False)
    assert environment.http_url(NAME) is None
    monkeypatch.setenv(NAME, "http://minio:9000")
    assert environment.http_url(NAME) == "http://minio:9000"


@pytest.mark.parametrize(
    "value", ["tasks.example.com", "https://", "https://a/b", "https://u@a", "https://a.*.b"]
)
def test_what_is_no_origin_stops_the_start(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINMASTER_PROXY_ORIGIN", value)
    with pytest.raises(ImproperlyConfigured, match=r"TRAINMASTER_PROXY_ORIGIN is .*; allowed: "):
        environment.origin("TRAINMASTER_PROXY_ORIGIN")


def test_an_origin_is_read_as_browsers_write_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, found in {
        "https://*.Tasks.example.com:443/": "https://*.tasks.example.com",
        "http://a:80": "http://a",
    }.items():
        monkeypatch.setenv("TRAINMASTER_PROXY_ORIGIN", given)
        assert environment.origin("TRAINMASTER_PROXY_ORIGIN") == found

"""Which requests are of the origin of tasks, which of one task's, and which names the console has."""

from __future__ import annotations

import pytest
from django.conf import LazySettings

from webui.live import proxy_origin


@pytest.mark.parametrize(
    ("origin", "host", "here", "of_ab"),
    [
        ("", "console", False, False),
        ("https://tasks.example.com", "Tasks.Example.com", True, True),
        ("https://tasks.example.com:8443", "tasks.example.com", False, False),
        ("https://*.tasks.example.com", "ab.tasks.example.com", True, True),
        ("https://*.tasks.example.com", "cd.tasks.example.com", True, False),
        ("https://*.tasks.example.com", "x.ab.tasks.example.com", False, False),
        ("https://*.tasks.example.com", "ab.tasks.example.com.evil.example", False, False),
        ("https://*.tasks.example.com", "eviltasks.example.com", False, False),
    ],
)
def test_a_request_is_of_the_origin_that_its_host_names(
    settings: LazySettings, origin: str, host: str, here: bool, of_ab: bool
) -> None:
    settings.PROXY_ORIGIN = origin
    assert proxy_origin.is_here({"host": host}) is here
    assert proxy_origin.is_of_task({"host": host}, "ab") is of_ab


def test_tasks_lead_back_to_no_address_that_is_none_of_the_console(settings: LazySettings) -> None:
    settings.ALLOWED_HOSTS = ["console.example.com"]
    hosts = ("Console.example.com:8443", "evil.example", "console.example.com@evil.example", "")
    assert [proxy_origin.is_of_console({"host": host}) for host in hosts] == [True, False, False, False]
    settings.ALLOWED_HOSTS = ["*"]
    assert [proxy_origin.is_of_console({"host": host}) for host in hosts] == [True, True, False, False]

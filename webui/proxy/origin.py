"""The origin of tasks' pages, where the installation has one apart from the console's (TRAINMASTER_PROXY_ORIGIN).

Pages of a task are made by its code. On an origin of their own, browsers keep them from the console by themselves; with
`*` in it each task has its own, and they are kept from each other, too.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings
from django.http.request import split_domain_port, validate_host


def of_task(task_id: str) -> str:
    """`https://<task id>.tasks.example.com`, or the one that all tasks share; empty where there is none."""
    return str(settings.PROXY_ORIGIN).replace("*", task_id)


def is_per_task() -> bool:
    """Return whether each task has an origin of its own."""
    return "*" in settings.PROXY_ORIGIN


def is_here(headers: dict[str, str]) -> bool:
    """Whether a request was sent to the origin of tasks, so that no console may answer it."""
    wanted = urlsplit(settings.PROXY_ORIGIN).netloc
    if not wanted:
        return False
    host, (_, star, rest) = headers.get("host", "").lower(), wanted.partition("*")
    return host.endswith(rest) and "." not in host[: -len(rest)] if star else host == wanted


def is_of_task(headers: dict[str, str], task_id: str) -> bool:
    """Whether a request was sent to the origin of this very task."""
    return headers.get("host", "").lower() == urlsplit(of_task(task_id)).netloc


def is_of_console(headers: dict[str, str]) -> bool:
    """Whether the console is called so (TRAINMASTER_ALLOWED_HOSTS). Tasks lead browsers back to that address, which
    anybody who is logged in could else name as he likes."""
    domain, _ = split_domain_port(headers.get("host", ""))
    return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS)

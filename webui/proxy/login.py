"""The login of one browser to one task, on the origin of tasks' pages.

The console hands a browser over by a redirection with a ticket, which counts once and for half a minute. There it
becomes a cookie for this task's addresses alone. Both are rows of Django's sessions that hold no user, so that neither
opens the console; the login counts only as long as the session of the console that it came from.
"""

from __future__ import annotations

import time
from contextlib import suppress
from http.cookies import SimpleCookie
from typing import NamedTuple

from django.conf import settings
from django.contrib.sessions.backends.base import UpdateError
from django.contrib.sessions.backends.db import SessionStore
from django.core import signing

from accounts.models import User
from webui.live import login

#: of the login, and of the console's address, where a browser without one is sent back to
COOKIE, CONSOLE_COOKIE = "trainmaster-task", "trainmaster-console"
_TICKET_SECONDS = 30
_CONSOLE_SECONDS = 400 * 86_400
_SALT = "console of a task"


class Entered(NamedTuple):
    """What a ticket was worth: a login `key` to the task, the `console` it came from, and the `path` to go on to."""

    key: str
    task_id: str
    console: str
    path: str


def ticket(headers: dict[str, str], task_id: str, console: str, path: str) -> str:
    """For a browser that is logged in to the console. Writes the database."""
    row = SessionStore()
    row["ticket"] = {"session": login.session_key(headers), "task": task_id, "console": console, "path": path}
    row.set_expiry(_TICKET_SECONDS)
    row.create()
    return str(row.session_key)


def redeem(number: str) -> Entered | None:
    """The login that a ticket is worth, the first time; None for one that is not known. Writes the database."""
    row = SessionStore(number)
    about = row.get("ticket")
    if about is None or row.model.objects.filter(session_key=number).delete()[0] != 1:
        return None
    made = SessionStore()
    until = time.time() + settings.PROXY_LOGIN_SECONDS
    made["task_login"] = {"session": about["session"], "task": about["task"], "until": until}
    made.set_expiry(int(settings.PROXY_LOGIN_SECONDS))
    made.create()
    return Entered(str(made.session_key), about["task"], about["console"], about["path"])


def user_of(headers: dict[str, str], task_id: str) -> User | None:
    """Who uses this task by the cookie of such a login, which lasts on while it is used. Reads the database."""
    row = SessionStore(login.cookie(headers, COOKIE))
    about = row.get("task_login")
    if about is None or about["task"] != task_id:
        return None
    user = login.user_of_session(about["session"])
    left = about["until"] - time.time()
    if user is not None and left < settings.PROXY_LOGIN_SECONDS / 2:
        row["task_login"] = {**about, "until": time.time() + settings.PROXY_LOGIN_SECONDS}
        row.set_expiry(int(settings.PROXY_LOGIN_SECONDS))
        with suppress(UpdateError):  # it was ended meanwhile
            row.save()
    return user


def cookies(entered: Entered, base: str, scheme: str) -> list[bytes]:
    """As they are set for the addresses below `base`."""
    console = signing.dumps(entered.console, salt=_SALT)
    found = []
    for name, value, seconds in ((COOKIE, entered.key, None), (CONSOLE_COOKIE, console, _CONSOLE_SECONDS)):
        jar: SimpleCookie = SimpleCookie({name: value})
        about = {
            "path": base,
            "httponly": True,
            "samesite": "Lax",
            "secure": scheme == "https",
            "max-age": seconds,
        }
        for attribute, given in about.items():
            jar[name][attribute] = given or ""
        found.append(jar[name].OutputString().encode("latin-1"))
    return found


def console_of(headers: dict[str, str]) -> str:
    """The origin of the console that handed this browser over before; empty where none has."""
    try:
        return str(signing.loads(login.cookie(headers, CONSOLE_COOKIE), salt=_SALT))
    except signing.BadSignature:
        return ""

"""Commands of manage.py about people, on the server's own machine: what they do, say and leave in the audit trail."""

from __future__ import annotations

import getpass
import io
import re

import pytest
from django.core.management import call_command

from accounts import tokens
from accounts.models import AccessToken, LoginToken, Scope, User
from accounts.passwords import check_password
from events.models import Event
from events.origin import HERE
from tests.rig.world import make_user

pytestmark = pytest.mark.django_db


def said(*command: str) -> str:
    out = io.StringIO()
    call_command(*command, stdout=out)
    return out.getvalue()


def told(user: User) -> Event:
    """The newest event about the user, which was caused here."""
    event = Event.objects.filter(kind=Event.Kind.USER, subject=str(user.pk)).latest("pk")
    assert (event.actor, event.origin) == (f"account:{getpass.getuser()}", HERE)
    return event


def test_the_first_admin_leaves_an_event() -> None:
    said("create_admin", "--if-none")
    event = told(User.objects.get(username="admin"))
    assert (event.reason, event.to_state) == ("created", "admin")
    said("create_admin", "--if-none")
    assert Event.objects.latest("pk") == event, "with an admin there is nothing to do"


@pytest.mark.parametrize("keep", [False, True])
def test_a_reset_ends_what_the_old_password_had_opened_and_says_so(keep: bool) -> None:
    ada = make_user("ada")
    User.objects.filter(pk=ada.pk).update(is_active=False)
    login = LoginToken.issue(ada)
    _, access = tokens.create(ada, description="ci", days=1, scope=Scope.FULL, actor="user:ada")
    text = said("create_admin", "--username", "ada", "--reset", *(["--keep-tokens"] if keep else []))
    ada.refresh_from_db()
    assert LoginToken.find_user(login) is None
    assert (AccessToken.find_user(access) is not None) is keep
    assert ("Access tokens stay valid." if keep else "Revoked 1 access token.") in text
    assert "Changed the role of ada from editor to admin." in text and "Activated ada." in text
    assert "Logged ada out everywhere (1 login token, and browsers)." in text
    found = re.search(r"User ada, password (\S+) ", text)
    assert found and check_password(ada, found[1], is_hashed=False)
    event = told(ada)
    assert (event.reason, event.from_state, event.to_state) == ("changed", "editor", "admin")
    assert event.detail == {
        "name": "ada",
        "changes": {"role": ["editor", "admin"], "is_active": ["False", "True"], "password": ["", ""]},
        "accessTokens": "kept" if keep else "revoked",
    }


def test_a_login_token_leaves_an_event() -> None:
    ada = make_user("ada")
    token = said("login_token", "ada").strip()
    assert LoginToken.find_user(token) == ada
    event = told(ada)
    assert event.reason == "login_token_issued" and token not in str(event.detail)

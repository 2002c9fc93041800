"""Wrong passwords are bounded, for the page and for the dialect alike."""

import pytest
from django.test import Client

from accounts.passwords import set_password
from tests.rig.api import Api
from tests.rig.world import make_user

pytestmark = pytest.mark.django_db


def test_after_many_wrong_passwords_even_the_right_one_has_to_wait(
    redis_server: object, settings: object
) -> None:
    settings.LOGIN_ATTEMPTS = 3  # type: ignore[attr-defined]
    user = make_user("guessed")
    set_password(user, "Right1234", is_hashed=False)
    user.save()

    def login(password: str) -> tuple[int, str]:
        body = {"username": "guessed", "password": password, "isHashed": False}
        status, answer = Api().send("POST", "auth/login", body)
        return status, str(answer)

    assert [login("wrong")[0] for _ in range(3)] == [403] * 3
    status, said = login("Right1234")
    assert status == 403 and "Wait a moment" in said
    page = Client().post("/login", {"username": "guessed", "password": "Right1234"})
    assert page.status_code == 403 and b"Wait a moment" in page.content

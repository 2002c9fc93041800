"""Addresses with text that the database does not take are refused, not failed on."""

import pytest
from django.test import Client

from accounts.models import User
from hosts.pools import default_pool


@pytest.mark.django_db
@pytest.mark.parametrize(
    "address", ["/jobs?q=%00", "/jobs?user=%00", "/tasks?q=%00", "/tasks?user=%00", "/pools/%00"]
)
def test_text_with_a_null_character_is_refused(address: str) -> None:
    default_pool()
    user = User.objects.create(username="ada", role=User.Role.VIEWER)
    client = Client()
    client.force_login(user)
    assert client.get(address).status_code == 400


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("address", ["/tasks/%00/ranks/0/stack", "/tasks/none/ranks/99999999999/stack"])
def test_a_rank_that_cannot_be_is_not_found(address: str) -> None:
    client = Client()
    client.force_login(User.objects.create(username="ada", role=User.Role.EDITOR))
    assert client.post(address).status_code == 404


@pytest.mark.django_db
def test_a_filter_takes_singular_and_plural_and_names_what_it_does_not_know() -> None:
    default_pool()
    client = Client()
    client.force_login(User.objects.create(username="ada", role=User.Role.VIEWER))
    for address in ("/tasks?type=shell", "/tasks?type=shells"):
        said = client.get(address).content.decode()
        assert 'aria-current="true">shells' in said
        assert "Filter ignored" not in said
    allowed = "type=pod, allowed: notebooks, shells, TensorBoards, commands."
    assert allowed in client.get("/tasks?type=pod").content.decode()
    for place in ("tasks", "experiments", "jobs"):
        assert "found state=broken, allowed: " in client.get(f"/{place}?state=broken").content.decode()
        known = "Queued" if place == "jobs" else "Failed"
        assert "Filter ignored" not in client.get(f"/{place}?state={known}").content.decode()
    allowed = "found show=his, allowed: silent, draining, quarantined, disabled, outsiders, free, not ready."
    assert allowed in client.get("/hosts?show=his").content.decode()
    allowed = "found show=his, allowed: for-you, all, mine, mine-waiting, never-fits, being-stopped."
    assert allowed in client.get("/jobs?show=his").content.decode()

"""Pages of templates: made, copied with its secrets, renamed, kept from being overwritten, and removed."""

import re

import pytest
from django.test import Client

from accounts.models import User
from experiments.models import Experiment, Template
from tests.rig.world import make_host, make_user, submit_experiment

pytestmark = pytest.mark.django_db
TEXT = "# for all of us\nresources: {priority: 9}\nenvironment: {environment_variables: [API_KEY=hunter2]}\n"


@pytest.fixture
def client() -> Client:
    make_host("gpu1", slots=1)
    client = Client()
    client.force_login(make_user())
    client.post("/templates/+new", {"name": "base", "config": TEXT, "workspace": "1"})
    return client


def of(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found is not None
    return found[1]


def test_a_template_is_made_shown_and_copied_and_its_secrets_stay_hidden(client: Client) -> None:
    made = Template.objects.get()
    assert (made.source, made.changed_by) == (TEXT, make_user())
    page = client.get("/templates/base").content.decode()
    assert "Config is valid" in page and "hunter2" not in page and "by ada" in page
    assert "Masking hides secrets on pages, not from those who use the template" in " ".join(page.split())
    assert "environment, resources" in client.get("/templates").content.decode()
    shown = re.search(r"<textarea[^>]*>(.*?)</textarea>", page, re.S)
    assert shown is not None
    client.post("/templates/+new", {"name": "other", "config": shown[1], "workspace": "1", "copy": "base"})
    assert Template.objects.get(name="other").config == made.config
    wrong = client.post(
        "/templates/+new", {"name": "base", "config": "resources: {slots: x}", "workspace": "1"}
    )
    assert (wrong.status_code, b"resources.slots" in wrong.content) == (400, True)
    taken = client.post("/templates/+new", {"name": "base", "config": "{}", "workspace": "1"})
    assert (taken.status_code, b"template base already exists" in taken.content) == (409, True)
    form = client.get("/templates/+new?copy=base").content.decode()
    assert '<option value="1">Uncategorized</option>' in form and of(form, "name") == "base-copy"
    nameless = client.post(
        "/templates/+new", {"name": "", "config": "{}", "workspace": "77"}
    ).content.decode()
    assert 'id="workspace_error">There is no such workspace' in nameless


def test_a_template_is_renamed_with_its_uses_and_nobody_writes_over_anothers_change(client: Client) -> None:
    Experiment.objects.filter(pk=submit_experiment().pk).update(template_name="base")
    seen = of(client.get("/templates/base").content.decode(), "seen")
    saved = client.post("/templates/base", {"name": "base 2", "config": "max_restarts: 1", "seen": seen})
    assert saved.headers["Location"] == "/templates/base%202"
    page = client.get("/templates/base%202").content.decode()
    assert "Masking hides" not in page, "it has no secrets by now"
    assert "Experiments submitted with it: 1" in page and "1 experiment was submitted with it" in page
    late = client.post("/templates/base 2", {"name": "base 2", "config": "max_restarts: 2", "seen": seen})
    assert (late.status_code, b"while you were editing it" in late.content) == (409, True)
    client.force_login(make_user("vic", User.Role.VIEWER))
    assert client.post("/templates/base 2/remove").status_code == 403
    client.force_login(make_user())
    assert client.post("/templates/base 2/remove").headers["Location"] == "/templates"
    assert not Template.objects.exists() and Experiment.objects.get().template_name == "base 2"


def test_others_see_a_template_and_copy_it_but_do_not_change_it(client: Client) -> None:
    client.force_login(make_user("bob"))
    page = client.get("/templates/base").content.decode()
    assert "Only ada and admins can change this template" in " ".join(page.split())
    assert ">Save<" not in page and "/templates/base/remove" not in page and "+new?copy=base" in page
    assert client.post("/templates/base", {"name": "base", "config": "max_restarts: 1"}).status_code == 403
    assert client.post("/templates/base/remove").status_code == 403
    assert Template.objects.get().source == TEXT

"""Templates over REST: only owners and admins change one, and what has changed is said to those who submit with it."""

from __future__ import annotations

import importlib
import json

import pytest
from django.db import connection

from accounts.models import LoginToken, User
from experiments.models import Template, TemplateUse, Workspace
from tests.rig.api import Api
from tests.rig.world import make_host, make_user

pytestmark = pytest.mark.django_db
HOOKED = {"environment": {"environment_variables": ["API_KEY=hunter2"]}, "max_restarts": 1}


@pytest.fixture
def ada() -> Api:
    make_host("gpu1", slots=1)
    found = of(make_user())
    found.post("templates/base", {"config": HOOKED})
    return found


def of(user: User) -> Api:
    return Api(LoginToken.issue(user))


def submission(**more: object) -> dict[str, object]:
    config = {
        "name": "n",
        "entrypoint": "true",
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
        "hyperparameters": {},
    }
    return {"config": json.dumps(config), "template": "base", **more}


def test_only_the_owner_and_admins_change_a_template(ada: Api) -> None:
    bob = of(make_user("bob"))
    for method, path, body in (
        ("PUT", "templates/base", {"config": {"max_restarts": 9}}),
        ("PATCH", "templates/base", {"max_restarts": 9}),
        ("PATCH", "template/rename", {"oldName": "base", "newName": "mine"}),
        ("DELETE", "templates/base", None),
    ):
        status, sentence = bob.refused(method, path, body)
        assert (status, "template base belongs to ada; only its owner or an admin" in sentence) == (
            403,
            True,
        ), method
    kept = bob.get("templates/base")["template"]
    assert (kept["config"]["max_restarts"], kept["owner"]) == (1, "ada") and "hunter2" not in str(kept)
    of(make_user("root", User.Role.ADMIN)).patch("templates/base", {"max_restarts": 2})
    assert ada.put("templates/base", {"config": {"max_restarts": 3}})["template"]["config"] == {
        "max_restarts": 3
    }
    ada.delete("templates/base")
    assert not Template.objects.exists()


def test_a_template_without_an_owner_is_changed_by_admins_alone(ada: Api) -> None:
    Template.objects.update(owner=None)
    assert "belongs to nobody" in ada.refused("DELETE", "templates/base")[1]
    of(make_user("root", User.Role.ADMIN)).delete("templates/base")


def test_who_submits_is_told_what_has_changed_since_the_last_time(ada: Api) -> None:
    bob = of(make_user("bob"))
    first = bob.post("experiments", submission())
    assert not [each for each in first["notices"] if "Template" in each], "the first use"
    ada.patch("templates/base", {**HOOKED, "max_restarts": 4})
    for more in ({"validateOnly": True}, {}):
        (told,) = (
            each for each in bob.post("experiments", submission(**more))["notices"] if "Template" in each
        )
        assert f"since you last used it, in experiment {first['experiment']['id']}" in told
        assert "-max_restarts: 1\n+max_restarts: 4" in told and "hunter2" not in told
    again = bob.post("experiments", submission())
    assert not [each for each in again["notices"] if "Template" in each]
    ada.patch(
        "templates/base", {"environment": {"environment_variables": ["API_KEY=other"]}, "max_restarts": 4}
    )
    told = " ".join(bob.post("experiments", submission())["notices"])
    assert "A masked value differs." in told and "other" not in told


def test_commands_are_told_too_and_count_as_uses(ada: Api) -> None:
    bob, body = of(make_user("bob")), {"config": {"entrypoint": "true"}, "template_name": "base"}
    ada.put("templates/base", {"config": {"resources": {"priority": 7}}})
    first = bob.post("commands", body)
    assert first["notices"] == []
    ada.put("templates/base", {"config": {"resources": {"priority": 8}}})
    for kind, more in (("notebooks", {"preview": True, "config": {}}), ("commands", {})):
        told = bob.post(kind, body | more)["notices"][0]
        assert "has changed since you last used it, in command " + first["command"]["id"][:8] in told
        assert "-  priority: 7\n+  priority: 8" in told
    assert bob.post("commands", body)["notices"] == []
    assert not [each for each in bob.post("experiments", submission())["notices"] if "Template" in each]


def test_another_template_of_the_same_name_is_a_change(ada: Api) -> None:
    bob, eve = of(make_user("bob")), of(make_user("eve"))
    bob.post("experiments", submission())
    ada.patch("template/rename", {"oldName": "base", "newName": "ours"})
    eve.post("templates/base", {"config": {"environment": {"hooks": {"pre": ["curl evil"]}}}})
    (told,) = (each for each in bob.post("experiments", submission())["notices"] if "Template" in each)
    assert "curl evil" in told
    renamed = bob.post("experiments", submission(template="ours"))["notices"]
    assert not [each for each in renamed if "Template" in each], "the same template under its new name"


def test_uses_of_before_are_those_of_experiments(ada: Api) -> None:
    first, second = (ada.post("experiments", submission())["experiment"]["id"] for _ in range(2))
    TemplateUse.objects.all().delete()
    migration = importlib.import_module("experiments.migrations.0014_last_uses_of_templates")
    with connection.cursor() as cursor:
        cursor.execute(migration.SO_FAR)
    (use,) = TemplateUse.objects.all()
    assert first < second and use.submission == f"experiment {second}" and use.config == HOOKED


def test_templates_of_before_belong_to_who_changed_them_last(ada: Api) -> None:
    template = Template.objects.get()
    other = Template.objects.create(name="old", config={}, workspace=Workspace.objects.get(pk=1))
    Template.objects.update(owner=None)
    migration = importlib.import_module("experiments.migrations.0013_owners_of_templates")
    with connection.cursor() as cursor:
        cursor.execute(migration.SO_FAR)
    template.refresh_from_db()
    other.refresh_from_db()
    assert (template.owner, other.owner) == (make_user(), None)

"""Who may see and do what on the pages of the console: every page, asked by every kind of user.

Each page is asked with the methods for which it declares a right, and each form is sent an example, which must change
something for somebody: it counts whether it wrote anything, since a page may say no with a message above another page.
The table is kept in golden_access.txt beside this file. `ACCESS=write python -m pytest` of this file writes it again;
what no table may say is asserted beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.db import transaction
from django.http import HttpResponseBase
from django.test import Client
from django.utils import timezone

from accounts import saved_views
from accounts.models import AccessToken, User
from accounts.passwords import set_password
from accounts.rights import declared_by
from commands.models import Command
from experiments.models import Checkpoint, Experiment, Project, Trial
from hosts.models import PairSearch
from jobs.models import Job
from logs.models import Hang
from tests.rig import access
from tests.rig.golden_world import World
from tests.rig.world import make_user
from webui.pages.experiments.notes import stamp
from webui.pages.urls import urlpatterns

TABLE = Path(__file__).parent / "golden_access.txt"
WRITE = "ACCESS=write python -m pytest tests/webui/pages/test_page_access.py"
#: pages that need no login
OPEN = {"GET login", "POST login"}
CHANGES_LOGINS = {"POST login", "POST logout", "POST settings/password"}
#: what is the viewer's own
OF_VIEWERS = {
    "POST login",
    "POST logout",
    "POST settings/profile",
    "POST settings/password",
    "POST settings/tokens",
    "POST settings/tokens/<int:token_id>/revoke",
    "POST experiments/columns",
    "POST overview/seen",
    "POST trials/<int:trial_id>/metrics/pins",
    "POST views",
    "POST views/<int:view_id>",
}
#: what editors make, or do with what is another's, as the pool's or the workspace's rules let them
OF_EDITORS = OF_VIEWERS | {
    "POST experiments/new",
    "POST experiments/<int:experiment_id>/fork",
    "POST jobs/manage/<uuid:job_id>",
    "POST jobs/edits/make",
    "POST settings/notifications/+new",
    "POST tasks/+new",
    "POST tasks/+tensorboard",
    "POST templates/+new",
    "POST workspaces/+new",
    "POST workspaces/<int:workspace_id>/+project",
}
#: forms that change nothing for anybody, and why
SHOWS = {
    "POST pools/<str:name>/pairs/burn-in": "leads to the burn-in of the same hosts that runs",
    "POST experiments/check": "says what is wrong with a config",
    "POST experiments/preview-notes": "renders notes",
    "POST jobs/manage/<uuid:job_id>/preview": "says what an edit would do",
    "POST logout": "ends a session, which is Django's row",
    "POST settings/notifications/preview": "renders a message",
    "POST tasks/<str:task_id>/ranks/<int:rank>/stack": "asks a host, which the example does not have",
}
#: changes without an event: a person's own view of pages, and tries that change nothing
UNTOLD = {
    "POST experiments/columns",
    "POST overview/seen",
    "POST trials/<int:trial_id>/metrics/pins",
    "POST settings/notifications/<int:rule_id>/deliveries/<uuid:delivery_id>/retry",
}
#: routes whose example is another one than what the others are about
ABOUT = {
    "pools/<str:name>/remove": {"name": "a100"},
    "experiments/<int:experiment_id>/delete": {"experiment_id": "2"},  # which has ended
    "experiments/<int:experiment_id>/continue": {"experiment_id": "2"},
    "tasks/<str:task_id>/ranks/<int:rank>/stack": {"rank": "99"},  # there is none: no host is asked
}
DEMOTED = "owner who is a viewer now"
#: who tells of most pages all that there is to tell
READERS = ("nobody", "viewer")
CONFIG = "name: made\nentrypoint: 'true'\nsearcher: {name: single, metric: loss, max_length: 1}\n"
WINDOW = {
    "name": "repairs", "starts": "2026-12-01T06:00", "ends": "2026-12-01T08:00", "time_zone": "UTC", "weekly": "on",
    "slots": "1",
}  # fmt: skip
TASK = {"type": "shell", "name": "mine", "slots": "0", "pool": "default", "config": ""}


def forms(world: World, place: dict[str, object]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Route -> its <slug:…>, and what is sent to it."""
    waiting = Experiment.objects.get(name="waiting")
    rule = {
        "name": "r",
        "form": "webhook",
        "target": "https://chat.example.com/x",
        "scope": "mine",
        "on.EXPERIMENT_STATE_CHANGE:ERROR": "on",
        "level": "DEBUG",
    }
    (note,) = Project.objects.get(pk=place["project_id"]).notes
    search = Experiment.objects.filter(trials__isnull=False, unmanaged=False).exclude(search={}).first()
    assert search is not None
    return {
        "login": ("", {"username": "ada", "password": "Right1234"}),
        "logout": ("", {}),
        "settings/tokens/<int:token_id>/revoke": ("", {}),
        "settings/profile": ("", {"display_name": "Another"}),
        "settings/password": ("", {"old": "Right1234", "new": "Better5678", "again": "Better5678"}),
        "settings/tokens": ("", {"description": "t", "days": "7", "scope": "read"}),
        "overview/seen": ("", {"until": "2026-01-01T00:00:00Z"}),
        "experiments/columns": ("", {"c": ["name", "state"], "do": "keep", "rest": ""}),
        "experiments/new": ("", {"config": CONFIG, "project": "1", "manifest": "[]"}),
        "experiments/check": ("", {"config": CONFIG}),
        "experiments/chosen/<slug:action>": ("kill", {"experiment": [str(waiting.pk)], "sure": "1"}),
        "experiments/<int:experiment_id>/<slug:tab>": ("kill", {}),
        "experiments/<int:experiment_id>/edit": ("", {"name": "renamed", "labels": "", "project": "1", "logs": ""}),
        "experiments/<int:experiment_id>/notes": ("", {"notes": "new", "seen": stamp("")}),
        "experiments/<int:experiment_id>/fork": ("", {"config": CONFIG, "project": "1"}),
        "experiments/<int:experiment_id>/continue": ("", {"config": "searcher: {max_length: {batches: 20}}"}),
        "experiments/<int:experiment_id>/delete": ("", {}),
        "experiments/preview-notes": ("", {"notes": "new"}),
        "experiments/<int:experiment_id>/trials/kill": ("", {"trial": [str(place["trial_id"])], "sure": "1"}),
        "templates/+new": ("", {"name": "mine", "config": "max_restarts: 3\n", "workspace": "1"}),
        "templates/<str:name>": ("", {"name": "night", "config": "max_restarts: 3\n"}),
        "templates/<str:name>/remove": ("", {}),
        "trials/<int:trial_id>/checkpoints/<uuid:checkpoint_uuid>/delete": ("", {}),
        "commands/<uuid:command_id>/kill": ("", {}),
        "tasks/+new": ("", TASK),
        "tasks/+tensorboard": ("", {"experiments": str(waiting.pk)}),
        "tasks/<str:task_id>/log/keep": ("", {"days": "9"}),
        "jobs/manage/<uuid:job_id>": ("", {"priority": "33"}),
        "jobs/manage/<uuid:job_id>/preview": ("", {}),  # a change would be written, and taken back
        "jobs/edits/undo": ("", {}),
        "jobs/edits/make": ("", {"do": "priority", "value": "33", "job": [str(waiting.job_id)], "sure": "1"}),
        "workspaces/+new": ("", {"name": "mine"}),
        "workspaces/<int:workspace_id>/edit": ("", {"name": "renamed"}),
        "workspaces/<int:workspace_id>/+project": ("", {"name": "mine"}),
        "workspaces/<int:place_id>/<slug:action>": ("archive", {}),
        "projects/<int:project_id>/edit": ("", {"name": "renamed", "workspace": str(place["workspace_id"])}),
        "projects/<int:project_id>/notes": ("", {
            "name": "n", "notes": "text", "seen": stamp(f"{note['name']}\n{note['contents']}")}),
        "projects/<int:place_id>/<slug:action>": ("archive", {}),
        "hosts/+new": ("", {"target": "gpu9", "pool": "default"}),
        "hosts/<str:name>/adding": ("", {"pool": "default", "activate": "/opt/conda/bin/activate ml"}),
        "hosts/<str:name>/edit": ("", {"pool": "default", "activate": "/opt/conda/bin/activate ml"}),
        "hosts/<str:name>/<slug:action>": ("disable", {}),
        "hosts/<str:name>/slots/<int:index>/<slug:action>": ("disable", {}),
        "pools/+new": ("", {"name": "mine", "scheduler": "priority", "fitting": "best", "default_priority": "42",
                            "aux_per_host": "10", "usage_half_life_seconds": "0", "spare_hosts": "0", "hang_do": "tell",
                            "burn_in": "never", "burn_in_do": "tell"}),
        "pools/<str:name>/pairs/test": ("", {}),
        "pools/<str:name>/pairs/burn-in": ("", {}),
        "pools/<str:name>/remove": ("", {}),
        "pools/<str:name>/windows/+new": ("", WINDOW | {"name": "drivers"}),
        "pools/<str:name>/windows/<str:window>": ("", WINDOW),
        "pools/<str:name>/windows/<str:window>/remove": ("", {}),
        "pools/<str:name>/edit": ("", {"scheduler": "priority", "fitting": "worst", "default_priority": "42",
                                       "aux_per_host": "10", "usage_half_life_seconds": "0", "spare_hosts": "0",
                                       "hang_do": "tell", "burn_in": "never", "burn_in_do": "tell",
                                       "default_compute": "on", "default_aux": "on"}),
        "tasks/<str:task_id>/ranks/<int:rank>/stack": ("", {}),
        "settings/notifications/preview": ("", {"template": "{{ name }}"}),
        "settings/notifications/<int:rule_id>/deliveries/<uuid:delivery_id>/retry": ("", {}),
        "settings/notifications/+new": ("", rule),
        "settings/notifications/<int:rule_id>/edit": ("", {**rule, "name": "renamed"}),
        "settings/notifications/<int:rule_id>/do/<slug:action>": ("pause", {}),
        "trials/<int:trial_id>/metrics/pins": ("", {"name": "loss", "pinned": "true"}),
        "views": ("", {"name": "mine", "back": "/experiments?user=me"}),
        "views/<int:view_id>": ("", {"name": "renamed"}),
        "groups/+new": ("", {"name": "mine", "parent": "research"}),
        "groups/<str:name>/edit": ("", {"name": "renamed", "members": "ada"}),
        "groups/<str:name>/delete": ("", {}),
        "schedules/+new": ("", {"name": "weekly", "cron": "0 3 * * 1", "experiment": str(waiting.pk)}),
        "schedules/<str:name>/do/<slug:action>": ("pause", {}),
        "arrays/<uuid:array_id>/kill": ("", {}),
        "arrays/<uuid:array_id>/rerun": ("", {"indices": "0"}),
        "users/+new": ("", {"username": "hugo", "role": "editor"}),
        "users/<int:user_id>/edit": ("", {"username": "ada", "role": "editor", "display_name": "Countess"}),
        "users/<int:user_id>/do/<slug:action>": ("deactivate", {}),
        "users/<int:user_id>/tokens/<int:token_id>/revoke": ("", {}),
    }  # fmt: skip


def places(world: World) -> dict[str, object]:
    """What the parameters of addresses lead to; everything is ada's."""
    running = Experiment.objects.get(name="running")
    trial = Trial.objects.get(experiment=running)
    command = Command.objects.get(pk=world.places["shells/command_id"][0])
    return {
        "experiment_id": running.pk,
        "trial_id": trial.pk,
        "command_id": command.pk,
        "array_id": world.places["arrays/array_id"][0],
        "task_id": trial.task_id,
        "uuid:task_id": command.pk,
        "job_id": Job.objects.get(experiment__name="waiting").pk,
        "pool_name": "default",
        "user_id": User.objects.get(username="ada").pk,
        "token_id": AccessToken.objects.latest("pk").pk,
        "rank": 0,
        "checkpoint_uuid": Checkpoint.objects.filter(trial=trial, state="COMPLETED")
        .earliest("steps_completed")
        .pk,
        "workspace_id": world.places["workspaces/workspace_id"][0],
        "project_id": world.places["projects/project_id"][0],
        "rule_id": world.places["webhooks/rule_id"][0],
        "delivery_id": world.places["deliveries/delivery_id"][0],
        "hang_id": Hang.objects.get(allocation__task=trial.task_id).pk,
        "view_id": saved_views.save(make_user("ada"), "hers", "/jobs/default?show=mine", is_shared=True).pk,
        "window": world.places["windows/window"][0],
        "index": 0,
        "pk": 1,
        "rest": "x",
        "way": "scatter",
    }


NOTHING = {"int": "1", "uuid": "00000000-0000-0000-0000-000000000000"}
NAMES = {
    "schedules": "nightly",
    "templates": "night",
    "hosts": "gpu1",
    "pools": "default",
    "groups": "research",
}
TABS = {"experiments": "timeline", "trials": "logs", "commands": "log", "pools": "stats"}


def address(route: str, place: dict[str, object], slug: str) -> str:
    def value(found: re.Match[str]) -> str:
        kind, name = found[1].split(":")
        room, about = route.partition("/")[0], ABOUT.get(route, {})
        if kind == "slug" and slug:
            return slug
        if name == "tab":
            return TABS[room]
        if name in about:
            return about[name]
        if name == "name":
            return NAMES[room]
        if name == "place_id":
            return str(place[f"{room.removesuffix('s')}_id"])
        return str(place.get(f"{kind}:{name}", place.get(name, "x")))

    return "/" + re.sub(r"<([^>]+)>", value, route)


def users() -> dict[str, Client]:
    found = {"nobody": Client(raise_request_exception=False)}
    people = {
        "viewer": make_user("vic", User.Role.VIEWER),
        "editor": make_user("bob"),
        "owner": make_user("ada"),
        DEMOTED: make_user("ada"),
        "admin": User.objects.get(username="root"),
    }
    for name, user in people.items():
        found[name] = Client(raise_request_exception=False)
        found[name].force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    access.nobody_is_seen()
    return found


def answered(client: Client, who: str, name: str, path: str, data: dict[str, Any]) -> str:
    method = name.partition(" ")[0]
    with transaction.atomic():
        if who == DEMOTED:
            access.demote()
        before, event = access.written(), access.newest_event()
        answer: HttpResponseBase = client.post(path, data) if method == "POST" else client.get(path)
        wrote = access.written() > before
        is_told = not wrote or name in UNTOLD or access.told_since(event)
        answer.close()
        transaction.set_rollback(True)
    assert answer.status_code < 500, (method, path, data)
    assert is_told or method == "GET", (
        f"{name} with {data}: no event says who changed something, and from where"
    )
    if answer.headers.get("Location", "").startswith("/login"):
        return "login"
    if answer.status_code in access.MEANING:
        return access.MEANING[answer.status_code]
    if answer.status_code == 405:
        return "not at all"
    if method == "GET":
        return "leads on" if answer.status_code in (301, 302) else "yes"
    return "yes" if wrote else "changes nothing"


def pages(world: World) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """`METHOD route`, an address, and what is sent to it."""
    place = places(world)
    sent = forms(world, place)
    for route, declared in sorted((str(each.pattern), declared_by(each.callback)) for each in urlpatterns):
        if "GET" in declared:
            yield f"GET {route}", address(route, place, ""), {}
        if "POST" in declared:
            assert route in sent, f"POST {route} has no example: add one to forms()"
            slug, data = sent[route]
            yield f"POST {route}", address(route, place, slug), data


@pytest.mark.django_db(transaction=True)
def test_every_page_lets_in_whom_it_should(
    settings: LazySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redis_server: object
) -> None:
    world = access.make_world(settings, tmp_path, monkeypatch)
    PairSearch.objects.update(ended_at=timezone.now())  # while one goes on, no other begins
    ada = make_user("ada")
    set_password(ada, "Right1234", is_hashed=False)
    ada.save()
    found: dict[str, dict[str, str]] = {}
    clients = users()
    for name, path, data in pages(world):
        cell = found[name] = dict[str, str]()
        for who, client in clients.items():
            if name.startswith("POST") or who in READERS or cell["viewer"] not in ("yes", "leads on"):
                cell[who] = answered(client, who, name, path, data)
        if name in CHANGES_LOGINS:  # undone in the database, but not in the clients
            clients = users()
    access.check(TABLE, found, WRITE)
    for name, cell in found.items():
        _sound(name, cell)


def _sound(name: str, cell: dict[str, str]) -> None:
    """What holds for every page, whatever the table says."""
    assert cell["nobody"] in ("login", "leads on") or name in OPEN, name
    if name.startswith("POST"):
        changes = "yes" in cell.values()
        assert changes != (name in SHOWS), (
            f"{name}: the example changes {'something' if changes else 'nothing'}"
        )
        for who in ("viewer", DEMOTED):
            assert cell[who] != "yes" or name in OF_VIEWERS, (name, who)
        assert cell["editor"] != "yes" or name in OF_EDITORS, name


def test_pages_take_no_other_methods(client: Client, django_user_model: type[User], db: None) -> None:
    """A page that declares no right for a method refuses it before its view is asked."""
    client.force_login(django_user_model.objects.create(username="root", role=User.Role.ADMIN))
    for each in urlpatterns:
        declared = declared_by(each.callback)
        path = "/" + re.sub(r"<(\w+):\w+>", lambda found: NOTHING.get(found[1], "x"), str(each.pattern))
        for method in {"GET", "POST", "PUT", "DELETE"} - set(declared):
            answer = client.generic(method, path)
            assert answer.status_code == 405, (method, path, answer.status_code)

"""Workspaces and projects on pages, and the list of experiments by them: filters, columns, sort."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from accounts.models import User
from experiments.models import Experiment, Project, Workspace
from tests.rig.world import make_host, make_user, submit_experiment

pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> Client:
    make_host("gpu1", slots=1)
    client = Client()
    client.force_login(make_user())
    return client


def text(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, answer
    return re.sub(r"\s+", " ", answer.content.decode())


def listed(client: Client, query: str) -> list[str]:
    """Names, in the order of the rows."""
    return re.findall(r'<a class="name"[^>]*>([^<]*)</a>', text(client, f"/experiments?{query}"))


def test_the_list_is_filtered_by_project_and_shows_the_columns_asked_for(client: Client) -> None:
    lab = Workspace.objects.create(name="lab")
    vision = Project.objects.create(workspace=lab, name="vision", key="V")
    assert ">Project</a></th>" not in text(client, "/experiments")
    for name in ("b", "a"):
        made = submit_experiment(name=name)
        Experiment.objects.filter(pk=made.pk).update(project=vision, labels=[f"is-{name}"])
    submit_experiment(name="c")
    page = text(client, "/experiments")
    assert f'href="/workspaces/{lab.pk}">lab</a> / <a href="/projects/{vision.pk}">vision</a>' in page
    assert listed(client, f"project={vision.pk}&sort=project") == ["a", "b"]
    assert listed(client, f"workspace={lab.pk}&label=is-b") == ["b"]
    assert listed(client, "sort=id&page=x") == ["b", "a", "c"]
    assert listed(client, "project=x") == [] and listed(client, "sort=nothing") == ["c", "a", "b"]
    every = "&".join(
        f"c={key}&sort={key}" for key in ("description", "searcher", "slots", "checkpoints", "size")
    )
    page = text(client, f"/experiments?{every}&project={vision.pk}")
    assert "Slots per trial" in page and 'aria-sort="ascending"' in page and ">Owner</a></th>" not in page
    assert f"/experiments/new?project={vision.pk}" in page
    kept = client.post("/experiments/columns", {"c": ["slots"], "do": "keep", "rest": "q=a&c=pool"})
    assert kept.headers["Location"] == "/experiments?q=a"
    assert "Slots per trial</a>" in text(client, "/experiments?part") and "Pool</a>" not in text(
        client, "/experiments?part"
    )
    shown = client.post("/experiments/columns", {"c": ["pool"], "do": "show", "rest": ""}).headers["Location"]
    assert shown == "/experiments?c=pool" and "Pool</a>" in text(client, shown)
    client.post("/experiments/columns", {"do": "forget"})
    assert "Owner</a>" in text(client, "/experiments")


def test_workspaces_and_projects_are_made_changed_archived_and_deleted(client: Client) -> None:
    at = client.post("/workspaces/+new", {"name": "lab"}).headers["Location"]
    assert b"already a workspace lab" in client.post("/workspaces/+new", {"name": "lab"}).content
    made = client.post(f"{at}/+project", {"name": "vision", "description": "<b>", "key": ""}).headers[
        "Location"
    ]
    project = Project.objects.get(name="vision")
    assert (made, project.key) == (f"/projects/{project.pk}", "VIS")
    wrong = client.post(f"{made}/edit", {"name": "", "description": "", "key": "V", "workspace": "1"})
    assert (wrong.status_code, b"1 to 80" in wrong.content) == (400, True)
    wrong = client.post(f"{made}/edit", {"name": "seeing", "key": " "})
    assert (wrong.status_code, b"found: nothing" in wrong.content) == (400, True)
    client.post(f"{made}/edit", {"name": "seeing", "description": "", "key": "see", "workspace": "1"})
    project.refresh_from_db()
    assert (project.name, project.key, project.workspace_id) == ("seeing", "SEE", 1)
    experiment = submit_experiment()
    Experiment.objects.update(project=project)
    page = text(client, made)
    assert f"/experiments?project={project.pk}&amp;state=active" in page and experiment.name in page
    assert "still has experiments" in client.post(f"{made}/delete", follow=True).content.decode()
    client.post(f"{made}/archive")
    assert "seeing" in text(client, "/workspaces/1?archived=yes") and "seeing" not in text(
        client, "/workspaces/1"
    )
    # what is in an archived project is edited, and stays there
    page = text(client, f"/experiments/{experiment.pk}/edit")
    assert f'<option value="{project.pk}" selected>Uncategorized / seeing (archived)' in page
    Experiment.objects.update(project_id=1)
    assert client.post(f"{made}/delete").headers["Location"] == "/workspaces/1"
    assert client.post(f"{at}/delete").headers["Location"] == "/workspaces"
    assert client.post("/workspaces/1/delete", follow=True).content.count(b"came with the server") == 1
    client.force_login(make_user("eve", role=User.Role.VIEWER))
    assert client.post("/workspaces/+new", {"name": "mine"}).status_code == 403
    assert [client.get(f"/{kind}/99").status_code for kind in ("workspaces", "projects")] == [404, 404]


def test_notes_of_a_project_are_pages_that_are_never_written_over_unseen(client: Client) -> None:
    address = "/projects/1/notes"

    def seen(note: str) -> str:
        found = re.search(r'name="seen" value="(\w+)"', text(client, f"{address}?note={note}&edit"))
        assert found is not None
        return found[1]

    empty = seen("new")
    for name in ("plan", "results"):
        client.post(f"{address}?note=new", {"name": name, "notes": f"**{name}** <script>", "seen": empty})
    page = text(client, f"{address}?note=1")
    assert "<strong>results</strong> &lt;script&gt;" in page and ">plan</a>" in page
    late = client.post(f"{address}?note=0", {"name": "plan", "notes": "mine", "seen": empty})
    assert (late.status_code, b"meanwhile" in late.content) == (400, True)
    client.post(f"{address}?note=0", {"name": "plan", "notes": "", "seen": seen("0"), "remove": "yes"})
    assert [note["name"] for note in Project.objects.get(pk=1).notes] == ["results"]
    for name in ("plan", "left over"):
        client.post(f"{address}?note=new", {"name": name, "notes": "", "seen": empty})
    once = {"name": "plan", "notes": "", "seen": seen("1"), "remove": "yes"}
    client.post(f"{address}?note=1", once)
    assert client.post(f"{address}?note=1", once).status_code == 400, "another empty page has moved there"
    assert [note["name"] for note in Project.objects.get(pk=1).notes] == ["results", "left over"]

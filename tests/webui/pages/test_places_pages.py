"""Workspaces and projects on pages, and the list of experiments by them: filters, columns, sort."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from experiments import metric_reports
from experiments.models import Experiment, Project, Workspace
from metrics.ingest import Report
from tests.rig.html import Html
from tests.rig.world import make_host, make_user, submit_experiment, trial_of
from webui.models import UserSetting
from webui.pages.experiments import listing

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
    return Html(answer.content)


def test_a_search_counts_some_pages_beyond_the_one_shown(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "PER_PAGE", 1)
    monkeypatch.setattr(listing, "MOST_COUNTED", 1)
    for number in range(4):
        submit_experiment(name=f"digits {number}")
    assert "1 to 1 of 4" in text(client, "/experiments")
    assert "1 to 1 of more than 1" in text(client, "/experiments?q=digits")
    assert "4 to 4 of more than 1" in text(client, "/experiments?q=digits&page=4")
    assert "4 to 4 of" in text(client, "/experiments?pool=default&page=999999999999999999")
    assert listed(client, "q=digits&page=2") == ["digits 2"]


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


def test_metrics_of_the_best_trials_are_columns_that_sort_in_as_many_statements_for_any_list(
    client: Client,
) -> None:
    def report(name: str, *validations: dict[str, object]) -> None:
        trial = trial_of(submit_experiment(name=name))
        reports = [Report(1, "validation", step, 1.0, each) for step, each in enumerate(validations, 1)]
        metric_reports.store(trial.experiment, trial, reports)

    def statements(address: str) -> int:
        with CaptureQueriesContext(connection) as made:
            client.get(address)
        return len(made)

    report("a", {"loss": 0.5, "val/acc": 0.25}, {"loss": 0.875, "val/acc": 0.125})
    report("b", {"loss": 0.625, "val/acc": "NaN"}, {"loss": 0.375, "val/acc": 0.75})
    submit_experiment(name="c")
    asked = "c=latest&c=m.validation/val%2Facc&c=best&c=m.validation/gone&c=m.%00/x&c=m.no"
    of_few = [statements(f"/experiments?{part}&{asked}") for part in ("", "part")]
    page = text(client, f"/experiments?{asked}&sort=m.validation/val/acc")
    heads = re.findall(r'<th class="[^"]*number".*?>([\w/]+)[ ↑]*(?:</a>)?</th>', page)
    assert heads == ["Best", "Latest", "val/acc", "gone"]
    numbers = re.findall(r'data-label="(Latest|val/acc)">([\d.]*)<', page)
    in_order = ["0.875", "0.125", "0.375", "0.75", "", ""]  # an experiment without a value stands last
    assert [value for _, value in numbers] == in_order
    assert listed(client, "sort=-m.validation/val/acc") == ["b", "a", "c"]
    assert listed(client, "sort=latest") == ["b", "a", "c"]
    assert listed(client, "sort=-latest") == ["a", "b", "c"]
    assert 'name="c" value="m.validation/val/acc"> ' in text(client, "/experiments")
    client.post("/experiments/columns", {"c": ["m.validation/loss", "state", "m.no"], "do": "keep"})
    assert 'value="m.validation/loss" checked' in text(client, "/experiments")
    UserSetting.objects.update(value=r'["m.validation/loss", "m.validation/\ud800", ["m.a/b"]]')
    assert "loss</a></th>" in text(client, "/experiments")
    for name in ("d", "e", "f"):
        report(name, {"loss": 0.25, "val/acc": 1})
    of_many = [statements(f"/experiments?{part}&{asked}") for part in ("", "part")]
    assert all(many <= few for many, few in zip(of_many, of_few, strict=True)), (of_many, of_few)


def test_workspaces_and_projects_are_made_changed_archived_and_deleted(client: Client) -> None:
    at = client.post("/workspaces/+new", {"name": "lab"}).headers["Location"]
    assert "workspace lab already exists" in Html(client.post("/workspaces/+new", {"name": "lab"}).content)
    made = client.post(f"{at}/+project", {"name": "vision", "description": "<b>", "key": ""}).headers[
        "Location"
    ]
    assert '<a class="room" href="/workspaces" aria-current="page">' in text(client, made)
    project = Project.objects.get(name="vision")
    assert (made, project.key) == (f"/projects/{project.pk}", "VIS")
    wrong = client.post(f"{made}/edit", {"name": "", "description": "", "key": "V", "workspace": "1"})
    assert (wrong.status_code, "1 to 80" in Html(wrong.content)) == (400, True)
    assert '<option value="1" selected>Uncategorized</option>' not in text(client, f"{made}/edit")
    assert f"selected>{project.workspace.name}</option>" in text(client, f"{made}/edit")
    wrong = client.post(f"{made}/edit", {"name": "seeing", "key": " "})
    assert (wrong.status_code, "found: nothing" in Html(wrong.content)) == (400, True)
    client.post(f"{made}/edit", {"name": "seeing", "description": "", "key": "see", "workspace": "1"})
    project.refresh_from_db()
    assert (project.name, project.key, project.workspace_id) == ("seeing", "SEE", 1)
    experiment = submit_experiment()
    Experiment.objects.update(project=project)
    page = text(client, made)
    assert f"/experiments?project={project.pk}&amp;state=active" in page and experiment.name in page
    assert "still has experiments" in Html(client.post(f"{made}/delete", follow=True).content)
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
    assert client.post("/workspaces/1/delete", follow=True).content.count(b"is built in") == 1
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
    assert (late.status_code, b"someone else has changed these notes" in late.content) == (400, True)
    client.post(f"{address}?note=0", {"name": "plan", "notes": "", "seen": seen("0"), "remove": "yes"})
    assert [note["name"] for note in Project.objects.get(pk=1).notes] == ["results"]
    for name in ("plan", "left over"):
        client.post(f"{address}?note=new", {"name": name, "notes": "", "seen": empty})
    once = {"name": "plan", "notes": "", "seen": seen("1"), "remove": "yes"}
    client.post(f"{address}?note=1", once)
    assert client.post(f"{address}?note=1", once).status_code == 400, "another empty page has moved there"
    assert [note["name"] for note in Project.objects.get(pk=1).notes] == ["results", "left over"]

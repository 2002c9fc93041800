"""Workspaces, projects and templates."""

from collections.abc import Callable

from experiments.models import Template
from tests.rig.api import Cast, Json

Submit = Callable[..., Json]


def test_uncategorized_is_there_and_cannot_be_changed(cast: Cast) -> None:
    workspace = cast.vic.get("workspaces/1")["workspace"]
    assert {
        "id", "name", "archived", "errorMessage", "immutable", "numExperiments", "numProjects", "pinned", "state",
        "userId", "username",
    } <= workspace.keys()  # fmt: skip
    assert workspace["immutable"] is True
    project = cast.vic.get("projects/1")["project"]
    assert {
        "id", "name", "archived", "errorMessage", "immutable", "key", "notes", "numActiveExperiments", "numExperiments",
        "numRuns", "state", "userId", "username", "workspaceId",
    } <= project.keys()  # fmt: skip
    assert cast.admin.refused("DELETE", "workspaces/1")[0] == 400
    assert cast.admin.refused("PATCH", "projects/1", {"name": "x"})[0] == 400


def test_an_editor_makes_renames_archives_and_deletes_a_workspace(cast: Cast) -> None:
    pk = cast.ada.post("workspaces", {"name": "lab"})["workspace"]["id"]
    assert cast.ada.refused("POST", "workspaces", {"name": "lab"})[0] == 409
    assert cast.bob.refused("PATCH", f"workspaces/{pk}", {"name": "mine"})[0] == 403
    assert [row["id"] for row in cast.vic.get("workspaces?nameCaseSensitive=lab")["workspaces"]] == [pk]
    assert cast.ada.patch(f"workspaces/{pk}", {"name": "lab 2"})["workspace"]["name"] == "lab 2"
    cast.ada.post(f"workspaces/{pk}/archive")
    assert [row["name"] for row in cast.vic.get("workspaces?archived=true")["workspaces"]] == ["lab 2"]
    assert cast.ada.refused("POST", f"workspaces/{pk}/projects", {"name": "p"})[0] == 400
    cast.ada.post(f"workspaces/{pk}/unarchive")
    cast.ada.delete(f"workspaces/{pk}")
    assert cast.ada.refused("GET", f"workspaces/{pk}")[0] == 404


def test_projects_have_keys_notes_and_counts(cast: Cast, submit: Submit) -> None:
    pk = cast.ada.post("workspaces", {"name": "lab"})["workspace"]["id"]
    first = cast.ada.post(f"workspaces/{pk}/projects", {"name": "Vision"})["project"]
    second = cast.ada.post(f"workspaces/{pk}/projects", {"name": "Visible"})["project"]
    assert (first["key"], second["key"]) == ("VIS", "VIS2")
    assert cast.ada.refused("POST", f"workspaces/{pk}/projects", {"name": "Vision"})[0] == 409
    notes = cast.ada.post(f"projects/{first['id']}/notes", {"name": "n", "contents": "# hello"})["notes"]
    assert notes == [{"name": "n", "contents": "# hello"}]
    submit(config="project: Vision\nworkspace: lab\n" + _config())
    assert cast.vic.get("projects/key/vis")["project"]["numExperiments"] == 1
    assert cast.ada.refused("DELETE", f"projects/{first['id']}")[0] == 400
    assert cast.ada.refused("DELETE", f"workspaces/{pk}")[0] == 400
    cast.ada.delete(f"projects/{second['id']}")
    assert [row["name"] for row in cast.vic.get(f"workspaces/{pk}/projects")["projects"]] == ["Vision"]
    other = cast.ada.post("workspaces", {"name": "other"})["workspace"]["id"]
    assert (
        cast.bob.refused("POST", f"projects/{first['id']}/move", {"destinationWorkspaceId": other})[0] == 403
    )
    cast.ada.post(f"projects/{first['id']}/move", {"destinationWorkspaceId": other})
    assert cast.vic.get(f"projects/{first['id']}")["project"]["workspaceName"] == "other"
    assert len(cast.vic.get("workspaces/0/projects")["projects"]) == 2
    assert cast.stranger.refused("GET", "projects/1")[0] == 401
    assert cast.vic.refused("POST", f"workspaces/{pk}/projects", {"name": "x"})[0] == 403


def _config() -> str:
    return (
        "entrypoint: x\nsearcher: {name: single, metric: m, max_length: {batches: 1}}\nhyperparameters: {}\n"
    )


def test_templates_are_made_replaced_renamed_and_removed(cast: Cast) -> None:
    config = {"resources": {"slots_per_trial": 2}}
    made = cast.ada.post("templates/big", {"name": "big", "config": config, "workspaceId": 1})["template"]
    assert made.pop("changedAt").endswith("Z")
    assert made == {"name": "big", "config": config, "workspaceId": 1, "changedBy": "ada", "owner": "ada"}
    assert cast.ada.refused("POST", "templates/big", {"config": config})[0] == 409
    assert cast.ada.patch("templates/big", {"max_restarts": 1})["template"]["config"] == {"max_restarts": 1}
    cast.ada.put("templates/new", {"name": "new", "config": config})
    assert [row["name"] for row in cast.vic.get("templates")["templates"]] == ["big", "new"]
    cast.ada.patch("template/rename", {"oldName": "new", "newName": "newer"})
    cast.ada.delete("templates/newer")
    assert cast.ada.refused("GET", "templates/newer")[0] == 404
    assert cast.vic.refused("DELETE", "templates/big")[0] == 403


def test_a_wrong_template_is_refused_when_it_is_saved(cast: Cast) -> None:
    status, sentence = cast.ada.refused("POST", "templates/t", {"config": {"resources": {"slots": "x"}}})
    assert status == 400
    assert "resources.slots" in sentence
    assert cast.ada.refused("POST", "templates/t", {"config": []})[0] == 400
    assert not Template.objects.exists()


def test_a_masked_secret_that_comes_back_is_kept(cast: Cast) -> None:
    config = {"environment": {"environment_variables": ["API_KEY=hunter2"]}}
    cast.ada.post("templates/t", {"config": config})
    shown = cast.vic.get("templates/t")["template"]["config"]
    assert "hunter2" not in str(shown)
    cast.ada.patch("templates/t", shown)
    assert "hunter2" in str(Template.objects.get().config)

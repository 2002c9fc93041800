"""A new experiment from the page: faults by line, a template's part, code as a zip or folder, and made once."""

from __future__ import annotations

import io
import json
import re
import zipfile

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from accounts.models import User
from experiments import templates
from experiments.models import Experiment, Template, Workspace
from submissions import contexts
from tests.rig.html import Html
from tests.rig.world import make_host, make_user
from trainmaster.cli.preview_search import IF_KEPT, SIMULATED, WHY_OTHERWISE

pytestmark = pytest.mark.django_db
CONFIG = """name: dropped
entrypoint: python3 train.py
searcher: {name: single, metric: loss, max_length: {batches: 10}}
environment:
  environment_variables: [API_KEY=hunter2]
"""
#: a pool that does not exist
POOL = "resources: {resource_pool: no-such}\n"


@pytest.fixture
def client() -> Client:
    make_host("gpu1", slots=1)
    client = Client()
    client.force_login(make_user())
    templates.create(
        "shared", "resources: {priority: 7}\ndescription: from it\n",
        workspace=Workspace.objects.get(pk=1), user=make_user(),
    )  # fmt: skip
    return client


def send(client: Client, address: str = "/experiments/new", **fields: object) -> tuple[int, str]:
    """Status, and where it leads or what was found."""
    answer = client.post(address, {"config": CONFIG, **fields}, headers={"Accept": "application/json"})
    found = answer.json()
    return answer.status_code, str(found.get("href") or re.sub(r"\s+", " ", found["checked"]))


def zipped(**files: str) -> SimpleUploadedFile:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"{name}.py", content)
    return SimpleUploadedFile("code.zip", out.getvalue())


def test_all_faults_are_named_at_once_and_by_line(client: Client) -> None:
    text = "name: x\nsearcher: {name: single, metricc: loss}\nresources:\n  slots_per_trial: many\n"
    page = Html(client.post("/experiments/check", {"config": text}).content)
    assert re.findall(r'<li data-line="(\d+)"', page) == ["2", "2", "4"]
    assert "<code>resources.slots_per_trial</code>" in page and "<code>entrypoint</code>" in page
    broken = Html(client.post("/experiments/check", {"config": "name: x\nlabels: [x"}).content)
    assert 'data-line="2"' in broken
    assert "does not exist" in Html(client.post("/experiments/check", {"config": CONFIG + POOL}).content)
    several = send(client, config=f"{CONFIG}workspace: w\nproject: p\nlabels: 1\n{POOL}", zip=zipped())
    for part in ("project p in workspace w not found", "no-such does not exist", "<code>labels</code>"):
        assert several[0] == 400 and part in several[1]
    assert "which is not among the files" in Html(client.post(
        "/experiments/check", {"config": CONFIG, "paths": "other.py"}
    ).content)  # fmt: skip


def test_each_line_says_where_it_comes_from_and_no_secret_is_shown(client: Client) -> None:
    page = Html(client.post("/experiments/check", {"config": CONFIG, "template": "shared"}).content)
    assert 'class="from template"><span class="origin">template</span><code>  priority: 7<' in page
    assert 'class="from config"><span class="origin"></span><code>name: dropped<' in page
    assert 'class="from default"><span class="origin"></span><code>max_restarts: 5<' in page
    assert (
        set(re.findall(r'<span class="origin">(\w*)</span>', page)) == {"", "template"}
        and "hunter2" not in page
    )
    other = client.post("/experiments/check", {"config": f"{CONFIG}max_restarts: 0\n", "template": ""})
    assert 'max_restarts: 0</code> <span class="hint">default: 5</span>' in re.sub(
        r"\s+", " ", other.content.decode()
    )


def test_a_zip_is_submitted_with_a_template_and_once_for_each_form(client: Client) -> None:
    status, href = send(client, zip=zipped(train="print()"), template="shared", key="k1")
    assert (status, send(client, zip=zipped(train="print()"), template="shared", key="k1")) == (
        200,
        (200, href),
    )
    made = Experiment.objects.get()
    assert href == f"/experiments/{made.pk}"
    assert [(entry["path"], entry["size"]) for entry in made.context.listing] == [("train.py", 7)]
    assert (made.template_name, made.template_config["resources"], made.description) == (
        "shared", {"priority": 7}, "from it",
    )  # fmt: skip
    templates.rename("shared", "ours", user=make_user())
    templates.remove("ours", user=make_user())
    config = re.search(r"<textarea[^>]*>(.*?)</textarea>", client.get(f"{href}/fork").content.decode(), re.S)
    assert config is not None and "hunter2" not in config[1]
    status, fork = send(client, f"{href}/fork", config=config[1], template="ours", key="k2", name="again")
    assert status == 200, fork
    forked = Experiment.objects.latest("pk")
    assert (forked.parent_id, forked.context_id, forked.name) == (made.pk, made.context_id, "again")
    assert forked.config["resources"]["priority"] == 7 and "hunter2" in forked.original_config


def test_what_a_search_would_do_is_said_before_it_is_submitted(client: Client) -> None:
    search = CONFIG.replace("name: single", "name: random, max_trials: 6")
    page = Html(client.post("/experiments/check", {"config": search, "seconds_per_unit": "60"}).content)
    text = re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", page))
    assert (
        "6 train for 10 batches" in text
        and "In total 60 batches" in text
        and "That is 1 slot-hours, and 10 min with" in text
    )
    asha = CONFIG.replace("name: single", "name: adaptive_asha, max_trials: 8, max_rungs: 2, divisor: 2")
    page = Html(client.post("/experiments/check", {"config": asha}).content)
    assert '<span class="came"' in page and "less than training all trials to the end" in page
    text = re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", page))
    assert (
        f"batches {SIMULATED}," in text
        and f"batches {IF_KEPT}, as counted on the Search page. {WHY_OTHERWISE}" in text
    )


def test_a_folder_is_submitted_and_what_cannot_be_is_said(client: Client) -> None:
    manifest = json.dumps([{"path": "code/train.py", "size": 3, "mtime": 0}])
    status, _ = send(client, contents=SimpleUploadedFile("contents", b"abc"), manifest=manifest, paused="on")
    made = Experiment.objects.get()
    assert (status, made.state, contexts.read_file(made.context, "train.py")) == (200, "PAUSED", b"abc")
    assert send(client, zip=SimpleUploadedFile("x.zip", b"nothing"))[0] == 400
    assert "is not a zip file" in send(client, zip=SimpleUploadedFile("x.zip", b"nothing"))[1]
    assert "template gone no longer exists" in send(client, template="gone")[1]
    client.force_login(make_user("vic", User.Role.VIEWER))
    assert "vic is a viewer and cannot change anything" in send(client)[1]
    assert Experiment.objects.count() == 1 and Template.objects.count() == 1

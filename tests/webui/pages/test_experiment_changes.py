"""What people change of experiments on pages: name, labels, project, notes, many at once; and the code that differs."""

from __future__ import annotations

import base64
import io
import json
import re
import zipfile

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import User
from accounts.refusals import Refusal
from experiments import transitions
from experiments.models import Checkpoint, Experiment, Project, Trial, Workspace
from hosts.models import ResourcePool
from jobs import queue_edits
from jobs.queue_edits import Update
from shown import notebook_cells
from shown.source_text import markdown
from submissions import code_changes, contexts
from submissions.contexts import PlainFile
from tests.rig.html import Html, without_tags
from tests.rig.world import make_host, make_user, submit_experiment, trial_of

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


def with_code(experiment: Experiment, **files: str) -> Experiment:
    made = contexts.store_plain(
        PlainFile(f"{name.replace('__', '/')}.py", 0o644, 0, content.encode())
        for name, content in files.items()
    )
    Experiment.objects.filter(pk=experiment.pk).update(context=made)
    experiment.refresh_from_db()
    return experiment


def test_the_code_is_a_tree_and_what_differs_from_the_parents_is_shown(client: Client) -> None:
    old = with_code(submit_experiment(name="old"), train="a\nb\n<c>\n", lib__gone="x\n", same="s\n")
    new = with_code(submit_experiment(name="new"), train="a\nB\n<c>\n", lib__new="y\n", same="s\n")
    Experiment.objects.filter(pk=new.pk).update(parent=old)
    page = text(client, f"/experiments/{new.pk}/code")
    assert '<summary class="mono">lib/</summary>' in page and f"?against={old.pk}" in page
    assert "<c>" not in text(client, f"/experiments/{new.pk}/code?file=train.py")
    page = text(client, f"/experiments/{new.pk}/code?against={old.pk}")
    assert "1 changed, 1 added, 1 removed." in page and 'id="change-config"' in page
    assert re.findall(r'id="change-([^"]+)"', page)[1:] == ["lib/gone.py", "lib/new.py", "train.py"]
    rows = re.findall(
        r'<span class="sign">([+-])</span><code>([^<]*)</code>', page.partition('id="change-train')[2]
    )
    assert rows == [("-", "b"), ("+", "B")]
    assert client.get(f"/experiments/{new.pk}/code?against=x").status_code == 404
    answer = client.get(f"/experiments/{new.pk}/code.zip")
    with zipfile.ZipFile(io.BytesIO(b"".join(answer))) as archive:
        assert sorted(archive.namelist()) == ["lib/new.py", "same.py", "train.py"]
    page = text(client, f"/experiments/{new.pk}/config")
    assert 'class="from default"' in page and '<span class="origin"></span><code>name: new</code>' in page


def test_the_config_in_force_says_what_the_queue_has_changed_and_keeps_what_was_submitted(
    client: Client,
) -> None:
    experiment = submit_experiment(priority=42)
    address, job = f"/experiments/{experiment.pk}/config", str(experiment.job_id)
    assert "changed in the queue:" not in text(client, address)
    ResourcePool.objects.create(name="other")
    queue_edits.apply([Update(job, priority=7)], actor="user:ada", role=User.Role.EDITOR)
    for slots in (5, 3):
        queue_edits.apply([Update(job, max_slots=slots)], actor="user:eve", role=User.Role.ADMIN)
    queue_edits.apply([Update(job, pool="other")], actor="user:ada", role=User.Role.EDITOR)
    for part in ("", "?part=config"):
        page = text(client, address + part)
        told = without_tags(client.get(address + part).content)
        assert "priority was changed in the queue: now 7, 42 at submission; by ada" in told
        assert "max_slots was changed in the queue: now 3, none at submission; by eve" in told
        assert "resource_pool was changed in the queue: now other, default at submission; by ada" in told
        assert (
            '<div class="from queue other"><span class="origin">queue</span><code> priority: 7</code>' in page
        )
        assert "instead of 42 at submission" in page
    assert "priority: 42" in without_tags(client.get(address).content).partition("As submitted")[2]
    queue_edits.apply([Update(job, priority=42)], actor="user:ada", role=User.Role.EDITOR)
    assert "<code>priority</code> was changed" not in text(client, address)


def test_files_whose_comparison_would_take_long_are_named_without_their_lines() -> None:
    many = [f"{number}\n".encode() for number in range(4000)]
    assert code_changes.of_file("a", b"".join(many), b"".join(many[1:])).removed == 1
    alike = code_changes.of_file("a", b"x\n" * 2000, b"x\n" * 1999)
    assert "Too many differences" in alike.told and not alike.rows


PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n and more").decode()
NOTEBOOK = {
    "nbformat": 4,
    "metadata": {"kernelspec": {"language": "python"}},
    "cells": [
        {"cell_type": "markdown", "source": ["# Look\n", "<script>1</script>"]},
        {"cell_type": "code", "execution_count": 3, "source": "import os\n'<b>'", "outputs": [
            {"output_type": "stream", "name": "stdout", "text": ["10%\r100%\n", "\ud800"]},
            {"output_type": "display_data", "data": {"image/png": [PNG[:8] + "\n", PNG[8:]], "text/plain": "<Figure>"}},
            {"output_type": "display_data", "data": {"image/png": "bm9uZQ=="}},
            {"output_type": "execute_result", "data": {"text/html": "<table onclick=x>", "text/plain": "a  <b>"}},
            {"output_type": "display_data", "data": {"text/html": "<iframe>"}},
            {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["\x1b[31mE\x1b[0m: v"]},
            7,
        ]},
        {"cell_type": 5, "source": None, "outputs": 3},
    ],
}  # fmt: skip


def test_a_notebook_is_shown_as_cells_and_its_text_is_a_link_away(client: Client) -> None:
    made = contexts.store_plain([PlainFile("look.ipynb", 0o644, 0, json.dumps(NOTEBOOK).encode())])
    experiment = submit_experiment()
    Experiment.objects.filter(pk=experiment.pk).update(context=made)
    address = f"/experiments/{experiment.pk}/code?file=look.ipynb"
    page = text(client, address)
    for part in (
        "3 cells in python", "<h1>Look</h1>", "&lt;script&gt;", '<span class="kn">import</span>', ">[3]</a>", "100%",
        f'<img src="data:image/png;base64,{PNG}"', "not valid image/png", "a &lt;b&gt;",
        "its type (text/html) is not shown here", '<pre class="output is-error" tabindex="0">E: v</pre>',
    ):  # fmt: skip
        assert part in page, part
    assert "<b>" not in page and "iframe" not in page and "10%\r" not in page and "Figure" not in page
    assert 'href="?file=look.ipynb&amp;raw=1"' in page and "nbformat" not in page
    raw = text(client, f"{address}&raw=1")
    assert "nbformat" in raw and "its cells" in raw and '<section class="cell"' not in raw


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{", "cannot be read as JSON"),
        (b"[" * 100_000, "cannot be read as JSON"),
        (b"[]", "a notebook is a map"),
        (b'{"nbformat": 3, "worksheets": []}', "of format 3"),
        (b'{"nbformat": 4, "cells": [1]}', "no list of cells"),
        (b" " * (notebook_cells.MOST_BYTES + 1), "up to 8,388,608 are shown"),
    ],
)
def test_what_is_no_notebook_says_why(content: bytes, why: str) -> None:
    with pytest.raises(Refusal, match=why):
        notebook_cells.read(content)


def test_of_a_long_notebook_a_page_shows_the_beginning(client: Client) -> None:
    many = [{"cell_type": "code", "source": "a" * 100_000, "outputs": []}] * 9
    shown = notebook_cells.read(json.dumps({"nbformat": 4, "cells": many}).encode())
    assert (len(shown.cells), shown.left_out) == (6, 3)
    assert "rest of this cell is left out" in shown.cells[-1].outputs[0].left_out
    lines = [{"output_type": "stream", "text": "x"}] * 9_000
    cell = {"cell_type": "code", "source": "", "outputs": lines}
    (read,) = notebook_cells.read(json.dumps({"nbformat": 4, "cells": [cell]}).encode()).cells
    assert len(read.outputs) < 2_100 and "outputs are left out" in read.outputs[-1].left_out
    experiment = submit_experiment()
    made = contexts.store_plain([PlainFile("broken.ipynb", 0o644, 0, b'{"cells": ')])
    Experiment.objects.filter(pk=experiment.pk).update(context=made)
    page = text(client, f"/experiments/{experiment.pk}/code?file=broken.ipynb")
    assert "cannot be read as JSON" in page and "Its raw text is shown instead." in page and "cells" in page


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("[x](javascript:alert(1))", "[x](javascript:alert(1))"),
        ("![alt](https://e.org/a.png)", '<a href="https://e.org/a.png" rel="noopener noreferrer nofollow">alt'),
        ("# A\n\n| a |\n|---|\n| **b** |", "<td><strong>b</strong></td>"),
        ("<img src=x onerror=alert(1)>", "&lt;img"),
    ],
)  # fmt: skip
def test_notes_can_do_nothing(written: str, shown: str) -> None:
    html = markdown(written)
    assert shown in html and "<script" not in html and "<img" not in html


def test_notes_are_kept_and_never_written_over_unseen(client: Client) -> None:
    experiment = submit_experiment()
    address = f"/experiments/{experiment.pk}/notes"
    seen = re.search(r'name="seen" value="(\w+)"', text(client, f"{address}?edit"))
    assert seen is not None
    assert client.post(address, {"notes": "**bold**", "seen": seen[1]}).status_code == 302
    assert "<strong>bold</strong>" in text(client, address)
    late = client.post(address, {"notes": "mine", "seen": seen[1]})
    assert (late.status_code, b"Someone else has changed the notes" in late.content) == (400, True)
    assert Experiment.objects.get().notes == "**bold**"
    assert client.post("/experiments/preview-notes", {"notes": "*x*"}).content == b"<p><em>x</em></p>\n"
    client.force_login(make_user("eve"))
    assert client.post(address, {"notes": "", "seen": ""}).status_code == 400


def test_name_labels_and_project_are_changed_on_one_page(client: Client) -> None:
    experiment = submit_experiment()
    workspace = Workspace.objects.create(name="lab")
    project = Project.objects.create(workspace=workspace, name="p", key="P")
    address = f"/experiments/{experiment.pk}/edit"
    client.post(address, {"name": "n", "description": "d", "labels": "a, b, a", "project": str(project.pk)})
    changed = Experiment.objects.get()
    assert (changed.name, changed.description, changed.labels, changed.project) == (
        "n",
        "d",
        ["a", "b"],
        project,
    )
    wrong = client.post(address, {"name": " ", "labels": "l" * 200, "project": "0"})
    said = Html(wrong.content)
    assert wrong.status_code == 400 and "Nothing was changed: 3 fields have errors." in said
    for field, sentence in (
        ("name", "A name has 1 to"),
        ("labels", "At most 50"),
        ("project", "no such project"),
    ):
        assert re.search(rf'id="{field}_error">[^<]*{sentence}', said), field
    Project.objects.filter(pk=project.pk).update(archived=True)
    assert f'<option value="{project.pk}" selected>lab / p (archived)' in text(client, address)
    client.force_login(make_user("eve"))
    assert client.get(address).status_code == 403


def test_a_trials_page_offers_nothing_that_only_the_experiment_can_be(client: Client) -> None:
    experiment = submit_experiment()
    trial = trial_of(experiment)
    checkpoint = Checkpoint.objects.create(
        trial=trial, state="COMPLETED", steps_completed=3, reported_at=timezone.now(), size_bytes=2048
    )
    Trial.objects.filter(pk=trial.pk).update(latest_checkpoint=checkpoint, metadata={"commit": {"id": "abc"}})
    page = text(client, f"/trials/{trial.pk}")
    assert ">Delete</a>" not in page and ">Edit</a>" not in page and "Fork experiment" in page
    assert f"/fork?hparams={trial.pk}&amp;checkpoint={checkpoint.pk}" in page
    assert "2.0 KiB" in page and "commit.id" in page and "Kill this trial" not in page
    fork = text(client, f"/experiments/{experiment.pk}/fork?hparams={trial.pk}&checkpoint={checkpoint.pk}")
    assert f"Continuation of trial {trial.pk}, experiment {experiment.pk}" in fork


def test_how_long_logs_are_kept_is_set_for_one_and_for_many(client: Client) -> None:
    experiment = submit_experiment()
    address = f"/experiments/{experiment.pk}/edit"
    assert "forever) or 0 to" in Html(client.post(address, {"logs": "-2"}).content)
    client.post(address, {"logs": "30"})
    assert "30 days after the end" in text(client, f"/trials/{trial_of(experiment).pk}")
    ticked = {"experiment": [experiment.pk], "back": "/experiments"}
    assert "Keep logs: 1 experiment" in Html(client.post("/experiments/chosen/keep-logs", ticked).content)
    client.post("/experiments/chosen/keep-logs", {**ticked, "sure": "yes", "days": "-1"})
    assert "forever" in text(client, f"/trials/{trial_of(experiment).pk}")
    board = client.post("/experiments/chosen/tensorboard", ticked).headers["Location"]
    assert board == f"/tasks/+new?type=tensorboard&experiments={experiment.pk}"


def test_before_a_deletion_it_is_said_what_goes(client: Client) -> None:
    experiment = submit_experiment()
    trial = trial_of(experiment)
    Checkpoint.objects.create(
        trial=trial, allocation_id="a", state="COMPLETED", steps_completed=1, size_bytes=2048,
        storage={"type": "server"}, reported_at=experiment.started_at,
    )  # fmt: skip
    address = f"/experiments/{experiment.pk}/delete"
    assert "Only ended experiments can be deleted" in text(client, address)
    transitions.kill(experiment.pk, actor="user:ada")
    assert f'href="{address}"' in text(client, f"/experiments/{experiment.pk}")
    assert "1, 2.0 KiB" in text(client, address)
    assert client.post(address).headers["Location"] == "/experiments"
    assert Experiment.objects.get().state == "DELETING"


def test_many_are_changed_at_once_each_by_itself(client: Client) -> None:
    mine, other = submit_experiment(name="mine"), submit_experiment(name="other", owner=make_user("eve"))
    ticked = {"experiment": [mine.pk, other.pk], "back": "/experiments?q=x"}

    def said(action: str, **more: str) -> str:
        answer = client.post(f"/experiments/chosen/{action}", {**ticked, **more}, follow=True)
        return Html(answer.content)

    page = said("pause")
    assert "1 experiment paused." in page
    whose = f"experiment {other.pk} belongs to {other.owner.username}"
    assert f"1 not paused: {whose}; only its owner or an admin can change it." in page
    assert "Enter at least one label" in said("label", sure="yes", labels=" ")
    said("label", sure="yes", labels="x, y")
    said("unlabel", sure="yes", labels="y")
    assert Experiment.objects.get(pk=mine.pk).labels == ["x"]
    assert "This cannot be undone." in said("cancel") and Experiment.objects.get(pk=mine.pk).state == "PAUSED"
    assert "Kill 2 experiments" in said("kill") and Experiment.objects.get(pk=mine.pk).state == "PAUSED"
    assert "1 experiment killed." in said("kill", sure="yes")
    Experiment.objects.filter(pk=mine.pk).update(state="CANCELED")  # as once its attempts have ended
    assert f"2 not paused: experiment {mine.pk} has ended. {whose}; only" in said("pause")
    assert "Deleting removes 2 trials" in said("delete")
    assert "archived." in said("archive")
    client.force_login(make_user("root", User.Role.ADMIN))
    assert "is archived" in said("move", sure="yes", project="1")
    back = client.post("/experiments/chosen/pause", {"experiment": [mine.pk], "back": "//evil.example"})
    assert back.headers["Location"] == "/experiments"


def test_the_editor_of_continue_says_what_is_wrong_by_line(client: Client) -> None:
    experiment = submit_experiment()
    transitions.kill(experiment.pk, actor="user:ada")

    def checked(text: str) -> str:
        sent = {"kind": "changes", "parent": experiment.pk, "config": text}
        return re.sub(r"\s+", " ", client.post("/experiments/check", sent).content.decode())

    assert "Config is valid" in checked("") and "Config is valid" in checked("max_restarts: 2")
    assert 'data-line="2"' in checked("searcher:\n  max_length: no\n")
    assert "cannot be changed when a single search is continued" in checked("searcher: {name: grid}")
    assert "names host gpu7, which does not exist" in checked("resources: {hosts: [gpu7]}")
    assert "There is no experiment 4711 to wait for" in checked("depends_on: [4711]")
    page = client.get(f"/experiments/{experiment.pk}/continue").content.decode()
    assert 'data-editor="changes"' in page and "max_length" in page
    assert 'data-pool="default"' in page and '<input type="checkbox" value="gpu1">' in page

"""What people change of experiments on pages: name, labels, project, notes, many at once; and the code that differs."""

from __future__ import annotations

import io
import re
import zipfile

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import User
from experiments import transitions
from experiments.models import Checkpoint, Experiment, Project, Trial, Workspace
from submissions import contexts
from submissions.contexts import PlainFile
from tests.rig.world import make_host, make_user, submit_experiment, trial_of
from webui.pages import code_changes
from webui.pages.source_text import markdown

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
    assert (
        'class="from default"' in page and '<span class="origin">config</span><code>name: new</code>' in page
    )


def test_files_whose_comparison_would_take_long_are_named_without_their_lines() -> None:
    many = [f"{number}\n".encode() for number in range(4000)]
    assert code_changes.of_file("a", b"".join(many), b"".join(many[1:])).removed == 1
    alike = code_changes.of_file("a", b"x\n" * 2000, b"x\n" * 1999)
    assert "Too much differs" in alike.told and not alike.rows


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
    assert (late.status_code, b"meanwhile" in late.content) == (400, True)
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
    assert client.post(address, {"name": " "}).status_code == 400
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
    assert b"for ever) or 0 to" in client.post(address, {"logs": "-2"}).content
    client.post(address, {"logs": "30"})
    assert "30 days after its end" in text(client, f"/trials/{trial_of(experiment).pk}")
    ticked = {"experiment": [experiment.pk], "back": "/experiments"}
    assert b"Logs of 1 experiment" in client.post("/experiments/chosen/keep-logs", ticked).content
    client.post("/experiments/chosen/keep-logs", {**ticked, "sure": "yes", "days": "-1"})
    assert "for ever" in text(client, f"/trials/{trial_of(experiment).pk}")
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
    assert "deleted once it has ended" in text(client, address)
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
        return re.sub(r"\s+", " ", answer.content.decode())

    page = said("pause")
    assert "1 experiment paused." in page
    assert f"1 not paused: experiment {other.pk}: only its owner or an admin may change it." in page
    assert "Name at least one label" in said("label", sure="yes", labels=" ")
    said("label", sure="yes", labels="x, y")
    said("unlabel", sure="yes", labels="y")
    assert Experiment.objects.get(pk=mine.pk).labels == ["x"]
    assert "Kill 2 experiments" in said("kill") and Experiment.objects.get(pk=mine.pk).state == "PAUSED"
    assert "1 experiment killed." in said("kill", sure="yes")
    Experiment.objects.filter(pk=mine.pk).update(state="CANCELED")  # as once its attempts have ended
    assert f"2 not paused: experiment {mine.pk} has ended. experiment {other.pk}: only" in said("pause")
    assert "Deleted are 2 trials" in said("delete")
    assert "archived." in said("archive")
    client.force_login(make_user("root", User.Role.ADMIN))
    assert "is archived" in said("move", sure="yes", project="1")
    answer = client.post("/experiments/chosen/compare", ticked)
    assert answer.headers["Location"] == f"/compare?experiment={mine.pk}&experiment={other.pk}"
    back = client.post("/experiments/chosen/pause", {"experiment": [mine.pk], "back": "//evil.example"})
    assert back.headers["Location"] == "/experiments"

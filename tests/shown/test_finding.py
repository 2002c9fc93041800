"""The search over the console: things by name, label, number and hyperparameter, and what can be done with them."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from accounts.models import User
from commands import services, submit
from commands.config import check
from dispatch.passes import pool_pass
from experiments import transitions
from experiments.models import Experiment, Template, Workspace
from hosts.pools import default_pool
from jobs import transitions as jobs
from jobs.models import Job, Member
from shown import finding
from shown.finding import MOST_OF_A_KIND, Hit
from submissions import contexts
from tests.rig.world import make_host, make_user, submit_experiment, trial_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> User:
    return make_user()


def submitted(name: str, labels: list[str], hparams: dict[str, Any]) -> Experiment:
    experiment = submit_experiment(name=name)
    Experiment.objects.filter(pk=experiment.pk).update(labels=labels)
    experiment.trials.update(hparams=hparams)
    return experiment


def hits(user: User, text: str) -> dict[str, list[Hit]]:
    return dict(finding.find(user, text))


def addresses(user: User, text: str) -> list[str]:
    return [hit.href for found in hits(user, text).values() for hit in found]


def test_experiments_are_found_by_name_label_number_and_hyperparameter(ada: User) -> None:
    bert = submitted("bert-base", ["night"], {"lr": 0.01, "optimizer": {"name": "adam", "decay": 1e-4}})
    vit = submitted("vit-large", [], {"lr": 0.1, "optimizer": {"name": "sgd"}})
    at = {each.pk: f"/experiments/{each.pk}" for each in (bert, vit)}
    for text in (
        "bert", "NIGHT", "lr=0.01", "lr=1e-2", "optimizer.name=adam", "optimizer.decay=0.0001 lr=0.01", "base lr=0.01"
    ):  # fmt: skip
        assert addresses(ada, text) == [at[bert.pk]], text
    assert at[vit.pk] in addresses(ada, str(vit.pk)) and at[vit.pk] in addresses(ada, f"exp {vit.pk}")
    for text in (
        "lr=0.5",
        "vit lr=0.01",
        "optimizer=adam",
        "lr=.nan",
        "lr=[",
        "optimizer.name.first=adam",
        "a" * 999,
    ):
        assert addresses(ada, text) == [], text


def test_the_list_of_experiments_takes_a_hyperparameter_beside_its_other_filters(ada: User) -> None:
    bert = submitted("bert", [], {"lr": 0.01})
    vit = submitted("vit", [], {"lr": 0.1})
    client = Client()
    client.force_login(ada)
    page = client.get("/experiments?q=lr%3D0.01&state=active").content.decode()
    assert f'"/experiments/{bert.pk}"' in page and f'"/experiments/{vit.pk}"' not in page


def test_an_action_is_offered_where_it_is_legal_and_the_user_may(ada: User) -> None:
    experiment = submitted("mine", [], {})
    (pause,) = hits(ada, f"pause {experiment.pk}")["Actions"]
    assert (pause.title, pause.does, pause.asks) == (f"Pause experiment {experiment.pk}", True, "")
    (kill,) = hits(ada, "kill exp mine")["Actions"]
    assert kill.href == f"/experiments/{experiment.pk}/kill" and "anything not saved is lost" in kill.asks
    assert "Actions" not in hits(ada, f"resume {experiment.pk}"), "it is not paused"
    assert "Actions" not in hits(make_user("bob"), f"pause {experiment.pk}"), "it is another's"
    transitions.kill(experiment.pk, actor="user:ada")
    assert "Actions" not in hits(ada, f"pause {experiment.pk}")


def test_a_page_of_a_thing_is_offered(ada: User) -> None:
    experiment = submitted("mine", [], {})
    trial = trial_of(experiment).pk
    for text, href in (
        (f"logs of exp {experiment.pk}", f"/trials/{trial}/logs"),
        ("curves mine", f"/trials/{trial}/metrics"),
        (f"config {experiment.pk}", f"/experiments/{experiment.pk}/config"),
        (f"checkpoints of trial {trial}", f"/trials/{trial}/checkpoints"),
    ):
        assert [hit.href for hit in hits(ada, text)["Actions"]] == [href], text
    named = submitted("config test", [], {})
    assert f"/experiments/{named.pk}" in addresses(ada, "config test"), "a name may begin with such a word"


def test_other_things_are_found_by_name(ada: User) -> None:
    make_host("gpu-a7", slots=1)
    Template.objects.create(name="night-runs", config={}, workspace=Workspace.objects.get(pk=1))
    assert addresses(ada, "gpu-a") == ["/hosts/gpu-a7"] == addresses(ada, "host a7")
    assert addresses(ada, "defaul") == ["/jobs/default", "/pools/default"]
    assert addresses(ada, "night-r") == ["/templates/night-runs"]
    assert addresses(ada, "pool a7") == []


def test_a_task_is_found_by_its_id_and_killed(ada: User) -> None:
    make_host("gpu1", slots=1)
    command = submit.create(
        owner=ada, config=check({"entrypoint": "sleep 1", "description": "bench"}), context=contexts.empty(),
        workspace_number=1, idempotency_key=None, actor="user:ada",
    )  # fmt: skip
    assert addresses(ada, command.short_id) == [f"/commands/{command.pk}"] == addresses(ada, "cmd bench")
    (kill,) = hits(ada, f"kill {command.short_id}")["Actions"]
    assert kill.does and kill.href == f"/commands/{command.pk}/kill" and kill.asks
    (log,) = hits(ada, f"logs {command.short_id}")["Actions"]
    assert log.href == f"/commands/{command.pk}/log"


def test_the_terminal_of_a_shell_is_offered_while_it_is_ready_to_whom_it_belongs(ada: User) -> None:
    make_host("gpu1", slots=1)
    shell = submit.create(
        owner=ada, config=check({"description": "debug"}, kind=Job.Kind.SHELL), context=contexts.empty(),
        workspace_number=1, idempotency_key=None, actor="user:ada", kind=Job.Kind.SHELL,
    )  # fmt: skip
    experiment = submitted("debug run", [], {})
    assert "Actions" not in hits(ada, f"terminal {shell.short_id}"), "it is not ready"
    pool_pass.run(default_pool().pk)
    member = Member.objects.get(allocation__task=shell.task)
    jobs.member_launched(member.pk, boot_id="b")
    jobs.member_running(member.pk)
    services.reported(shell.task_id, {"type": "ready", "port": 20_001})
    for text in (f"terminal {shell.short_id}", "terminal of shell debug", "terminal debug"):
        assert [hit.href for hit in hits(ada, text)["Actions"]] == [f"/tasks/{shell.pk}/terminal"], text
    assert "Actions" not in hits(make_user("bob"), f"terminal {shell.short_id}"), "it is another's"
    assert "Actions" not in hits(ada, f"terminal of exp {experiment.pk}")


def test_of_many_the_newest_are_shown_with_a_way_to_all(ada: User) -> None:
    made = [submitted(f"many {n}", [], {}) for n in range(MOST_OF_A_KIND + 2)]
    found = addresses(ada, "many")
    assert found == [*(f"/experiments/{each.pk}" for each in made[:1:-1]), "/experiments?q=many"]


def test_the_page_says_what_it_found_and_what_a_form_would_do(ada: User) -> None:
    experiment = submitted("<b>mine</b>", [], {})
    client = Client()
    client.force_login(ada)
    page = client.get(f"/find?q=kill+{experiment.pk}").content.decode()
    assert f'action="/experiments/{experiment.pk}/kill"' in page and "data-confirm=" in page
    assert "&lt;b&gt;mine&lt;/b&gt;" in page and "<b>mine" not in page
    part = client.get("/find?part&q=gpus").content.decode()
    assert 'href="/hosts"' in part and "1 result" in part and "<main" not in part
    assert "Search for a hyperparameter as lr=0.01." in client.get("/find?q=zzzzzz").content.decode()

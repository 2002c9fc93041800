"""Pages of commands, shells and TensorBoards: the state, host and reason of each, and what one of them offers."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from commands import services, submit
from commands.config import check
from commands.models import Command
from dispatch.passes import pool_pass
from hosts.models import ResourcePool
from hosts.pools import default_pool
from jobs import transitions
from jobs.models import Job, Member
from submissions import contexts
from tests.rig.world import make_host, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> Client:
    make_host("gpu1", slots=1)
    client = Client()
    client.force_login(make_user())
    return client


def made(kind: Job.Kind, **config: object) -> Command:
    return submit.create(
        owner=make_user(), config=check(dict(config), kind=kind), context=contexts.empty(), workspace_number=1,
        idempotency_key=None, actor="user:ada", kind=kind, shown=submit.Shown([7], []),
    )  # fmt: skip


def run(command: Command) -> None:
    pool_pass.run(default_pool().pk)
    member = Member.objects.get(allocation__task=command.task)
    transitions.member_launched(member.pk, boot_id="b")
    transitions.member_running(member.pk)


def text(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, answer
    return re.sub(r"\s+", " ", answer.content.decode())


def test_a_service_is_ready_once_it_accepts_connections(client: Client) -> None:
    shell = made(Job.Kind.SHELL)
    assert "Queued" in text(client, "/tasks?part")
    run(shell)
    assert "Running" in text(client, "/tasks?part")
    assert "It is starting on gpu1." in text(client, f"/tasks/{shell.pk}?part")
    services.reported(shell.task_id, {"type": "ready", "port": 20_001})
    listed, waited = text(client, "/tasks?part"), text(client, f"/tasks/{shell.pk}?part")
    ready = '<span class="state"><span class="lamp running"></span>Ready</span>'
    assert ready in listed and '<a href="/hosts/gpu1">gpu1</a>' in listed
    assert f'href="/tasks/{shell.pk}"' in listed and f'action="/commands/{shell.pk}/kill"' in listed
    assert ready in waited and "It is ready on gpu1." in waited
    assert f"Shell {shell.short_id}: Running" in text(client, f"/commands/{shell.pk}?part")


def test_a_terminal_is_offered_to_those_who_may_use_the_shell(client: Client) -> None:
    shell = made(Job.Kind.SHELL)
    at = f"/tasks/{shell.pk}/terminal"
    assert client.get(at)["Location"] == f"/tasks/{shell.pk}"  # which says that it waits
    run(shell)
    services.reported(shell.task_id, {"type": "ready", "port": 20_001})
    pages = ("/tasks?part", f"/tasks/{shell.pk}?part")
    assert all(f'href="{at}"' in text(client, page) for page in pages)
    assert f'data-task="{shell.pk}"' in text(client, at)
    client.force_login(make_user("bob"))
    assert not any(f'href="{at}"' in text(client, page) for page in pages)
    answer = client.get(at)
    assert answer.status_code == 403 and "only its owner or an admin" in answer.content.decode()


def test_a_command_is_listed_with_why_it_waits_and_is_not_opened(client: Client) -> None:
    ResourcePool.objects.update(launch_error=False)
    command = made(Job.Kind.COMMAND, entrypoint="nvidia-smi", resources={"slots": 2})
    pool_pass.run(default_pool().pk)
    listed = text(client, "/tasks?type=commands&state=queued&part")
    assert 'class="name mono"' in listed and "needs 2 slots on one host" in listed
    assert f'href="/tasks/{command.pk}"' not in listed and "Last used" not in listed
    assert "needs 2 slots on one host" in text(client, f"/commands/{command.pk}?part")
    assert client.get(f"/tasks/{command.pk}")["Location"] == f"/commands/{command.pk}"
    assert "No tasks match this filter" in text(client, "/tasks?type=commands&state=running&part")


def test_a_form_says_what_is_wrong_beside_each_field_and_starts_what_is_right(client: Client) -> None:
    sent = {"type": "tensorboard", "slots": "many", "experiments": "7, x", "config": "resources: 3"}
    refused = client.post("/tasks/+new", sent)
    page = re.sub(r"\s+", " ", refused.content.decode())
    assert refused.status_code == 400 and "Nothing was started: 2 fields have errors." in page
    assert re.search(r'id="slots_error">Slots are &#x27;many&#x27;; allowed: a whole number', page)
    assert re.search(r'id="experiments_error">&#x27;x&#x27; is not an ID', page)
    assert 'value="many"' in page and 'aria-invalid="true"' in page
    together = client.post("/tasks/+new", {"type": "notebook", "config": "resources: 3"})
    assert together.status_code == 400 and b"Nothing was started" in together.content
    assert b"resources" in together.content
    assert client.post("/tasks/+new", {"template": "gone"}).status_code == 400
    assert not Command.objects.exists()
    form = {"type": "notebook", "name": "explore", "slots": "0", "idle_timeout": "2h", "config": "# none\n"}
    assert "placeholder" in text(client, "/tasks/+new?type=notebook")
    assert client.post("/tasks/+new", form).status_code == 302
    kept = Command.objects.get().config
    assert (kept["description"], kept["resources"]["slots"]) == ("explore", 0)


def test_a_new_tensorboard_begins_with_what_the_address_names(client: Client) -> None:
    page = text(client, "/tasks/+new?type=tensorboard&experiments=7,8")
    assert re.search(r'name="experiments" value="7,8"', page) and 'name="slots" value="0"' in page
    assert 'name="trials"' not in text(client, "/tasks/+new")


def test_the_editor_of_a_task_says_what_is_wrong_by_line_with_the_fields_beside_it(client: Client) -> None:
    def checked(text: str, **fields: str) -> str:
        sent = {"kind": "task", "type": "notebook", "config": text, **fields}
        return re.sub(r"\s+", " ", client.post("/experiments/check", sent).content.decode())

    assert "Config is valid" in checked("# nothing\n") and "Config is valid" in checked(
        "debug: true", slots="1"
    )
    wrong = checked("debug: true\nresources:\n  priority: 0\n", slots="many")
    assert 'data-line="3"' in wrong and "<code>resources.priority</code>" in wrong
    assert 'data-line="2"' in checked("debug: true\n- [")
    assert "names host gpu7, which does not exist" in checked("resources: {hosts: gpu7}")
    assert "needs 2 slots on one host" in checked("", slots="2")

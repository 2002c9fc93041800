"""A host added and edited on pages: each step is a link, says what is wrong, and leaves nothing half-done."""

import asyncssh
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from dispatch.ssh.server_key import fingerprint, public_key
from events.models import Event
from hosts import admitting
from hosts.models import Host, ResourcePool
from hosts.pools import default_pool
from hosts.slots import FoundSlot, cpu_shares
from shown.hosts.adding import new_host
from tests.rig.html import Html
from tests.rig.world import make_host, make_user

pytestmark = pytest.mark.django_db

PAGE = "/hosts/gpu1/adding"
PYTHONS = [
    {"path": "/usr/bin/python3", "version": "3.11.2", "torch": None, "cuda": None},
    {"path": "/opt/ml/bin/python", "version": "3.12.1", "torch": "2.6.0", "cuda": "12.4"},
]


@pytest.fixture
def admin(db: None) -> Client:
    default_pool()
    return logged_in(User.Role.ADMIN)


def logged_in(role: str) -> Client:
    client = Client()
    client.force_login(make_user(f"the-{role}", role))
    return client


def read(client: Client, path: str) -> Html:
    return Html(client.get(path).content)


def host_key() -> str:
    key = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    return " ".join(key.split()[:2])


def begun(client: Client, **more: str) -> Host:
    """gpu1, whose key waits to be accepted."""
    answer = client.post("/hosts/+new", {"target": "ada@gpu1:2222", "pool": "default", **more})
    assert answer.headers["Location"] == PAGE
    host = Host.objects.get(name="gpu1")
    admitting.key_offered(host.pk, host_key(), len(host.jumps), "gpu1 offers a key.")
    host.refresh_from_db()
    return host


def examined(host: Host, slots: list[FoundSlot]) -> None:
    """As the doctor leaves it."""
    checks = [{"name": "torch", "state": "warn", "sentence": "/usr/bin/python3 has no torch."}]
    Host.objects.filter(pk=host.pk).update(
        python="/usr/bin/python3", facts={"interpreters": PYTHONS}, doctor={"checks": checks, "at": None}
    )
    admitting.ready(host.pk, slots)


def test_a_host_is_added_step_by_step_and_gets_work_at_the_last(admin: Client) -> None:
    form = read(admin, "/hosts/+new")
    assert public_key() in form and '<li aria-current="step">Address</li>' in form
    host = begun(admin)
    assert (host.address, host.port, host.login_user) == ("", 2222, "ada"), "the server's ssh looks it up"
    page = read(admin, PAGE)
    assert fingerprint(host.offered_host_key) in page and "~/.ssh/authorized_keys</code> of ada" in page
    wrong = admin.post("/hosts/gpu1/accept-key", {"key": host_key(), "back": PAGE}, follow=True)
    assert "has not offered this key" in wrong.content.decode()
    answer = admin.post("/hosts/gpu1/accept-key", {"key": host.offered_host_key, "back": PAGE})
    assert answer.headers["Location"] == PAGE and "The doctor is checking gpu1" in read(admin, PAGE)
    examined(host, [FoundSlot("cuda", f"GPU-{n}", "H100", 81559) for n in range(3)])
    page = read(admin, PAGE)
    for words in (
        "/usr/bin/python3 has no torch.",
        "/opt/ml/bin/python: Python 3.12.1, torch 2.6.0, CUDA 12.4",
        'id="choice" hx-preserve="true"',
        "Cancel and remove gpu1",
    ):
        assert words in page
    host.refresh_from_db()
    assert host.state == "draining" and "the-admin is adding it" in read(admin, "/hosts")
    refused = admin.post(PAGE, {"pool": "default", "python": "/usr/bin/python3"})
    assert refused.status_code == 400 and "Choose at least one slot" in refused.content.decode()
    admin.post(PAGE, {"pool": "default", "python": "/opt/ml/bin/python", "only": ["0", "2"]})
    host.refresh_from_db()
    assert (host.draining, host.python) == (False, "/opt/ml/bin/python")
    assert [slot.enabled for slot in host.slots.all()] == [True, False, True]
    assert "gpu1 is in the pool" in read(admin, PAGE)
    told = list(Event.objects.filter(kind=Event.Kind.HOST, actor="user:the-admin").order_by("id"))
    assert [event.reason for event in told] == [
        "added", "key_accepted", "interpreter_chosen", "slot_disabled", "enabled",
    ]  # fmt: skip


def test_a_python_that_nobody_has_tried_there_is_tried_before_the_host_gets_work(admin: Client) -> None:
    host = begun(admin)
    admin.post("/hosts/gpu1/accept-key", {"key": host.offered_host_key})
    examined(host, cpu_shares(2))
    admin.post(PAGE, {"pool": "default", "python": "other", "path": "/opt/new/bin/python", "count": "2"})
    host.refresh_from_db()
    assert (host.admission, host.draining, host.python) == ("admitting", True, "/opt/new/bin/python")
    admitting.failed(host.pk, "/opt/new/bin/python on gpu1 is not Python 3.8 or later.")
    page = read(admin, PAGE)
    assert "is not Python 3.8 or later" in page and "Try again" in page and "/hosts/gpu1/edit" in page


def test_with_the_key_accepted_a_host_may_be_added_as_it_is(admin: Client) -> None:
    host = begun(admin)
    admin.post("/hosts/gpu1/accept-key", {"key": host.offered_host_key, "join": "yes"})
    examined(host, cpu_shares(4))
    host.refresh_from_db()
    assert (host.admission, host.draining, host.slots.count()) == ("ready", False, 4)


def test_what_was_typed_wrong_is_said_and_cancel_leaves_nothing(admin: Client) -> None:
    for typed, sentence in (
        (
            {"target": "two words"},
            "Found &#x27;two words&#x27;; allowed: a name, an address, or user@address:port.",
        ),
        ({"target": "gpu1", "port": "99999"}, "less than or equal to 65535"),
        ({"target": "gpu1", "jumps": "a b"}, "Found &#x27;a b&#x27;; allowed"),
        ({"target": "gpu1", "user": "-oProxy"}, "Found &#x27;-oProxy@local&#x27;; allowed"),
        ({"target": "10.0.0.7", "name": "not a name"}, "is not allowed: letters, digits"),
    ):
        answer = admin.post("/hosts/+new", {"pool": "default", **typed})
        assert answer.status_code == 400 and sentence in answer.content.decode(), typed
    assert not Host.objects.exists()
    begun(admin, jumps="bob@bastion, 10.0.0.1:2200", name="gpu1")
    taken = admin.post("/hosts/+new", {"target": "gpu1", "pool": "default"})
    assert "already exists" in taken.content.decode()
    page = read(admin, PAGE)
    again = page.split('name="back" value="/hosts/+new?')[1].split('"')[0].replace("&amp;", "&")
    answer = admin.post("/hosts/gpu1/remove", {"back": f"/hosts/+new?{again}"}, follow=True)
    assert not Host.objects.exists() and 'value="bob@bastion:22, 10.0.0.1:2200"' in Html(answer.content)
    begun(admin)
    assert admin.post("/hosts/gpu1/remove", {"back": PAGE}).headers["Location"] == "/hosts"
    assert not Host.objects.exists()


def test_a_host_that_was_in_use_is_not_removed_by_cancel(admin: Client) -> None:
    host = make_host("gpu1", 2)
    Host.objects.filter(pk=host.pk).update(admission=Host.Admission.FAILED, facts={})
    page = read(admin, PAGE)
    assert "Try again" in page and "/hosts/gpu1/remove" not in page


def test_a_typed_port_counts_and_one_that_was_not_is_left_to_the_ssh_config() -> None:
    assert [new_host(typed).port for typed in ("gpu1", "gpu1:22", "ada@gpu1:2222")] == [0, 22, 2222]
    assert new_host("gpu1", port=22).port == 22


def test_the_host_is_locked_before_its_pool(admin: Client) -> None:
    """As every change of a host does: otherwise two admins could wait for each other."""
    host = begun(admin)
    admin.post("/hosts/gpu1/accept-key", {"key": host.offered_host_key})
    examined(host, cpu_shares(2))
    checks = [{"name": "account", "state": "fail", "sentence": "root."}]
    Host.objects.filter(pk=host.pk).update(doctor={"checks": checks, "at": None})
    choice = {"pool": "default", "python": "/usr/bin/python3", "count": "2", "allow_login_account": "on"}
    with CaptureQueriesContext(connection) as asked:
        admin.post(PAGE, choice)
    locks = [query["sql"] for query in asked if "FOR UPDATE" in query["sql"]]
    tables = [sql.split('FROM "')[1].split('"')[0] for sql in locks]
    assert tables[:2] == [Host._meta.db_table, ResourcePool._meta.db_table]
    assert default_pool().allow_login_account


def test_only_admins_add_and_change_hosts(admin: Client) -> None:
    begun(admin)
    for role in (User.Role.VIEWER, User.Role.EDITOR):
        client = logged_in(role)
        assert "/hosts/+new" not in read(client, "/hosts")
        for path in ("/hosts/+new", PAGE, "/hosts/gpu1/edit"):
            assert client.get(path).status_code == 403 == client.post(path, {"target": "b"}).status_code
        menu = read(client, "/hosts/gpu1/menu")
        assert "View" in menu and "Remove" not in menu
    assert Host.objects.count() == 1


def test_a_host_is_edited_and_its_menus_lead_to_what_may_be_done(admin: Client) -> None:
    host = make_host("gpu2", 4)
    host.slots.update(kind="cpu", uuid="")
    assert 'data-menu="/hosts/gpu2/menu"' in read(admin, "/hosts")
    menu = read(admin, "/hosts/gpu2/menu?back=/hosts")
    assert "tabindex" not in menu.split('class="queue-menu"')[1].split("</form>")[0]
    for address in ("/hosts/gpu2/doctor", "/hosts/gpu2/drain", "/hosts/gpu2/remove"):
        assert f'formaction="{address}"' in menu
    assert menu.index('role="separator"') > menu.index("Drain") and 'name="back" value="/hosts"' in menu
    assert 'data-menu="/hosts/gpu2/slots/3/menu"' in read(admin, "/hosts/gpu2")
    assert "Disable slot 3?" in read(admin, "/hosts/gpu2/slots/3/menu")
    wrong = admin.post("/hosts/gpu2/edit", {"pool": "default", "count": "5000"})
    assert wrong.status_code == 400 and "allowed: 0 to 1024" in wrong.content.decode()
    admin.post(
        "/hosts/gpu2/edit", {"pool": "default", "count": "2", "activate": "/opt/conda/bin/activate ml"}
    )
    host.refresh_from_db()
    assert (host.activate, host.wanted_slots, host.slots.count()) == ("/opt/conda/bin/activate ml", 2, 2)
    assert "Slots chosen (2)" in read(admin, "/hosts/gpu2")

"""Settings of a person: access tokens, the password, and notification rules by their forms."""

from __future__ import annotations

import re

import pytest
from django.conf import LazySettings
from django.test import Client
from django.utils import timezone

from accounts import passwords
from accounts.models import AccessToken, User
from notifications import outbox, sending
from notifications.models import Delivery, Rule
from notifications.triggers import PLAIN
from tests.rig.endings import ended
from tests.rig.html import Html
from tests.rig.receiver import running_receiver
from tests.rig.world import make_user
from trainmaster.cli import webhook
from trainmaster.cli.errors import UsageError

pytestmark = pytest.mark.django_db
NAME = "ours <b>&"


@pytest.fixture
def ada() -> User:
    user = make_user("ada")
    passwords.set_password(user, "Old-password-1", is_hashed=False)
    user.save()
    return user


@pytest.fixture
def client(ada: User) -> Client:
    client = Client()
    client.force_login(ada)
    return client


def text(client: Client, path: str, form: dict[str, object] | None = None, status: int = 200) -> str:
    answer = client.get(path) if form is None else client.post(path, form, follow=True)
    assert answer.status_code == status, answer.content
    return Html(answer.content)


def test_a_token_is_shown_in_one_answer_alone_and_revoked(client: Client) -> None:
    said = text(client, "/settings/tokens", {"description": "ci", "scope": "read", "days": "30"})
    [token] = set(re.findall(r"tma_[\w-]+", said))
    assert token not in text(client, "/settings")
    assert AccessToken.find_user(token) is not None
    row = AccessToken.objects.get()
    assert "has been revoked" in text(client, f"/settings/tokens/{row.pk}/revoke", {})
    assert AccessToken.find_user(token) is None
    assert "Choose when the token expires" in text(
        client, "/settings/tokens", {"scope": "root", "days": "1"}, 400
    )


def test_a_password_is_changed_by_who_knows_it(client: Client, ada: User) -> None:
    new = {"new": "New-password-2", "again": "New-password-2"}
    assert "not your current password" in text(client, "/settings/password", {"old": "wrong", **new}, 400)
    weak = {"old": "Old-password-1", "new": "weak", "again": "weak"}
    assert "password is weak" in text(client, "/settings/password", weak, 400)
    assert "Password changed" in text(client, "/settings/password", {"old": "Old-password-1", **new})
    ada.refresh_from_db()
    assert passwords.check_password(ada, "New-password-2", is_hashed=False)
    assert "Settings" in text(client, "/settings"), "this login goes on"


def test_a_rule_is_made_tested_edited_and_its_deliveries_tried_again(
    client: Client, ada: User, settings: LazySettings
) -> None:
    settings.NOTIFY_PRIVATE_NETWORKS = ["127.0.0.0/8"]
    with running_receiver() as receiver:
        form = {
            "name": NAME, "form": "webhook", "target": receiver.url, "scope": "mine", "minutes": "45",
            "on.EXPERIMENT_STATE_CHANGE:ERROR": "on", "on.EXPERIMENT_STATE_CHANGE:COMPLETED": "on",
            "on.LONG_WAIT": "on", "template": "{{ name }} {{ state }}",
        }  # fmt: skip
        made = client.post("/settings/notifications/+new", form)
        rule = Rule.objects.get()
        assert made.headers["Location"] == f"/settings/notifications/{rule.pk}"
        said = text(client, made.headers["Location"])
        assert "shown only once" not in text(client, made.headers["Location"])
        assert "shown only once" in said and "&lt;b&gt;" in said and NAME not in said
        assert {"type": "LONG_WAIT", "condition": {"minutes": 45}} in rule.triggers
        tested = text(client, f"/settings/notifications/{rule.pk}/do/test", {})
        assert '<span class="badge">test</span>' in tested and tested.count("200 OK: done") == 2, (
            "said and listed"
        )
        edit = text(client, f"/settings/notifications/{rule.pk}/edit")
        ticked = re.findall(r'name="on[.]([^"]*)"[^>]* checked', edit)
        assert ticked == ["EXPERIMENT_STATE_CHANGE:COMPLETED", "EXPERIMENT_STATE_CHANGE:ERROR", "LONG_WAIT"]
        assert 'name="minutes" value="45"' in edit and "long-key" not in edit
        del form["on.LONG_WAIT"]
        again = {**form, "target": rule.shown}
        assert "Rule saved" in text(client, f"/settings/notifications/{rule.pk}/edit", again)
        rule.refresh_from_db()
        assert {each["type"] for each in rule.triggers} == {"EXPERIMENT_STATE_CHANGE"}
        outbox.look(timezone.now())
        ended(owner=ada)
        outbox.look(timezone.now())
        receiver.status = 404
        sending.send_due(5)
        delivery = Delivery.objects.exclude(source__startswith="test:").get()
        detail = text(client, f"/settings/notifications/{rule.pk}")
        assert "Failed" in detail and "404 Not Found" in detail
        receiver.status = 200
        text(client, f"/settings/notifications/{rule.pk}/deliveries/{delivery.pk}/retry", {})
        sending.send_due(5)
        assert "200 OK" in text(client, f"/settings/notifications/{rule.pk}?part")
        assert receiver.got[-1].content["text"] == "digits COMPLETED"
    text(client, f"/settings/notifications/{rule.pk}/do/pause", {})
    settings.LINK_URL = ""
    listed = text(client, "/settings/notifications")
    assert "paused" in listed and "Set TRAINMASTER_LINK_URL to that" in listed
    settings.LINK_URL = "https://console.example"
    assert "TRAINMASTER_LINK_URL" not in text(client, "/settings/notifications")
    text(client, f"/settings/notifications/{rule.pk}/do/remove", {})
    assert not Rule.objects.exists()


def test_a_form_says_what_is_wrong_beside_what_was_sent(client: Client) -> None:
    form = {"name": "", "form": "slack", "target": "gopher://x", "scope": "cluster", "template": "{{ nope }}"}
    said = text(client, "/settings/notifications/+new", form, 400)
    for sentence in (
        "allowed: an address",
        "at least one",
        "there is no {{ nope }}",
        "only admins can create",
    ):
        assert sentence in said, sentence
    assert "gopher://x" in said
    assert "there is no {{ x }}" in text(client, "/settings/notifications/preview", {"template": "{{ x }}"})


def test_nobody_sees_or_changes_the_rules_of_another(client: Client) -> None:
    other = Client()
    other.force_login(make_user("bob"))
    form = {
        "name": "mine",
        "form": "mail",
        "target": "a@example.org",
        "scope": "mine",
        "on.PREEMPTED": "on",
    }
    text(client, "/settings/notifications/+new", form)
    rule = Rule.objects.get()
    assert "No rules yet" in text(other, "/settings/notifications")
    text(other, f"/settings/notifications/{rule.pk}", status=404)
    text(other, f"/settings/notifications/{rule.pk}/do/remove", {}, status=404)
    viewer = Client()
    viewer.force_login(make_user("vic", User.Role.VIEWER))
    assert "is a viewer" in text(viewer, "/settings/notifications/+new", form, status=403)


def test_what_has_no_condition_is_offered_listed_and_named_by_the_command_line(
    client: Client, ada: User
) -> None:
    fresh = text(client, "/settings/notifications/+new")
    for trigger in PLAIN:
        assert f'name="on.{trigger}"' in fresh and trigger.label[1:] in fresh
        word = trigger.lower().replace("_", "-")
        assert webhook.trigger(word) == {"triggerType": f"TRIGGER_TYPE_{trigger}", "condition": {}}
        assert webhook._on(webhook.trigger(word)) == word
    form = {"name": "n", "form": "webhook", "target": "https://hooks.example", "scope": "mine"}
    text(client, "/settings/notifications/+new", {**form, "on.HOST_FAILS_STARTS": "on"})
    assert "a host is drained because it cannot start jobs" in text(client, "/settings/notifications")
    with pytest.raises(UsageError, match="--on preempted=1: allowed: experiment"):
        webhook.trigger("preempted=1")

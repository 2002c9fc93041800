"""Webhooks over REST, in the dialect's words and ours."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import LazySettings
from django.utils import timezone

from notifications import outbox, sending
from tests.rig.api import Cast, Json
from tests.rig.receiver import running_receiver

Submit = Callable[..., Json]
CUSTOM = {"triggerType": "TRIGGER_TYPE_CUSTOM"}


def body(url: str, **more: object) -> Json:
    return {
        "name": "ours",
        "url": url,
        "webhookType": "WEBHOOK_TYPE_DEFAULT",
        "mode": "WEBHOOK_MODE_WORKSPACE",
        "triggers": [CUSTOM],
        **more,
    }


def test_a_webhook_is_made_tested_told_changed_and_removed(
    cast: Cast, submit: Submit, settings: LazySettings
) -> None:
    experiment = submit()
    settings.NOTIFY_PRIVATE_NETWORKS = ["127.0.0.0/8"]
    with running_receiver() as receiver:
        made = cast.ada.post("webhooks", body(receiver.url))
        webhook, pk = made["webhook"], made["webhook"]["id"]
        assert len(made["signingKey"]) > 30
        assert webhook["scope"] == "mine" and webhook["triggers"][0]["triggerType"] == "TRIGGER_TYPE_CUSTOM"
        assert "long-key" not in str(cast.admin.get("webhooks")), "an address is a secret"
        assert cast.bob.get("webhooks")["webhooks"] == []
        assert cast.bob.refused("PATCH", f"webhooks/{pk}", {"name": "x"})[0] == 404
        tested = cast.ada.post(f"webhooks/{pk}/test")
        assert tested == {"completed": True, "status": 200, "answer": "200 OK: done"}
        [listed] = cast.ada.get(f"webhooks/{pk}/deliveries")["deliveries"]
        assert (listed["test"], listed["state"], listed["answer"]) == (True, "sent", "200 OK: done")
        assert receiver.got[-1].content["event_id"] == listed["id"]
        outbox.look(timezone.now())
        data = {"title": "Look", "level": "LOG_LEVEL_ERROR"}
        cast.ada.post("webhooks/custom", {"experimentId": experiment["id"], "data": data})
        assert (
            cast.bob.refused("POST", "webhooks/custom", {"experimentId": experiment["id"], "data": data})[0]
            == 403
        )
        outbox.look(timezone.now())
        sending.send_due(5)
        delivery, _ = cast.ada.get(f"webhooks/{pk}/deliveries")["deliveries"]
        assert delivery["test"] is False
        assert (delivery["state"], delivery["answer"]) == ("sent", "200 OK: done")
        assert "raised an alert: Look" in delivery["sentence"]
        assert receiver.got[-1].content["event_data"]["custom"]["level"] == "ERROR"
        assert (
            cast.ada.post(f"webhooks/{pk}/deliveries/{delivery['id']}/retry")["delivery"]["state"]
            == "pending"
        )
        changed = cast.ada.patch(f"webhooks/{pk}", {"url": webhook["url"], "paused": True})["webhook"]
        assert changed["paused"] is True and changed["url"] == webhook["url"]
    cast.ada.delete(f"webhooks/{pk}")
    assert cast.ada.refused("GET", f"webhooks/{pk}")[0] == 404


def test_what_is_wrong_with_a_webhook_is_said(cast: Cast) -> None:
    assert "scope" in cast.ada.refused("POST", "webhooks", body("https://x.example/", scope="cluster"))[1]
    assert "allowed: an address" in cast.ada.refused("POST", "webhooks", body("file:///etc/passwd"))[1]
    status, sentence = cast.ada.refused("POST", "webhooks", body("https://x.example", template="{{ token }}"))
    assert status == 400 and "{{ token }}" in sentence
    assert cast.vic.refused("POST", "webhooks", body("https://x.example"))[0] == 403
    assert cast.admin.post("webhooks", body("https://x.example"))["webhook"]["scope"] == "cluster"


def test_an_unknown_trigger_is_refused_with_those_that_there_are(cast: Cast) -> None:
    wrong = {**body("https://hooks.example"), "triggers": [{"triggerType": "TRIGGER_TYPE_HOTS_SILENT"}]}
    status, sentence = cast.ada.refused("POST", "webhooks", wrong)
    assert status == 400 and "found TRIGGER_TYPE_HOTS_SILENT; allowed: TRIGGER_TYPE_" in sentence
    assert "HOST_SILENT" in sentence

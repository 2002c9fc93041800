"""Webhooks of the dialect, and what is ours beside them: all kinds of notification rules, and their deliveries."""

from __future__ import annotations

from typing import Any, Literal

from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from experiments.models import Experiment, Trial
from logs import alerts
from notifications import rules, sending, text
from notifications.models import Delivery, Rule
from notifications.triggers import CONDITIONS, Trigger
from webui.api import encoding
from webui.api.answers import Answer, Maybe, Pagination, Time
from webui.api.errors import BadRequest, Missing, existing
from webui.api.permissions import actor, person, require_owner
from webui.api.protojson import EnumField
from webui.api.views import ApiView, Json

_TYPES = {
    "WEBHOOK_TYPE_DEFAULT": "webhook",
    "WEBHOOK_TYPE_SLACK": "slack",
    "WEBHOOK_TYPE_MAIL": "mail",
}
#: named in settings.SPECTACULAR_SETTINGS
SCOPES = Rule.Scope.choices
_TYPE_OF = {form: name for name, form in _TYPES.items()}
_PREFIX = "TRIGGER_TYPE_"
_MODES = ("WEBHOOK_MODE_WORKSPACE", "WEBHOOK_MODE_SPECIFIC")


class TriggerRecord(Answer):
    id: int
    webhook_id: int
    trigger_type: str
    condition: Json


class WebhookRecord(Answer):
    """`url` is masked, because most URLs contain a key."""

    id: int
    name: str
    url: str
    webhook_type: str
    mode: str
    triggers: list[TriggerRecord]
    workspace_id: int = 0
    project_id: Maybe[int] = None
    scope: str
    template: str
    paused: bool
    username: str
    created_at: Time


class DeliveryRecord(Answer):
    """`test`: sent by the test button. `nextAt`: when a waiting delivery will be sent."""

    id: str
    webhook_id: int
    trigger_type: str
    sentence: str
    test: bool
    state: Literal["pending", "sent", "failed"]
    attempts: int
    answer: str
    created_at: Time
    ended_at: Maybe[Time] = None
    next_at: Maybe[Time] = None


class WebhooksAnswer(Answer):
    webhooks: list[WebhookRecord]


class WebhookAnswer(Answer):
    webhook: WebhookRecord


class SigningKeyAnswer(Answer):
    signing_key: str


class NewWebhookAnswer(WebhookAnswer):
    """`signingKey` is shown only this once, and only if messages are signed."""

    signing_key: Maybe[str] = None


class WebhookTestAnswer(Answer):
    """`status`: the HTTP status; 0: no answer."""

    completed: bool
    status: int
    answer: str


class DeliveriesAnswer(Answer):
    deliveries: list[DeliveryRecord]
    pagination: Pagination


class DeliveryAnswer(Answer):
    delivery: DeliveryRecord


def encode_rule(rule: Rule) -> WebhookRecord:
    """In the dialect's words; the address is masked, since most carry a key."""
    triggers = [
        TriggerRecord(
            id=index, webhook_id=rule.pk, trigger_type=_PREFIX + each["type"], condition=each["condition"]
        )
        for index, each in enumerate(rule.triggers, 1)
    ]
    return WebhookRecord.of(
        rule,
        workspace_id=rule.workspace_id or 0,
        url=rule.shown,
        webhook_type=_TYPE_OF[rule.form],
        mode=_MODES[rule.named_only],
        triggers=triggers,
        username=rule.owner.username,
    )


def encode_delivery(delivery: Delivery) -> DeliveryRecord:
    return DeliveryRecord.of(
        delivery,
        id=str(delivery.pk),
        webhook_id=delivery.rule_id,
        trigger_type=_PREFIX + delivery.trigger,
        sentence=delivery.facts.get("sentence", ""),
        test=delivery.is_test,
        next_at=delivery.next_at if delivery.state == Delivery.State.PENDING else None,
    )


class TriggerBody(serializers.Serializer[Any]):
    id = serializers.IntegerField(required=False, allow_null=True)
    webhookId = serializers.IntegerField(required=False, allow_null=True)
    triggerType = EnumField(
        "trigger",
        [_PREFIX + kind for kind in Trigger.values],
        error_messages={
            "invalid_choice": f"found {{input}}; allowed: {_PREFIX}… of {', '.join(Trigger.values)}."
        },
    )
    condition = serializers.DictField(
        required=False,
        allow_null=True,
        help_text="; ".join(f"for {kind}: {' or '.join(names)}" for kind, names in CONDITIONS.items()),
    )


class WebhookFields(serializers.Serializer[Any]):
    """The fields that PATCH can change."""

    name = serializers.CharField(max_length=rules.NAME_CHARACTERS, required=False)
    url = serializers.CharField(max_length=2000, required=False, help_text="for mail: its addresses")
    webhookType = EnumField("type of webhooks", _TYPES, required=False)
    mode = EnumField("mode of webhooks", ["WEBHOOK_MODE_UNSPECIFIED", *_MODES], required=False)
    triggers = encoding.list_of(TriggerBody(), max_length=20)
    scope = serializers.ChoiceField(choices=SCOPES, required=False)
    workspaceId = serializers.IntegerField(required=False, allow_null=True, min_value=0)
    projectId = serializers.IntegerField(required=False, allow_null=True, min_value=0)
    template = serializers.CharField(
        max_length=text.TEMPLATE_CHARACTERS,
        required=False,
        allow_blank=True,
        help_text=f"text with {{{{ names }}}} from: {', '.join(text.NAMES)}",
    )
    paused = serializers.BooleanField(required=False)


class NewWebhook(WebhookFields):
    id = serializers.IntegerField(required=False, allow_null=True)
    name = serializers.CharField(max_length=rules.NAME_CHARACTERS)
    url = serializers.CharField(max_length=2000, help_text="for mail: its addresses, separated by commas")
    webhookType = EnumField("type of webhooks", _TYPES)
    triggers = serializers.ListField(child=TriggerBody(), min_length=1, max_length=20)


def values_of(body: Json, *, admin: bool) -> Json:
    """The body in the words of `notifications.rules`.

    In the dialect a webhook without a workspace is for all of them; for users who are not admins, for their own jobs.
    """
    found: Json = {name: body[name] for name in ("name", "template") if name in body}
    if "url" in body:
        found["target"] = body["url"]
    if "webhookType" in body:
        found["form"] = _TYPES[body["webhookType"]]
    if "mode" in body:
        found["named_only"] = body["mode"] == "WEBHOOK_MODE_SPECIFIC"
    if "triggers" in body:
        found["triggers"] = [
            {"type": each["triggerType"].removeprefix(_PREFIX), "condition": each.get("condition")}
            for each in body["triggers"]
        ]
    if body.get("scope") or body.get("workspaceId") or body.get("projectId"):
        of = "workspace" if body.get("workspaceId") else "project" if body.get("projectId") else "mine"
        found |= {"scope": body.get("scope") or of}
        found |= {"workspace_id": body.get("workspaceId"), "project_id": body.get("projectId")}
    elif "url" in body and "webhookType" in body:
        found["scope"] = Rule.Scope.CLUSTER if admin else Rule.Scope.MINE
    return found


def find(request: Request, rule_id: int) -> Rule:
    rule: Rule = existing(rules.of(person(request)), "webhook", pk=rule_id)
    return rule


class Webhooks(ApiView):
    """List your webhooks (admins: all). POST creates one; its signing key is shown only once."""

    rights = {"GET": Right.READ, "POST": Right.EDIT}
    bodies = {"POST": NewWebhook}

    def get(self, request: Request) -> WebhooksAnswer:
        return WebhooksAnswer(webhooks=[encode_rule(rule) for rule in rules.of(person(request))])

    def post(self, request: Request) -> NewWebhookAnswer:
        body, user = self.body(request), person(request)
        rule, key = rules.create(user, values_of(body, admin=user.is_admin))
        if body.get("paused"):
            rules.set_paused(rule, user, True)
        return NewWebhookAnswer(webhook=encode_rule(rule), signing_key=key or None)


class OneWebhook(ApiView):
    """One webhook: change, pause or delete it."""

    rights = {"GET": Right.READ, "PATCH": Right.EDIT, "DELETE": Right.EDIT}
    bodies = {"PATCH": WebhookFields}

    def get(self, request: Request, rule_id: int) -> WebhookAnswer:
        return WebhookAnswer(webhook=encode_rule(find(request, rule_id)))

    def patch(self, request: Request, rule_id: int) -> WebhookAnswer:
        body, user, rule = self.body(request), person(request), find(request, rule_id)
        values = values_of({**body, "scope": body.get("scope")}, admin=user.is_admin)
        if values:
            rules.edit(rule, user, values)
        if "paused" in body:
            rules.set_paused(rule, user, body["paused"])
        return WebhookAnswer(webhook=encode_rule(find(request, rule_id)))

    def delete(self, request: Request, rule_id: int) -> None:
        rules.remove(find(request, rule_id), person(request))


class WebhookTest(ApiView):
    """Send an example now. `completed`: whether the receiver accepted it; `answer`: its answer.

    It is listed with the deliveries.
    """

    rights = {"POST": Right.EDIT}

    def post(self, request: Request, rule_id: int) -> WebhookTestAnswer:
        answer = sending.send_test(find(request, rule_id))
        return WebhookTestAnswer(completed=answer.good, status=answer.status, answer=answer.words)


class WebhookKey(ApiView):
    """Replace the signing key; the previous one is revoked. The new key is shown only once."""

    rights = {"POST": Right.EDIT}

    def post(self, request: Request, rule_id: int) -> SigningKeyAnswer:
        rule = find(request, rule_id)
        if rule.form != Rule.Form.WEBHOOK:
            raise BadRequest(f"webhook {rule_id}: messages of this type are not signed.")
        return SigningKeyAnswer(signing_key=rules.new_key(rule, person(request)))


class WebhookDeliveries(ApiView):
    """Deliveries, newest first, with the receiver's answers."""

    rights = {"GET": Right.READ}
    queries = {"GET": encoding.PageQuery}

    def get(self, request: Request, rule_id: int) -> DeliveriesAnswer:
        rows = Delivery.objects.filter(rule=find(request, rule_id)).order_by("-created_at", "-pk")
        return encoding.page(DeliveriesAnswer, rows, self.query(request), encode_delivery)


class DeliveryRetry(ApiView):
    """Send a failed or waiting delivery again now."""

    rights = {"POST": Right.EDIT}

    def post(self, request: Request, rule_id: int, delivery_id: str) -> DeliveryAnswer:
        delivery = Delivery.objects.filter(pk=delivery_id, rule=find(request, rule_id)).first()
        if delivery is None:
            raise Missing(f"delivery {delivery_id} of webhook {rule_id} not found")
        sending.retry(delivery)
        delivery.refresh_from_db()
        return DeliveryAnswer(delivery=encode_delivery(delivery))


class CustomData(serializers.Serializer[Any]):
    title = serializers.CharField(required=False, allow_blank=True, allow_null=True)
    description = serializers.CharField(required=False, allow_blank=True, allow_null=True)
    level = serializers.CharField(required=False, allow_blank=True, allow_null=True, max_length=32)


class CustomBody(serializers.Serializer[Any]):
    data = CustomData()  # type: ignore[assignment]  # the dialect's name for it
    experimentId = serializers.IntegerField(min_value=0)
    trialId = serializers.IntegerField(required=False, allow_null=True, min_value=0)


class WebhookCustom(ApiView):
    """Send a message about an experiment to the receivers of CUSTOM. It also appears in the experiment's timeline."""

    rights = {"POST": Right.EDIT}
    bodies = {"POST": CustomBody}

    def post(self, request: Request) -> None:
        body = self.body(request)
        experiment = existing(Experiment.objects, "experiment", pk=body["experimentId"])
        require_owner(person(request), experiment)
        data = {**body["data"], "level": (body["data"].get("level") or "").removeprefix("LOG_LEVEL_")}
        if body.get("trialId"):
            trial = Trial.objects.filter(pk=body["trialId"], experiment=experiment).first()
            if trial is None:
                raise Missing(f"trial {body['trialId']} of experiment {experiment.pk} not found")
            alerts.raised(trial.pk, trial.task_id, experiment.pk, data)
        else:
            alerts.raised_for_experiment(experiment.pk, data, actor=actor(request))

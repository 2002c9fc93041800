"""Who is told of what: the rules, one rule with its deliveries, and what can be done to them."""

from __future__ import annotations

import uuid

from django.contrib import messages as banners
from django.db.models import Count, Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from accounts import rights
from accounts.refusals import FieldRefusals, Refusal
from accounts.rights import Right
from notifications import rules, sending, text
from notifications.links import no_link_address
from notifications.models import Delivery, Rule
from notifications.sealed import opened, seal
from webui.pages.frame import form, or_404, page, posted, show, user_of
from webui.pages.notifications.form import RuleForm, in_words

ROOM = "Notifications"
DELIVERIES = 50
#: in the session: the rule and its sealed key, until a page has shown it
KEY_ONCE = "notification_key"


@page
def listing(request: HttpRequest) -> HttpResponse:
    """One's own rules, and as admin all."""
    real = ~Q(deliveries__source__startswith="test:")
    rows = rules.of(user_of(request)).annotate(
        sent=Count("deliveries", filter=real & Q(deliveries__state=Delivery.State.SENT)),
        failed=Count("deliveries", filter=real & Q(deliveries__state=Delivery.State.FAILED)),
        pending=Count("deliveries", filter=real & Q(deliveries__state=Delivery.State.PENDING)),
    )
    listed = [{"rule": rule, "words": in_words(rule)} for rule in rows]
    may_act = user_of(request).may_edit
    context = {"rules": listed, "may_act": may_act, "no_link_address": no_link_address()}
    return show(request, "notifications", context, room=ROOM)


@form(Right.EDIT)
def new(request: HttpRequest) -> HttpResponse:
    """The form of a new rule; POST makes it."""
    user = user_of(request)
    if not user.may_edit:
        banners.error(request, str(rights.viewer(user.username)))
        return redirect("/settings/notifications")
    draft = Rule(owner=user)
    sent = RuleForm.of_rule(request, draft)
    if sent.is_valid():
        try:
            rule, key = rules.create(user, sent.values())
            banners.success(request, "Rule created.")
            return _to_rule_with(request, rule, key)
        except FieldRefusals as refusal:
            sent.add_refused(refusal)
    return _form(request, draft, sent)


@page
def detail(request: HttpRequest, rule_id: int) -> HttpResponse:
    """One rule with its last deliveries, and once the key that was just made for it."""
    rule, key = _find(request, rule_id), ""
    if "part" not in request.GET:
        of_rule, sealed_key = request.session.pop(KEY_ONCE, (0, ""))
        key = opened(sealed_key) if of_rule == rule.pk else ""
    context = {
        "rule": rule,
        "words": in_words(rule),
        "deliveries": Delivery.objects.filter(rule=rule).order_by("-created_at", "-pk")[:DELIVERIES],
        "preview": rules.preview(rule),
        "topics": f"notifications:{rule.pk}",
        "key": key,
    }
    return show(request, "notification", context, room=ROOM, fragment="notification_deliveries")


def _to_rule_with(request: HttpRequest, rule: Rule, key: str) -> HttpResponse:
    """The rule's own address; the key waits sealed in the session, for no address may carry it."""
    if key:
        request.session[KEY_ONCE] = (rule.pk, seal(key))
    return redirect(f"/settings/notifications/{rule.pk}")


@form(Right.EDIT)
def edit(request: HttpRequest, rule_id: int) -> HttpResponse:
    """The form of a rule; POST changes it."""
    rule = _find(request, rule_id)
    sent = RuleForm.of_rule(request, rule)
    if sent.is_valid():
        try:
            rules.edit(rule, user_of(request), sent.values())
            banners.success(request, "Rule saved.")
            return redirect(f"/settings/notifications/{rule.pk}")
        except FieldRefusals as refusal:
            sent.add_refused(refusal)
    return _form(request, rule, sent)


def _form(request: HttpRequest, rule: Rule, form: RuleForm) -> HttpResponse:
    preview = _example(Rule(owner=rule.owner), form["template"].value() or "")
    context = {"rule": rule, "form": form, "names": text.NAMES, "preview": preview}
    return show(request, "notification_form", context, room=ROOM, status=400 if form.errors else 200)


@posted(Right.OWN)
def preview(request: HttpRequest) -> HttpResponse:
    """The text of an example, for the form while somebody writes."""
    example = _example(Rule(owner=user_of(request)), request.POST.get("template", ""))
    return render(request, "fragments/notification_preview.html", {"preview": example})


def _example(rule: Rule, template: str) -> str:
    """The message as it would be sent, or why it cannot be."""
    try:
        rule.template = text.check(template)
        return rules.preview(rule)
    except Refusal as error:
        return str(error)


@posted(Right.EDIT)
def act(request: HttpRequest, rule_id: int, action: str) -> HttpResponse:
    """Test it, pause it, let it go on, give it another key, or remove it."""
    rule, user = _find(request, rule_id), user_of(request)
    match action:
        case "test":
            answer = sending.send_test(rule)
            word = "The receiver accepted it" if answer.good else "The receiver did not accept it"
            (banners.success if answer.good else banners.error)(request, f"{word}. {answer.words}")
        case "pause" | "resume":
            rules.set_paused(rule, user, action == "pause")
        case "key" if rule.form == Rule.Form.WEBHOOK:
            banners.success(request, "The previous key is no longer valid.")
            return _to_rule_with(request, rule, rules.new_key(rule, user))
        case "remove":
            rules.remove(rule, user)
            banners.success(request, f"Rule {rule.name} removed.")
            return redirect("/settings/notifications")
        case _:
            raise Http404(f"There is no action {action} for rules.")
    return redirect(f"/settings/notifications/{rule_id}")


@posted(Right.EDIT)
def retry(request: HttpRequest, rule_id: int, delivery_id: uuid.UUID) -> HttpResponse:
    """Send one once more."""
    delivery = Delivery.objects.filter(pk=delivery_id, rule=_find(request, rule_id)).first()
    sending.retry(or_404(delivery, f"There is no delivery {delivery_id}."))
    banners.success(request, "It will be sent again within seconds.")
    return redirect(f"/settings/notifications/{rule_id}")


def _find(request: HttpRequest, rule_id: int) -> Rule:
    user = user_of(request)
    is_allowed = request.method != "POST" or user.may_edit
    rule: Rule | None = rules.of(user).filter(pk=rule_id).first() if is_allowed else None
    return or_404(rule, f"You have no rule {rule_id}.")

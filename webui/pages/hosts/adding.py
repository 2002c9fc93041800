"""Add a host, step by step, and edit one: address, host key, doctor, interpreter and slots."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect

from accounts import rights
from accounts.refusals import Refusal
from accounts.rights import Right
from dispatch.ssh.server_key import public_key
from hosts import chosen, registry
from hosts.models import Host, ResourcePool
from hosts.pools import default_pool
from shown.hosts import adding, keys, rows
from shown.hosts.adding import Stage
from webui.forms import Form
from webui.pages.frame import actor, form, or_404, show, user_of

_OTHER = "other"


class NewHostForm(Form):
    """What `ssh` is told: a name is enough."""

    target = forms.CharField(
        label="Address or ssh name",
        max_length=255,
        help_text="gpu1, ada@10.0.0.7 or ada@10.0.0.7:2222; local is the machine of the server itself.",
        widget=forms.TextInput(attrs={"autofocus": True, "autocapitalize": "off", "spellcheck": "false"}),
    )
    pool = forms.ModelChoiceField(
        ResourcePool.objects.all(), to_field_name="name", label="Pool", empty_label=None
    )
    user = forms.CharField(label="Account to log in with", required=False, max_length=64)
    port = forms.IntegerField(label="Port", required=False, min_value=1, max_value=65535)
    jumps = forms.CharField(
        label="Jump hosts", required=False, max_length=500,
        help_text="The one nearest to the server first: ada@bastion, 10.0.0.1:2222.",
    )  # fmt: skip
    name = forms.CharField(
        label="Name in Trainmaster",
        required=False,
        max_length=128,
        help_text="Empty: the address or ssh name.",
    )


class HostForm(Form):
    """Pool, interpreter and slots of a host that the doctor has looked at."""

    def __init__(self, host: Host, data: Any = None) -> None:
        super().__init__(data)
        self.host = host
        found = adding.interpreters(host)
        is_known = host.python in dict(found)
        if found:
            self.fields["python"] = forms.ChoiceField(
                label="Python", required=False, choices=[*found, (_OTHER, "Another one:")], widget=forms.RadioSelect,
                initial=host.python if is_known else _OTHER,
            )  # fmt: skip
        self.fields["path"] = forms.CharField(
            label="Path of another Python" if found else "Python", required=False, max_length=255,
            initial="" if is_known else host.python,
        )  # fmt: skip
        self.fields["activate"] = forms.CharField(
            label="Script to source before jobs", required=False, max_length=4096, initial=host.activate,
            help_text="For conda or venv: /opt/conda/bin/activate vision. It then decides which Python runs.",
        )  # fmt: skip
        slots = [slot for slot in host.slots.all() if not slot.missing]
        if not chosen.has_gpus(host):
            self.fields["count"] = forms.IntegerField(label="Slots", required=False, initial=len(slots))
        elif chosen.is_being_added(host):
            self.fields["only"] = forms.TypedMultipleChoiceField(
                label="Slots", required=False, coerce=int, widget=forms.CheckboxSelectMultiple,
                choices=[(slot.index, f"{slot.index}: {slot.brand or slot.kind}") for slot in slots],
                initial=[slot.index for slot in slots if slot.enabled],
            )  # fmt: skip
        self.fields["pool"] = forms.ModelChoiceField(
            ResourcePool.objects.all(),
            to_field_name="name",
            label="Pool",
            empty_label=None,
            initial=host.pool.name,
        )
        if adding.refuses_jobs(host) and chosen.is_being_added(host):
            self.fields["allow_login_account"] = forms.BooleanField(
                label="Run the refused jobs as the login account: they can read and end everything in this pool",
                required=False,
            )

    @property
    def choice(self) -> chosen.Choice:
        """What was sent, once it is valid."""
        data = self.cleaned_data
        is_typed = data.get("python") == _OTHER or "path" in self.changed_data
        python = data["path"] if is_typed else data.get("python") or self.host.python
        only = frozenset(data["only"]) if "only" in data else None
        allows = data.get("allow_login_account", False)
        return chosen.Choice(data["pool"], python, data["activate"], data.get("count"), only, allows)


#: fields that a name of the ssh config makes unnecessary
_MORE = ["user", "port", "jumps", "name"]
#: what rooms call a field, and the form
_FIELDS = {"login_user": "user", "address": "target", "jumps[0].address": "jumps"}


def _told(form: Form, refusal: Refusal) -> None:
    """The refusal beside its field."""
    field = _FIELDS.get(refusal.field, refusal.field)
    form.add_error(field if field in form.fields else None, str(refusal))


def _sent(request: HttpRequest) -> QueryDict | None:
    return request.POST if request.method == "POST" else None


@form(Right.ADMIN)
def new(request: HttpRequest) -> HttpResponse:
    """The form of a new host; POST adds it, and its page says what comes next."""
    rights.require_admin(user_of(request))
    asked = {"pool": default_pool().name, **request.GET.dict()}
    form = NewHostForm(_sent(request), initial=asked)
    if form.is_valid():
        data = form.cleaned_data
        pool = data.pop("pool")
        try:
            host = registry.add(adding.new_host(**data), pool, actor=actor(request), choose=True)
            return redirect(f"/hosts/{host.name}/adding")
        except Refusal as refusal:
            _told(form, refusal)
    context = {
        "form": form,
        "more": [form[each] for each in _MORE],
        "is_more": any(form.errors.get(each) or form.initial.get(each) for each in _MORE),
        "steps": adding.steps_at(Stage.CONTACT),
        "public_key": public_key(),
    }
    return show(request, "host_new", context, room="Hosts", status=400 if form.errors else 200)


@form(Right.ADMIN)
def go_on(request: HttpRequest, name: str) -> HttpResponse:
    """How far a host has come on its way into a pool; POST puts it there as chosen."""
    rights.require_admin(user_of(request))
    host = _find(name)
    form = HostForm(host, _sent(request))
    if form.is_valid() and _applied(request, host, form, joins=True):
        return redirect(f"/hosts/{name}/adding")
    context = {
        "host": host,
        "adding": adding.of(host),
        "keys": keys.to_accept(host),
        "public_key": public_key(),
        "form": form,
        "may_act": True,
    }
    status = 400 if form.errors else 200
    return show(request, "host_adding", context, room="Hosts", fragment="host_adding", status=status)


@form(Right.ADMIN)
def edit(request: HttpRequest, name: str) -> HttpResponse:
    """The form of a host; POST changes it."""
    rights.require_admin(user_of(request))
    host = _find(name)
    form = HostForm(host, _sent(request))
    if form.is_valid() and _applied(request, host, form, joins=False):
        return redirect(f"/hosts/{name}")
    context = {"host": host, "form": form}
    return show(request, "host_edit", context, room="Hosts", status=400 if form.errors else 200)


def _find(name: str) -> Host:
    return or_404(rows.present().filter(name=name).first(), f"There is no host {name}.")


def _applied(request: HttpRequest, host: Host, form: HostForm, *, joins: bool) -> bool:
    """Whether the choice was taken, all of it; else the form says what is wrong."""
    try:
        (chosen.join if joins else chosen.settle)(host.pk, form.choice, actor=actor(request))
    except Refusal as refusal:
        _told(form, refusal)
        return False
    if not joins:
        messages.success(request, f"{host.name} is changed.")
    return True

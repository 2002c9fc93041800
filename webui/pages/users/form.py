"""The form of a user. `accounts.users` checks what the values have to do with those of others."""

from __future__ import annotations

from typing import Any

from django import forms
from django.forms.models import model_to_dict

from accounts import names
from accounts.models import User
from accounts.refusals import Refusal
from webui.forms import Form

#: fields as refusals call them, where that is not a field of the form
_CALLED = {"displayName": "display_name"}


def _unix_name(label: str, help_text: str) -> forms.RegexField:
    wrong = {"invalid": "Allowed: a Unix name, such as ada or ml-lab."}
    most = names.UNIX_NAME_CHARACTERS
    field = forms.RegexField(
        names.UNIX_NAME, label=label, max_length=most, required=False, error_messages=wrong
    )
    field.help_text = help_text
    return field


def _unix_id(label: str, help_text: str = "") -> forms.IntegerField:
    most = names.LARGEST_UNIX_ID
    return forms.IntegerField(label=label, help_text=help_text, min_value=1, max_value=most, required=False)


class UserForm(Form):
    username = forms.CharField(
        label="Username", max_length=names.NAME_CHARACTERS, widget=forms.TextInput({"autocomplete": "off"})
    )
    display_name = forms.CharField(
        label="Display name", max_length=names.NAME_CHARACTERS, required=False, help_text="Shown on pages."
    )
    email = forms.EmailField(
        label="Email", max_length=254, required=False, help_text="Single sign-on finds the account by it."
    )
    role = forms.ChoiceField(
        label="Role",
        choices=User.Role.choices,
        help_text="Viewers read. Editors submit jobs and change their own. Admins change everything.",
    )
    unix_user = _unix_name(
        "Agent user",
        "The Unix account that their jobs run as on hosts. Empty: the account that the server logs in with.",
    )
    unix_uid = _unix_id("UID", "With a UID and GID, jobs only start on hosts where the account has them.")
    unix_group = _unix_name("Agent group", "Kept for Determined's clients.")
    unix_gid = _unix_id("GID")

    ACCOUNT = ("username", "display_name", "email", "role", "password")
    AGENT = ("unix_user", "unix_uid", "unix_group", "unix_gid")

    @property
    def sections(self) -> dict[str, list[forms.BoundField]]:
        named = {"Account": self.ACCOUNT, "Jobs run as": self.AGENT}
        return {title: [self[name] for name in of if name in self.fields] for title, of in named.items()}

    @classmethod
    def values_of(cls, user: User) -> dict[str, Any]:
        return model_to_dict(user, UserForm.base_fields)

    def refuse(self, refusal: Refusal) -> None:
        """Say it beside the field that it is about."""
        field = _CALLED.get(refusal.field, refusal.field)
        self.add_error(field if field in self.fields else None, str(refusal))


class NewUserForm(UserForm):
    password = forms.CharField(
        label="Password",
        required=False,
        strip=False,
        widget=forms.PasswordInput({"autocomplete": "new-password"}),
        help_text="Empty: one is generated and shown once.",
    )

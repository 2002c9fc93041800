"""What the forms of pages share; templates/fragments/field.html draws each field with its help and its error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from accounts.refusals import Refusal


class Form(forms.Form):
    """A form whose elements have the names of its fields as ids."""

    def __init__(self, data: Mapping[str, Any] | None = None, **more: Any) -> None:
        super().__init__(data, auto_id="%s", label_suffix="", **more)

    @classmethod
    def of(cls, request: HttpRequest, initial: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """What was sent; a field that was not sent keeps its initial value."""
        initial = initial or {}
        data = {**initial, **request.POST.dict()} if request.method == "POST" else None
        return cls(data, initial=initial, **more)


class Parsed(forms.CharField):
    """A line of text that `read` turns into a value; what `read` refuses is the error of the field."""

    def __init__(self, label: str, read: Callable[[str], Any], **more: Any) -> None:
        self.read = read
        super().__init__(label=label, required=False, **more)

    def clean(self, value: Any) -> Any:
        try:
            return self.read(super().clean(value))
        except Refusal as refusal:
            raise ValidationError(str(refusal), refusal.code) from refusal


class Chosen(forms.CharField):
    """One of `choices`, drawn as a menu; whoever keeps the value checks it, with the sentence that REST says too."""

    def __init__(self, label: str, choices: Iterable[tuple[str, str]] = (), **more: Any) -> None:
        super().__init__(label=label, required=False, widget=forms.Select(choices=list(choices)), **more)

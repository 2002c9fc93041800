"""What the forms of pages share; templates/fragments/field.html draws each field with its help and its error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpRequest


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


class Text(forms.CharField):
    """One line of printable text. `wrong`: the sentence for another value."""

    def __init__(self, label: str, wrong: str = "", *, most: int, **more: Any) -> None:
        wrong = (
            wrong
            or f"{label}: allowed: {1 if more.get('required', True) else 0} to {most} printable characters."
        )
        codes = ("required", "max_length", "invalid")
        super().__init__(label=label, max_length=most, error_messages=dict.fromkeys(codes, wrong), **more)

    def validate(self, value: str) -> None:
        super().validate(value)
        if not value.isprintable():
            raise ValidationError(self.error_messages["invalid"], "invalid")

"""What the pages of the REST documentation draw."""

from __future__ import annotations

from collections.abc import Iterable

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

register = template.Library()


@register.simple_tag
def api_type(kind: Iterable[tuple[str, str]]) -> SafeString:
    """Words of a type, each with the name of the type that it links to (or none)."""
    return format_html_join(
        "",
        "{}{}",
        ((words, format_html('<a href="#{}">{}</a>', name, name) if name else "") for words, name in kind),
    )

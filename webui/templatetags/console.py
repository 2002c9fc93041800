"""Tags and filters of the console's templates."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from django import template
from django.utils import timezone
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from logs.lines import plain
from shown import source_text, words
from shown.queue import times
from trainmaster import quantities

register = template.Library()
register.filter("safe_text", plain)
register.filter("exact_text", times.exact)
register.filter(source_text.markdown)
register.filter(source_text.colored_as)


@register.filter
def state_lamp(code: str) -> SafeString:
    """Lamp and word of a state."""
    return _lamp(words.state(str(code)))


@register.filter
def state_word(code: str) -> str:
    return words.state(str(code)).text


@register.filter
def host_lamp(code: str) -> SafeString:
    return _lamp(words.host_state(str(code)))


@lru_cache(200)
def _lamp(word: words.Word) -> SafeString:
    return format_html('<span class="state"><span class="lamp {}"></span>{}</span>', word.lamp, word.text)


@register.filter
def route(code: str) -> str:
    """How a host reaches the server."""
    return words.ROUTES.get(code, "Not known yet")


@register.filter
def ago(value: datetime | str | float | None) -> SafeString:
    """`4 min ago`, the exact time with its zone on hover; live.js keeps it counting."""
    moment = _moment(value)
    if moment is None:
        return SafeString("never")
    age = quantities.age((timezone.now() - moment).total_seconds())
    return SafeString(
        f'<time datetime="{moment.isoformat()}" title="{times.exact(moment)}" data-ago>{age} ago</time>'
    )


@register.simple_tag
def lasted(begin: datetime, end: datetime | None) -> str:
    """`12 min`: from the one to the other, as of the page where it goes on."""
    return duration(((end or timezone.now()) - begin).total_seconds())


@register.filter
def since(moment: datetime | None) -> str:
    """`12 min`: how long ago that was, as of the page."""
    return "" if moment is None else duration((timezone.now() - moment).total_seconds())


@register.filter
def rounded(value: object) -> str:
    """A number with the digits that people compare; anything else as it is."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@register.filter
def code_words(text: str) -> SafeString:
    """Words that stand between backticks, as code."""
    return mark_safe(re.sub(r"`([^`\n]+)`", r"<code>\1</code>", escape(text)))


@register.simple_tag
def copied(text: object) -> SafeString:
    """Text in monospace that a click on the mark beside it copies (static/js/copy.js)."""
    return format_html(
        '<span class="copied"><code>{}</code><button type="button" class="plain" data-copy="{}" aria-label="Copy {}">'
        "Copy</button></span>",
        text,
        text,
        text,
    )


@register.filter
def exactly(value: datetime | None) -> SafeString:
    """The exact time, in UTC, for audit and result tables."""
    if value is None:
        return SafeString()
    return format_html('<time class="exact" datetime="{}">{}</time>', value.isoformat(), times.exact(value))


def _moment(value: datetime | str | float | None) -> datetime | None:
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, (int, float)):
        return datetime.fromtimestamp(value, UTC)
    return value


@register.filter
def duration(seconds: float | None) -> str:
    return "" if seconds is None else quantities.duration(seconds)


@register.filter
def size(value: int | None) -> str:
    """Bytes with a binary unit."""
    return quantities.size(value or 0)


@register.filter
def short(value: object) -> str:
    """An id's first 8 characters."""
    return str(value)[:8]


@register.filter
def percent(value: float | None) -> str:
    return "" if value is None else f"{value * 100:.0f} %"


@register.filter
def lookup(mapping: dict[Any, Any], key: object) -> Any:
    return mapping.get(key)


@register.simple_tag(takes_context=True)
def query(context: dict[str, Any], **changes: object) -> str:
    """The page's own address with some parameters changed; an empty value drops one."""
    parameters = context["request"].GET.copy()
    for own in ("part", "known"):  # of the request for a part alone
        parameters.pop(own, None)
    for name, value in changes.items():
        if value in (None, ""):
            parameters.pop(name, None)
        else:
            parameters[name] = str(value)
    text = parameters.urlencode()
    return f"?{text}" if text else context["request"].path


@register.simple_tag
def api_type(kind: Iterable[tuple[str, str]]) -> SafeString:
    """Words of a type, each with the name of the type that it links to (or none)."""
    return format_html_join(
        "",
        "{}{}",
        ((words, format_html('<a href="#{}">{}</a>', name, name) if name else "") for words, name in kind),
    )

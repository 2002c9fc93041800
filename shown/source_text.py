"""Source with syntax colors, notes in Markdown: text of users as HTML that can do nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import nh3
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererProtocol
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import TextLexer, YamlLexer, get_lexer_by_name, get_lexer_for_filename
from pygments.util import ClassNotFound

_TAGS = {
    "a", "p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "strong", "em", "s", "code", "pre", "blockquote", "ul",
    "ol", "li", "table", "thead", "tbody", "tr", "th", "td",
}  # fmt: skip


def colored(text: str, name: str) -> SafeString:
    """Source as HTML with syntax classes (static/css/code.css), line by line; the text is escaped by the formatter."""
    try:
        if name.endswith((".yaml", ".yml")):
            lexer: Lexer = YamlLexer(stripnl=False)
        else:
            lexer = get_lexer_for_filename(name, stripnl=False)
    except ClassNotFound:
        lexer = TextLexer(stripnl=False)
    return _highlighted(text, lexer)


def colored_as(text: str, language: str) -> SafeString:
    """Return source in a language (`python`, `julia`) as HTML with syntax classes; plain text if it is not known."""
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        lexer = TextLexer(stripnl=False, ensurenl=False)
    return _highlighted(text, lexer)


def _highlighted(text: str, lexer: Lexer) -> SafeString:
    return mark_safe(highlight(text, lexer, HtmlFormatter(nowrap=True)))


def markdown(text: str) -> SafeString:
    """CommonMark with tables; HTML in it stays text, links open with no way back, and an image is a link to it.

    Images are not loaded: their servers would learn who reads the notes, and when.
    """
    clean = nh3.clean(
        _parser().render(text),
        tags=_TAGS,
        attributes={"a": {"href", "title"}, "ol": {"start"}},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
    )
    return mark_safe(clean)


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.add_render_rule("image", _link_of_image)
    return parser


def _link_of_image(
    renderer: RendererProtocol, tokens: Sequence[Token], place: int, options: OptionsDict, env: EnvType
) -> str:
    address = str(tokens[place].attrs["src"])
    return format_html('<a href="{}">{}</a>', address, tokens[place].content or address)

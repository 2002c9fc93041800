"""The check of wordings reads what people read, and leaves code and generated tables alone."""

from tests.rig import plain_words

PAGE = """\
# A run goes on

He mends it; it is no number, there is no other.

```console
$ goes on anew
```

Quoted `goes on`, and [a link](goes-on.md). <!-- fields of a-config -->

<!-- fields of a-config -->
| `field` | is fetched anew |
<!-- end of a-config -->

Canceled, not cancelled.
"""


TEMPLATE = """\
{# The run goes on. #}
<p class="goes on" title="It is fetched anew.">{{ what|default:"goes on" }} It goes
  on, and <code>goes on</code> goes on.</p>
"""
SCRIPT = """\
/** It goes on. */
say("It goes on."); // goes on
/* goes
on */ const key = "goes-on", said = `${name} goes on`;
"""
PYTHON = '''\
"""It goes on."""
key = "anew"  # goes on


def say(name: str) -> str:
    """Goes on."""
    return f"{name} goes on. Type `go on`."
'''


def test_wordings_are_found_in_prose_with_their_line() -> None:
    assert _found("page.md", PAGE) == [
        (1, "goes on"),
        (3, "He"),
        (3, "mends"),
        (3, "is no"),
        (15, "cancelled"),
    ]


def test_templates_are_read_without_tags_and_comments() -> None:
    assert _found("page.html", TEMPLATE) == [(2, "anew"), (3, "goes on")]


def test_code_is_read_for_its_sentences_alone() -> None:
    assert _found("page.js", SCRIPT) == [(2, "goes on"), (4, "goes on")]
    assert _found("page.py", PYTHON) == [(7, "goes on")]


BUTTONS = """\
<button type="submit">Choose one</button> <a class="pill" rel="next"
  href="{% query page=2 %}">Older</a> <a href="/">Back</a> <button>Clear</button>
<button class="x" aria-label="Dismiss this">x</button>
"""


def test_buttons_have_the_words_of_the_glossary() -> None:
    assert _found("page.html", BUTTONS) == [
        (1, "Choose (a button)"),
        (1, "Older (a button)"),
        (3, "Dismiss (a button)"),
    ]
    assert _found("page.js", 'close.textContent = "Abort";\nsaid.textContent = "Close";') == [
        (1, "Abort (a button)")
    ]


def _found(name: str, text: str) -> list[tuple[int, str]]:
    return [(number, wording) for number, wording, _ in plain_words.found(name, text)]


def test_every_kind_of_text_is_read_but_generated_ones() -> None:
    names = {path.relative_to(plain_words.ROOT).as_posix() for path in plain_words.files()}
    assert {
        "README.md",
        "queue/README.md",
        "docs/queue.md",
        "docs/decisions/0001-queue-is-a-folder.md",
        "templates/pages/experiment.html",
        "static/js/confirm.js",
        "logs/sentences.py",
    } <= names
    assert "docs/survive.md" not in names
    assert not any("/migrations/" in name for name in names)

"""The check of wordings reads prose, and leaves code and generated tables alone."""

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


def test_wordings_are_found_in_prose_with_their_line() -> None:
    assert [(number, wording) for number, wording, _ in plain_words.found(PAGE)] == [
        (1, "goes on"),
        (3, "He"),
        (3, "mends"),
        (3, "is no"),
        (15, "cancelled"),
    ]


def test_every_kind_of_document_is_read_but_generated_ones() -> None:
    names = {path.relative_to(plain_words.ROOT).as_posix() for path in plain_words.files()}
    assert {
        "README.md",
        "queue/README.md",
        "docs/queue.md",
        "docs/decisions/0001-queue-is-a-folder.md",
    } <= names
    assert "docs/survive.md" not in names

"""Write what is generated from the config models: the schemas that the CLI prints, the tables of docs/config.md."""

import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from submissions.config import reference
from webui.api import schemas

ROOT = Path(__file__).resolve().parents[3]
SCHEMAS = ROOT / "trainmaster" / "cli" / "schemas"
DOCUMENT = ROOT / "docs" / "config.md"
#: the tables of the document, by the schema whose fields they list
TABLES = ("experiment-config", "command-config")


def generated() -> dict[Path, str]:
    """Path → content, as it has to be."""
    documents = schemas.documents()
    found = {SCHEMAS / f"{name}.json": _text(document) for name, document in documents.items()}
    page = DOCUMENT.read_text(encoding="utf-8")
    for name in TABLES:
        begin, end = f"<!-- fields of {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = page.partition(begin)
        after = rest.partition(end)[2]
        page = f"{before}{begin}\n{reference.table(documents[name])}\n{end}{after}"
    return {**found, DOCUMENT: page}


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


class Command(BaseCommand):
    help = "Regenerate the JSON Schemas of the CLI and the tables of docs/config.md from the config models."

    def handle(self, *_: Any, **__: Any) -> None:
        for path, text in generated().items():
            path.parent.mkdir(exist_ok=True)
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")
                self.stdout.write(f"{path.relative_to(ROOT)} written")

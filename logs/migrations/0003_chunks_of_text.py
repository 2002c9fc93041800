"""Chunks become a header with runs and the joined text; those of the older form are converted.

There is no way back: merged chunks hold lines of several members, which the older form could not say.
"""

import json
from itertools import groupby
from typing import Any

import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
import zstandard
from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import F

_DIGITS = {"TRACE": "1", "DEBUG": "2", "INFO": "3", "WARNING": "4", "ERROR": "5", "CRITICAL": "6"}
_BIT_OF_STREAM = {"o": 1 << 8, "e": 1 << 9, "s": 1 << 10}


def convert(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    chunk: Any = apps.get_model("logs", "Chunk")
    rows = chunk.objects.order_by("pk").values_list("pk", "member_id", "host", "data")
    for pk, member, host, data in rows.iterator(chunk_size=50):
        lines = json.loads(zstandard.decompress(bytes(data)).decode("utf-8", "surrogatepass"))
        content, size = _new_form([member, host], lines)
        chunk.objects.filter(pk=pk).update(
            members=[] if member is None else [member],
            hosts=[host],
            kinds=F("kinds").bitor(sum(_BIT_OF_STREAM[stream] for stream in {line[2] for line in lines})),
            text_bytes=size,
            data=zstandard.compress(content, 3),
        )


def _new_form(source: list[Any], lines: list[list[Any]]) -> tuple[bytes, int]:
    """Header and text of lines `[time, rank, stream, level, text]`, and how long the text is."""
    header: dict[str, Any] = {"sources": [source]}
    header.update({name: [] for name in ("source", "time", "rank", "lines", "bytes")}, stream="")
    texts, before = [], 0
    for (time, rank, stream), run in groupby(lines, key=lambda line: line[:3]):
        part = list(run)
        # a newline within a line could be stored before, and would be one line more now
        text = b"".join(_raw(line[4].replace("\n", "\\n")) + b"\n" for line in part)
        microseconds = round(time * 1_000_000)
        header["source"].append(0)
        header["time"].append(microseconds - before)
        header["rank"].append(rank)
        header["stream"] += stream
        header["lines"].append(len(part))
        header["bytes"].append(len(text))
        texts.append(text)
        before = microseconds
    header["levels"] = "".join(_DIGITS.get(line[3], "0") for line in lines)
    text = b"".join(texts)
    return json.dumps(header, separators=(",", ":")).encode() + b"\n" + text, len(text)


def _raw(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


class Migration(migrations.Migration):
    atomic = True

    dependencies = [
        ("logs", "0002_chunk_host_and_recent_events"),
    ]

    operations = [
        migrations.AddField(
            model_name="tasklog",
            name="merged_line",
            field=models.BigIntegerField(default=0),
        ),
        migrations.RenameField(model_name="chunk", old_name="levels", new_name="kinds"),
        migrations.AddField(
            model_name="chunk",
            name="members",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.BigIntegerField(), default=list, size=None
            ),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="chunk",
            name="hosts",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=128), default=list, size=None
            ),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="chunk",
            name="text_bytes",
            field=models.IntegerField(default=0),
            preserve_default=False,
        ),
        migrations.AlterField(
            model_name="chunk",
            name="stored_at",
            field=models.DateTimeField(default=django.utils.timezone.now),
        ),
        # what is compressed already is not tried again
        migrations.RunSQL(
            "ALTER TABLE logs_chunk ALTER COLUMN data SET STORAGE EXTERNAL", migrations.RunSQL.noop
        ),
        migrations.RunPython(convert, elidable=True),
        # the foreign keys of the rows that were updated are checked now: their columns cannot go before
        migrations.RunSQL("SET CONSTRAINTS ALL IMMEDIATE", migrations.RunSQL.noop),
        migrations.RemoveField(model_name="chunk", name="member"),
        migrations.RemoveField(model_name="chunk", name="host"),
        migrations.AlterField(
            model_name="chunk",
            name="task",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="log_chunks",
                to="jobs.task",
            ),
        ),
    ]

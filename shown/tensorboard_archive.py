"""The metrics of trials for TensorBoard: a zip archive with a folder for each trial and group, an event file in it.

What training code has written itself, and runners have brought, is in the trial's folder `files`.

Unpacked, it is a `--logdir`: each folder is a run there, and metrics of one name in several groups or trials share a
chart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from experiments import event_files
from experiments.models import Trial
from metrics import series, tensorboard
from shown.zip_stream import COMPRESSION, Sink, ZipEntry

#: of a folder; file systems take 255 bytes
_NAME_CHARACTERS = 60
BLOCK_BYTES = 1024**2


def archive(trials: Sequence[Trial], folder: str) -> Generator[bytes]:
    """The archive, piece by piece; the runs `trial-<id>/<group>` stand in `folder`."""
    sink = Sink()
    with ZipFile(sink, "w", ZIP_DEFLATED, compresslevel=COMPRESSION) as into:
        for trial in trials:
            begin = trial.started_at.timestamp()
            for group, own in folders(series.groups(trial.pk)).items():
                name = f"{folder}/trial-{trial.pk}/{own}/events.out.tfevents.{int(begin)}.trainmaster"
                with ZipEntry(into, name) as entry:
                    for block in tensorboard.event_file(trial.pk, group, begin):
                        entry.write(block)
                        yield sink.drain()
            for path, file in event_files.of_trial(trial.experiment_id, trial.pk):
                with ZipEntry(into, f"{folder}/trial-{trial.pk}/files/{path}") as entry:
                    for block in _blocks(file):
                        entry.write(block)
                        yield sink.drain()
    yield sink.drain()


def _blocks(file: Path) -> Generator[bytes]:
    """What the file has now; it may grow meanwhile, and a record that is cut at its end is left out by TensorBoard."""
    left = file.stat().st_size
    with file.open("rb") as opened:
        while left > 0 and (block := opened.read(min(left, BLOCK_BYTES))):
            left -= len(block)
            yield block


def folders(groups: Sequence[str]) -> dict[str, str]:
    """Group -> the name of its folder. Users name groups; those whose names come to the same one are numbered."""
    taken: Counter[str] = Counter()
    found = {}
    for group in groups:
        name = _safe(group)
        taken[name.casefold()] += 1  # some file systems take capitals for small letters
        nth = taken[name.casefold()]
        found[group] = name if nth == 1 else f"{name}~{nth}"
    return found


def _safe(group: str) -> str:
    name = "".join(
        letter if letter.isalnum() or letter in "._- " else "_" for letter in group[:_NAME_CHARACTERS]
    )
    return name if name.strip(". ") else "_"

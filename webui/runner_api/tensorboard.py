"""Gives a TensorBoard that runs as a task the files of its experiments and trials, as far as it has not got them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db.models import Q
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from commands.models import Service
from experiments import event_files
from experiments.models import Trial
from metrics import series, tensorboard
from metrics.models import Group
from webui.downloads.tensorboard import folders
from webui.runner_api import access, limits
from webui.runner_api.answers import RefusedRequest, endpoint
from webui.waiting.threads import catching_up


@dataclass(frozen=True)
class _Part:
    """What follows in a file: `anew` says that it stands in the place of all that came before."""

    data: bytes
    anew: bool
    #: what to send as `after` the next time
    upto: str
    more: bool


@endpoint
async def listing(request: Request) -> Response:
    """{"files": [{"path", "version"}]}: a file whose version is another than the last time has more to say."""
    return JSONResponse({"files": await catching_up(_files, access.token_of(request))})


@endpoint
async def file(request: Request) -> Response:
    """GET ?path&offset&after: what follows, `offset` being what the task has, `after` our word of last time."""
    query = request.query_params
    offset = query.get("offset", "0")
    if not offset.isdecimal():
        raise RefusedRequest(400, f"offset is {offset!r}; it must be a number of bytes.")
    token = access.token_of(request)
    part = await catching_up(_part, token, query.get("path", ""), int(offset), query.get("after", ""))
    headers = {
        "X-Trainmaster-Anew": str(part.anew).lower(),
        "X-Trainmaster-Upto": part.upto,
        "X-Trainmaster-More": str(part.more).lower(),
    }
    return Response(part.data, media_type="application/octet-stream", headers=headers)


def _files(token: str) -> list[dict[str, Any]]:
    found, trials = [], _trials(token)
    versions_of: dict[int, dict[str, str]] = defaultdict(dict)
    reported = Group.objects.filter(trial_id__in=[trial.pk for trial in trials], reports__gt=0)
    for trial_id, name, reports, last in reported.values_list("trial_id", "name", "reports", "last_step"):
        versions_of[trial_id][name] = f"{reports}.{last}"
    for trial in trials:
        folder, versions = f"trial-{trial.pk}", versions_of[trial.pk]
        for group, own in folders(list(versions)).items():
            found.append({"path": f"{folder}/{own}/{_event_file(trial)}", "version": versions[group]})
        for path, written in event_files.of_trial(trial.experiment_id, trial.pk):
            found.append({"path": f"{folder}/files/{path}", "version": str(written.stat().st_size)})
    return found


def _part(token: str, path: str, offset: int, after: str) -> _Part:
    folder, _, rest = path.partition("/")
    trial = next((each for each in _trials(token) if folder == f"trial-{each.pk}"), None)
    if trial is None:
        raise RefusedRequest(404, f"This TensorBoard has no file {path!r}.")
    own, _, name = rest.partition("/")
    if own == "files":
        known = dict(event_files.of_trial(trial.experiment_id, trial.pk))
        if name in known:
            return _written(known[name], offset)
    for group, its in folders(series.groups(trial.pk)).items():
        if its == own:
            return _made(trial, group, after if after.isdecimal() else "")
    raise RefusedRequest(404, f"This TensorBoard has no file {path!r}.")


def _written(path: Path, offset: int) -> _Part:
    """By training code itself; one that is shorter than what the task has is another file."""
    size = path.stat().st_size
    anew = offset > size
    with path.open("rb") as opened:
        opened.seek(0 if anew else offset)
        data = opened.read(limits.TENSORBOARD_BLOCK_BYTES)
        return _Part(data, anew, "", opened.tell() < size)


def _made(trial: Trial, group: str, after: str) -> _Part:
    """Write event files from stored metrics; a trial that started over behind `after` is written again in full."""
    last = Group.objects.filter(trial_id=trial.pk, name=group).values_list("last_step", flat=True).first()
    known = int(after) if after else None
    if known is not None and (last is None or last < known):
        known = None
    data = b"".join(tensorboard.event_file(trial.pk, group, trial.started_at.timestamp(), known))
    return _Part(data, known is None, "" if last is None else str(last), False)


def _event_file(trial: Trial) -> str:
    return f"events.out.tfevents.{int(trial.started_at.timestamp())}.trainmaster"


def _trials(token: str) -> list[Trial]:
    """What the TensorBoard that asks was started for. Raises RefusedRequest (401, 404)."""
    run = access.run_of(token)
    service = Service.objects.filter(command__task_id=run.task_id).first()
    if service is None or not (service.experiment_ids or service.trial_ids):
        raise RefusedRequest(404, "This run is not a TensorBoard.")
    shown = Q(pk__in=service.trial_ids)
    for experiment_id in service.experiment_ids:
        first = Trial.objects.filter(experiment_id=experiment_id).order_by("pk").values_list("pk", flat=True)
        shown |= Q(pk__in=list(first[: limits.TENSORBOARD_TRIALS]))
    return list(Trial.objects.filter(shown).order_by("pk"))

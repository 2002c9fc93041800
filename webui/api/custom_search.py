"""Custom searches: events for the program that runs one, and the operations that it answers with.

The addresses and names of clients up to 0.37 (`determined.searcher`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from django.http import HttpRequest
from pydantic import Field

from accounts import rights
from accounts.models import User
from accounts.rights import Right
from experiments import search
from experiments.models import Experiment
from searching import BadSearch
from searching.custom import Wanted
from trainmaster import bounded_json
from webui.api.allocations import poll
from webui.api.answers import Answer, Body
from webui.api.async_views import Principal, async_view, json_body
from webui.api.authentication import own_experiments
from webui.api.errors import BadRequest, existing
from webui.waiting.threads import reading

#: how long a client waits for an event before it hears that there is none
POLL_SECONDS = 60.0
MOST_OPERATIONS = 10_000


class SearcherEvents(Answer):
    searcher_events: Annotated[
        list[dict[str, Any]],
        Field(
            description="each {id, one of initialOperations, trialCreated, trialClosed, trialExitedEarly, "
            "validationCompleted, trialProgress, experimentInactive: {…}}"
        ),
    ]


@async_view("GET", Right.READ | Right.RUN)
async def searcher_events(request: HttpRequest, who: Principal, experiment_id: int) -> SearcherEvents:
    """Events that the program has not answered; waits up to a minute for one."""
    await reading(_own, who, experiment_id, changes=False)
    found = await poll(f"experiment:{experiment_id}", POLL_SECONDS, _events, experiment_id)
    return SearcherEvents(searcher_events=found or [])


class AnsweredEvent(Body):
    id: int


class OperationsBody(Body):
    """Each operation is one of createTrial, trialOperation, closeTrial, setSearcherProgress and shutDown."""

    triggered_by_event: AnsweredEvent
    searcher_operations: list[dict[str, Any]] = []


@async_view("POST", Right.EDIT | Right.RUN, body=OperationsBody)
async def searcher_operations(request: HttpRequest, who: Principal, experiment_id: int) -> None:
    """Operations in answer to an event (`triggeredByEvent`), which is removed with all earlier ones.

    Repeating an answer has no effect.
    """
    await reading(_own, who, experiment_id, changes=True)
    body = json_body(request)
    event, operations = body.get("triggeredByEvent"), body.get("searcherOperations") or []
    if not isinstance(event, dict) or not isinstance(event.get("id"), int):
        raise BadRequest(
            "triggeredByEvent.id: must be the id of the event that this answers, a whole number."
        )
    if not isinstance(operations, list) or len(operations) > MOST_OPERATIONS:
        raise BadRequest(f"searcherOperations: must be a list of at most {MOST_OPERATIONS:,} operations.")
    wanted = [_wanted(each, index) for index, each in enumerate(operations)]
    actor = f"user:{who.username}" if isinstance(who, User) else "searcher"
    await reading(_operate, experiment_id, wanted, event["id"], actor)


def _own(who: Principal, experiment_id: int, *, changes: bool) -> None:
    """Raises Missing, also to the run of another experiment, and Forbidden to people who may not change it."""
    own_experiments(who, experiment_id)
    experiment = existing(Experiment.objects.select_related("owner"), "experiment", pk=experiment_id)
    if changes and isinstance(who, User):
        rights.require_owner(who, experiment)


def _events(experiment_id: int) -> list[dict[str, Any]] | None:
    return search.custom_events(experiment_id) or None


def _operate(experiment_id: int, wanted: list[Wanted], event_id: int, actor: str) -> None:
    try:
        search.operate(experiment_id, wanted, event_id, actor=actor)
    except BadSearch as error:
        raise BadRequest(str(error)) from error


def _wanted(operation: Any, index: int) -> Wanted:
    """One operation of the dialect. Raises BadRequest."""
    where = f"searcherOperations[{index}]"
    given = (
        {name: value for name, value in operation.items() if value is not None}
        if isinstance(operation, dict)
        else {}
    )
    name, content = next(iter(given.items()), ("", None))
    if len(given) != 1 or name not in _READ or not isinstance(content, dict):
        raise BadRequest(f"{where}: must be one of {', '.join(_READ)} with its fields.")
    try:
        return _READ[name](content)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadRequest(f"{where}.{name}: {error!r} is missing or invalid.") from error


def _create(content: dict[str, Any]) -> Wanted:
    hparams = content["hyperparams"]
    hparams = bounded_json.loads(hparams) if isinstance(hparams, str) else hparams
    if not isinstance(hparams, dict):
        raise ValueError("hyperparams")
    return Wanted("create", str(content["requestId"]), hparams=hparams)


def _trial_operation(content: dict[str, Any]) -> Wanted:
    after = content["validateAfter"]
    return Wanted("validate_after", str(after["requestId"]), length=int(after["length"]))


def _shut_down(content: dict[str, Any]) -> Wanted:
    return Wanted("shut_down", failure=bool(content.get("failure")), cancel=bool(content.get("cancel")))


_READ: dict[str, Callable[[dict[str, Any]], Wanted]] = {
    "createTrial": _create,
    "trialOperation": _trial_operation,
    "closeTrial": lambda content: Wanted("close", str(content["requestId"])),
    "setSearcherProgress": lambda content: Wanted("progress", progress=float(content.get("progress") or 0)),
    "shutDown": _shut_down,
}

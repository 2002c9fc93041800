"""Why an attempt stopped: the story that pages show and `logs -f` ends with."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, cast

from pydantic import Field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import TypedDict

from jobs.models import Task
from logs import why_stopped
from logs.lines import shown
from logs.why_stopped import Story
from webui.api import encoding
from webui.api.errors import Missing
from webui.api.trials import find
from webui.api.views import ApiView


class WhyQuery(serializers.Serializer[Any]):
    attempt = serializers.IntegerField(min_value=1, required=False)


class LastLine(TypedDict):
    number: int
    rank: int | None
    text: str


class StoppedBy(TypedDict):
    user: NotRequired[str]
    reason: str


class WhyStoppedAnswer(TypedDict):
    attempt: NotRequired[int]
    sentences: Annotated[list[str], Field(description="empty while the attempt goes on")]
    rank: NotRequired[Annotated[int, Field(description="which failed first")]]
    host: NotRequired[str]
    exitCode: NotRequired[int]
    signal: NotRequired[int]
    meaning: NotRequired[Annotated[str, Field(description="the exit code in words")]]
    lines: Annotated[list[LastLine], Field(description="what the process said last")]
    traceback: bool
    stoppedBy: NotRequired[StoppedBy]
    labels: Annotated[list[str], Field(description="names of the log policies that matched")]
    failed: Annotated[bool, Field(description="nobody wanted this end")]


def encode_story(story: Story) -> WhyStoppedAnswer:
    """`sentences` is empty while the attempt goes on; rank, host and the like are left out where none is known."""
    encoded = encoding.without_none(
        {
            "attempt": story.attempt,
            "sentences": story.sentences,
            "rank": story.rank,
            "host": story.host or None,
            "exitCode": story.exit_code,
            "signal": story.signal,
            "meaning": story.meaning or None,
            "lines": [
                {"number": line.number, "rank": line.rank, "text": shown(line.text)}
                for line in story.words.lines
            ],
            "traceback": story.words.traceback,
            "stoppedBy": story.stopped_by,
            "labels": [match.name for match in story.matches if match.name],
            "failed": story.failed,
        }
    )
    return cast(WhyStoppedAnswer, encoded)


class TaskWhyStopped(ApiView):
    """Why an attempt of a task stopped: the newest, or the one whose number is `attempt`."""

    queries = {"GET": WhyQuery}
    answers = {"GET": WhyStoppedAnswer}

    def get(self, request: Request, task_id: str) -> Response:
        task = Task.objects.select_related("job").filter(pk=task_id).first()
        if task is None:
            raise Missing(f"task {task_id} not found")
        return Response(encode_story(why_stopped.of_task(task, self.query(request).get("attempt"))))


class TrialWhyStopped(ApiView):
    """The same of a trial."""

    queries = {"GET": WhyQuery}
    answers = {"GET": WhyStoppedAnswer}

    def get(self, request: Request, trial_id: int) -> Response:
        task = find(request, trial_id).task
        return Response(encode_story(why_stopped.of_task(task, self.query(request).get("attempt"))))

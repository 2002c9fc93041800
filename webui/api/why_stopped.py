"""Why an attempt stopped: the story that pages show and `logs -f` ends with."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from jobs.models import Task
from logs import why_stopped
from logs.lines import shown
from logs.why_stopped import Story
from webui.api.answers import Answer, Maybe
from webui.api.errors import existing
from webui.api.trials import find
from webui.api.views import ApiView


class WhyQuery(serializers.Serializer[Any]):
    attempt = serializers.IntegerField(min_value=1, required=False)


class LastLine(Answer):
    number: int
    rank: int | None
    text: str


class StoppedBy(Answer):
    user: Maybe[str] = None
    reason: str


class WhyStoppedAnswer(Answer):
    attempt: Maybe[int] = None
    sentences: Annotated[list[str], Field(description="empty while the attempt is running")]
    rank: Maybe[Annotated[int, Field(description="which failed first")]] = None
    host: Maybe[str] = None
    exit_code: Maybe[int] = None
    signal: Maybe[int] = None
    meaning: Maybe[Annotated[str, Field(description="the exit code in words")]] = None
    lines: Annotated[list[LastLine], Field(description="the last output of the process")]
    traceback: bool
    stopped_by: Maybe[StoppedBy] = None
    labels: Annotated[list[str], Field(description="names of the log policies that matched")]
    failed: Annotated[bool, Field(description="the end was not requested")]


def encode_story(story: Story) -> WhyStoppedAnswer:
    """`sentences` is empty while the attempt is running; rank, host and the like are left out where none is known."""
    return WhyStoppedAnswer.of(
        story,
        host=story.host or None,
        meaning=story.meaning or None,
        lines=[LastLine.of(line, text=shown(line.text)) for line in story.words.lines],
        traceback=story.words.traceback,
        labels=[match.name for match in story.matches if match.name],
    )


class TaskWhyStopped(ApiView):
    """Why an attempt of a task stopped: the latest, or the one with the number `attempt`."""

    rights = {"GET": Right.READ}
    queries = {"GET": WhyQuery}

    def get(self, request: Request, task_id: str) -> WhyStoppedAnswer:
        task = existing(Task.objects.select_related("job"), "task", pk=task_id)
        return encode_story(why_stopped.of_task(task, self.query(request).get("attempt")))


class TrialWhyStopped(ApiView):
    """Why an attempt of a trial stopped: the latest, or the one with the number `attempt`."""

    rights = {"GET": Right.READ}
    queries = {"GET": WhyQuery}

    def get(self, request: Request, trial_id: int) -> WhyStoppedAnswer:
        task = find(request, trial_id).task
        return encode_story(why_stopped.of_task(task, self.query(request).get("attempt")))

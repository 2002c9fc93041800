"""Images, histograms, texts and tables that training code reported: `/api/v1/trials/<id>/media`, beside the dialect."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from experiments import media
from experiments.models import Media
from webui.api import answers, encoding
from webui.api.answers import Answer, Pagination, Time
from webui.api.async_views import Principal, async_view
from webui.api.errors import Missing
from webui.api.tasks import task_of_trial
from webui.api.trials import find
from webui.api.views import ApiView
from webui.waiting.threads import reading

#: a picture never becomes a page with rights of ours, whatever a browser takes it for; its address never changes
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cache-Control": "private, max-age=31536000, immutable",
}


class MediaQuery(encoding.PageQuery):
    kind = serializers.ChoiceField(choices=Media.Kind.values, required=False)
    name = serializers.CharField(required=False)
    step = serializers.IntegerField(min_value=0, required=False)


class MediaItem(Answer):
    """`type`, `width` and `height` are those of an image; `place` numbers the images of a name and step from 0."""

    id: int
    kind: str
    name: str
    step: int
    place: int
    caption: str
    size: int
    type: str
    width: int
    height: int
    reported_at: Time


class MediaAnswer(Answer):
    media: list[MediaItem]
    pagination: Pagination


class TrialMedia(ApiView):
    """What a trial's code reported of a kind, of a name, or at a step. `…/media/<id>` returns an item's content."""

    rights = {"GET": Right.READ | Right.RUN}
    queries = {"GET": MediaQuery}

    def get(self, request: Request, trial_id: int) -> MediaAnswer:
        query = self.query(request)
        asked = {name: query[name] for name in ("kind", "name", "step") if name in query}
        rows = Media.objects.filter(trial=find(request, trial_id), **asked).defer("content")
        return encoding.page(MediaAnswer, rows, query, MediaItem.of)


@async_view("GET", Right.READ | Right.RUN, answer=answers.Media("application/json", *media.TYPES.values()))
async def content(request: HttpRequest, who: Principal, trial_id: int, media_id: int) -> HttpResponse:
    """The file of an image; of a histogram, a text or a table its JSON."""
    await reading(task_of_trial, who, trial_id)
    if (found := await reading(media.content, trial_id, media_id)) is None:
        raise Missing(f"trial {trial_id} has no media {media_id}")
    return HttpResponse(found[1], content_type=found[0], headers=_HEADERS)

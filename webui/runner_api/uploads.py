"""How many files the runs of one user send to this process at once: further ones wait on their hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings

from webui.runner_api import limits
from webui.runner_api.answers import RefusedRequest


class Uploads:
    """The uploads under way, by the user whose runs send them."""

    def __init__(self) -> None:
        self._under_way: Counter[int] = Counter()

    @contextmanager
    def one(self, owner_id: int) -> Iterator[None]:
        """An upload is here: from before its body has arrived. Raises RefusedRequest (429)."""
        most = settings.RUN_UPLOADS_PER_USER
        if self._under_way[owner_id] >= most:
            raise RefusedRequest(
                429,
                f"The runs of this user have {most} uploads under way; send this one when one of them is done.",
                retry_after=limits.RETRY_AFTER_SECONDS,
            )
        self._under_way[owner_id] += 1
        try:
            yield
        finally:
            self._under_way[owner_id] -= 1
            self._under_way += Counter()  # forgets those that have none


uploads = Uploads()

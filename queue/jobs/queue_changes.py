"""What an edit of the queue has changed, in words that name jobs as their reader knows them."""

from __future__ import annotations

from collections.abc import Callable

from jobs.models import Job
from jobs.queue_rules import short


class Change:
    """One change of a job. As text it names jobs by their ids, for programs and terminals."""

    def __init__(self, job: Job, *words: str | Job) -> None:
        self.job = job
        self._words = words

    def __str__(self) -> str:
        return f"Job {short(self.job.pk)}: {self._said(lambda job: f'job {short(job.pk)}')}."

    @property
    def by_name(self) -> str:
        return f"{self.job.name}: {self.words}."

    @property
    def words(self) -> str:
        """The change alone, on a page that is about the job."""
        return self._said(lambda job: job.name)

    def _said(self, name: Callable[[Job], str]) -> str:
        return "".join(word if isinstance(word, str) else name(word) for word in self._words)

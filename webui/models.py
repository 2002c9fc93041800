"""What the web side keeps for itself: settings of users' pages, and parts of a gang's exchange."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from jobs.models import Allocation
from trainmaster import bounded_json


class UserSetting(models.Model):
    """One remembered choice of a user (columns, filters, theme)."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="page_settings")
    storage_path = models.CharField(max_length=255, blank=True)
    key = models.CharField(max_length=128)
    value = models.TextField()

    @property
    def names(self) -> list[str]:
        """The value as a list of names; users may write it by the API, too, so anything may be there."""
        try:
            found = bounded_json.loads(self.value)
        except ValueError:
            return []
        return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []

    class Meta:
        ordering = ["storage_path", "key"]
        constraints = [
            models.UniqueConstraint(fields=["user", "storage_path", "key"], name="setting_once_per_user")
        ]


class GatherPart(models.Model):
    """What one peer gave to an all-gather of its allocation; complete when all peers have given theirs."""

    allocation = models.ForeignKey(Allocation, on_delete=models.CASCADE, related_name="+")
    #: what is exchanged: peers of "containers" and of "all_gather" do not meet
    purpose = models.CharField(max_length=16)
    #: the peer's own name of its request; a repeated request is the same part
    request_uuid = models.CharField(max_length=64)
    peers = models.PositiveIntegerField()
    data = models.JSONField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["allocation", "request_uuid"], name="gather_part_once")
        ]

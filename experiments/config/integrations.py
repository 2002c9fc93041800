"""Which notification rules an experiment triggers, beside those that cover it anyway."""

from __future__ import annotations

from submissions.config.section import Ignored, Section


class Webhooks(Section):
    webhook_id: list[int] | None = None
    """Numbers of notification rules that cover only experiments naming them."""
    webhook_name: list[str] | None = None
    """Names of such rules."""
    exclude: bool | None = None
    """True: no rule notifies anyone about this experiment."""


class Integrations(Section):
    webhooks: Webhooks | None = None
    """Which notification rules this experiment triggers."""
    pachyderm: Ignored = None

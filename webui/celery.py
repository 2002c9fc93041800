"""The Celery application: short, idempotent tasks. A message only makes somebody look sooner."""

import os
import sys

from celery import Celery

from dispatch.watching import beat, canary

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webui.settings")

_path = list(sys.path)
app = Celery("trainmaster")
sys.path[:] = _path  # Celery puts the current folder first, where anybody's `jobs.py` would be taken for ours
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

__all__ = ["app", "beat", "canary"]  # beat and canary hear of this process by signals, if it is a worker

"""The beat by itself: it sends the names of tasks (`CELERY_BEAT_SCHEDULE`) and needs none of their code."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webui.settings")

app = Celery("trainmaster", set_as_current=False)
app.config_from_object("django.conf:settings", namespace="CELERY")

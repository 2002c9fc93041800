"""The Celery application is loaded with the project, so that shared tasks find it."""

from webui.celery import app as celery_app

__all__ = ["celery_app"]

from django.urls import path

from webui.pages.queue import board, job

urlpatterns = [
    path("jobs", board.board),
    path("jobs/job/<uuid:job_id>", job.detail),
    path("jobs/<str:pool_name>", board.board),
]

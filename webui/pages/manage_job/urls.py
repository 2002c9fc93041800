from django.urls import path

from webui.pages.manage_job import dialog, edits
from webui.pages.queue import job

urlpatterns = [
    path("jobs/manage/<uuid:job_id>", dialog.manage),
    path("jobs/manage/<uuid:job_id>/preview", dialog.preview),
    path("jobs/menu/<uuid:job_id>", job.menu),
    path("jobs/logs/<uuid:job_id>", job.logs),
    path("jobs/edits/make", edits.make),
    path("jobs/edits/undo", edits.undo),
]

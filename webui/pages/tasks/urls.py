from django.urls import path
from django.views.generic import RedirectView

from webui.pages.tasks import form, page

urlpatterns = [
    path("commands", page.commands),
    path("commands/<uuid:command_id>", page.detail),
    path("commands/<uuid:command_id>/kill", page.kill),
    path("commands/<uuid:command_id>/<slug:tab>", page.detail),
    path("tasks", page.listing),
    path("tasks/+new", form.new),
    path("tasks/+tensorboard", form.tensorboard),
    path("tasks/<uuid:task_id>", page.waiting),
    # what Determined's client opens for a notebook or a TensorBoard
    path("det/interactive/<uuid:task_id>/<path:rest>", RedirectView.as_view(url="/tasks/%(task_id)s")),
]

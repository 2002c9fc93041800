from django.urls import path

from webui.pages.tasks import commands, form, page

urlpatterns = [
    path("commands", commands.listing),
    path("commands/<uuid:command_id>", commands.detail),
    path("commands/<uuid:command_id>/kill", commands.kill),
    path("commands/<uuid:command_id>/<slug:tab>", commands.detail),
    path("tasks", page.listing),
    path("tasks/+new", form.new),
    path("tasks/+tensorboard", form.tensorboard),
    path("tasks/<uuid:task_id>", page.waiting),
    path("det/interactive/<uuid:task_id>/<path:rest>", page.from_determined),
]

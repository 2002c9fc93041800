from django.urls import path
from django.views.generic import RedirectView

from webui.pages.places import form, page, project_notes

urlpatterns = [
    path("workspaces", page.workspaces),
    path("workspaces/+new", form.new_workspace),
    path("workspaces/<int:workspace_id>", page.workspace),
    path("workspaces/<int:workspace_id>/edit", form.edit_workspace),
    path("workspaces/<int:workspace_id>/+project", form.new_project),
    path("workspaces/<int:place_id>/<slug:action>", form.act, {"kind": "workspaces"}),
    path("projects/<int:project_id>", page.project),
    path("projects/<int:project_id>/edit", form.edit_project),
    path("projects/<int:project_id>/notes", project_notes.notes),
    path("projects/<int:place_id>/<slug:action>", form.act, {"kind": "projects"}),
    # addresses of Determined's console
    path("det/workspaces/<int:pk>", RedirectView.as_view(url="/workspaces/%(pk)s")),
    path("det/projects/<int:pk>", RedirectView.as_view(url="/projects/%(pk)s")),
]

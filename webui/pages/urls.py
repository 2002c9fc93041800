"""Addresses of the console. Every view is a link; each folder of pages lists its own."""

from django.urls import include, path
from django.views.generic import RedirectView

from webui.pages import account, cluster, session, usage

#: In this order: what stands under an experiment, a trial or a command comes before its `<slug:tab>`.
FOLDERS = (
    "search", "metrics", "profiler", "logs", "experiments", "trials", "tasks", "queue", "manage_job", "places",
    "hosts", "pools", "notifications",
)  # fmt: skip

urlpatterns = [
    path("", RedirectView.as_view(url="/experiments")),
    path("login", session.login),
    path("logout", session.logout),
    path("cluster", cluster.overview),
    path("cluster/chart", cluster.chart),
    path("settings", account.overview),
    path("settings/profile", account.profile),
    path("settings/password", account.password),
    path("settings/tokens", account.make_token),
    path("settings/tokens/<int:token_id>/revoke", account.revoke_token),
    path("usage", usage.overview),
    path("usage/chart", usage.chart),
    *(path("", include(f"webui.pages.{folder}.urls")) for folder in FOLDERS),
]

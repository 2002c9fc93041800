"""Addresses of everything that Django serves: the figures, the REST dialect, then the console."""

from django.conf import settings
from django.urls import URLPattern, URLResolver, include, path

from webui.monitoring.scrape import scrape

urlpatterns: list[URLPattern | URLResolver] = [
    path("metrics", scrape),
    path("", include("webui.api.urls")),
    path("", include("webui.pages.urls")),
]
if settings.OIDC_ISSUER:
    urlpatterns.append(path("sso/", include("webui.single_sign_on")))

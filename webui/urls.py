"""Addresses of everything that Django serves: the REST dialect, then the console."""

from django.urls import URLPattern, URLResolver, include, path

urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("webui.api.urls")),
    path("", include("webui.pages.urls")),
]

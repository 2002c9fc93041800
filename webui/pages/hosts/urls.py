from django.urls import path

from webui.pages.hosts import page, samples

urlpatterns = [
    path("hosts", page.listing),
    path("hosts/<str:name>", page.detail),
    path("hosts/<str:name>/chart", samples.chart),
    path("hosts/<str:name>/<slug:action>", page.act),
    path("hosts/<str:name>/slots/<int:index>/<slug:action>", page.act_on_slot),
]

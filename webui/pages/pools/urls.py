from django.urls import path

from webui.pages.pools import form, page, pairs

urlpatterns = [
    path("pools", page.listing),
    path("pools/+new", form.new),  # no name of a pool begins with a plus
    path("pools/<str:name>", page.detail),
    path("pools/<str:name>/chart", page.chart),
    path("pools/<str:name>/edit", form.edit),
    path("pools/<str:name>/remove", form.remove),
    path("pools/<str:name>/pairs/test", pairs.test),
    path("pools/<str:name>/<slug:tab>", page.detail),
]

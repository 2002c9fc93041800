from django.urls import path

from webui.pages.pools import page

urlpatterns = [
    path("pools", page.listing),
    path("pools/+new", page.new),  # no name of a pool begins with a plus
    path("pools/<str:name>", page.detail),
    path("pools/<str:name>/chart", page.chart),
    path("pools/<str:name>/edit", page.edit),
    path("pools/<str:name>/remove", page.remove),
    path("pools/<str:name>/pairs/test", page.test_pairs),
    path("pools/<str:name>/<slug:tab>", page.detail),
]

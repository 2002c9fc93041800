from django.urls import path

from webui.pages.metrics import page

urlpatterns = [
    path("trials/<int:trial_id>/metrics", page.detail),
    path("trials/<int:trial_id>/metrics/pins", page.pin),
    path("trials/<int:trial_id>/metrics/curves", page.data),
    path("trials/<int:trial_id>/metrics/points.csv", page.export),
]

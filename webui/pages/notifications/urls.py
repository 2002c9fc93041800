from django.urls import path

from webui.pages.notifications import page

urlpatterns = [
    path("settings/notifications", page.listing),
    path("settings/notifications/+new", page.new),
    path("settings/notifications/preview", page.preview),
    path("settings/notifications/<int:rule_id>", page.detail),
    path("settings/notifications/<int:rule_id>/edit", page.edit),
    path("settings/notifications/<int:rule_id>/do/<slug:action>", page.act),
    path("settings/notifications/<int:rule_id>/deliveries/<uuid:delivery_id>/retry", page.retry),
]

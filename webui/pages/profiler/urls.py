from django.urls import path

from webui.pages.profiler import export, page, timings

urlpatterns = [
    path("trials/<int:trial_id>/profiler", page.detail),
    path("trials/<int:trial_id>/profiler/samples", page.points),
    path("trials/<int:trial_id>/profiler/samples.csv", export.samples),
    path("trials/<int:trial_id>/profiler/timings", timings.data),
    path("trials/<int:trial_id>/profiler/timings.csv", export.of_timings),
]

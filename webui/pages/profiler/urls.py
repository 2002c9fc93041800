from django.urls import path

from webui.pages.profiler import export, page

urlpatterns = [
    path("trials/<int:trial_id>/profiler", page.detail),
    path("trials/<int:trial_id>/profiler/samples", page.points),
    path("trials/<int:trial_id>/profiler/samples.csv", export.samples),
    path("trials/<int:trial_id>/profiler/timings", page.step_charts),
    path("trials/<int:trial_id>/profiler/timings.csv", export.of_timings),
]

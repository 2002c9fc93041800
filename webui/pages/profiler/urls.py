from django.urls import path

from webui.pages.profiler import page

urlpatterns = [
    path("trials/<int:trial_id>/profiler", page.detail),
    path("trials/<int:trial_id>/profiler/samples", page.points),
    path("trials/<int:trial_id>/profiler/samples.csv", page.samples_file),
    path("trials/<int:trial_id>/profiler/timings", page.step_charts),
    path("trials/<int:trial_id>/profiler/timings.csv", page.timings_file),
]

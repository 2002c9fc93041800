from django.apps import AppConfig


class WebuiConfig(AppConfig):
    name = "webui"

    def ready(self) -> None:
        from webui import celery as celery  # the application that shared tasks find
        from webui import checks as checks  # registers itself; models can be imported now

"""What a server such as uvicorn runs: `webui.asgi:application`."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webui.settings")
django_application = get_asgi_application()  # sets Django up: models may be imported from here on

from webui import front  # noqa: E402

application = front.build(django_application)

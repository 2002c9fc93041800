"""The whole ASGI application, loaded but not begun: a fork server imports it before it forks web processes."""

import gc
import os

import django

gc.disable()  # what is imported stays: going through it again and again costs a tenth of the start
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webui.settings")
django.setup()  # models may be imported from here on

from django.urls import get_resolver  # noqa: E402

from webui import front  # noqa: E402
from webui.handler import Handler  # noqa: E402

# now, and not within the first request: loading all views takes a second in which no viewer would hear a word
_ = get_resolver().url_patterns

application = front.build(Handler())

# what is loaded now stays for good: a full collection would go through its 160,000 objects, tens of milliseconds in
# which nobody is answered, each time that a chart has made some thousand points
gc.freeze()
gc.enable()

"""The one settings file. Everything that differs between installations is an environment variable."""

import os
from pathlib import Path
from urllib.parse import quote

import django_stubs_ext
import plotly
from csp import constants as csp
from django.core.exceptions import ImproperlyConfigured

from webui import environment

django_stubs_ext.monkeypatch()  # QuerySet[Model] in annotations, at run time too

ROOT = Path(__file__).resolve().parent.parent
VERSION = "0.1.0"


def _default_data_dir() -> str:
    if os.geteuid() == 0:
        return "/var/lib/trainmaster/server"
    return str(Path.home() / ".local/share/trainmaster")


DATA_DIR = Path(environment.text("TRAINMASTER_DATA_DIR", _default_data_dir()))
DEBUG = environment.boolean("TRAINMASTER_DEBUG", False)
CLUSTER_NAME = environment.text("TRAINMASTER_CLUSTER_NAME", "trainmaster")

_secret = environment.text("TRAINMASTER_SECRET_KEY")
if not _secret:
    _file = DATA_DIR / "secret_key"
    _secret = _file.read_text().strip() if _file.exists() else ""
if not _secret:
    # `up` makes the file before anything else; a command that needs no secret (check, makemigrations) may go on.
    _secret = "unset-" + os.urandom(32).hex()
SECRET_KEY = _secret

ALLOWED_HOSTS = environment.words("TRAINMASTER_ALLOWED_HOSTS", "*")
CSRF_TRUSTED_ORIGINS = environment.words("TRAINMASTER_CSRF_TRUSTED_ORIGINS")

INSTALLED_APPS = [
    "django.contrib.postgres",
    "channels",
    "csp",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "accounts",
    "events",
    "hosts",
    "jobs",
    "logs",
    "metrics",
    "submissions",
    "commands",
    "experiments",
    "notifications",
    "dispatch",
    "webui",
]

# All of these run under ASGI without a thread; a synchronous one would make every long poll hold a thread.
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

# A log line or a name that got into a page as markup would still run nothing. Plotly and htmx write style elements, and
# Plotly turns its charts into pictures by way of blob: and data: addresses.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [csp.SELF],
        "style-src": [csp.SELF, csp.UNSAFE_INLINE],
        "img-src": [csp.SELF, "data:", "blob:"],
        "object-src": [csp.NONE],
        "base-uri": [csp.NONE],
        "form-action": [csp.SELF],
        "frame-ancestors": [csp.NONE],
    }
}

ROOT_URLCONF = "webui.urls"
ASGI_APPLICATION = "webui.asgi.application"
APPEND_SLASH = False

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

# Where `up` serves its own database, a command from another terminal (create_admin, dbshell) finds it there.
_sockets = DATA_DIR / "pgsock"
_database = (
    f"postgresql://trainmaster@/trainmaster?host={quote(str(_sockets))}"
    if (_sockets / ".s.PGSQL.5432").exists()
    else "postgresql:///trainmaster"
)
# Under ASGI each request has a thread of its own, so what is kept open is the process's, not the thread's.
_database_entry = environment.database(environment.text("DATABASE_URL", _database))
_database_entry["OPTIONS"]["pool"] = {
    "min_size": 1,
    "max_size": int(environment.number("TRAINMASTER_DATABASE_CONNECTIONS", 40)),  # of one process
    "timeout": environment.number("TRAINMASTER_DATABASE_WAIT_SECONDS", 5),
}
DATABASES = {"default": {**_database_entry, "CONN_HEALTH_CHECKS": True}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = environment.text("REDIS_URL", "redis://127.0.0.1:6379/0")

AUTH_USER_MODEL = "accounts.User"
LOGIN_URL = "/login"
LOGIN_REDIRECT_URL = "/"
AUTH_PASSWORD_VALIDATORS: list[
    dict[str, object]
] = []  # clients send a salted hash; the rule is in accounts.passwords

# --- single sign-on by OpenID Connect, where a provider is named; a stranger gets the role at the first login ---
OIDC_ISSUER = environment.http_url("TRAINMASTER_OIDC_ISSUER")
OIDC_NAME = environment.text("TRAINMASTER_OIDC_NAME", "Single sign-on")
OIDC_ROLE = environment.one_of("TRAINMASTER_OIDC_ROLE", "editor", ["viewer", "editor"])
if OIDC_ISSUER:
    INSTALLED_APPS += [
        "allauth",
        "allauth.account",
        "allauth.socialaccount",
        "allauth.socialaccount.providers.openid_connect",
    ]
    MIDDLEWARE += ["allauth.account.middleware.AccountMiddleware"]
    AUTHENTICATION_BACKENDS = [
        "django.contrib.auth.backends.ModelBackend",
        "allauth.account.auth_backends.AuthenticationBackend",
    ]
    ACCOUNT_EMAIL_VERIFICATION = "none"
    SOCIALACCOUNT_ADAPTER = "webui.single_sign_on.Adapter"
    SOCIALACCOUNT_LOGIN_ON_GET = True  # the page's policy lets no form lead to another server
    SOCIALACCOUNT_PROVIDERS = {
        "openid_connect": {
            "provider_class": "webui.single_sign_on.Provider",
            "APPS": [
                {
                    "provider_id": "oidc",
                    "name": OIDC_NAME,
                    "client_id": environment.text("TRAINMASTER_OIDC_CLIENT_ID"),
                    "secret": environment.text("TRAINMASTER_OIDC_CLIENT_SECRET"),
                    "settings": {"server_url": OIDC_ISSUER, "oauth_pkce_enabled": True},
                }
            ],
        }
    }

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True

# --- static files: ours, plotly.js from the plotly wheel, htmx from django-htmx ---
STATIC_URL = "/static/"
STATIC_ROOT = Path(environment.text("TRAINMASTER_STATIC_ROOT", str(DATA_DIR / "static")))
# The documentation as `make setup` builds it, served at /docs.
DOCS_ROOT = Path(environment.text("TRAINMASTER_DOCS_ROOT", str(ROOT / "build" / "docs")))
STATICFILES_DIRS = [
    ROOT / "static",
    ("plotly", Path(plotly.__file__).parent / "package_data"),
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "webui.collected.VersionedFiles"},
}

# --- security ---
TLS = environment.boolean("TRAINMASTER_TLS", False)
SESSION_COOKIE_SECURE = TLS
CSRF_COOKIE_SECURE = TLS
SECURE_SSL_REDIRECT = False if not TLS else environment.boolean("TRAINMASTER_SSL_REDIRECT", True)
SECURE_HSTS_SECONDS = int(environment.number("TRAINMASTER_HSTS_SECONDS", 31_536_000 if TLS else 0))
SECURE_HSTS_INCLUDE_SUBDOMAINS = TLS
SECURE_HSTS_PRELOAD = TLS
SECURE_REFERRER_POLICY = "same-origin"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
X_FRAME_OPTIONS = "DENY"
if environment.boolean("TRAINMASTER_BEHIND_PROXY", False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

DATA_UPLOAD_MAX_MEMORY_SIZE = 160 * 1024 * 1024  # a 95 MiB context as base64 in JSON, and its config

# --- REST ---
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "webui.api.authentication.BearerAuthentication",
        "webui.api.authentication.BrowserAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["webui.api.permissions.RolePermission"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "webui.api.errors.exception_handler",
    "UNAUTHENTICATED_USER": None,
}
#: Fail a request whose answer is not as its view declares (webui.api.answers): for tests.
CHECK_ANSWERS = environment.boolean("TRAINMASTER_CHECK_ANSWERS", False)
SPECTACULAR_SETTINGS = {
    "OAS_VERSION": "3.1.0",  # whose schemas are JSON Schema's, as pydantic writes them
    "TITLE": "Trainmaster",
    "VERSION": VERSION,
    "DESCRIPTION": "Determined's REST dialect, and what Trainmaster adds beside it.",
    "SERVE_INCLUDE_SCHEMA": False,
    "ENUM_NAME_OVERRIDES": {  # of fields that have one name and mean different things
        "TokenScopeEnum": "accounts.models.Scope.choices",
        "WebhookScopeEnum": "webui.api.webhooks.SCOPES",
    },
}

# --- Celery: messages are hints; nothing is lost with them, so nothing is stored or acknowledged late ---
CELERY_BROKER_URL = REDIS_URL.replace("unix://", "redis+socket://", 1)  # as kombu spells a Unix socket
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_DEFAULT_QUEUE = "trainmaster"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 300, "socket_timeout": 10, "socket_keepalive": True}
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
CELERY_TASK_TIME_LIMIT = None
# What a busy worker has fetched, nobody else takes, and no priority overtakes.
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# Hundreds of launches may wait for workers: passes and sweeps, which free slots and fill them, go first (0 before 9).
CELERY_TASK_ROUTES = {
    "dispatch.tasks.launch": {"priority": 6},
    "dispatch.tasks.merge_log*": {"priority": 9},
    "dispatch.tasks.merge_samples": {"priority": 9},
    "dispatch.tasks.look_back": {"priority": 9},
    "notifications.tasks.*": {"priority": 9},
}

# --- limits, each with its unit in its name ---
TICK_SECONDS = environment.number("TRAINMASTER_TICK_SECONDS", 1.0)
SWEEP_SECONDS = environment.number("TRAINMASTER_SWEEP_SECONDS", 5.0)
HOST_SILENT_AFTER_SECONDS = environment.number("TRAINMASTER_HOST_SILENT_AFTER_SECONDS", 30.0)
SSH_CONNECT_TIMEOUT_SECONDS = environment.number("TRAINMASTER_SSH_CONNECT_TIMEOUT_SECONDS", 15.0)
SSH_KEEPALIVE_SECONDS = environment.number("TRAINMASTER_SSH_KEEPALIVE_SECONDS", 9.0)
SSH_PENDING_DIALS_PER_HOST = int(environment.number("TRAINMASTER_SSH_PENDING_DIALS_PER_HOST", 4))
SSH_SESSIONS_PER_HOST = int(environment.number("TRAINMASTER_SSH_SESSIONS_PER_HOST", 4))
SSH_LIMIT_RETRY_SECONDS = environment.number("TRAINMASTER_SSH_LIMIT_RETRY_SECONDS", 10.0)
SSH_IDLE_SECONDS = environment.number("TRAINMASTER_SSH_IDLE_SECONDS", 600.0)
HOST_PROBE_SECONDS = environment.number(
    "TRAINMASTER_HOST_PROBE_SECONDS", min(10.0, HOST_SILENT_AFTER_SECONDS / 3)
)
HOST_PROBES_AT_ONCE = int(environment.number("TRAINMASTER_HOST_PROBES_AT_ONCE", 16))
# hosts with GPUs are asked so often who computes on them without the queue
GPU_USERS_SECONDS = environment.number("TRAINMASTER_GPU_USERS_SECONDS", 15.0)
TUNNEL_LEASE_SECONDS = environment.number("TRAINMASTER_TUNNEL_LEASE_SECONDS", 15.0)
STOP_GRACE_SECONDS = environment.number("TRAINMASTER_STOP_GRACE_SECONDS", 30.0)
# a kill by a person: between SIGTERM and SIGKILL
KILL_GRACE_SECONDS = environment.number("TRAINMASTER_KILL_GRACE_SECONDS", 10.0)
GANG_FAILURE_GRACE_SECONDS = environment.number("TRAINMASTER_GANG_FAILURE_GRACE_SECONDS", 5.0)
PREEMPTION_TIMEOUT_SECONDS = environment.number("TRAINMASTER_PREEMPTION_TIMEOUT_SECONDS", 3600.0)
# Forecasts look at so many days of ended work, read anew after so many seconds; of a large pool they are made so often.
FORECAST_HISTORY_DAYS = environment.number("TRAINMASTER_FORECAST_HISTORY_DAYS", 30.0)
FORECAST_HISTORY_SECONDS = environment.number("TRAINMASTER_FORECAST_HISTORY_SECONDS", 60.0)
FORECAST_SECONDS = environment.number("TRAINMASTER_FORECAST_SECONDS", 5.0)
# Folders of hosts (checkpoint_storage shared_fs, directory) that the server mounts at the same paths.
MOUNTED = environment.words("TRAINMASTER_MOUNTED")
# The server's own keys for checkpoints in S3; they serve these buckets only, at this address.
S3_BUCKETS = environment.words("TRAINMASTER_S3_BUCKETS")
S3_ACCESS_KEY = environment.text("TRAINMASTER_S3_ACCESS_KEY")
S3_SECRET_KEY = environment.text("TRAINMASTER_S3_SECRET_KEY")
S3_ENDPOINT_URL = environment.http_url("TRAINMASTER_S3_ENDPOINT_URL")
# A run is told so long before its time limit (at most a tenth of it), and has so long to save when it is reached.
TIME_WARNING_SECONDS = environment.number("TRAINMASTER_TIME_WARNING_SECONDS", 600.0)
TIME_LIMIT_SAVE_SECONDS = environment.number("TRAINMASTER_TIME_LIMIT_SAVE_SECONDS", 300.0)
# after a lost message, or one that waits behind others
LAUNCH_AGAIN_SECONDS = environment.number("TRAINMASTER_LAUNCH_AGAIN_SECONDS", 5.0)
LAUNCH_ATTEMPTS = int(environment.number("TRAINMASTER_LAUNCH_ATTEMPTS", 3))
HEARTBEAT_SECONDS = environment.number("TRAINMASTER_HEARTBEAT_SECONDS", 5.0)
# A detached run has no host to ask: so long without a sign of life, and it is over until it is heard again.
DETACHED_LOST_SECONDS = environment.number("TRAINMASTER_DETACHED_LOST_SECONDS", 300.0)
SPOOL_BYTES = int(environment.number("TRAINMASTER_SPOOL_BYTES", 2 * 1024**3))
LOG_LINE_BYTES = int(environment.number("TRAINMASTER_LOG_LINE_BYTES", 65_536))
# Log chunks that are older are merged where they are small, every so often, for so long at most.
LOG_COLD_SECONDS = environment.number("TRAINMASTER_LOG_COLD_SECONDS", 60.0)
LOG_MERGE_EVERY_SECONDS = environment.number("TRAINMASTER_LOG_MERGE_EVERY_SECONDS", 30.0)
LOG_MERGE_SECONDS = environment.number("TRAINMASTER_LOG_MERGE_SECONDS", 3.0)
# Jobs that name an image run in it where their hosts have podman, docker or apptainer; "false": on the host directly.
RUN_IMAGES = environment.boolean("TRAINMASTER_RUN_IMAGES", True)
# Hosts of running jobs measure themselves so often (0: never) and ship so many seconds of it together; longer spans
# hold up a live chart, shorter ones cost the server a transaction each.
SAMPLE_SECONDS = environment.number("TRAINMASTER_SAMPLE_SECONDS", 1.0)
SAMPLE_RECORD_SECONDS = environment.number("TRAINMASTER_SAMPLE_RECORD_SECONDS", 10.0)
# Hosts and GPUs that no run measures are asked for a sample so often (0: never), kept for so many days (-1: for ever).
HOST_SAMPLE_SECONDS = environment.number("TRAINMASTER_HOST_SAMPLE_SECONDS", 30.0)
HOST_SAMPLE_RETENTION_DAYS = environment.number("TRAINMASTER_HOST_SAMPLE_RETENTION_DAYS", 30.0)
# Every point is kept so long, then its minutes (lowest, highest, mean); those for so many days (-1: with the job).
SAMPLE_POINTS_HOURS = environment.number("TRAINMASTER_SAMPLE_POINTS_HOURS", 48.0)
SAMPLE_RETENTION_DAYS = environment.number("TRAINMASTER_SAMPLE_RETENTION_DAYS", -1.0)
# Timings of ranks are kept a second apart for so long, then a minute, and after so many days ten minutes; all of them
# as long as minutes of samples.
TIMING_SECONDS_HOURS = environment.number("TRAINMASTER_TIMING_SECONDS_HOURS", 24.0)
TIMING_MINUTES_DAYS = environment.number("TRAINMASTER_TIMING_MINUTES_DAYS", 7.0)
SAMPLE_MERGE_EVERY_SECONDS = environment.number("TRAINMASTER_SAMPLE_MERGE_EVERY_SECONDS", 30.0)
SAMPLE_MERGE_SECONDS = environment.number("TRAINMASTER_SAMPLE_MERGE_SECONDS", 5.0)
# Pools are counted every minute; the minutes are kept for so many days, then ten of them as one for so many.
POOL_MINUTES_DAYS = environment.number("TRAINMASTER_POOL_MINUTES_DAYS", 7.0)
POOL_HISTORY_DAYS = environment.number("TRAINMASTER_POOL_HISTORY_DAYS", 90.0)
# A GPU that is held and stayed under so many per cent for so long is flagged as idle (0 seconds: never).
IDLE_GPU_PERCENT = environment.number("TRAINMASTER_IDLE_GPU_PERCENT", 5.0)
IDLE_GPU_SECONDS = environment.number("TRAINMASTER_IDLE_GPU_SECONDS", 600.0)
# a context as base64 in JSON, and its config; nothing larger is taken from anybody but runs
REQUEST_BYTES = int(environment.number("TRAINMASTER_REQUEST_BYTES", 160 * 1024 * 1024))
CONTEXT_BYTES = 95 * 1024 * 1024
# one message of a client to a socket of the console's own; a notebook's may be larger (webui.embedded.serve)
SOCKET_MESSAGE_BYTES = int(environment.number("TRAINMASTER_SOCKET_MESSAGE_BYTES", 1024 * 1024))
LOGIN_ATTEMPTS = int(environment.number("TRAINMASTER_LOGIN_ATTEMPTS", 20))
LOGIN_WINDOW_SECONDS = int(environment.number("TRAINMASTER_LOGIN_WINDOW_SECONDS", 60))
LOGIN_TOKEN_DAYS = environment.number("TRAINMASTER_LOGIN_TOKEN_DAYS", 7.0)
# Access tokens: how long one counts unless its maker says otherwise, and at most (-1: for ever); when one was used last
# is written so often.
ACCESS_TOKEN_DAYS = environment.number("TRAINMASTER_ACCESS_TOKEN_DAYS", 30.0)
ACCESS_TOKEN_DAYS_MAX = environment.number("TRAINMASTER_ACCESS_TOKEN_DAYS_MAX", -1.0)
TOKEN_USED_EVERY_SECONDS = environment.number("TRAINMASTER_TOKEN_USED_EVERY_SECONDS", 60.0)
# Logs of ended jobs are removed after so many days (-1: never), unless their config or a person says otherwise; looked
# at so often, for so long at most at once.
LOG_RETENTION_DAYS = int(environment.number("TRAINMASTER_LOG_RETENTION_DAYS", -1))
LOG_CLEANUP_SECONDS = environment.number("TRAINMASTER_LOG_CLEANUP_SECONDS", 3600.0)
LOG_CLEANUP_ROUND_SECONDS = environment.number("TRAINMASTER_LOG_CLEANUP_ROUND_SECONDS", 20.0)
# Files of deleted checkpoints are removed for so long at most at once.
CHECKPOINT_REMOVAL_ROUND_SECONDS = environment.number("TRAINMASTER_CHECKPOINT_REMOVAL_ROUND_SECONDS", 30.0)
# An edit of the queue may be undone by its author for so long.
QUEUE_UNDO_SECONDS = environment.number("TRAINMASTER_QUEUE_UNDO_SECONDS", 900.0)
# Events are looked through so often for what people want to hear of; a receiver has so long to answer, and so many
# tries; deliveries are kept for so many days.
NOTIFY_SECONDS = environment.number("TRAINMASTER_NOTIFY_SECONDS", 3.0)
NOTIFY_WATCH_SECONDS = environment.number("TRAINMASTER_NOTIFY_WATCH_SECONDS", 30.0)
NOTIFY_TIMEOUT_SECONDS = environment.number("TRAINMASTER_NOTIFY_TIMEOUT_SECONDS", 10.0)
NOTIFY_ROUND_SECONDS = environment.number("TRAINMASTER_NOTIFY_ROUND_SECONDS", 20.0)
NOTIFY_ATTEMPTS = int(environment.number("TRAINMASTER_NOTIFY_ATTEMPTS", 8))
NOTIFY_HISTORY_DAYS = environment.number("TRAINMASTER_NOTIFY_HISTORY_DAYS", 30.0)
# Networks inside, such as 10.1.0.0/16, that rules of people who are no admins may post to as well.
NOTIFY_PRIVATE_NETWORKS = environment.networks("TRAINMASTER_NOTIFY_PRIVATE_NETWORKS")
# The mail server that notifications go through; without one no mail is sent.
EMAIL_HOST = environment.text("TRAINMASTER_SMTP_HOST")
EMAIL_PORT = int(environment.number("TRAINMASTER_SMTP_PORT", 587))
EMAIL_HOST_USER = environment.text("TRAINMASTER_SMTP_USER")
EMAIL_HOST_PASSWORD = environment.text("TRAINMASTER_SMTP_PASSWORD")
EMAIL_USE_TLS = environment.boolean("TRAINMASTER_SMTP_STARTTLS", EMAIL_PORT == 587)
EMAIL_USE_SSL = environment.boolean("TRAINMASTER_SMTP_TLS", EMAIL_PORT == 465)
DEFAULT_FROM_EMAIL = environment.text("TRAINMASTER_MAIL_FROM", "trainmaster@localhost")
# Shells, notebooks and TensorBoards: their use is noted so often; so many notebooks are asked at once whether they are
# idle; a TensorBoard that nobody uses ends after so long, unless its config says otherwise (0: never).
SERVICE_USED_EVERY_SECONDS = environment.number("TRAINMASTER_SERVICE_USED_EVERY_SECONDS", 30.0)
SERVICES_ASKED_AT_ONCE = int(environment.number("TRAINMASTER_SERVICES_ASKED_AT_ONCE", 16))
TENSORBOARD_IDLE_SECONDS = int(environment.number("TRAINMASTER_TENSORBOARD_IDLE_SECONDS", 1800))
# SSH to a shell's own sshd needs its key; Determined's client sends no login beside it. False: it must.
SHELLS_WITHOUT_LOGIN = environment.boolean("TRAINMASTER_SHELLS_WITHOUT_LOGIN", True)
PORT_LEASE_FIRST = int(environment.number("TRAINMASTER_PORT_LEASE_FIRST", 20_000))
PORT_LEASE_LAST = int(environment.number("TRAINMASTER_PORT_LEASE_LAST", 24_999))
# Where hosts reach this server; empty: the address that the host sees, or a tunnel through SSH.
SERVER_URL = environment.text("TRAINMASTER_SERVER_URL")
# What the web process listens on, so that tunnels know where to lead.
LISTEN_ADDRESS = environment.text("TRAINMASTER_LISTEN_ADDRESS", "127.0.0.1")
LISTEN_PORT = int(environment.number("TRAINMASTER_LISTEN_PORT", 8080))
CERT_SHA256 = environment.text("TRAINMASTER_CERT_SHA256")
# The same certificate as a PEM file: runs get a copy of it for programs that do not pin it.
CERT_FILE = environment.text("TRAINMASTER_CERT_FILE")
# What Prometheus must send to read /metrics; empty: only this machine itself may read it (docs/monitoring.md).
METRICS_TOKEN = environment.text("TRAINMASTER_METRICS_TOKEN")
# `up --insecure-http`: every page shows a banner.
INSECURE_HTTP = environment.boolean("TRAINMASTER_INSECURE_HTTP", False)

if TICK_SECONDS <= 0:
    raise ImproperlyConfigured(f"TRAINMASTER_TICK_SECONDS is {TICK_SECONDS}; allowed: more than 0.")
if not -1 <= LOG_RETENTION_DAYS <= 32767:
    raise ImproperlyConfigured(
        f"TRAINMASTER_LOG_RETENTION_DAYS is {LOG_RETENTION_DAYS}; allowed: -1 (for ever) to 32767."
    )

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": environment.text("TRAINMASTER_LOG_LEVEL", "INFO")},
    "loggers": {
        "asyncssh": {"level": "WARNING"},
        "celery.worker.strategy": {"level": "WARNING"},  # two lines for each task, so for each second
        "celery.app.trace": {"level": "WARNING"},
    },
}


# --- the beat: each entry only makes somebody look; one that waits behind launches still counts for a while ---
def _every(seconds: float, task: str, *, counts_for: float = 1.0) -> dict[str, object]:
    """An entry of the beat. A message is dropped when nobody took it within `counts_for` rounds."""
    return {"task": task, "schedule": seconds, "options": {"expires": counts_for * seconds}}


CELERY_BEAT_SCHEDULE = {
    "tick": _every(TICK_SECONDS, "dispatch.tasks.tick", counts_for=5),
    "sweep": _every(SWEEP_SECONDS, "dispatch.tasks.sweep", counts_for=5),
    "notify": _every(NOTIFY_SECONDS, "notifications.tasks.look", counts_for=5),
    "notify_watch": _every(NOTIFY_WATCH_SECONDS, "notifications.tasks.watch"),
    "merge_cold_logs": _every(LOG_MERGE_EVERY_SECONDS, "dispatch.tasks.merge_cold_logs"),
    "merge_samples": _every(SAMPLE_MERGE_EVERY_SECONDS, "dispatch.tasks.merge_samples"),
    "stop_unused": _every(SWEEP_SECONDS, "dispatch.tasks.stop_unused"),
    "probe": _every(SWEEP_SECONDS, "dispatch.host_tasks.probe_all"),
    "tunnels": _every(SWEEP_SECONDS, "dispatch.host_tasks.keep_tunnels"),
    "clean_logs": _every(LOG_CLEANUP_SECONDS, "dispatch.tasks.clean_logs"),
    "look_back": _every(60.0, "dispatch.tasks.look_back"),
    "garbage": _every(60.0, "dispatch.tasks.collect_garbage"),
}
CELERY_BEAT_SCHEDULE_FILENAME = str(DATA_DIR / "beat-schedule")

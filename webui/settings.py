"""The one settings file. Everything that differs between installations is an environment variable."""

import os
from pathlib import Path
from urllib.parse import quote

from csp import constants as csp

from webui import environment, schedule
from webui.limits import *  # noqa: F403 (settings must stand in this module)

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
# Where pages of notebooks and other tasks come from, apart from the console's origin (docs/interactive.md).
PROXY_ORIGIN = environment.origin("TRAINMASTER_PROXY_ORIGIN")

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
    "embedded",
]

# All of these run under ASGI without a thread; a synchronous one would make every long poll hold a thread.
MIDDLEWARE = [
    "webui.client_address.kept_for_events",
    "webui.compressed.CompressedPages",
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
        "form-action": [csp.SELF, *filter(None, [PROXY_ORIGIN])],  # where the form that starts a task leads
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
                "webui.pages.rooms.beside",
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
_database_entry["OPTIONS"] = environment.bounded(
    _database_entry["OPTIONS"],
    silent_seconds=DATABASE_SILENT_SECONDS,  # noqa: F405
    idle_transaction_seconds=IDLE_TRANSACTION_SECONDS,  # noqa: F405
)
# Statements of events.prepared are planned once per connection (0: never, for a pooler that cannot). Django's own
# cursors prepare nothing: a connection that may would keep the text of each of their statements.
PREPARE_AFTER = int(environment.number("TRAINMASTER_PREPARE_AFTER", 5))
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
OIDC_ROLE = environment.one_of("TRAINMASTER_OIDC_ROLE", "viewer", ["viewer", "editor"])
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

# --- static files: ours, what `setup.sh assets` brings from npm, htmx from django-htmx ---
STATIC_URL = "/static/"
STATIC_ROOT = Path(environment.text("TRAINMASTER_STATIC_ROOT", str(DATA_DIR / "static")))
# The documentation as `make setup` builds it, served at /docs.
DOCS_ROOT = Path(environment.text("TRAINMASTER_DOCS_ROOT", str(ROOT / "build" / "docs")))
STATICFILES_DIRS = [
    ROOT / "static",
    ROOT / "build" / "assets",
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "webui.collected.VersionedFiles"},
}

# --- security ---
TLS = environment.boolean("TRAINMASTER_TLS", False)
# Browsers accept these names over TLS only, and from this very host: another host of its domain, such as that of tasks'
# pages, could otherwise set a cookie for this one and so log its visitors in as somebody else.
_COOKIE_PREFIX = "__Host-" if TLS else ""
SESSION_COOKIE_NAME = f"{_COOKIE_PREFIX}sessionid"
CSRF_COOKIE_NAME = f"{_COOKIE_PREFIX}csrftoken"
SESSION_COOKIE_SECURE = TLS
CSRF_COOKIE_SECURE = TLS
CSRF_COOKIE_HTTPONLY = (
    True  # forms carry the token: no script needs the cookie, and a task's page may share our origin
)
SECURE_SSL_REDIRECT = False if not TLS else environment.boolean("TRAINMASTER_SSL_REDIRECT", True)
SECURE_HSTS_SECONDS = int(environment.number("TRAINMASTER_HSTS_SECONDS", 31_536_000 if TLS else 0))
SECURE_HSTS_INCLUDE_SUBDOMAINS = TLS
SECURE_HSTS_PRELOAD = TLS
SECURE_REFERRER_POLICY = "same-origin"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
X_FRAME_OPTIONS = "DENY"
BEHIND_PROXY = environment.boolean("TRAINMASTER_BEHIND_PROXY", False)
# whose X-Forwarded-For is believed. Tunnels of hosts come from loopback: a job there could write it, too.
TRUSTED_PROXIES = environment.networks("TRAINMASTER_TRUSTED_PROXIES") or ["127.0.0.0/8", "::1"]
if BEHIND_PROXY:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

DATA_UPLOAD_MAX_MEMORY_SIZE = REQUEST_BYTES  # noqa: F405

# --- REST ---
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "webui.api.authentication.BearerAuthentication",
        "webui.api.authentication.BrowserAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["webui.api.permissions.RolePermission"],
    "DEFAULT_RENDERER_CLASSES": ["webui.api.answers.Renderer"],
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
    "DESCRIPTION": "Determined's REST API, with Trainmaster's additions.",
    "SERVE_INCLUDE_SCHEMA": False,
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,  # the words of the dialect, which say it themselves
    "PATH_CONVERTER_OVERRIDES": {  # no other number finds a view
        "int": {"type": "integer", "minimum": 0},
        "project": {"type": "integer", "minimum": -1},
    },
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
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # it may be away for longer than the hundred tries of the default
CELERY_BROKER_CHANNEL_ERROR_RETRY = True  # a Redis that is full is one to try again: without it, workers end
# A worker's question for messages waits in Redis for `polling_interval` seconds, less than a socket may be silent.
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 300,
    "socket_timeout": 10,
    "socket_keepalive": True,
    "polling_interval": 5,
}
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
CELERY_TASK_TIME_LIMIT = None
# A file that a worker touches with each canary, so that who started it sees one that is frozen; empty: none.
WORKER_SIGN = environment.text("TRAINMASTER_WORKER_SIGN")
# What a busy worker has fetched, nobody else takes, and no priority overtakes.
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
BEAT = schedule.BEAT
# Hundreds of launches may wait for workers. Passes, which fill slots, and stops go first; then hosts are asked about
# their runs, which frees slots, and takes seconds where many have ended (0 before 9). What may wait goes last.
CELERY_TASK_ROUTES = {
    "dispatch.tasks.sweep_host": {"priority": 3},
    "dispatch.tasks.launch": {"priority": 6},
    "dispatch.tasks.delete_experiment": {"priority": 9},
    "dispatch.tasks.collect_*": {"priority": 9},
    "dispatch.tasks.remove_checkpoint_files": {"priority": 9},
    "dispatch.tasks.merge_log*": {"priority": 9},
    "dispatch.tasks.merge_samples": {"priority": 9},
    "dispatch.tasks.look_back": {"priority": 9},
    "dispatch.tasks.look_at_hang": {"priority": 9},
    "notifications.tasks.*": {"priority": 9},
}

# --- what is outside of this server, and where it stands itself ---
# Folders of hosts (checkpoint_storage shared_fs, directory) that the server mounts at the same paths.
MOUNTED = environment.words("TRAINMASTER_MOUNTED")
# The server's own keys for checkpoints in S3; they serve these buckets only, at this address.
S3_BUCKETS = environment.words("TRAINMASTER_S3_BUCKETS")
S3_ACCESS_KEY = environment.text("TRAINMASTER_S3_ACCESS_KEY")
S3_SECRET_KEY = environment.text("TRAINMASTER_S3_SECRET_KEY")
S3_ENDPOINT_URL = environment.http_url("TRAINMASTER_S3_ENDPOINT_URL")
# Of the addresses that a config may name as endpoint_url, which the server then asks, these alone; empty: any.
S3_ENDPOINTS = environment.http_urls("TRAINMASTER_S3_ENDPOINTS")
# Jobs that name an image run in it where their hosts have podman, docker or apptainer; "false": on the host directly.
RUN_IMAGES = environment.boolean("TRAINMASTER_RUN_IMAGES", True)
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
# SSH to a shell's own sshd needs its key; Determined's client sends no login beside it. False: it must.
SHELLS_WITHOUT_LOGIN = environment.boolean("TRAINMASTER_SHELLS_WITHOUT_LOGIN", True)
# Where hosts reach this server; empty: the address that the host sees, or a tunnel through SSH.
SERVER_URL = environment.text("TRAINMASTER_SERVER_URL")
# What links in notifications begin with, where people open the server; `up` says it of itself unless it listens on all
# addresses, of which none can be known to be right. It is never taken from a request, whose Host its sender chooses.
LINK_URL = environment.text("TRAINMASTER_LINK_URL") or SERVER_URL
# What the web process listens on, so that tunnels know where to lead.
LISTEN_ADDRESS = environment.text("TRAINMASTER_LISTEN_ADDRESS", "127.0.0.1")
LISTEN_PORT = int(environment.number("TRAINMASTER_LISTEN_PORT", 8080))
CERT_SHA256 = environment.text("TRAINMASTER_CERT_SHA256")
# The same certificate as a PEM file: runs get a copy of it for programs that do not pin it.
CERT_FILE = environment.text("TRAINMASTER_CERT_FILE")
# What Prometheus may send to read /metrics, beside an access token of a user (docs/monitoring.md).
METRICS_TOKEN = environment.text("TRAINMASTER_METRICS_TOKEN")
# `up --insecure-http`: every page shows a banner.
INSECURE_HTTP = environment.boolean("TRAINMASTER_INSECURE_HTTP", False)

LOG_LEVEL = environment.text("TRAINMASTER_LOG_LEVEL", "INFO")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {
        "asyncssh": {"level": "WARNING"},
        # it sets WARNING by itself, which would be told beside a TRAINMASTER_LOG_LEVEL of ERROR
        "psycopg": {"level": "WARNING" if LOG_LEVEL in {"DEBUG", "INFO"} else LOG_LEVEL},
        "celery.worker.strategy": {"level": "WARNING"},  # two lines for each task, so for each second
        "celery.app.trace": {"level": "WARNING"},
    },
}

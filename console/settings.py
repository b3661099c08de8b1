"""All settings, from the environment. Every name may also be given as NAME_FILE (a secret's path).

`manage.py up` sets what it needs; a larger installation sets DATABASE_URL, REDIS_URL,
SKILLYARD_SECRET_KEY, SKILLYARD_FIELD_KEYS and SKILLYARD_ALLOWED_HOSTS itself (docs/operations.md).
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

import environ
from celery.schedules import crontab
from csp.constants import NONE, SELF
from kombu import Queue

env = environ.FileAwareEnv()

BASE_DIR = Path(__file__).resolve().parent.parent
TESTING = "pytest" in sys.modules


def default_data_dir() -> Path:
    """/var/lib/skillyard for root and the service user, else the user's own data folder."""
    system = Path("/var/lib/skillyard")
    if os.geteuid() == 0 or os.access(system / "console", os.W_OK):
        return system
    return Path(os.environ.get("XDG_DATA_HOME", Path.home() / ".local/share")) / "skillyard"


DATA_DIR = Path(env.str("SKILLYARD_DATA_DIR", default=str(default_data_dir())))
CONSOLE_DIR = DATA_DIR / "console"
"""What the unprivileged web and worker processes may write."""

DEBUG = env.bool("SKILLYARD_DEBUG", default=False)

# Without keys, commands that need no secret still run; the first use of one fails loudly.
SECRET_KEY = env.str("SKILLYARD_SECRET_KEY", default="for-tests-" * 6 if TESTING else "")
FIELD_KEYS = env.list(
    "SKILLYARD_FIELD_KEYS",
    default=["VGhpcy1rZXktaXMtb25seS1mb3ItdGVzdHMtMDAwMDA="] if TESTING else [],
)
"""Fernet keys for stored secrets, newest first: the first encrypts, all decrypt."""

ALLOWED_HOSTS = env.list("SKILLYARD_ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("SKILLYARD_TRUSTED_ORIGINS", default=[])

INSTALLED_APPS = [
    "console.audit",
    "console.tenants",
    "console.policies",
    "console.fleet",
    "skills",
    "console.gateway",
    "console.api",
    "console.web",
    "console.embedded",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.humanize",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django_filters",
    "django_htmx",
    "template_partials",
    "rest_framework",
    "drf_spectacular",
    "csp",
    "axes",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "console.web.middleware.PrincipalMiddleware",
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "console.urls"
ASGI_APPLICATION = "console.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "django.template.context_processors.i18n",
            ],
        },
    }
]

DATABASES = {
    "default": env.db("DATABASE_URL", default=f"sqlite:///{CONSOLE_DIR / 'skillyard.sqlite3'}")
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # Writers queue instead of failing: measured with four processes, no "locked" error.
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = env.str("REDIS_URL", default=f"unix://{DATA_DIR / 'redis' / 'redis.sock'}")
REDIS_NAMESPACE = env.str("SKILLYARD_REDIS_NAMESPACE", default="skillyard")

CELERY_BROKER_URL = REDIS_URL.replace("unix://", "redis+socket://", 1)
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    # Longer than any task may take, or Redis would hand it out twice.
    "visibility_timeout": 6 * 3600,
    "global_keyprefix": f"{REDIS_NAMESPACE}:celery:",
}
# Builds are long and verifications take a minute or more: what must be quick has a queue of its own. A worker
# without -Q serves all.
CELERY_TASK_QUEUES = [Queue("control"), Queue("checks"), Queue("builds")]
CELERY_TASK_DEFAULT_QUEUE = "control"
CELERY_TASK_ROUTES = {
    "skills.tasks.run_build": {"queue": "builds"},
    "console.fleet.tasks.run_verification": {"queue": "checks"},
}
CELERY_BEAT_SCHEDULE = {
    "sweep-builds": {"task": "skills.tasks.sweep_builds", "schedule": 60.0},
    "reconcile-snapshots": {"task": "skills.tasks.reconcile_snapshots", "schedule": 300.0},
    "reconcile-sandboxes": {"task": "console.fleet.tasks.reconcile_backends", "schedule": 300.0},
    "clean-accounts": {"task": "console.fleet.tasks.clean_accounts", "schedule": 300.0},
    "take-up-requests": {
        "task": "console.fleet.tasks.take_up_requests",
        "schedule": 60.0,
    },
    "check-backends": {"task": "console.fleet.tasks.check_backends", "schedule": 60.0},
    # On the clock, so that no five minutes are missed by drift.
    "sample-sessions": {
        "task": "console.fleet.tasks.sample_sessions",
        "schedule": crontab(minute="*/5"),
    },
    "verify-audit": {
        "task": "console.audit.tasks.verify_chains",
        "schedule": crontab(hour=3, minute=30),
    },
    "sweep-fleet": {"task": "console.fleet.tasks.sweep_fleet", "schedule": 3600.0},
    "sweep-sign-ins": {"task": "console.tenants.tasks.sweep_sign_ins", "schedule": 3600.0},
    "sweep-bulk": {"task": "console.web.tasks.sweep_bulk", "schedule": 60.0},
}

SKILLYARD_BUILD_REGISTRIES = env.list("SKILLYARD_BUILD_REGISTRIES", default=[])
"""Domains that builds may download from, where the backend knows domains; empty is anywhere."""
SKILLYARD_BUILD_TOTAL_S = env.float("SKILLYARD_BUILD_TOTAL_S", default=3000.0)
SKILLYARD_BUILD_MAX_BYTES = env.int("SKILLYARD_BUILD_MAX_BYTES", default=12 * 1024**3)

SKILLYARD_ORPHAN_GRACE_S = env.float("SKILLYARD_ORPHAN_GRACE_S", default=3600.0)
"""How long a sandbox that nobody needs may live before the reconciler deletes it."""
SKILLYARD_ATTACHMENT_MAX_BYTES = env.int("SKILLYARD_ATTACHMENT_MAX_BYTES", default=100 * 1024**2)
SKILLYARD_ATTACHMENTS_MAX_BYTES = env.int("SKILLYARD_ATTACHMENTS_MAX_BYTES", default=1024**3)
SKILLYARD_ATTACHMENTS_MAX_COUNT = env.int("SKILLYARD_ATTACHMENTS_MAX_COUNT", default=1000)
"""Of one session, which get back into its next sandbox."""

AUTH_USER_MODEL = "tenants.User"
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
]
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "web:sign-in"
LOGIN_REDIRECT_URL = "web:overview"
LOGOUT_REDIRECT_URL = "web:sign-in"
AXES_HANDLER = "console.tenants.lockouts.Handler"
AXES_FAILURE_LIMIT = 8
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_CLIENT_IP_CALLABLE = "console.tenants.lockouts.network_of"
AXES_LOCKOUT_CALLABLE = "console.web.accounts.lockout.respond"
AXES_RESET_ON_SUCCESS = True
# The wait that was announced is the wait: another try meanwhile does not prolong it.
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_DISABLE_ACCESS_LOG = True
AXES_SENSITIVE_PARAMETERS = [
    "username",
    "ip_address",
    "next",
    "proof",
    "code",
    "recovery_code",
    "old_password",
    "new_password1",
    "new_password2",
    "csrfmiddlewaretoken",
]
AXES_ENABLED = not TESTING
AXES_VERBOSE = False
SIGN_IN_ADDRESS_FAILURES = 100
"""Of one address over all names, within the same quarter of an hour."""

TRUSTED_PROXIES = env.list(
    "SKILLYARD_TRUSTED_PROXIES", default=["127.0.0.1", "::1", "::ffff:127.0.0.1"]
)
"""Addresses and networks whose X-Forwarded-For and X-Forwarded-Proto are believed."""

HTTPS_ONLY = env.bool("SKILLYARD_HTTPS_ONLY", default=False)
SECURE_SSL_REDIRECT = HTTPS_ONLY
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS_ONLY
SESSION_COOKIE_NAME = "__Host-session" if HTTPS_ONLY else "session"
# `console.tenants.account_models.SignIn` hangs on the rows of this engine.
SESSION_ENGINE = "django.contrib.sessions.backends.db"
SESSION_COOKIE_AGE = 14 * 24 * 3600
"""Since the last use."""
SIGN_IN_MAX_AGE_S = 30 * 24 * 3600
"""However much it is used."""
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if HTTPS_ONLY else 0
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
    }
}

REST_FRAMEWORK = {
    "DEFAULT_SCHEMA_CLASS": "console.api.schema.ApiSchema",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    # Every view asks `console.api.authentication` itself.
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": [],
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Skillyard",
    "VERSION": "1",
    "DESCRIPTION": "Sandboxes of conversations, the skills in them, and what they may reach.",
    "SERVE_INCLUDE_SCHEMA": False,
    "COMPONENT_SPLIT_REQUEST": True,
    "PATH_CONVERTER_OVERRIDES": {"text": str},
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SORT_OPERATIONS": False,
    # Enumerations stay where they are used.
    "POSTPROCESSING_HOOKS": [],
}
API_RATES = {
    "exec": env.list("SKILLYARD_API_RATE_EXEC", cast=float, default=[50, 500]),
    "build": env.list("SKILLYARD_API_RATE_BUILD", cast=float, default=[0.1, 20]),
    "wrong_key": env.list("SKILLYARD_API_RATE_WRONG_KEY", cast=float, default=[0.1, 20]),
}
"""Tokens a second and how many at once, for each key (wrong keys: for each address)."""
API_COMMANDS_PER_SPACE = env.int("SKILLYARD_API_COMMANDS_PER_SPACE", default=1000)
"""How many commands may run at once in one space, over all processes."""
API_MAX_UPLOAD_BYTES = env.int("SKILLYARD_API_MAX_UPLOAD_BYTES", default=1024**3)

SKILLYARD_GATEWAY_DOMAIN = env.str("SKILLYARD_GATEWAY_DOMAIN", default="")
"""Under which the gateway serves each sandbox's ports as `{port}-{id}.DOMAIN`; empty is nowhere."""

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
LOCALE_PATHS = [BASE_DIR / "locale"]
USE_I18N = USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = CONSOLE_DIR / "static"
MEDIA_ROOT = CONSOLE_DIR / "media"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        if DEBUG or TESTING
        else "whitenoise.storage.CompressedManifestStaticFilesStorage"
    },
}
WHITENOISE_AUTOREFRESH = DEBUG or TESTING
FILE_UPLOAD_PERMISSIONS = 0o600
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024 * 1024
DATA_UPLOAD_MAX_NUMBER_FILES = 2000
DATA_UPLOAD_MAX_NUMBER_FIELDS = 5000

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": env.str("SKILLYARD_LOG_LEVEL", default="INFO")},
    "loggers": {"httpx": {"level": "WARNING"}, "axes": {"level": "WARNING"}},
}

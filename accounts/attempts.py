"""A bound on wrong passwords, kept in Redis and so shared by all web processes.

Redis may be away or be flushed: then nobody is refused. The bound is against guessing and against the CPU that each
hash costs, not a promise that anything else rests on.
"""

from __future__ import annotations

import redis
from django.conf import settings

from accounts.refusals import Code, Refusal

_KEY = "trainmaster:wrong-passwords:"


def check(username: str) -> None:
    """Raises Refusal after LOGIN_ATTEMPTS wrong passwords for this name within LOGIN_WINDOW_SECONDS."""
    try:
        value = _connection().get(_KEY + username)
    except redis.RedisError:
        return
    wrong = int(value) if isinstance(value, bytes) else 0
    if wrong >= settings.LOGIN_ATTEMPTS:
        raise Refusal(
            f"{wrong} wrong passwords for {username} within {settings.LOGIN_WINDOW_SECONDS} s. "
            "Wait a moment and try again.",
            Code.FORBIDDEN,
        )


def failed(username: str) -> None:
    """Count a wrong password."""
    try:
        pipe = _connection().pipeline()
        pipe.set(_KEY + username, 0, ex=settings.LOGIN_WINDOW_SECONDS, nx=True)  # EXPIRE NX needs Redis 7
        pipe.incr(_KEY + username)
        pipe.execute()
    except redis.RedisError:
        return


def _connection() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=1, socket_connect_timeout=1)

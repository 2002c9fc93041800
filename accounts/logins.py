"""Logins by name and password: whether the two match, and how often somebody may be wrong.

Wrong passwords are counted in Redis, which all web processes share: by name and address, and by address. So nobody can
lock somebody else out from elsewhere, and who has logged in at an address before may be wrong there ten times as often,
whatever other names were tried from it: everybody behind one router has the same address.

Redis may be away or be flushed: then nobody is refused. The bound is against guessing and against the CPU that each
hash costs, not a promise that anything else rests on.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import redis
from django.conf import settings

from accounts.models import User
from accounts.passwords import check_password
from accounts.refusals import Code, Refusal
from events.models import Event
from events.record import record

_PREFIX = "trainmaster:logins:"
_KNOWN_SECONDS = 90 * 24 * 3600
_KNOWN_TIMES = 10
_UNUSABLE = (
    "!"  # Django hashes something all the same, so that a login takes as long for a name that nobody has
)


def log_in(username: str, password: str, *, address: str, is_hashed: bool = False) -> User | None:
    """The user of that name if this is the password, active or not; None otherwise. Raises Refusal."""
    tries = _Tries(username, address)
    tries.begin()
    # what is not printable, the database may not even be asked for
    found = User.objects.filter(username=username).first() if username.isprintable() else None
    if not check_password(found or User(password=_UNUSABLE), password, is_hashed=is_hashed):
        _note(found, "login_failed", "nobody")
        return None
    if found and not found.is_active:
        _note(found, "login_refused", "nobody")
    tries.succeed()
    return found


def note(user: User, what: str) -> None:
    """Leave an event of a login or logout."""
    _note(user, what, f"user:{user.username}")


def _note(user: User | None, what: str, actor: str) -> None:
    """Of unknown names too, without the name, which may be a password: a try takes as long for them as for others.

    As many as tries are allowed.
    """
    detail = {"name": user.username} if user else {}
    record(Event.Kind.USER, user.pk if user else "unknown", reason=what, actor=actor, detail=detail)


def confirms(user: User, password: str, *, address: str, is_hashed: bool = False) -> bool:
    """Is it the password of somebody who is logged in already? Counted as a login is. Raises Refusal."""
    return log_in(user.username, password, address=address, is_hashed=is_hashed) == user


@dataclass(frozen=True)
class _Tries:
    """Tries of a name at an address within LOGIN_WINDOW_SECONDS. A try counts before it is known to be wrong: of many
    at once none is free. Names and addresses are anybody's text, so keys have their hashes.
    """

    username: str
    address: str

    @property
    def _here(self) -> str:
        return _PREFIX + _digest(f"{self.username}\0{self.address}")

    @property
    def _anybody(self) -> str:
        return _PREFIX + _digest(self.address)

    def begin(self) -> None:
        """Count one. Raises Refusal where there were too many."""
        window = settings.LOGIN_WINDOW_SECONDS
        try:
            pipe = _connection().pipeline()
            for key in (self._here, self._anybody):
                pipe.set(key, 0, ex=window, nx=True)  # EXPIRE NX needs Redis 7
                pipe.incr(key)
            pipe.exists(f"{self._here}:known")
            _, here, _, anybody, known = pipe.execute()
        except redis.RedisError:
            return
        most = settings.LOGIN_ATTEMPTS * (_KNOWN_TIMES if known else 1)
        if here > most:
            what = f"{most} wrong passwords for {self.username[:150]}"
        elif anybody > settings.LOGIN_ATTEMPTS_PER_ADDRESS and not known:
            what = f"{settings.LOGIN_ATTEMPTS_PER_ADDRESS} wrong passwords"
        else:
            return
        if here == most + 1 or anybody == settings.LOGIN_ATTEMPTS_PER_ADDRESS + 1:
            _note(None, "logins_refused_from_here", "nobody")  # the first of many
        raise Refusal(
            f"{what} from this address within {window} s. Wait a moment and try again.", Code.FORBIDDEN
        )

    def succeed(self) -> None:
        """It was right: it does not count, and the address is known from now on."""
        try:
            pipe = _connection().pipeline()
            for key in (self._here, self._anybody):
                pipe.decr(key)
                pipe.expire(
                    key, settings.LOGIN_WINDOW_SECONDS
                )  # the window may have ended while it was hashed
            pipe.set(f"{self._here}:known", 1, ex=_KNOWN_SECONDS)
            pipe.execute()
        except redis.RedisError:
            return


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _connection() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=1, socket_connect_timeout=1)

"""Users, their groups and roles, linked Unix accounts and login tokens."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import uuid
from contextlib import suppress
from datetime import timedelta

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.db import DatabaseError, models, transaction
from django.db.models import Q
from django.utils import timezone

from events.prepared import Prepared


class Scope(models.TextChoices):
    """What an access token may do, of what its user's role allows."""

    READ = "read", "read only"
    WRITE = "write", "read, submit jobs and make changes"
    FULL = "full", "everything you can do, including your account"


class Group(models.Model):
    """People who share what they hold in pools: a department, or a team in one; `accounts.user_groups` writes it."""

    name = models.CharField(max_length=64, unique=True)
    #: the department of a team
    parent = models.ForeignKey("self", null=True, on_delete=models.PROTECT, related_name="teams")

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def path(self) -> tuple[str, ...]:
        """Its name, after that of its department."""
        return (self.parent.name, self.name) if self.parent else (self.name,)


class User(AbstractUser):
    """A person. `password` holds Django's hash of the salted SHA-512 that clients send (accounts.passwords)."""

    class Role(models.TextChoices):
        ADMIN = "admin"
        EDITOR = "editor"
        VIEWER = "viewer"

    display_name = models.CharField(max_length=150, blank=True)
    role = models.CharField(max_length=8, choices=Role.choices, default=Role.EDITOR)
    # The Unix account that this user's jobs run as on hosts; empty: the account that the server logs in with.
    unix_user = models.CharField(max_length=64, blank=True)
    unix_uid = models.IntegerField(null=True, blank=True)
    unix_group = models.CharField(max_length=64, blank=True)
    unix_gid = models.IntegerField(null=True, blank=True)
    #: whose slots their jobs count as
    group = models.ForeignKey(Group, null=True, blank=True, on_delete=models.SET_NULL, related_name="members")
    modified_at = models.DateTimeField(auto_now=True)
    #: failures until then are no longer on the person's overview
    failures_seen_at = models.DateTimeField(null=True)
    #: about when a page, the CLI or a program last asked for something in their name (`seen`)
    seen_at = models.DateTimeField(null=True)

    #: of the access token that was sent, if one was: no right of the role goes further
    scope: Scope = Scope.FULL

    @property
    def is_admin(self) -> bool:
        return self.role == self.Role.ADMIN and self.scope == Scope.FULL

    @property
    def may_edit(self) -> bool:
        return self.role != self.Role.VIEWER and self.scope != Scope.READ

    @property
    def acting_role(self) -> User.Role:
        """The role as far as the scope reaches: for rules that ask for a role by its name."""
        if self.is_admin:
            return self.Role.ADMIN
        return self.Role.EDITOR if self.may_edit else self.Role.VIEWER

    def seen(self) -> None:
        """Note that they are here: written at most every USER_SEEN_EVERY_SECONDS, and never a reason to fail."""
        now = timezone.now()
        if self.seen_at and (now - self.seen_at).total_seconds() < settings.USER_SEEN_EVERY_SECONDS:
            return
        with suppress(DatabaseError), transaction.atomic():  # such as on a full disk
            User.objects.filter(pk=self.pk).update(seen_at=now)


#: how access tokens begin, so that people and secret scanners know one when they see it
ACCESS_PREFIX = "tma_"


def token_hash(token: str) -> str:
    """Tokens are random and long, so a plain SHA-256 is enough to store them by."""
    return hashlib.sha256(token.encode()).hexdigest()


def new_token() -> str:
    return secrets.token_urlsafe(32)


class LoginToken(models.Model):
    """A session of the CLI or the SDK. Only the hash is stored."""

    hash = models.CharField(max_length=64, primary_key=True)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="login_tokens")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()

    @classmethod
    def issue(cls, user: User) -> str:
        """A new token for the user; the caller is the only one who ever sees it."""
        token = new_token()
        expires = timezone.now() + timedelta(days=settings.LOGIN_TOKEN_DAYS)
        cls.objects.create(hash=token_hash(token), user=user, expires_at=expires)
        return token

    @classmethod
    def find_user(cls, token: str) -> User | None:
        """The active user that a login or an access token stands for."""
        if token.startswith(ACCESS_PREFIX):
            return AccessToken.find_user(token)
        row = _login_tokens.find(token_hash(token))
        if row is None or row.expires_at <= timezone.now():
            return None
        row.user.seen()
        return row.user


class AccessToken(models.Model):
    """What somebody made for a program that acts for him. Only the hash is stored; `accounts.tokens` writes it."""

    hash = models.CharField(max_length=64, unique=True)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="access_tokens")
    description = models.CharField(max_length=255, blank=True)
    scope = models.CharField(max_length=8, choices=Scope.choices)
    created_at = models.DateTimeField(auto_now_add=True)
    #: null: it counts until it is revoked
    expires_at = models.DateTimeField(null=True)
    #: about when it was used last: written at most every TOKEN_USED_EVERY_SECONDS
    used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]

    @classmethod
    def live(cls, path: str = "") -> Q:
        """Those that count. `path`: how a query comes to them, such as `access_tokens__`."""
        lasts = Q(**{f"{path}expires_at": None}) | Q(**{f"{path}expires_at__gt": timezone.now()})
        return lasts & Q(**{f"{path}revoked_at": None, f"{path}pk__isnull": False})

    @property
    def counts(self) -> bool:
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > timezone.now())

    @classmethod
    def find_user(cls, token: str) -> User | None:
        row = _access_tokens.find(token_hash(token))
        if row is None or not row.counts:
            return None
        now = timezone.now()
        if row.used_at is None or (now - row.used_at).total_seconds() > settings.TOKEN_USED_EVERY_SECONDS:
            cls.objects.filter(pk=row.pk).update(used_at=now)
        row.user.scope = Scope(row.scope)
        row.user.seen()
        return row.user


#: read with each request of a program, so that a token that was revoked is refused from the next request on
_login_tokens = Prepared(
    lambda: LoginToken.objects.select_related("user").filter(user__is_active=True), "hash", "of no token"
)
_access_tokens = Prepared(
    lambda: AccessToken.objects.select_related("user").filter(user__is_active=True), "hash", "of no token"
)


class SavedView(models.Model):
    """An address of a page that somebody has named; `accounts.saved_views` writes it."""

    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="saved_views")
    #: of accounts.saved_views.PAGES
    page = models.CharField(max_length=16)
    name = models.CharField(max_length=80)
    #: path and query
    address = models.CharField(max_length=2000)
    #: everyone sees it
    is_shared = models.BooleanField(default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["owner", "page", "name"], name="view_name_once_per_owner")
        ]
        indexes = [models.Index(fields=["page"], condition=Q(is_shared=True), name="views_of_the_team")]


class Cluster(models.Model):
    """The one row that names this installation."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    cluster_id = models.UUIDField(default=uuid.uuid4)
    message = models.TextField(blank=True)
    #: when it is shown; null: from the moment it was set, and for ever
    message_from = models.DateTimeField(null=True)
    message_until = models.DateTimeField(null=True)
    message_set_at = models.DateTimeField(null=True)
    #: key of the HMAC by which hosts recognize this server (GET /runner/v1/nonce)
    nonce_key = models.CharField(max_length=64, default=secrets.token_hex)
    #: Attempts of tasks are numbered above this. Each restore raises it, so that no new attempt has the name of one
    #: that was made after the backup and that a host still knows.
    attempts_above = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="cluster_is_one_row")]

    @classmethod
    def get(cls) -> Cluster:
        return _cluster.find(1) or cls.objects.get_or_create(id=1)[0]

    def proof_key(self, allocation_id: str) -> str:
        """By which this cluster proves to an attempt that it is itself; known to that attempt, of no use to another.

        Made by SHA-512: `/runner/v1/nonce` answers anybody with the SHA-256 of whatever they ask.
        """
        return hmac.new(
            self.nonce_key.encode(), f"proof-key|{allocation_id}".encode(), hashlib.sha512
        ).hexdigest()

    @property
    def message_now(self) -> str:
        """The message while it is to be shown, else ''."""
        now = timezone.now()
        begun = self.message_from is None or self.message_from <= now
        return self.message if begun and (self.message_until is None or now < self.message_until) else ""


_cluster = Prepared(lambda: Cluster.objects.all(), placeholder=32_001)

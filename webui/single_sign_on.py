"""Login by an OpenID Connect provider (django-allauth): who a stranger becomes here, and where a login that fails ends.

Part of the server only where TRAINMASTER_OIDC_ISSUER names a provider. State and PKCE are the library's; the nonce,
which it has not, is ours.
"""

from __future__ import annotations

import secrets
from typing import Any
from urllib.parse import urlencode

from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.providers.base.constants import AuthProcess
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from django.conf import settings
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, URLResolver, include, path

from accounts import names, users
from accounts.models import User
from events.models import Event
from events.record import record

FAILED, INACTIVE = "failed", "inactive"


class Provider(OpenIDConnectProvider):
    """Sends a nonce with each login, kept with its state in the session that began it (OpenID Connect Core 15.5.2)."""

    def redirect(self, request: HttpRequest, process: str, *args: Any, **kwargs: Any) -> HttpResponse:
        nonce = secrets.token_urlsafe(32)
        # what the address asks for beside (?auth_params=) is left out: it could name another nonce or state
        kwargs["auth_params"] = {**self.get_auth_params(), "nonce": nonce}
        answer: HttpResponse = super().redirect(request, process, *args, nonce=nonce, **kwargs)
        return answer


def is_answer_to(state: dict[str, Any], said: dict[str, Any]) -> bool:
    """Whether the ID token was made for the login that this session began, and the other claims are of its subject.

    `said` is what the provider said: {"id_token"?, "userinfo"?} (OpenID Connect Core 3.1.3.7 (11) and 5.3.2).
    """
    token, sent = said.get("id_token") or {}, state.get("nonce")
    same = bool(sent) and secrets.compare_digest(str(token.get("nonce", "")).encode(), str(sent).encode())
    return same and said.get("userinfo", token).get("sub") == token.get("sub")


class Adapter(DefaultSocialAccountAdapter):
    """An account is known by the provider's `sub`; at its first login by a verified address, or it is a new one."""

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        if not is_answer_to(sociallogin.state, sociallogin.account.extra_data):
            raise ImmediateHttpResponse(_back(FAILED))
        if sociallogin.state.get("process") == AuthProcess.CONNECT:
            # a link could have somebody add another's account at the provider to the one that is open here
            raise ImmediateHttpResponse(_back(FAILED))
        if sociallogin.is_existing:
            self._refuse_inactive(sociallogin.user)
            return
        known = list(_with_address(_verified(sociallogin))[:2])
        # what nobody has verified stands for nobody: the library would write it into the account
        sociallogin.email_addresses = []
        if len(known) == 1:  # people cannot set their own address here; an admin has
            self._refuse_inactive(known[0])
            sociallogin.connect(request, known[0])
            _record(known[0], "linked with single sign-on")

    def _refuse_inactive(self, user: User) -> None:
        if not user.is_active:
            raise ImmediateHttpResponse(_back(INACTIVE))

    def is_auto_signup_allowed(self, request: HttpRequest, sociallogin: Any) -> bool:
        return True

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        return True

    def populate_user(self, request: HttpRequest, sociallogin: Any, data: dict[str, Any]) -> User:
        """A new account: the provider's name for it, or that with a number, and the role of the settings."""
        user: User = sociallogin.user
        claims = sociallogin.account.extra_data.get("userinfo") or sociallogin.account.extra_data
        verified = _verified(sociallogin)
        wanted = str(claims.get("preferred_username") or (verified or ["user"])[0].partition("@")[0])
        user.username = names.free_name(wanted)
        called = str(claims.get("name") or "")[: names.NAME_CHARACTERS]
        user.display_name = "" if names.is_anothers(user, called) else called
        user.email = "" if not verified or _with_address(verified).exists() else verified[0]
        user.role = settings.OIDC_ROLE
        return user

    def save_user(self, request: HttpRequest, sociallogin: Any, form: Any = None) -> User:
        user: User = sociallogin.user
        user.set_unusable_password()
        sociallogin.save(request)
        users.accounts_changed.send(User)
        _record(user, "created by single sign-on")
        return user

    def on_authentication_error(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        raise ImmediateHttpResponse(_back(FAILED))


def _verified(sociallogin: Any) -> list[str]:
    """Addresses that the provider vouches for. Some providers write the claim as text, and "false" is no yes."""
    yes = (True, "true", "True")
    return [each.email for each in sociallogin.email_addresses if each.email and each.verified in yes]


def _with_address(addresses: list[str]) -> QuerySet[User]:
    same = Q(pk=None)
    for address in addresses:
        same |= Q(email__iexact=address)
    return User.objects.filter(same)


def _record(user: User, reason: str) -> None:
    record(Event.Kind.USER, user.pk, to_state=user.role, reason=reason, actor=f"user:{user.username}")


def _back(why: str) -> HttpResponseRedirect:
    return HttpResponseRedirect(f"{settings.LOGIN_URL}?{urlencode({'sso': why})}")


def ended(request: HttpRequest, **_names: str) -> HttpResponse:
    """Where the library would show pages of its own."""
    return _back(INACTIVE if "inactive" in request.path else FAILED)


def sentence(why: str) -> str:
    """For the login page."""
    if why == INACTIVE:
        return "This account is deactivated; an admin can activate it again."
    return f"{settings.OIDC_NAME} did not confirm the login; try again, or ask an admin." if why else ""


#: names that the library asks for; of its pages none is served
_NAMES = {
    "account_login": "login", "account_logout": "logout", "account_signup": "signup", "account_inactive": "inactive",
    "account_reauthenticate": "again", "account_email": "email", "account_email_verification_sent": "sent",
    "socialaccount_signup": "social/signup", "socialaccount_login_error": "social/error",
    "socialaccount_login_cancelled": "social/cancelled", "socialaccount_connections": "social/connections",
}  # fmt: skip
urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("allauth.socialaccount.providers.openid_connect.urls")),
    *(path(place, ended, name=name) for name, place in _NAMES.items()),
]

"""Who is asking: a person (login token or browser session) or a run (its allocation's token).

The same rules serve DRF's views and the async views beside them.
"""

from __future__ import annotations

from collections.abc import Mapping

from asgiref.sync import sync_to_async
from django.http import HttpRequest
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from accounts.models import LoginToken, User, token_hash
from events.prepared import Prepared
from experiments.models import Trial
from jobs.assigning import RUN_TOKEN_CHARACTERS
from jobs.models import Allocation
from jobs.states import AllocationState
from webui.api.errors import Missing
from webui.waiting.threads import asking

#: A process inside a task names itself by this header, in addition to `Authorization` or instead of it.
RUN_TOKEN_HEADER = "Grpc-Metadata-x-allocation-token"
_SCHEME = "bearer "
UNKNOWN = "The token is invalid or has expired; log in again."
NOBODY = "Not logged in: send a login token, or log in first."


def trial_of(run: Allocation) -> Trial | None:
    """The one trial that a run's token may touch."""
    return Trial.objects.filter(task_id=run.task_id).first()


def own_experiments(who: object, *experiment_ids: int) -> None:
    """Raises Missing where a run asks for an experiment that is not its own, as if there were no others."""
    if isinstance(who, Allocation):
        trial = trial_of(who)
        if others := [each for each in experiment_ids if trial is None or trial.experiment_id != each]:
            raise Missing(f"experiment {others[0]} not found")


def bearer_tokens(headers: Mapping[str, str]) -> list[str]:
    """Tokens of a request's headers (whose names have no case), the run token's own header first."""
    values = [headers.get(RUN_TOKEN_HEADER, ""), headers.get("Authorization", "")]
    return [value[len(_SCHEME) :].strip() for value in values if value.lower().startswith(_SCHEME)]


def by_token(headers: Mapping[str, str]) -> User | Allocation | None:
    """The user or the open allocation that a token of the request stands for.

    The database says so each time: what was revoked is refused from the next request on, whichever process gets it.
    """
    for token in filter(None, bearer_tokens(headers)):
        is_like_a_runs = len(token) == RUN_TOKEN_CHARACTERS  # only where to look first
        for find in (_run_of, LoginToken.find_user) if is_like_a_runs else (LoginToken.find_user, _run_of):
            if (found := find(token)) is not None:
                return found
    return None


def _run_of(token: str) -> Allocation | None:
    return _open_runs.find(token_hash(token))


_open_runs = Prepared(
    lambda: Allocation.objects.exclude(state=AllocationState.TERMINATED), "token_hash", "of no token"
)


async def authenticate(request: HttpRequest) -> User | Allocation | None:
    """Who calls an async view. A browser's session counts for reading only: there is no CSRF check here."""
    if bearer_tokens(request.headers):
        if hasattr(request, "has_no_thread"):  # as on the short way; Django keeps one for others
            return await asking(by_token, request.headers)
        return await sync_to_async(by_token)(request.headers)
    if request.method not in {"GET", "HEAD"}:
        return None
    user = await request.auser()
    return user if isinstance(user, User) and user.is_active else None


class BearerAuthentication(BaseAuthentication):
    """`Authorization: Bearer` of the CLI, the SDK and the runs."""

    def authenticate(self, request: Request) -> tuple[User | Allocation, str] | None:
        if not bearer_tokens(request.headers):
            return None
        found = by_token(request.headers)
        if found is None:
            raise AuthenticationFailed(UNKNOWN)
        return found, "user" if isinstance(found, User) else "run"

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class BrowserAuthentication(SessionAuthentication):
    """The console's session cookie, with Django's CSRF check."""

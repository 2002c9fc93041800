"""Who may do what: the sentence of each right, by role and by the scope of an access token."""

from __future__ import annotations

import pytest

from accounts import rights
from accounts.models import Scope, User
from accounts.refusals import Code, Refusal
from experiments.models import Experiment, Workspace


def user(name: str, role: User.Role, scope: Scope = Scope.FULL) -> User:
    made = User(pk=sum(map(ord, name)), username=name, role=role)
    made.scope = scope
    return made


ADMIN, ADA = user("root", User.Role.ADMIN), user("ada", User.Role.EDITOR)
BOB, VIC = user("bob", User.Role.EDITOR), user("vic", User.Role.VIEWER)
READER = user("ada", User.Role.EDITOR, Scope.READ)
HERS = Experiment(pk=7, owner=ADA)


def test_owner_and_admins_change_a_thing() -> None:
    for who, may in ((ADMIN, True), (ADA, True), (BOB, False), (VIC, False), (READER, False)):
        assert rights.may_change(who, HERS) is may
    assert not rights.may_change(VIC, Experiment(pk=8, owner=VIC))
    rights.require_owner(ADA, HERS)
    rights.require_owner(ADMIN, HERS)


@pytest.mark.parametrize(
    ("who", "name", "sentence"),
    [
        (BOB, "", "experiment 7 belongs to ada; only its owner or an admin can change it."),
        (BOB, "trial 9", "trial 9 belongs to ada; only its owner or an admin can change it."),
        (VIC, "", "vic is a viewer and cannot change anything."),
        (READER, "", "This access token has the scope read and cannot change anything."),
    ],
)
def test_others_are_told_whose_it_is(who: User, name: str, sentence: str) -> None:
    with pytest.raises(Refusal) as refused:
        rights.require_owner(who, HERS, name)
    assert (str(refused.value), refused.value.code) == (sentence, Code.FORBIDDEN)


def test_what_belongs_to_nobody_is_for_admins() -> None:
    nobodys = Workspace(pk=1, name="old")
    rights.require_owner(ADMIN, nobodys)
    with pytest.raises(Refusal, match="workspace 1 belongs to nobody; only"):
        rights.require_owner(ADA, nobodys)


def test_admins_alone() -> None:
    rights.require_admin(ADMIN)
    with pytest.raises(Refusal, match=r"Only admins can do this; the role of ada is editor\."):
        rights.require_admin(ADA)
    with pytest.raises(Refusal, match="an access token of the scope full; this one has the scope write"):
        rights.require_admin(user("root", User.Role.ADMIN, Scope.WRITE))


def test_a_token_narrows_what_its_owner_may() -> None:
    rights.require_scope(READER, writes=False)
    with pytest.raises(Refusal, match="has the scope read and cannot change anything"):
        rights.require_scope(READER, writes=True)
    with pytest.raises(Refusal, match=r"has the scope read\. Use a token with the scope full, or log in"):
        rights.require_scope(READER, writes=False, full=True)

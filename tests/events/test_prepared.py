"""Queries whose SQL is made once: the rows are those that Django itself reads, and as they are now."""

from __future__ import annotations

import psycopg
import pytest
from django.conf import settings
from django.db import NotSupportedError, connection, transaction
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from events.prepared import Prepared, ahead
from experiments.models import Experiment, Trial
from shown import experiments, trials
from tests.rig.world import make_user, submit_experiment, trial_of

pytestmark = pytest.mark.django_db


def test_a_row_has_its_columns_relations_and_annotations() -> None:
    experiment = submit_experiment(name="digits")
    trial = trial_of(experiment)
    for found, own in (
        (experiments.one.find(experiment.pk), experiments.whole().get(pk=experiment.pk)),
        (trials.one.find(trial.pk), trials.whole().get(pk=trial.pk)),
    ):
        assert found is not None and found == own
        names = own.__dict__.keys() - {"_state"}
        assert {name: getattr(found, name) for name in names} == {name: getattr(own, name) for name in names}
        assert found.get_deferred_fields() == own.get_deferred_fields()
        assert found._state.fields_cache.keys() == own._state.fields_cache.keys()


def test_it_is_one_query_and_reads_the_row_as_it_is_now() -> None:
    users = Prepared(lambda: User.objects.filter(is_active=True).only("role"), "username", "of no user")
    ada, bob = make_user("ada"), make_user("bob", User.Role.VIEWER)
    assert (users.find("ada"), users.find("bob"), users.find("eve")) == (ada, bob, None)
    User.objects.filter(pk=ada.pk).update(role=User.Role.ADMIN)
    User.objects.filter(pk=bob.pk).update(is_active=False)
    with CaptureQueriesContext(connection) as asked:
        found = users.find("ada")
        assert found is not None and found.role == User.Role.ADMIN and users.find("bob") is None
    assert len(asked) == 2


def test_a_row_that_is_read_ahead_comes_with_the_first_other_question_and_is_taken_once() -> None:
    users = Prepared(lambda: User.objects.only("role"), "username", "of no user")
    ada, trial = make_user("ada"), trial_of(submit_experiment(name="digits"))
    for name, number in (("ada", trial.pk), ("eve", trial.pk), ("ada", 10**6), ("eve", 10**6)):
        user, found = ada if name == "ada" else None, trial if number == trial.pk else None
        with ahead(trials.one, number), CaptureQueriesContext(connection) as asked:
            assert (users.find(name), trials.one.find(number)) == (user, found)
            assert len(asked) == (1 if user else 2), "for whom nobody knows, nothing is read ahead"
            Trial.objects.filter(pk=number).update(restarts=7)
            again = trials.one.find(number)
            assert again == found and (again is None or again.restarts == 7)
    with ahead(trials.one, trial.pk), CaptureQueriesContext(connection) as asked:
        assert trials.one.find(trial.pk) == trial and users.find("ada") == ada and users.find("eve") is None
        assert trials.one.find(trial.pk + 1) is None
    assert len(asked) == 4 and all("always" not in each["sql"] for each in asked), (
        "asked for first, it comes alone"
    )
    with ahead(trials.one, 10**30):
        assert (users.find("ada"), trials.one.find(10**30)) == (ada, None)


def test_the_first_row_in_the_order_that_was_asked_for() -> None:
    newest = Prepared(lambda: Experiment.objects.order_by("-pk"), "owner__username", "of no user")
    made = [submit_experiment(name=name) for name in ("first", "second")]
    assert newest.find("ada") == made[-1]


@pytest.mark.parametrize("number", [10**30, -(10**30), 2**63, -1])
def test_a_number_that_no_row_can_have_finds_none(number: int) -> None:
    assert Prepared(Trial.objects.all).find(number) is None


@pytest.mark.django_db(transaction=True)
def test_a_row_is_locked_within_a_transaction_alone() -> None:
    locked = Prepared(lambda: User.objects.select_for_update(), "username", "of no user")
    ada = make_user("ada")
    with transaction.atomic():
        assert locked.get("ada") == ada
        with pytest.raises(User.DoesNotExist):
            locked.get("eve")
    with pytest.raises(transaction.TransactionManagementError):
        locked.get("ada")


@pytest.mark.django_db(transaction=True)
def test_a_plan_is_made_again_once_a_column_has_another_type() -> None:
    users = Prepared(lambda: User.objects.all(), "username", "of no user")
    ada = make_user("ada")
    parameters = connection.get_connection_params()
    names = ("dbname", "user", "password", "host", "port")
    address = {name: parameters[name] for name in names if name in parameters}
    with psycopg.connect(**address, autocommit=True) as other:
        try:
            for characters in (300, 301):
                for _ in range(settings.PREPARE_AFTER + 2):
                    assert users.find("ada") == ada
                other.execute(f"ALTER TABLE accounts_user ALTER COLUMN first_name TYPE varchar({characters})")
                assert users.find("ada") == ada
            for _ in range(settings.PREPARE_AFTER + 2):
                users.find("ada")
            other.execute("ALTER TABLE accounts_user ALTER COLUMN first_name TYPE varchar(302)")
            with pytest.raises(NotSupportedError), transaction.atomic():
                users.find("ada")
            with transaction.atomic():
                assert users.find("ada") == ada
        finally:
            other.execute("ALTER TABLE accounts_user ALTER COLUMN first_name TYPE varchar(150)")

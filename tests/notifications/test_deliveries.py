"""From what happens to what a receiver gets: once each, signed, tried again, and never a matter of the job."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.conf import LazySettings
from django.utils import timezone

from accounts.models import User
from accounts.refusals import FieldRefusals
from dispatch.runs import log_policies
from events.models import Event
from events.record import record
from experiments import submit, transitions
from experiments.config import parse
from experiments.models import Experiment
from experiments.states import ExperimentState
from jobs.models import Task
from jobs.states import Reason
from logs import alerts, store
from logs.lines import NewLine, blocks_of
from notifications import messages, outbox, rules, sending
from notifications.models import Cursor, Delivery, Rule
from notifications.sealed import opened
from submissions import contexts
from tests.rig.endings import ended
from tests.rig.receiver import Receiver, running_receiver
from tests.rig.world import CONFIG, assigned, make_host, make_project, make_user, submit_experiment, trial_of

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def module_receiver() -> Iterator[Receiver]:
    with running_receiver() as receiver:
        yield receiver


@pytest.fixture
def receiver(module_receiver: Receiver) -> Receiver:
    module_receiver.got.clear()
    module_receiver.status, module_receiver.answers = 200, {}
    return module_receiver


@pytest.fixture
def ada(settings: LazySettings) -> User:
    settings.NOTIFY_PRIVATE_NETWORKS = ["127.0.0.0/8"]
    outbox.look(timezone.now())
    return make_user("ada")


def rule(owner: User, url: str, *types: str, condition: Any = None, **more: Any) -> Rule:
    triggers = [
        {"type": each, "condition": condition or {}} for each in types or ("EXPERIMENT_STATE_CHANGE",)
    ]
    values = {"name": "mine", "form": "webhook", "target": url, "triggers": triggers, **more}
    return rules.create(owner, values)[0]


def told() -> list[Delivery]:
    outbox.look(timezone.now())
    return list(Delivery.objects.order_by("created_at"))


def test_a_state_change_reaches_the_receiver_once_and_signed(ada: User, receiver: Receiver) -> None:
    mine = rule(ada, receiver.url, condition={"state": "COMPLETED"})
    experiment = ended(owner=ada)
    ended(owner=make_user("bob"))
    outbox.look(timezone.now())
    outbox.look(timezone.now())
    assert Delivery.objects.count() == 1, "looked twice, told once; and another's job is not ada's"
    assert sending.send_due(300) is False
    [posted] = receiver.got
    delivery = Delivery.objects.get()
    assert posted.content["event_type"] == "EXPERIMENT_STATE_CHANGE"
    assert posted.content["event_data"]["experiment"]["id"] == experiment.pk
    assert posted.content["event_data"]["experiment"]["state"] == "COMPLETED"
    assert posted.content["condition"] == {"state": "COMPLETED"}
    assert "digits" in posted.content["text"]
    stamp = int(posted.headers[messages.TIMESTAMP_HEADER])
    good = messages.signature(posted.body, opened(mine.secret), stamp)
    assert posted.headers[messages.SIGNATURE_HEADER] == good
    assert posted.headers[messages.DELIVERY_HEADER] == str(delivery.pk) == posted.content["event_id"]
    assert (delivery.state, delivery.attempts, delivery.answer) == ("sent", 1, "200 OK: done")


def test_a_failing_receiver_is_tried_again_later_under_the_same_id_and_given_up_at_last(
    ada: User, receiver: Receiver, settings: LazySettings
) -> None:
    settings.NOTIFY_ATTEMPTS = 2
    rule(ada, receiver.url)
    ended(owner=ada)
    receiver.status = 503
    told()
    begun = timezone.now()
    sending.send_due(5)
    delivery = Delivery.objects.get()
    assert delivery.state == "pending" and delivery.answer.startswith("503")
    first_pause = timedelta(seconds=10)
    assert begun + first_pause <= delivery.next_at <= timezone.now() + first_pause * 1.25
    Delivery.objects.update(next_at=timezone.now() + timedelta(hours=1))
    sending.send_due(5)
    assert len(receiver.got) == 1, "not before its time"
    Delivery.objects.update(next_at=timezone.now())
    sending.send_due(5)
    delivery.refresh_from_db()
    assert (delivery.state, delivery.attempts) == ("failed", 2)
    sending.retry(delivery)
    receiver.status = 200
    sending.send_due(5)
    delivery.refresh_from_db()
    assert delivery.state == "sent"
    assert len({posted.headers[messages.DELIVERY_HEADER] for posted in receiver.got}) == 1


def test_nobody_stands_behind_the_backlog_of_another(ada: User, receiver: Receiver) -> None:
    busy, quiet = rule(ada, receiver.url), rule(ada, receiver.url)
    old = timezone.now() - timedelta(minutes=1)
    for number in range(10):
        Delivery.objects.create(rule=busy, source=f"event:-{number}", trigger="CUSTOM", facts={}, next_at=old)
    last = Delivery.objects.create(rule=quiet, source="event:-1", trigger="CUSTOM", facts={})
    claimed = sending._claim()
    assert last in claimed and [each.rule for each in claimed].count(busy) == sending.OF_ONE_RULE


def test_a_claim_that_was_never_settled_is_taken_up_again(ada: User, receiver: Receiver) -> None:
    rule(ada, receiver.url)
    ended(owner=ada)
    told()
    assert len(sending._claim()) == 1, (
        "a server that is killed now has sent nothing, or told nobody that it has"
    )
    assert sending._claim() == []
    Delivery.objects.update(next_at=timezone.now())
    sending.send_due(5)
    assert len(receiver.got) == 1 and Delivery.objects.get().attempts == 2


def test_redirects_and_addresses_inside_are_refused_at_once(
    ada: User, receiver: Receiver, settings: LazySettings
) -> None:
    rule(ada, receiver.url)
    ended(owner=ada)
    receiver.status, receiver.answers = 302, {"Location": "http://169.254.169.254/"}
    told()
    sending.send_due(5)
    assert "Redirects are not followed" in Delivery.objects.get().answer
    assert Delivery.objects.get().state == "failed"
    settings.NOTIFY_PRIVATE_NETWORKS = []
    sending.retry(Delivery.objects.get())
    sending.send_due(5)
    assert "inside the server's own networks" in Delivery.objects.get().answer
    assert len(receiver.got) == 1
    User.objects.filter(pk=ada.pk).update(role=User.Role.ADMIN)
    receiver.status = 200
    sending.retry(Delivery.objects.get())
    sending.send_due(5)
    assert Delivery.objects.get().state == "sent", "an admin's rule may"


def test_a_receiver_that_does_not_answer_holds_nobody_for_long(ada: User, settings: LazySettings) -> None:
    settings.NOTIFY_TIMEOUT_SECONDS = 0.3
    with running_receiver() as mute:  # its own: what it hears late is no other test's
        mute.answering.clear()
        rule(ada, mute.url)
        ended(owner=ada)
        told()
        sending.send_due(5)
    assert Delivery.objects.get().answer == "No answer within 0.3 s."
    assert Experiment.objects.get().state == "COMPLETED"


def test_rows_that_commit_behind_larger_numbers_are_told_too(ada: User, receiver: Receiver) -> None:
    rule(ada, receiver.url, scope="mine")
    first, second = submit_experiment(owner=ada, name="late"), submit_experiment(owner=ada, name="early")
    number = Event.objects.latest("id").pk
    step = {"from_state": "ACTIVE", "to_state": "PAUSED", "reason": Reason.PAUSED_BY_USER}

    def paused(experiment: Experiment, pk: int) -> None:
        event = record(Event.Kind.EXPERIMENT, experiment.pk, job_id=experiment.job_id, **step)
        Event.objects.filter(pk=event.pk).update(id=pk)

    paused(second, number + 20)
    assert [delivery.facts["name"] for delivery in told()] == ["early"]
    paused(first, number + 10)
    assert [delivery.facts["name"] for delivery in told()] == ["early", "late"]
    assert Cursor.objects.get().done < number + 10


def test_the_cursor_moves_once_no_older_transaction_goes_on(ada: User) -> None:
    ended(owner=ada)
    later = timezone.now() + timedelta(seconds=60)
    outbox.look(later)
    outbox.look(later + timedelta(seconds=60))
    assert Cursor.objects.get().seen >= Event.objects.latest("id").pk


def test_alerts_log_lines_preemptions_and_silent_hosts_are_told(ada: User, receiver: Receiver) -> None:
    admin = make_user("root", User.Role.ADMIN)
    rule(ada, receiver.url, "CUSTOM", condition={"level": "WARNING"})
    rule(ada, receiver.url, "TASK_LOG", condition={"policy": "CUDA OOM"})
    rule(ada, receiver.url, "PREEMPTED")
    rule(admin, receiver.url, "HOST_SILENT", scope="cluster")
    trial = trial_of(submit_experiment(owner=ada))
    place = {"task_id": trial.task_id, "job_id": trial.task.job_id}
    alerts.raised(trial.pk, trial.task_id, trial.experiment_id, {"level": "DEBUG", "title": "unheard"})
    alerts.raised(
        trial.pk,
        trial.task_id,
        trial.experiment_id,
        {"level": "error", "title": "NaN", "description": "at 9"},
    )
    detail = {"policy": "CUDA OOM", "pattern": "x", "line": 7, "host": "gpu1"}
    record(Event.Kind.ALLOCATION, "a.1", reason=Reason.LOG_POLICY, detail=detail, **place)
    record(
        Event.Kind.ALLOCATION,
        "a.1",
        from_state="RUNNING",
        to_state="TERMINATED",
        reason=Reason.PREEMPTED,
        **place,
    )
    host = make_host("gpu7", slots=1)
    record(Event.Kind.HOST, host.pk, reason="silent", detail={"silent_seconds": 42.0})
    sentences = {delivery.trigger: delivery.facts["sentence"] for delivery in told()}
    assert sentences == {
        "CUSTOM": f"Experiment {trial.experiment_id} (test) of ada raised an alert: NaN: at 9",
        "TASK_LOG": f"Experiment {trial.experiment_id} (test) of ada has a log line that matches 'CUDA OOM': "
        "line 7, on gpu1.",
        "PREEMPTED": f"Experiment {trial.experiment_id} (test) of ada was preempted: stopped for a job ahead of it.",
        "HOST_SILENT": "Host gpu7 is silent for 42 s.",
    }


@pytest.mark.parametrize(
    ("reason", "detail", "sentence"),
    [
        ("quarantined", {"slot": 3}, "Slot 3 of host gpu7 is out of use because of a fault. It burns."),
        ("quarantined", {}, "Host gpu7 is out of use because of a fault. It burns."),
        ("quarantine_withheld", {}, "Host gpu7 has a fault and is still in use. It burns."),
    ],
)
def test_faults_of_hosts_are_told(
    ada: User, reason: str, detail: dict[str, int], sentence: str, receiver: Receiver
) -> None:
    rule(make_user("root", User.Role.ADMIN), receiver.url, "HOST_FAULT", scope="cluster")
    host = make_host("gpu7", slots=1)
    record(Event.Kind.HOST, host.pk, reason=reason, detail={**detail, "sentence": "It burns."})
    record(Event.Kind.HOST, host.pk, reason="quarantine_over", detail=detail)
    assert [delivery.facts["sentence"] for delivery in told()] == [sentence]


def test_lines_that_a_rule_looks_for_are_found_in_trials_that_it_is_about(
    ada: User, receiver: Receiver
) -> None:
    rule(ada, receiver.url, "TASK_LOG", condition={"regex": "loss is nan"})
    members = {}
    for name in ("ada", "bob"):
        host = make_host(f"of-{name}", slots=1)
        task = trial_of(submit_experiment(owner=make_user(name))).task_id
        place = [(host.pk, [host.slots.get().pk])]
        members[name] = assigned(
            task_id=task, placement=place, on_sufferance=False, actor="test"
        ).members.get()
    [block] = blocks_of([NewLine(0.0, 0, "stdout", "INFO", "step 9: loss is nan")])
    found = log_policies.look(members["ada"].pk, [block])
    assert found is not None and log_policies.look(members["bob"].pk, [block]) is None
    log_policies.write_down(members["ada"], found, [block], 41)
    [delivery] = told()
    assert "matches 'loss is nan': line 41, on of-ada" in delivery.facts["sentence"]


def test_a_long_wait_and_idle_gpus_are_told_once(ada: User, receiver: Receiver) -> None:
    rule(ada, receiver.url, "LONG_WAIT", condition={"minutes": 30})
    rule(ada, receiver.url, "LONG_WAIT", condition={"minutes": 10})
    experiment = submit_experiment(owner=ada)
    now = timezone.now()
    outbox.watch(now + timedelta(minutes=9))
    assert not Delivery.objects.exists()
    for minutes in (11, 12, 31, 40):
        outbox.watch(now + timedelta(minutes=minutes))
    told_of = Delivery.objects.order_by("created_at").values_list("condition__minutes", "facts__sentence")
    subject = f"Experiment {experiment.pk} (test) of ada"
    assert list(told_of) == [
        (10, f"{subject} has waited for 11 min in pool default."),
        (30, f"{subject} has waited for 31 min in pool default."),
    ]
    assert Task.objects.filter(state="WAITING").exists()


def test_what_happens_while_a_rule_is_paused_is_not_told_afterwards(ada: User, receiver: Receiver) -> None:
    mine = rule(ada, receiver.url)
    rules.set_paused(mine, ada, True)
    ended(owner=ada)
    assert told() == []
    rules.set_paused(mine, ada, False)
    assert told() == []
    ended("second", owner=ada)
    assert [delivery.facts["name"] for delivery in told()] == ["second"]


def test_slack_gets_text_that_cannot_be_taken_for_markup(ada: User, receiver: Receiver) -> None:
    rule(ada, receiver.url, form="slack", template="*{{ name }}* {{ state }}\n{{ host }}\nby {{ user }}")
    ended("<!channel> & co", owner=ada)
    told()
    sending.send_due(5)
    [posted] = receiver.got
    assert posted.content["attachments"][0]["text"] == "*&lt;!channel&gt; &amp; co* COMPLETED\nby ada"
    assert messages.SIGNATURE_HEADER not in posted.headers


def test_mail_goes_by_the_mail_server(ada: User, mailoutbox: list[Any], settings: LazySettings) -> None:
    settings.LINK_URL = "http://console.example:8080"
    rule(ada, "ada@example.org, bob@example.org", form="mail")
    experiment = ended(owner=ada)
    told()
    sending.send_due(5)
    assert "TRAINMASTER_SMTP_HOST" in Delivery.objects.get().answer
    settings.EMAIL_HOST = "mail.example.org"
    sending.retry(Delivery.objects.get())
    sending.send_due(5)
    [mail] = mailoutbox
    assert mail.to == ["ada@example.org", "bob@example.org"]
    assert "(digits) of ada completed" in mail.subject
    assert f"http://console.example:8080/experiments/{experiment.pk}" in mail.body
    assert str(Delivery.objects.get().pk) in mail.extra_headers["Message-ID"]


def test_rules_are_refused_in_sentences_and_keep_their_secrets(ada: User, receiver: Receiver) -> None:
    for field, values in {
        "target": {"target": "ftp://x"},
        "triggers": {"triggers": [{"type": "METRIC"}]},
        "template": {"template": "{{ password }}"},
        "scope": {"scope": "cluster"},
        "name": {"name": ""},
    }.items():
        with pytest.raises(FieldRefusals) as refusal:
            rules.create(ada, {"name": "n", "form": "slack", "target": receiver.url,
                               "triggers": [{"type": "CUSTOM"}], **values})  # fmt: skip
        assert list(refusal.value.errors) == [field]
    mine = rule(ada, "https://hooks.slack.com/services/T0/B0/abcdefgh", form="slack")
    assert mine.shown == "https://hooks.slack.com/…efgh"
    assert "hooks" not in mine.target


def of_config(integrations: str, owner: User) -> Experiment:
    """An experiment that has ended, submitted with these `integrations`."""
    text = CONFIG.format(name="named", slots=1, max_restarts=0, priority="", max_time="", hosts="")
    experiment = submit.create(
        owner=owner, config=parse(f"{text}\nintegrations: {integrations}"), original=text, context=contexts.empty(),
        project=make_project(), parent=None, activate=True, idempotency_key=None, actor="user:ada",
    )  # fmt: skip
    locked = transitions.lock(experiment.pk)
    transitions.set_experiment_state(
        locked, ExperimentState.COMPLETED, reason=Reason.COMPLETED, actor="server"
    )
    return experiment


def test_a_config_names_the_rules_that_it_triggers_or_excludes_itself_from_all(
    ada: User, receiver: Receiver
) -> None:
    everything = rule(ada, receiver.url)
    named = rule(ada, receiver.url, named_only=True, name="ops")
    for integrations, rules_told in (
        ("{webhooks: {webhook_name: [ops]}}", {everything, named}),
        (f"{{webhooks: {{webhook_id: [{named.pk}]}}}}", {everything, named}),
        ("{webhooks: {webhook_name: [other]}}", {everything}),
        ("{webhooks: {exclude: true}}", set()),
        ("null", {everything}),
    ):
        number = str(of_config(integrations, ada).pk)
        found = {delivery.rule for delivery in told() if delivery.facts["id"] == number}
        assert found == rules_told, integrations


def test_slack_gets_determineds_blocks_and_our_sentence_behind_them(ada: User, receiver: Receiver) -> None:
    rule(ada, receiver.url, form="slack")
    experiment = ended(owner=ada)
    told()
    sending.send_due(5)
    content = receiver.got[0].content
    sentence = {"type": "plain_text", "text": "Your experiment completed successfully 🎉"}
    assert content["blocks"] == [{"type": "section", "text": sentence}]
    theirs, ours = content["attachments"]
    [about] = theirs["blocks"]
    assert theirs["color"] == "#13B670" and about["text"]["text"] == f"✅ digits (#{experiment.pk})"
    assert [field["text"] for field in about["fields"][:2]] == ["*Status*: Completed", "*Duration*: 0h 0min"]
    assert "(digits) of ada completed" in ours["text"]


@pytest.mark.parametrize("form", ["webhook", "slack"])
def test_a_message_about_a_log_line_has_the_line(ada: User, receiver: Receiver, form: str) -> None:
    rule(ada, receiver.url, "TASK_LOG", condition={"regex": "is nan"}, form=form)
    trial = trial_of(submit_experiment(owner=ada))
    host = make_host("gpu1", slots=1)
    place = [(host.pk, [host.slots.get().pk])]
    member = assigned(task_id=trial.task_id, placement=place, on_sufferance=False, actor="test").members.get()
    blocks = blocks_of(
        [NewLine(0.0, 0, "stdout", "INFO", text) for text in ("step 8", "step 9: loss is nan")]
    )
    found = log_policies.look(member.pk, blocks)
    assert found is not None
    first, _ = store.append(trial.task_id, member, host.name, blocks)
    log_policies.write_down(member, found, blocks, first)
    told()
    sending.send_due(5)
    content = receiver.got[0].content
    if form == "webhook":
        said = content["event_data"]["task_log"]
        assert said["task_id"] == trial.task_id and said["node_name"] == "gpu1"
        assert said["triggering_log"] == "step 9: loss is nan" and said["line"] == str(first + 1)
    else:
        [block] = content["blocks"]
        assert block["text"]["text"] == (
            f"Experiment ID `{trial.experiment_id}`, Trial ID `{trial.pk}`, running on node `gpu1`, reported a log\n"
            "```step 9: loss is nan```\nThis log matched the regex\n```is nan```\n"
        )
        assert "has a log line that matches" in content["attachments"][-1]["text"]

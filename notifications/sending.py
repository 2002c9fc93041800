"""Deliveries on their way: claimed for a while, sent without a transaction, tried again with growing pauses.

A server killed between the receiver's answer and its row sends the message once more, under the same id.
"""

from __future__ import annotations

import random
import smtplib
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.conf import settings
from django.core.mail import EmailMessage, get_connection
from django.db import transaction
from django.db.models import Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from events.announce import announce
from notifications import messages
from notifications.models import Delivery, Rule
from notifications.posting import PostAnswer, post
from notifications.sealed import Unreadable, opened

#: at once, and of one rule at once: a receiver that answers slowly leaves room for the others
AT_ONCE, OF_ONE_RULE = 8, 3
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 10.0, 3600.0
ANSWER_CHARACTERS = 500


@dataclass(frozen=True)
class _Job:
    """All that a thread needs, which asks the database for nothing: the delivery's rule and its owner are read."""

    delivery: Delivery
    target: str
    secret: str


def send_due(seconds: float) -> bool:
    """Send what is due, for so long at most; whether more is due."""
    until = time.monotonic() + seconds
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="notify") as threads:
        while claimed := _claim():
            for delivery, answer in zip(
                claimed, threads.map(_send, [_job(each) for each in claimed]), strict=True
            ):
                _settle(delivery, answer)
            if time.monotonic() > until:
                return True
    return False


def send_test(rule: Rule) -> PostAnswer:
    """An example, in the caller's thread. It stands among the deliveries, and is tried once: somebody looks at it."""
    delivery = messages.example(rule)
    delivery.attempts, delivery.next_at = 1, timezone.now() + _taken_for()
    delivery.save(force_insert=True)
    answer = replace(_send(_job(delivery)), passing=False)
    _settle(delivery, answer)
    return answer


def due(now: datetime) -> bool:
    return Delivery.objects.filter(state=Delivery.State.PENDING, next_at__lte=now).exists()


def _claim() -> list[Delivery]:
    """Some that are due, which nobody else takes for as long as sending can last."""
    now = timezone.now()
    with transaction.atomic():
        due_now = Delivery.objects.filter(state=Delivery.State.PENDING, next_at__lte=now, rule__paused=False)
        # the first of every rule before the second of any, so that nobody stands behind another's backlog
        place = Window(RowNumber(), partition_by="rule_id", order_by=["next_at", "pk"])
        first = due_now.annotate(place=place).filter(place__lte=OF_ONE_RULE).order_by("place", "next_at")
        chosen = list(
            due_now.select_for_update(of=("self",), skip_locked=True)
            .filter(pk__in=list(first.values_list("pk", flat=True)[:AT_ONCE]))
            .select_related("rule__owner")
            .order_by("next_at")
        )
        for delivery in chosen:
            delivery.attempts += 1
            delivery.next_at = now + _taken_for()
        Delivery.objects.bulk_update(chosen, ["attempts", "next_at"])
    return chosen


def _taken_for() -> timedelta:
    return timedelta(seconds=3 * settings.NOTIFY_TIMEOUT_SECONDS + 30)


def _job(delivery: Delivery) -> _Job | PostAnswer:
    rule = delivery.rule
    try:
        return _Job(delivery, opened(rule.target), opened(rule.secret))
    except Unreadable as error:
        return PostAnswer(0, str(error))


def _send(job: _Job | PostAnswer) -> PostAnswer:
    if isinstance(job, PostAnswer):
        return job
    rule = job.delivery.rule
    if rule.form == Rule.Form.MAIL:
        return _mail(job)
    if rule.form == Rule.Form.SLACK:
        message = messages.slack(job.delivery, rule.template)
    else:
        message = messages.webhook(job.delivery, rule.template, job.secret, int(time.time()))
    return post(job.target, message.body, message.headers, trusted=rule.owner.is_admin)


def _mail(job: _Job) -> PostAnswer:
    if not settings.EMAIL_HOST:
        return PostAnswer(0, "This server cannot send mail: TRAINMASTER_SMTP_HOST is not set.")
    subject, text = messages.mail(job.delivery, job.delivery.rule.template)
    headers = {"Message-ID": f"<{job.delivery.pk}@trainmaster>", "Auto-Submitted": "auto-generated"}
    try:
        connection = get_connection(timeout=settings.NOTIFY_TIMEOUT_SECONDS)
        EmailMessage(subject, text, to=job.target.split(","), headers=headers, connection=connection).send()
    except smtplib.SMTPException as error:
        final = isinstance(error, smtplib.SMTPRecipientsRefused | smtplib.SMTPNotSupportedError)
        return PostAnswer(0, f"The mail server refused: {error}", passing=not final)
    except (OSError, ValueError) as error:
        return PostAnswer(0, f"The mail server did not respond: {error}", passing=isinstance(error, OSError))
    return PostAnswer(250, f"The mail server accepted it for {job.target}.")


def _settle(delivery: Delivery, answer: PostAnswer) -> None:
    now = timezone.now()
    changes: dict[str, object] = {"answer": answer.words.replace("\0", "")[:ANSWER_CHARACTERS]}
    if answer.good:
        changes |= {"state": Delivery.State.SENT, "ended_at": now}
    elif answer.passing and delivery.attempts < settings.NOTIFY_ATTEMPTS:
        changes["next_at"] = now + timedelta(seconds=pause(delivery.attempts))
    else:
        changes |= {"state": Delivery.State.FAILED, "ended_at": now}
    # a retry that somebody asked for meanwhile counts; one that was taken up by another settles there
    same = Delivery.objects.filter(pk=delivery.pk, state=Delivery.State.PENDING, attempts=delivery.attempts)
    same.update(**changes)
    announce(f"notifications:{delivery.rule_id}")


def pause(attempts: int) -> float:
    """Seconds until the next try: 10, 30, 90 … an hour, and up to a quarter more, so that many do not come at once."""
    return min(_FIRST_PAUSE_SECONDS * 3.0 ** (attempts - 1), _LONGEST_PAUSE_SECONDS) * random.uniform(1, 1.25)


def retry(delivery: Delivery) -> None:
    """Try a failed or waiting one again now, with all its attempts before it."""
    Delivery.objects.filter(pk=delivery.pk).update(
        state=Delivery.State.PENDING, attempts=0, next_at=timezone.now(), ended_at=None
    )
    announce(f"notifications:{delivery.rule_id}")

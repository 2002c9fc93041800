"""Shells, notebooks and TensorBoards: when they are ready, what counts as use, what follows when nobody uses one."""

from __future__ import annotations

import asyncio
import http.server
import json
import socketserver
import threading
from datetime import timedelta

import asyncssh
import pytest
from django.utils import timezone

from commands import services, shell_keys, submit
from commands.config import check
from commands.models import Command, Service
from commands.runs import describe
from commands.states import CommandState
from dispatch.passes import pool_pass
from dispatch.runs import intake, settle
from dispatch.watching import idle_services
from events.models import Event
from hosts.models import Host
from hosts.pools import default_pool
from jobs import transitions as jobs
from jobs.models import Job, Member
from jobs.states import Reason, StopKind
from logs import read, why_stopped
from logs.sentences import sentence as log_sentence
from submissions import contexts
from tests.rig.world import be_whole, make_host, make_user
from trainmaster import dialect_words
from trainmaster.serving.door import Door, to_port

pytestmark = pytest.mark.django_db


def made(kind: Job.Kind, **config: object) -> Command:
    return submit.create(
        owner=make_user(), config=check(dict(config), kind=kind), context=contexts.empty(), workspace_number=1,
        idempotency_key=None, actor="user:ada", kind=kind, shown=submit.Shown([7], []),
    )  # fmt: skip


def running(command: Command) -> Member:
    make_host("gpu1", 1)
    pool_pass.run(default_pool().pk)
    member = Member.objects.select_related("allocation").get(allocation__task=command.task)
    jobs.member_launched(member.pk, boot_id="b")
    jobs.member_running(member.pk)
    services.reported(command.task_id, {"type": "ready", "port": 20_001})
    return member


def unused_for(command: Command, **time: float) -> None:
    at = timezone.now() - timedelta(**time)
    be_whole()
    Service.objects.filter(pk=command.pk).update(ready_at=at, used_at=at)


def test_an_idle_timeout_ends_what_nobody_uses_and_that_is_no_failure() -> None:
    command = made(Job.Kind.SHELL, idle_timeout="2h")
    member = running(command)
    unused_for(command, minutes=119)
    idle_services.stop_unused()
    member.allocation.refresh_from_db()
    assert member.allocation.stop_kind == ""
    unused_for(command, minutes=121)
    idle_services.stop_unused()
    member.allocation.refresh_from_db()
    assert (member.allocation.stop_kind, member.allocation.stop_reason) == (
        StopKind.STOP,
        Reason.IDLE_TIMEOUT,
    )
    settle.member_exited(member.pk, code=143, signal=15, ended_at=1.0, first_failure=None, boot_id="b")
    command.refresh_from_db()
    assert command.state == CommandState.COMPLETED
    assert command.ending == "its idle timeout was reached (gpu1), exit code 143"


def test_use_is_noted_but_not_with_every_request() -> None:
    command = made(Job.Kind.SHELL, idle_timeout="2h")
    running(command)
    before = Service.objects.get().used_at
    services.used(str(command.pk))
    assert Service.objects.get().used_at == before
    unused_for(command, minutes=1)
    services.used(str(command.pk))
    noted = Service.objects.get().used_at
    assert noted is not None and timezone.now() - noted < timedelta(seconds=59)


def test_only_a_tensorboard_has_an_idle_timeout_of_its_own_and_needs_no_slot() -> None:
    board, notebook = made(Job.Kind.TENSORBOARD), made(Job.Kind.NOTEBOOK)
    assert (board.service.idle_timeout_seconds, notebook.service.idle_timeout_seconds) == (1800, None)
    assert (board.task.slots, notebook.task.slots) == (0, 1)
    assert (board.service.experiment_ids, board.description) == ([7], "TensorBoard")


def test_a_host_without_the_program_is_told_in_the_programs_words_without_an_exit_code() -> None:
    command = made(Job.Kind.NOTEBOOK)
    member = running(command)
    sentence = "JupyterLab is not installed for /usr/bin/python3 on gpu1. Install it there"
    services.reported(command.task_id, {"type": "lacking", "sentence": sentence})
    settle.member_exited(member.pk, code=127, signal=None, ended_at=1.0, first_failure=None, boot_id="b")
    command.refresh_from_db()
    assert (command.state, command.ending) == (CommandState.ERROR, sentence)
    story = why_stopped.of_task(command.task)
    assert story.sentences[0] == f"{sentence}."
    all_said = [found.text for event in Event.objects.all() if (found := log_sentence(event))]
    said = [text.split(dialect_words.SEPARATOR)[-1] for text in all_said]
    assert f"Run 1 ended: {sentence}." in said and not any("127" in text for text in said)


class Notebook(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """Says that it has no kernels, once as many have been asked as there are: who is asked alone hears nothing."""

    daemon_threads = True
    all_are_asked: threading.Barrier
    is_odd = False  # has a session without a path


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if "/kernels?" in self.path:
            self.server.all_are_asked.wait(60)  # type: ignore[attr-defined]
        is_odd = self.server.is_odd and "/sessions?" in self.path  # type: ignore[attr-defined]
        body = b"[{}]" if is_odd else b"[]"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


def test_notebooks_are_asked_side_by_side_and_an_odd_answer_is_only_its_own() -> None:
    host = make_host("gpu1", 3)
    Host.objects.filter(pk=host.pk).update(transport=Host.Transport.LOCAL)
    commands = [made(Job.Kind.NOTEBOOK, idle_timeout="1h", notebook_idle_type="activity") for _ in range(3)]
    pool_pass.run(default_pool().pk)
    Notebook.all_are_asked = threading.Barrier(len(commands))
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    for command in commands:
        member = Member.objects.select_related("allocation").get(allocation__task=command.task)
        jobs.member_launched(member.pk, boot_id="b")
        jobs.member_running(member.pk)
        notebook = Notebook(("127.0.0.1", 0), Answers)
        notebook.is_odd = command is commands[0]
        threading.Thread(target=notebook.serve_forever, daemon=True).start()
        door = Door(member.allocation.gang_secret, member.run_key, to_port(notebook.server_address[1]))
        asyncio.run_coroutine_threadsafe(door.open(0), loop).result(60)
        services.reported(command.task_id, {"type": "ready", "port": door.port})
        unused_for(command, minutes=61)
    idle_services.stop_unused()
    loop.call_soon_threadsafe(loop.stop)
    reasons = dict(Member.objects.values_list("allocation__task", "allocation__stop_reason"))
    assert [reasons[command.task_id] for command in commands] == ["", *[Reason.IDLE_TIMEOUT] * 2]


@pytest.mark.survive(10)
def test_a_clock_that_is_ahead_makes_nothing_last_longer() -> None:
    command = made(Job.Kind.NOTEBOOK, idle_timeout="2h")
    running(command)
    assert services.was_used(command.service, timezone.now() + timedelta(days=9))
    used_at = Service.objects.get().used_at
    assert used_at is not None and used_at <= timezone.now()


@pytest.mark.parametrize(
    "report", [{"type": "ready", "port": 0}, {"type": "ready", "port": "22"}, {"type": "else"}, None]
)
def test_a_report_that_names_no_port_makes_nothing_ready(report: object) -> None:
    command = made(Job.Kind.SHELL)
    services.reported(command.task_id, report)
    assert Service.objects.get().ready_at is None


def test_the_keys_of_a_shell_are_its_own_and_reach_its_run_alone() -> None:
    command = made(Job.Kind.SHELL)
    member = running(command)
    run = describe(member.allocation, "cpu")
    host, user = shell_keys.of_host(command.pk), shell_keys.of_user(command.pk)
    assert run.entrypoint == ["python3", "-m", "trainmaster.serving", "shell"]
    assert public_of(run.environment["TRAINMASTER_SHELL_HOST_KEY"]) == host.public
    assert run.environment["TRAINMASTER_SHELL_AUTHORIZED_KEY"] == user.public == public_of(user.private)
    assert len({host.public, user.public, shell_keys.of_user("another").public}) == 3


def public_of(private: str) -> str:
    return asyncssh.import_private_key(private).export_public_key().decode().strip()


@pytest.mark.survive(43)
def test_a_record_of_a_service_that_cannot_be_kept_is_named_and_blocks_nothing() -> None:
    command = made(Job.Kind.SHELL)
    member = running(command)
    records = [
        {"k": "core", "f": "core.rank0.jsonl", "e": 1, "d": {"type": "lacking", "sentence": "no\0thing"}},
        {"k": "lines", "f": None, "e": None, "t": 1.0, "r": None, "s": "stdout", "m": "after it"},
    ]
    body = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    assert intake.store(member.pk, 0, body).offset == len(body)
    said = [line.text for line in read.forward(command.task_id).lines]
    assert "after it" in said and any("a report could not be read" in text for text in said)

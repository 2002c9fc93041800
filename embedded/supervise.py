"""Children that are started in order, restarted when they die, and ended in reverse order; with `up --dev`,
also restarted when a source changes."""

from __future__ import annotations

import contextlib
import math
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from embedded import forkserver, processes
from embedded.account import Account
from embedded.forkserver import Fork, ForkServer, Unavailable
from embedded.lock import Register
from embedded.sources import Sources

ENDS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
WAITED_FOR = ENDS | {signal.SIGCHLD}
LOG_LIMIT_BYTES = 10 * 1024 * 1024
LOG_CHECK_SECONDS = 10.0
SOURCES_CHECK_SECONDS = 1.0
FIRST_BACKOFF_SECONDS = 0.2
LONGEST_BACKOFF_SECONDS = 30.0
STEADY_SECONDS = 60.0  # a child that lived this long starts anew with the first backoff
SHOWN_LINES = 5
START_LIMIT_SECONDS = 900.0  # of a part that works all the time
WORK_CHECK_SECONDS = 1.0
LEAST_WORK = 0.02  # of the processor: being asked whether it is ready takes a part less than that
WAITING_TOLD_SECONDS = 15.0
FORKS = "forkserver"
FIRST_SIGN_SECONDS = 180.0  # a slow machine starts slowly


class Stop(BaseException):
    """SIGINT, SIGTERM or SIGHUP came; no Exception, so that no handler takes it for a failure."""


class CannotStart(Exception):
    """A part did not become ready; the text says which and shows the end of its log."""


@dataclass(frozen=True)
class ServerPart:
    """What to run as one child. `stop_limit_seconds` passes before SIGKILL.

    One with a `sign` touches this file while it lives. When it was not touched for `sign_limit_seconds` the child is
    frozen, and killed. One that `reloads` is restarted when a source of `Supervisor.watch` changes. One that is
    `forked` is a module with its arguments, run by a fork of the fork server with its environment, account and folder.
    """

    name: str
    command: list[str]
    forked: bool = False
    environment: dict[str, str] | None = None
    account: Account | None = None
    folder: Path = Path("/")
    descriptors: tuple[int, ...] = ()
    stop_signal: signal.Signals = signal.SIGTERM
    stop_limit_seconds: float = 10.0
    on_parent_death: signal.Signals = signal.SIGKILL
    before_start: Callable[[], None] | None = None
    sign: Path | None = None
    sign_limit_seconds: float = 120.0
    reloads: bool = False


@dataclass
class _Child:
    part: ServerPart
    process: subprocess.Popen[bytes] | Fork | None = None
    started_at: float = 0.0
    failures: int = 0
    restart_at: float = 0.0
    sign: float = 0.0  # the file's time, by its own clock
    sign_seen_at: float = 0.0  # when it was seen to have changed, or may do so for the first time


class Supervisor:
    """Use from the main thread, as a context manager; leaving it ends every child."""

    def __init__(self, logs: Path, register: Register, say: Callable[[str], None]) -> None:
        self._logs = logs
        self._register = register
        self._say = say
        self._children: dict[str, _Child] = {}
        self._logs_checked_at = 0.0
        self._forks = ForkServer()
        self._sources: Sources | None = None
        self._sources_checked_at = 0.0

    def __enter__(self) -> Supervisor:
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_FOR)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._end_all()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def start(self, part: ServerPart) -> None:
        child = self._children[part.name] = _Child(part)
        self._spawn(child)

    def wait_ready(self, name: str, ready: Callable[[], bool], limit_seconds: float) -> None:
        """Wait until the part answers. One that ends before that, or does nothing for so long, cannot start.

        On a busy machine a part may take minutes: as long as it uses the processor it is waited for, with a line now
        and then, but for at most START_LIMIT_SECONDS.
        """
        begun = worked_at = looked_at = told_at = time.monotonic()
        worked = 0.0
        while not ready():
            process, now = self._children[name].process, time.monotonic()
            if process is None:  # the fork server was not ready for it
                self._restart_dead()
            if process is not None and process.poll() is not None:
                raise CannotStart(f"{name} {_how(process)} instead of starting. {self._last_words(name)}")
            if process is not None and now - looked_at > WORK_CHECK_SECONDS:
                found = processes.session_seconds(process.pid)
                if found - worked > LEAST_WORK * (now - looked_at):
                    worked_at = now
                worked, looked_at = found, now
            if now - worked_at > limit_seconds or now - begun > START_LIMIT_SECONDS:
                raise CannotStart(
                    f"{name} did not answer within {now - begun:.0f} s. {self._last_words(name)}"
                )
            if now - told_at > WAITING_TOLD_SECONDS:
                told_at = now
                self._say(f"Waiting for {name}, which has been starting for {now - begun:.0f} s.")
            self.pause(0.05 if now - begun < 5 else 0.5)

    def watch(self, sources: Sources) -> None:
        """From now on, restart the parts that reload whenever a source changes."""
        self._sources = sources

    def run(
        self, command: list[str], environment: dict[str, str], folder: Path, output: int | None = None
    ) -> int:
        """Run one step to its end and return its exit code. `output`: a descriptor, not our terminal."""
        parent = os.getpid()
        return self._end_of(
            subprocess.Popen(
                command,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                start_new_session=True,
                preexec_fn=lambda: processes.before_exec(parent, signal.SIGKILL),
            )
        )

    def start_forks(self, environment: dict[str, str], folder: Path) -> None:
        """Start the fork server, of which `wait_forks` waits for the first word."""
        self.start(
            ServerPart(FORKS, forkserver.COMMAND, environment=environment, folder=folder, reloads=True)
        )

    def wait_forks(self, limit_seconds: float) -> None:
        self.wait_ready(FORKS, self._forks.ready, limit_seconds)

    def run_forked(self, module: str, *arguments: str) -> int:
        """Like `run`, as a fork of the fork server."""
        with Path(os.devnull).open() as nothing:
            streams = (nothing.fileno(), 1, 2)
            try:
                step = self._forks.fork(module, arguments, title=arguments[0], streams=streams)
            except Unavailable as error:
                raise CannotStart(f"{error} {self._last_words(FORKS)}") from error
        return self._end_of(step)

    def _end_of(self, step: subprocess.Popen[bytes] | Fork) -> int:
        try:
            while (code := step.poll()) is None:
                self.pause(0.1)
                self._restart_changed()
                self._restart_dead()
        except Stop:
            step.kill()
            step.wait()
            raise
        return code

    def serve(self, until: Callable[[], bool] = lambda: False, limit_seconds: float = math.inf) -> None:
        """Keep the children alive until the condition holds or the limit has passed; `Stop` ends it."""
        limit = time.monotonic() + limit_seconds
        while not until() and time.monotonic() < limit:
            self.pause(0.5)
            self._end_frozen()
            self._restart_changed()
            self._restart_dead()
            self._limit_logs()

    def pause(self, seconds: float) -> None:
        """Sleep, but wake for a dead child, and raise Stop for a signal that ends us."""
        got = signal.sigtimedwait(WAITED_FOR, seconds)
        if got is not None and got.si_signo in ENDS:
            raise Stop

    def _spawn(self, child: _Child) -> None:
        part = child.part
        if part.before_start is not None:
            part.before_start()
        child.sign = _touched_at(part.sign)  # by the one before it
        child.process = self._forked(part) if part.forked else self._spawned(part)
        if child.process is None:
            return
        child.started_at = time.monotonic()
        child.sign_seen_at = child.started_at + FIRST_SIGN_SECONDS
        self._register.add(part.name, child.process.pid)

    def _spawned(self, part: ServerPart) -> subprocess.Popen[bytes]:
        with contextlib.ExitStack() as once_begun:
            way = once_begun.enter_context(self._forks.open_way()) if part.name == FORKS else None
            return processes.spawn(
                part.command,
                self.log(part.name),
                account=part.account,
                environment=part.environment,
                folder=part.folder,
                given=subprocess.DEVNULL if way is None else way.fileno(),
                descriptors=part.descriptors,
                on_parent_death=part.on_parent_death,
            )

    def _forked(self, part: ServerPart) -> Fork | None:
        """None: the fork server is not ready, and is asked again at the next look."""
        if not self._forks.ready():
            self._end_late_forks()
            return None
        with Path(os.devnull).open() as nothing, self.log(part.name).open("ab") as output:
            streams = (nothing.fileno(), output.fileno(), output.fileno())
            module, *arguments = part.command
            try:
                return self._forks.fork(
                    module, arguments, title=part.name, streams=streams, kept=part.descriptors
                )
            except Unavailable as error:
                self._say(f"{error} Starting it again, with the parts that it has started.")
                if (server := self._children[FORKS].process) is not None:
                    server.kill()
                return None

    def _end_late_forks(self) -> None:
        """Kill a fork server that hangs before it is ready; the next one may fare better, and its log is there."""
        server = self._children[FORKS]
        if server.process is not None and time.monotonic() - server.started_at > FIRST_SIGN_SECONDS:
            self._say(f"{FORKS} is not ready after {FIRST_SIGN_SECONDS:.0f} s; stopping it.")
            server.process.kill()
            server.process.wait()

    def _end_frozen(self) -> None:
        """Kill children whose sign stands still. What they held is free then, and `_restart_dead` starts them again."""
        now = time.monotonic()
        for child in self._children.values():
            if child.part.sign is None or child.process is None or child.process.poll() is not None:
                continue
            if (sign := _touched_at(child.part.sign)) != child.sign:
                child.sign, child.sign_seen_at = sign, now
            if now - child.sign_seen_at > child.part.sign_limit_seconds:
                self._say(
                    f"{child.part.name} has shown no sign of life "
                    f"for {child.part.sign_limit_seconds:.0f} s; stopping it."
                )
                child.process.kill()
                child.process.wait()

    def _restart_dead(self) -> None:
        now = time.monotonic()
        for child in self._children.values():
            if child.process is None:
                if now >= child.restart_at:
                    self._spawn(child)
            elif child.process.poll() is not None:
                self._plan_restart(child, child.process, now)

    def _restart_changed(self) -> None:
        now = time.monotonic()
        if self._sources is None or now - self._sources_checked_at < SOURCES_CHECK_SECONDS:
            return
        self._sources_checked_at = now
        if changed := self._sources.changed():
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            self._say(f"{changed[0]}{more} changed; restarting.")
            self._reload()

    def _reload(self) -> None:
        """End the parts that reload, all at once, and start each again without a backoff."""
        children = [child for child in self._children.values() if child.part.reloads]
        running = [(child.part, child.process) for child in children if child.process is not None]
        for last in (
            False,
            True,
        ):  # forks end with their server, which would not be the end that they are used to
            together = [each for each in running if (each[0].name == FORKS) is last]
            for part, process in together:
                process.send_signal(part.stop_signal)
            hurried = [self._wait_end(process, part.stop_limit_seconds) for part, process in together]
            if any(hurried):
                raise Stop
        for child in children:
            child.failures, child.restart_at, child.process = 0, 0.0, None
            self._spawn(child)

    def _plan_restart(self, child: _Child, process: subprocess.Popen[bytes] | Fork, now: float) -> None:
        child.failures = 0 if now - child.started_at > STEADY_SECONDS else child.failures
        backoff = min(LONGEST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2**child.failures)
        backoff *= random.uniform(0.5, 1.5)
        child.failures += 1
        child.restart_at = now + backoff
        child.process = None
        tell = (
            process.returncode or 0
        ) > 0 and child.failures == 1  # a series of failures says the same each time
        words = self._last_words(child.part.name) if tell else ""
        self._say(
            f"{child.part.name} {_how(process)}; starting it again in {backoff:.1f} s. {words}".rstrip()
        )

    def _last_words(self, name: str) -> str:
        path = self.log(name)
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - 4096))
                lines = file.read().decode(errors="replace").splitlines()[-SHOWN_LINES:]
        except FileNotFoundError:
            return ""
        return f"End of {path}:\n" + "\n".join(f"    {line}" for line in lines)

    def _limit_logs(self) -> None:
        """Children append to their files themselves, so a full one is copied aside and cut to nothing."""
        now = time.monotonic()
        if now - self._logs_checked_at < LOG_CHECK_SECONDS:
            return
        self._logs_checked_at = now
        for path in self._logs.glob("*.log"):
            if path.stat().st_size > LOG_LIMIT_BYTES:
                shutil.copyfile(path, path.with_suffix(".log.1"))
                os.truncate(path, 0)

    def _end_all(self) -> None:
        """The last started first, each with its own limit; a second Ctrl-C makes it quick."""
        hurry = False
        for child in reversed(self._children.values()):
            process, part = child.process, child.part
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGKILL if hurry else part.stop_signal)
                hurry = self._wait_end(process, 0 if hurry else part.stop_limit_seconds) or hurry
            self._register.remove(part.name)

    def _wait_end(self, process: subprocess.Popen[bytes] | Fork, limit_seconds: float) -> bool:
        """Wait for the child, then kill it. Returns True when the user asked to hurry meanwhile."""
        hurry = False
        limit = time.monotonic() + limit_seconds
        while process.poll() is None and time.monotonic() < limit and not hurry:
            try:
                self.pause(0.05)
            except Stop:
                hurry = True
        if process.poll() is None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in the kernel: the next `up` sees it
                process.wait(5)
        return hurry


def _touched_at(sign: Path | None) -> float:
    """0: it was never touched."""
    try:
        return sign.stat().st_mtime if sign is not None else 0.0
    except FileNotFoundError:
        return 0.0


def _how(process: subprocess.Popen[bytes] | Fork) -> str:
    code = process.returncode or 0
    return f"was terminated by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"

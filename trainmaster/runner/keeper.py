"""The launcher: starts the entrypoint, waits for it, writes exit.json, and keeps a runner alive beside it.

It is small on purpose: of all processes it is the one whose loss costs the exit code (never the training).
"""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import Dict, List, Optional, Tuple, cast

from trainmaster.environment import build_environment
from trainmaster.jsonfile import write_json
from trainmaster.paths import RunPaths
from trainmaster.processes import become_subreaper, boot_id, descendants, exit_status, marker_of, reference
from trainmaster.protocol import (
    EXIT_NOT_EXECUTABLE,
    EXIT_NOT_FOUND,
    KEEPER_MARKER,
    LOOK_NOW,
    ExitFile,
    ProcessRef,
    RunState,
    ServerAddress,
    Spec,
)
from trainmaster.runner import (
    attending,
    container_commands,
    gang_checks,
    hooks,
    in_container,
    oom_kills,
    own_view,
    storage_check,
)
from trainmaster.runner.detached import spawn_in_session
from trainmaster.runner.state import note_sentence, read_sentence, read_server, read_spec, update_state
from trainmaster.runner.stopping import begin_stop, read_stop, sweep, wait_for_grace

BUNDLE = Path(__file__).resolve().parents[2]
_BACKOFF_SECONDS = (0.2, 10.0)
_STEADY_SECONDS = 30.0  # a runner that lived this long starts the backoff anew
_DISK_FULL_SECONDS = 1.0
_SHORTEST_HOOK_SECONDS = 1.0
STARTUP_HOOK = "startup-hook.sh"
# Any failing command ends it, so its end is caught rather than its status asked for, which would switch `set -e` off.
_RUN_HOOK = (
    f'trap \'code=$?; said="{STARTUP_HOOK} ended with exit code $code; the entrypoint was not started"; '
    'echo "ERROR: trainmaster: $said." >&2; folder="$TRAINMASTER_RUN_DIR/control"; mkdir -p "$folder" && '
    'echo "{\\"sentence\\": \\"$said\\"}" > "$folder/hook.json"; exit $code\' EXIT; '
    f"set -e; . ./{STARTUP_HOOK}; set +e; trap - EXIT"
)
_RUN_CHECK = "python3 -m trainmaster.runner.storage_check || exit"


class Keeper:
    """One run's launcher; `run` returns when the entrypoint has ended and the runner has nothing left to do."""

    def __init__(self, paths: RunPaths) -> None:
        self.paths = paths
        self.spec: Spec = read_spec(paths)
        self.entrypoint: Optional[subprocess.Popen[bytes]] = None
        self.post_hook: Optional[subprocess.Popen[bytes]] = None
        self._end: Tuple[Optional[int], Optional[int]] = (None, None)  # the entrypoint's, once the hook runs
        self.runner: Optional[int] = None  # its pid
        self.runner_finished = False
        self._runner_started = 0.0
        self._next_start = 0.0
        self._failures = 0
        self._oom_kills = oom_kills.counted()

    def run(self, started: int) -> None:
        """`started` is the descriptor of the launch lock, closed as soon as state.json names the entrypoint."""
        if self.paths.is_revoked():  # the server has given up this launch, which was too slow
            return
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # taken by sigtimedwait below
        become_subreaper()  # so that the sweep finds orphans without a marker too
        first: RunState = {"host_id": self.spec["host"]["id"], "boot_id": boot_id(), "bundle": BUNDLE.name}
        first["launcher"] = cast(ProcessRef, reference(os.getpid()))
        update_state(self.paths, first)
        self._start_entrypoint()
        os.close(started)
        while True:
            self._reap()  # first, since a child that ends while another is started is not waited for
            if self.entrypoint is None and self.post_hook is None and self.runner_finished:
                return
            self._tend_runner()
            signal.sigtimedwait({signal.SIGCHLD}, self._patience())

    def _start_entrypoint(self) -> None:
        if read_stop(self.paths) is not None:  # asked to stop before it began
            self._ended(None, None)
            return
        port = gang_checks.taken_port(self.spec)
        if port is not None:
            text = f"port {port} of this run is in use by another program; the run will get other ports"
            _say(self.paths, text)
            self._ended(None, None, port_in_use=port)
            return
        fault = storage_check.by_launcher(self.spec)
        if fault is not None:
            _say(self.paths, f"{fault}. The entrypoint was not started")
            note_sentence(self.paths.storage_fault, fault)
            self._ended(None, None)
            return
        mark = storage_check.mark_of(self.spec)
        if mark is not None:
            write_json(self.paths.storage_mark, {"mark": str(mark)})
        for remark in [*(self.spec.get("remarks") or []), *gang_checks.lacking_interface(self.spec)]:
            _say(self.paths, remark.rstrip("."), "WARNING")
        try:
            startup_hook = Path(self.paths.code, STARTUP_HOOK).exists()
            words = command_line(self.spec, startup_hook, storage_check.is_for_the_job(self.spec))
            child = _start(self.paths, self.spec, words, {})
        except OSError as error:
            self._ended(_complain(self.paths, self.spec, error), None)
            return
        self.entrypoint = child
        ended_at_once: ProcessRef = {"pid": child.pid, "start_time": -1}  # which no process matches
        update_state(self.paths, {"entrypoint": reference(child.pid) or ended_at_once})
        order = read_stop(self.paths)
        if order is not None:  # it came while the entrypoint could not be found by its marker yet
            begin_stop(self.paths, order)

    def _entrypoint_ended(self, code: Optional[int], number: Optional[int]) -> None:
        """The post hook runs first, within what is left of the grace where the run was asked to stop."""
        container = self.spec.get("container")
        self._end, order = (code, number), read_stop(self.paths)
        if container is not None and order is None:
            why = in_container.why_not_started(self.paths, container, code)
            if why:
                _say(self.paths, why)
            in_container.clean_up(self.paths)
        seconds = order["deadline"] - time.time() if order else None
        if hooks.of_spec(self.spec).get("post") and read_sentence(self.paths.image_fault) is None:
            if seconds is None or seconds > _SHORTEST_HOOK_SECONDS:
                self.post_hook = _start_post_hook(self.paths, self.spec, code, seconds)
            else:
                _say(self.paths, "the grace period is over, so the post hook was not started", "WARNING")
        if self.post_hook is None:
            self._ended(code, number)

    def _ended(self, code: Optional[int], number: Optional[int], port_in_use: Optional[int] = None) -> None:
        record: ExitFile = {
            "code": code,
            "signal": number,
            "ended_at": time.time(),
            "stopped": read_stop(self.paths) is not None or attending.ended_by_slurm(self.paths, code),
            "oom_kills": oom_kills.since(self._oom_kills),
        }
        if port_in_use is not None:
            record["port_in_use"] = port_in_use
        fault = read_sentence(self.paths.storage_fault)
        if fault is not None:
            record["storage_fault"] = fault
        image_fault = read_sentence(self.paths.image_fault)
        if image_fault is not None:
            record["image_fault"] = image_fault
        hook_fault = read_sentence(self.paths.hook_fault)
        if hook_fault is not None:
            record["hook_fault"] = hook_fault
        written = _written(self.paths.exit, record)
        if self.runner is not None:
            os.kill(self.runner, LOOK_NOW)
        if fault is None:  # else there is no mark, and the folder might not answer again
            storage_check.remove_mark(self.spec)
        if record["stopped"]:
            wait_for_grace(self.paths)
        if self.spec.get("container") is not None:
            in_container.clean_up(self.paths)
        strays = [
            process
            for process in descendants(os.getpid())
            if process["pid"] != self.runner and marker_of(process["pid"], KEEPER_MARKER) is None
        ]
        sweep(self.spec["run_key"], strays)
        while not written and self.paths.spec.exists():
            time.sleep(_DISK_FULL_SECONDS)
            written = _written(self.paths.exit, record)

    def _reap(self) -> None:
        """Take every ended child: the entrypoint, the runner, and orphans that came here."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self.entrypoint is not None and pid == self.entrypoint.pid:
                self.entrypoint.returncode = status  # reaped here, so that Popen does not look for it
                self.entrypoint = None
                self._entrypoint_ended(*exit_status(status))
            elif self.post_hook is not None and pid == self.post_hook.pid:
                self.post_hook.returncode = status
                self.post_hook = None
                self._ended(*self._end)
            elif self.runner is not None and pid == self.runner:
                self._runner_ended(status)

    def _tend_runner(self) -> None:
        if self.runner is not None or self.runner_finished or time.monotonic() < self._next_start:
            return
        # a run whose folder somebody has deleted has nothing left to ship
        if not self.paths.spec.exists():
            self.runner_finished = True
        else:
            self.runner = spawn_in_session("ship", self.paths)
            self._runner_started = time.monotonic()

    def _runner_ended(self, status: int) -> None:
        self.runner = None
        if status == 0:
            self.runner_finished = True
            return
        now = time.monotonic()
        self._failures = 0 if now - self._runner_started > _STEADY_SECONDS else self._failures + 1
        low, high = _BACKOFF_SECONDS
        self._next_start = now + min(high, low * 2 ** min(self._failures, 10)) * random.uniform(0.5, 1.0)

    def _patience(self) -> float:
        """Seconds to wait for a child's end before looking again."""
        if self.runner is None and not self.runner_finished:
            return max(0.01, self._next_start - time.monotonic())
        return 5.0


def _written(path: Path, record: ExitFile) -> bool:
    """False on a full disk: the exit code must outlast it."""
    try:
        write_json(path, record)
    except OSError:
        return False
    return True


def _certificate(paths: RunPaths, server: ServerAddress) -> Optional[Tuple[str, str]]:
    """(file, name) of the server's own certificate, which is laid into the run's folder."""
    pem = server.get("cert_pem")
    if not pem:
        return None
    paths.certificate.write_text(pem, encoding="ascii")
    return str(paths.certificate), server.get("cert_name") or ""


def _start_post_hook(
    paths: RunPaths, spec: Spec, code: Optional[int], left: Optional[float]
) -> Optional[subprocess.Popen[bytes]]:
    """None when it cannot be started; `left` are the seconds that a stop leaves it, None without one."""
    allowed = float(hooks.of_spec(spec)["timeout_seconds"])
    words = hooks.command_of("post", allowed if left is None else min(allowed, left))
    environment = {hooks.EXIT_CODE: "" if code is None else str(code)}
    try:
        return _start(paths, spec, _after_activate(spec, [], words), environment)
    except OSError as error:
        _say(paths, f"the post hook cannot be started: {error.strerror}", "WARNING")
        return None


def _start(paths: RunPaths, spec: Spec, words: List[str], more: Dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a program in its own session, writing straight to the spool; OSError when it cannot be executed."""
    server = read_server(paths)
    environment = build_environment(
        spec,
        run_dir=str(paths.root),
        code_dir=str(paths.code),
        bundle=str(BUNDLE),
        server_url=server["urls"][0] if server["urls"] else "",
        certificate=_certificate(paths, server),
        inherited=dict(os.environ),
        account=_account(),
    )
    if spec.get("container") is not None:
        words = in_container.words_for(words)
        more = {**_of_runtimes(), **more}
    view = own_view.planned(paths, spec, str(BUNDLE))
    streams = [_append_only(paths.launcher_stream(name)) for name in ("stdout", "stderr")]
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the program must not inherit what is blocked here
    try:
        return subprocess.Popen(
            words,
            env={**environment, **more},
            cwd=str(paths.code),
            stdin=subprocess.DEVNULL,
            stdout=streams[0],
            stderr=streams[1],
            start_new_session=True,
            preexec_fn=None if view is None else view.take,  # without one, Python need not copy this process
        )
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        for stream in streams:
            os.close(stream)


def command_line(spec: Spec, hook: bool = False, check: bool = False) -> List[str]:
    """The words to execute: a list as it is, a string by the shell, either after `. <activate>` if there is one.

    `hook`: the context folder has a startup-hook.sh, which is read in first, as Determined's tasks do on every host:
    what it exports is there for the entrypoint, and if it fails the entrypoint is not started. `check`: so is it when
    the checkpoint storage cannot be used from the Python that is there then. The config's own pre hook comes last.
    """
    entrypoint = spec["entrypoint"]
    words = ["sh", "-c", entrypoint] if isinstance(entrypoint, str) else list(entrypoint)
    pre = [f"{shlex.join(hooks.command_of('pre'))} || exit"] if hooks.of_spec(spec).get("pre") else []
    return _after_activate(spec, ([_RUN_HOOK] if hook else []) + ([_RUN_CHECK] if check else []) + pre, words)


def _after_activate(spec: Spec, steps: List[str], words: List[str]) -> List[str]:
    """The words, after `activate` and the steps of the shell where there are any."""
    before = _leading_path(spec) + ([f". {spec['activate']} || exit"] if spec["activate"] else []) + steps
    if before:
        bash = spec["activate"] if spec.get("container") else Path("/bin/bash").exists()
        shell = "/bin/bash" if bash else "/bin/sh"  # conda's activate wants bash
        return [shell, "-c", "; ".join([*before, 'exec "$@"']), "trainmaster", *words]
    return words


def _leading_path(spec: Spec) -> List[str]:
    """An image has a PATH of its own, which the interpreter that the config names is to lead there."""
    if spec.get("container") is None or not spec["python"]:
        return []
    return [f'export PATH={shlex.quote(os.path.dirname(spec["python"]))}:"$PATH"']  # noqa: PTH120


def _complain(paths: RunPaths, spec: Spec, error: OSError) -> int:
    """Say in launcher.stderr why nothing started; the exit code that a shell would give."""
    command = command_line(spec)[0]
    is_found = not isinstance(error, FileNotFoundError)
    if is_found:
        text = f"cannot execute {command!r}: {error.strerror}. Make it executable, or start it with its interpreter"
    elif os.sep in command and Path(paths.code, command).exists():
        text = (
            f"command not found: the interpreter that the first line of {command!r} names is not on this host"
        )
    else:
        text = f"command not found: {command!r}. It must be on the host's PATH or in the context folder"
    _say(paths, text)
    return EXIT_NOT_EXECUTABLE if is_found else EXIT_NOT_FOUND


def _say(paths: RunPaths, text: str, level: str = "ERROR") -> None:
    """A sentence in the log, on the entrypoint's stream; none on a full disk, which the exit code must outlast."""
    descriptor = _append_only(paths.launcher_stream("stderr"))
    with contextlib.suppress(OSError), os.fdopen(descriptor, "wb", buffering=0) as stream:
        stream.write(f"{level}: trainmaster: {text}.\n".encode("utf-8", "surrogateescape"))


def _append_only(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _of_runtimes() -> Dict[str, str]:
    """How this host sets up podman, docker and apptainer, for themselves alone."""
    return {
        name: value for name, value in os.environ.items() if container_commands.OF_RUNTIMES.fullmatch(name)
    }


def _account() -> Dict[str, str]:
    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:  # an account without a line in passwd: what we were given is all there is
        return {name: os.environ[name] for name in ("HOME", "USER", "LOGNAME", "SHELL") if name in os.environ}
    return {
        "HOME": entry.pw_dir,
        "USER": entry.pw_name,
        "LOGNAME": entry.pw_name,
        "SHELL": entry.pw_shell or "/bin/sh",
    }

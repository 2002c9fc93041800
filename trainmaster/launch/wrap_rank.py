"""Run one rank: `python3 -m trainmaster.launch.wrap_rank [--no-redirect-stdio] RANK CMD [ARGS...]`.

RANK is a number, or names of environment variables separated by commas, of which the first one set counts.

In a run the rank writes straight to its own spool files: no pipe, so whatever happens to this process, to the
launcher or to the runner, the rank goes on writing. Elsewhere each line gets the prefix `[rank=N] `. This
process
stays as the rank's parent: it forwards signals, and when the rank fails it says so in the rank's records.

It starts with every rank, so it imports as little as possible and is also run by its path, without the
package.
"""
# ruff: noqa: PTH100, PTH103, PTH104, PTH108, PTH110, PTH118, PTH120, PTH123 (pathlib is slow to import)

from __future__ import annotations

import _socket  # `socket` is slow to import
import os
import signal
import sys
import time

# Names and layout that trainmaster.protocol and trainmaster.paths own; importing them costs more than this
# program.
_RUN_DIR = "TRAINMASTER_RUN_DIR"
_RANK = "TRAINMASTER_RANK"
# Where the launch module follows its ranks: rank<N>.pid, rank<N>.exit, stopping.
RANKS_DIR = "TRAINMASTER_RANKS_DIR"
# In that folder: NAME=VALUE, separated by NUL, of variables that came no other way.
ENVIRONMENT = "environment"
STOPPING = "stopping"  # in that folder: the ranks end because the job is stopped
# In that folder: the socket of warm_torchrun.py, which forks ranks that have PyTorch in memory. It is sent the length
# of the rest in LENGTH_BYTES, and with it the rank's three streams; then, NUL between: how many words, the words,
# NAME=VALUE… It answers the rank's pid and its group, and its wait status at its end, each in RECORD_BYTES; or nothing.
FORKER = "forker"
LENGTH_BYTES = 8
RECORD_BYTES = 4
_PEER_GRACE = "TRAINMASTER_PEER_GRACE_SECONDS"
# From SIGTERM to SIGKILL for a rank whose peer has failed; a stop has the job's own grace.
_PEER_GRACE_SECONDS = 10.0

_FORWARDED = {
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
}
_WAKING = _FORWARDED | {signal.SIGCHLD, signal.SIGIO}
_USAGE = "usage: python3 -m trainmaster.launch.wrap_rank [--no-redirect-stdio] RANK CMD [ARGS...]"


def resolve_rank(text: str, environment: "os._Environ[str] | dict[str, str]") -> int:
    """The rank that `text` says: a number or a comma list of variable names; else ValueError."""
    if text.isdigit():
        return int(text)
    for name in text.split(","):
        value = environment.get(name.strip())
        if value is not None:
            if not value.isdigit():
                raise ValueError(f"{name.strip()} is {value!r}; it must be the rank, a number from 0.")
            return int(value)
    raise ValueError(
        f"RANK is {text!r}; it must be a number from 0, or names of environment variables, one of which is set."
    )


def main(arguments: "list[str]") -> int:
    """Returns the exit code as a shell gives it (128 + n after signal n)."""
    redirect = arguments[:1] != ["--no-redirect-stdio"]
    rest = arguments if redirect else arguments[1:]
    if len(rest) > 1 and rest[1] == "--":
        rest = rest[:1] + rest[2:]
    if len(rest) < 2 or rest[0].startswith("-"):
        asked = rest[:1] in (["-h"], ["--help"])
        print(_USAGE.replace("trainmaster.launch", _package()), file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 2
    _complete_environment()
    try:
        rank = resolve_rank(rest[0], os.environ)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return _Rank(rank, rest[1:], redirect).run()


def _package() -> str:
    """As it was typed: that of Determined, or ours."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return (spec.name if spec is not None else "").rpartition(".")[0] or "trainmaster.launch"


def _complete_environment() -> None:
    """Add what the launcher was not given (horovodrun puts all that it has into the arguments of a shell)."""
    path = os.path.join(os.environ.get(RANKS_DIR, ""), ENVIRONMENT)
    if RANKS_DIR not in os.environ or not os.path.exists(path):
        return
    with open(path, "rb") as file:
        for entry in file.read().split(b"\0"):
            name, _, value = entry.partition(b"=")
            os.environb.setdefault(name, value)


class _Forked:
    """A rank that the forker has made, and the connection on which its end is told."""

    def __init__(self, way: "_socket.socket", pid: int, group: int) -> None:
        self._way = way
        self.pid = pid
        self.group = group

    @classmethod
    def asked_for(cls, path: str, command: "list[str]", streams: "tuple[int, ...]") -> "_Forked | None":
        """None if there is no forker, or if it would not make what this command and our variables say."""
        import fcntl

        if os.getsid(0) != os.getpid():
            return None  # an old torchrun, which ends ranks by themselves and not by their sessions
        words = [os.fsencode(word) for word in command]
        variables = [name + b"=" + value for name, value in os.environb.items()]
        message = b"\0".join([b"%d" % len(words), *words, *variables])
        handles = b"".join(number.to_bytes(4, sys.byteorder) for number in streams)
        way = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        folder = os.open(os.path.dirname(path), os.O_PATH | os.O_CLOEXEC)
        try:
            way.connect(f"/proc/self/fd/{folder}/{FORKER}")  # its own path may be too long for an address
            ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, handles)]
            way.sendmsg([len(message).to_bytes(LENGTH_BYTES, "little")], ancillary)
            way.sendall(message)
            answer = way.recv(2 * RECORD_BYTES, _socket.MSG_WAITALL)
        except OSError:
            return None
        finally:
            os.close(folder)
        if len(answer) < 2 * RECORD_BYTES:
            return None
        fcntl.fcntl(way.fileno(), fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(way.fileno(), fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        pid, group = answer[:RECORD_BYTES], answer[RECORD_BYTES:]
        return cls(way, int.from_bytes(pid, "little"), int.from_bytes(group, "little"))

    def status(self) -> "int | None":
        """Its wait status, None while it runs."""
        try:
            said = self._way.recv(RECORD_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            said = b""
        if said:
            return int.from_bytes(said, "little")
        try:  # noqa: SIM105  # contextlib is slow to import
            os.kill(self.pid, signal.SIGKILL)  # its parent was killed, so nobody would see its end
        except OSError:
            pass
        return int(signal.SIGKILL)


def _status_of_child(pid: int) -> "int | None":
    """Its wait status, None while it runs."""
    done, status = os.waitpid(pid, os.WNOHANG)
    return status if done else None


class _Rank:
    """One rank's process and its true end."""

    def __init__(self, rank: int, command: "list[str]", redirect: bool) -> None:
        self.rank = rank
        self.command = command
        self.run_dir = os.environ.get(_RUN_DIR, "")
        self.prefixed = not (self.run_dir and redirect)
        self.ranks_dir = os.environ.get(RANKS_DIR, "")
        self.failed_with_peer = False  # ended because torchrun stopped it after another rank's failure
        self._kill_at: "float | None" = None
        self._forked: "_Forked | None" = None  # not a child of ours

    def run(self) -> int:
        signal.pthread_sigmask(signal.SIG_BLOCK, _WAKING)
        self._forget_earlier_end()
        self._note("pid", str(os.getpid()))
        if self._stopping():  # the stop was asked for while this rank was being started
            return self._ended(128 + signal.SIGTERM, int(signal.SIGTERM))
        if self.prefixed:
            sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
            from trainmaster.launch.line_prefix import Prefixer  # only where no spool is

            prefixer = Prefixer(f"[rank={self.rank}] ".encode())
            pid = self._start(prefixer.streams())
            prefixer.begin()
            status = self._wait(pid)
            prefixer.finish()
        else:
            streams = self._spool_files()
            pid = self._start(streams)
            os.dup2(streams[0], 1)
            os.dup2(streams[1], 2)
            status = self._wait(pid)
        if os.WIFSIGNALED(status):
            return self._ended(128 + os.WTERMSIG(status), os.WTERMSIG(status))
        return self._ended(os.WEXITSTATUS(status), None)

    def _spool_files(self) -> "tuple[int, int]":
        spool = os.path.join(self.run_dir, "spool")
        os.makedirs(spool, mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        names = [os.path.join(spool, f"rank{self.rank}.{stream}") for stream in ("stdout", "stderr")]
        return os.open(names[0], flags, 0o600), os.open(names[1], flags, 0o600)

    def _start(self, streams: "tuple[int, int]") -> int:
        os.environ.setdefault("PYTHONUNBUFFERED", "1")
        os.environ[_RANK] = str(self.rank)
        path = os.path.join(self.ranks_dir, FORKER)
        if not self.prefixed and self.ranks_dir and os.path.exists(path):
            self._forked = _Forked.asked_for(path, self.command, (0, *streams))
            if self._forked is not None:
                return self._forked.pid
        pid = os.fork()
        if pid:
            return pid
        code = 126
        try:
            os.dup2(streams[0], 1)
            os.dup2(streams[1], 2)
            signal.pthread_sigmask(signal.SIG_SETMASK, set())
            os.execvp(self.command[0], self.command)
        except OSError as error:
            code = 127 if isinstance(error, FileNotFoundError) else 126
            os.write(2, f"ERROR: {self.command[0]} cannot be started: {error.strerror}.\n".encode())
        finally:
            os._exit(code)

    def _wait(self, pid: int) -> int:
        """The rank's wait status; every signal that comes is handed to it."""
        while True:
            status = self._forked.status() if self._forked is not None else _status_of_child(pid)
            if status is not None:
                return status
            info = signal.sigtimedwait(_WAKING, 5.0 if self._kill_at is None else 0.1)
            told_again = self._kill_at is not None and info is not None and info.si_signo == signal.SIGTERM
            if info is not None and info.si_signo in _FORWARDED and not told_again:
                self._pass_on(pid, info)
                if info.si_signo == signal.SIGTERM and self._kill_at is None:
                    self._peer_failed()
            if self._kill_at is not None and time.monotonic() >= self._kill_at and not self._stopping():
                os.kill(pid, signal.SIGKILL)
                self._kill_at = time.monotonic() + 1.0

    def _pass_on(self, pid: int, info: "signal.struct_siginfo") -> None:
        if self._forked is not None and info.si_pid == os.getppid():
            os.killpg(self._forked.group, info.si_signo)  # torchrun has sent it to our group, for all in it
        else:
            os.kill(pid, info.si_signo)

    def _peer_failed(self) -> None:
        """SIGTERM under our launch module without a stop: torchrun ends us because another rank failed."""
        if self.ranks_dir and not self._stopping():
            self.failed_with_peer = True
            self._kill_at = time.monotonic() + float(os.environ.get(_PEER_GRACE, _PEER_GRACE_SECONDS))

    def _stopping(self) -> bool:
        return bool(self.ranks_dir) and os.path.exists(os.path.join(self.ranks_dir, STOPPING))

    def _ended(self, code: int, number: "int | None") -> int:
        stopping = self._stopping()
        if code and self.run_dir:
            # under a launcher of the user's own, the order to stop the job is all we can know
            ordered = os.path.exists(os.path.join(self.run_dir, "control", "stop.json"))
            told = stopping or self.failed_with_peer or ordered
            self._record_end("rank_ended" if told else "rank_failed", code, number)
        self._note("exit", f"{code} {time.time()} {int(self.failed_with_peer)}")
        # In a stop torchrun must not take the first rank that ends for a failure: it would kill the others
        # after its own 30 s, however long the job's grace is. The launch module reads the true code above.
        return 0 if stopping and self.ranks_dir else code

    def _record_end(self, kind: str, code: int, number: "int | None") -> None:
        """`rank_failed`: by itself; `rank_ended`: because it was told to, with its peers or by a stop."""
        line = '{"type": "%s", "rank": %d, "code": %d, "signal": %s, "t": %r}\n' % (
            kind,
            self.rank,
            code,
            "null" if number is None else int(number),
            time.time(),
        )
        path = os.path.join(self.run_dir, "spool", f"core.rank{self.rank}.jsonl")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags, 0o600)
            os.write(descriptor, line.encode())
            os.close(descriptor)
        except OSError as error:
            print(f"The end of rank {self.rank} cannot be recorded: {error}.", file=sys.stderr)

    def _forget_earlier_end(self) -> None:
        """A launcher may start a rank again (torchrun's --max_restarts): it lives, whatever became of the first."""
        if not self.ranks_dir:
            return
        try:  # noqa: SIM105  # contextlib is slow to import
            os.unlink(os.path.join(self.ranks_dir, f"rank{self.rank}.exit"))
        except OSError:
            pass

    def _note(self, suffix: str, text: str) -> None:
        """Write rank<N>.<suffix> for the launch module, whole or not at all."""
        if not self.ranks_dir:
            return
        path = os.path.join(self.ranks_dir, f"rank{self.rank}.{suffix}")
        try:
            with open(path + ".new", "w", encoding="ascii") as file:
                file.write(text)
            os.rename(path + ".new", path)
        except OSError:  # the launch module is gone, and its folder with it
            pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

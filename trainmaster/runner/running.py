"""The runner: wires collector, shipper, orders, heartbeats and uploads, and decides when a run has ended."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import Any, Callable, Dict, List, Optional, cast

from trainmaster.jsonfile import write_json
from trainmaster.paths import RunPaths
from trainmaster.processes import alive, boot_id, of_run, reference
from trainmaster.protocol import LOOK_NOW, Limits, ProcessRef, limits_of
from trainmaster.rank_processes import ProcessesOfRanks
from trainmaster.runner import warm
from trainmaster.runner.collecting import Collector
from trainmaster.runner.event_files import EventFiles
from trainmaster.runner.event_media import EventMedia
from trainmaster.runner.full_disk import FullDisk
from trainmaster.runner.link import OVER, Link, Weather
from trainmaster.runner.orders import Orders, poll_signals, send_heartbeats
from trainmaster.runner.outbox import Outbox
from trainmaster.runner.pulse import Pulse
from trainmaster.runner.records import exit_record, own_line, state_record
from trainmaster.runner.sampling import Sampler
from trainmaster.runner.shipping import Shipper, say
from trainmaster.runner.state import (
    ShippedFile,
    read_exit,
    read_shipped,
    read_spec,
    read_state,
    try_lock,
    update_state,
)
from trainmaster.runner.stopping import begin_stop, read_stop, sweep
from trainmaster.runner.uploads import Uploads

EXIT_ANOTHER_RUNS = 75  # not 0: the launcher looks again whether the other one still does

_BUSY_SECONDS = 0.02
_IDLE_SECONDS = 0.04  # on top of it come the trip and the server, and a line should be seen within 0.25 s
#: What ends sooner is shipped as a whole; what does not is heard of so much later.
_AT_ONCE_SECONDS = 0.02
_UPKEEP_SECONDS = 1.0
_FREE_BYTES = 4 * 1024 * 1024
_LAUNCHER_SWEEPS_SECONDS = 70.0
_REFUSED_GRACE_SECONDS = 3.0
_DISK_FULL_SECONDS = 1.0
_EVENT_MEDIA_SECONDS = 30.0  # for what is left in TensorBoard's files when the entrypoint has ended
#: for the kernel's log at the end of what failed, and so many lines of it
_KERNEL_SECONDS, _KERNEL_LINES = 2.0, 20
_NICE = 5  # a flood of lines takes a core: the ranks come first


class Runner:
    """One run's runner; `run` returns when nothing is left to do."""

    def __init__(self, paths: RunPaths) -> None:
        self.paths = paths
        self.spec = read_spec(paths)
        self.limits: Limits = limits_of(self.spec)
        self.weather = Weather()
        self.outbox = Outbox(paths)
        self.orders = Orders(paths)
        self.shipper = Shipper(
            self._link(), self.outbox, self.orders, self.weather, self.limits, read_shipped(paths)["offset"]
        )
        self.uploads = Uploads(paths, self._link(), self.weather, self.spec["members"])
        self.event_files = EventFiles(paths, self.spec, self._link(), self.weather)
        self.event_media = EventMedia(paths, self.spec, self.outbox, self.shipper.unshipped)
        self.collector = Collector(
            paths, self.outbox, self.limits, self.shipper.unshipped, self.uploads.on_core
        )
        self.full_disk = FullDisk(paths.spool, self.spec["host"]["name"])
        self.pulse = Pulse(paths, self.spec, self._processes())
        self.sampler = Sampler(self.spec, self.limits, self.pulse)
        self.ended = threading.Event()  # the entrypoint has: no orders, no heartbeats any more
        self._state_seen = False
        self._shipped_saved: Optional[ShippedFile] = None
        self._upkeep_at = 0.0
        self._gone_checked = 0.0
        self._told_to_end = False  # by a refusal that came before the entrypoint had ended
        self._left: Optional[List[int]] = (
            None  # pids of the run at the last look, once its entrypoint has ended
        )

    def run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {LOOK_NOW})  # in every thread; `_follow` waits for it
        self._start(self.uploads.run)
        self._start(lambda: self.event_files.run(self.ended))
        if not self.outbox.exited and self._is_over_at_once():
            self._collect()
            self._note_running()
            self._write_exit()
            self._start(self.shipper.run)
        else:
            self._start(self.shipper.run)
            self._accompany()
        self.ended.set()
        while not self._told_to_end and self._has_to_bring():
            if self.weather.refusal is not None or not self.shipper.unshipped():
                self.uploads.all_told.set()
            time.sleep(_BUSY_SECONDS)
            self._upkeep()
        self._save_shipped(finished=True)
        self.shipper.ended.set()
        self.uploads.ended.set()

    def _accompany(self) -> None:
        """Until the exit record is written, unless it was by a runner before."""
        if self.outbox.exited:
            return
        self._start(lambda: poll_signals(self._link(), self.orders, self.weather, self.ended))
        self._start(lambda: send_heartbeats(self._link(), self.orders, self.limits, self._facts, self.ended))
        self._start(lambda: self.pulse.run(self.ended))
        self._start(lambda: self.sampler.run(self.ended))
        self._follow()
        self._write_exit()

    def _is_over_at_once(self) -> bool:
        """Whether the entrypoint has ended, with little to say and nothing left of it, before anything was shipped.

        Then all of it is one batch, which costs the server one transaction, and needs no other thread here.
        """
        until = time.monotonic() + _AT_ONCE_SECONDS
        while not self.paths.exit.exists():
            left = until - time.monotonic()
            if left <= 0:
                return False
            signal.sigtimedwait({LOOK_NOW}, left)
        try:
            size = sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(self.paths.spool))
        except OSError:  # what is wrong with it is said by who follows the run
            return False
        return not self.outbox.size and size <= self.limits["batch_bytes"] and not self._is_left()

    def _is_left(self) -> bool:
        """Look for processes of the run, once its entrypoint has ended."""
        self._left = [process["pid"] for process in of_run(self.paths.key)]
        return bool(self._left)

    def _has_to_bring(self) -> bool:
        """After the exit record "it is over" ends the shipping alone: the uploads of an attempt may outlive it.

        A token that is refused opens nothing any more.
        """
        if self.weather.refusal is not None:
            return self.weather.refusal_status == OVER and self.uploads.pending() > 0
        return bool(self.shipper.unshipped() or self.uploads.pending() or self.event_files.pending())

    def _follow(self) -> None:
        """Collect until the entrypoint has ended and no process of the run is left."""
        pause = _BUSY_SECONDS
        while True:
            pause = _BUSY_SECONDS if self._collect() else min(_IDLE_SECONDS, pause * 1.5)
            self._note_running()
            self._upkeep()
            if self.weather.refusal is not None and not self.paths.exit.exists():
                self._told_to_end = True
                self._stop_refused(self.weather.refusal)
                return
            if self._has_ended():
                self.weather.drains()
                return
            signal.sigtimedwait({LOOK_NOW}, 0.0 if self.collector.behind else pause)

    def _collect(self) -> bool:
        return self._keep_trying(self.collector.poll)

    def _keep_trying(self, action: Callable[[], Any]) -> bool:
        """Do what appends to the outbox; on a full disk wait and say so, for the ranks must not notice."""
        while True:
            try:
                done = bool(action())
                self.full_disk.wrote()
                return done
            except OSError as error:
                say(f"The spool of {self.paths.key} cannot be written: {error}. Trying again.")
                self.full_disk.refused(error)
                time.sleep(_DISK_FULL_SECONDS)
                self._upkeep()

    def _processes(self) -> Optional[ProcessesOfRanks]:
        """How the ranks' processes are found; None: by the run's marker."""
        return None

    def _note_running(self) -> None:
        if self.outbox.running or self._state_seen:
            return
        if "entrypoint" in read_state(self.paths):
            self._state_seen = True
            self._append(state_record(time.time(), "running"))
            self.outbox.running = True

    def _append(self, record: bytes) -> None:
        self._keep_trying(lambda: self.outbox.append(record))

    def _append_samples(self, all_of_them: bool = False) -> None:
        """They are the first to be left out when the spool is full: nothing waits for them."""
        record = self.sampler.take(all_of_them)
        if record and self.shipper.unshipped() < self.limits["spool_bytes"]:
            with contextlib.suppress(OSError):
                self.outbox.append(record)

    def _look_at_event_media(self) -> bool:
        """Left for later on a full disk, as samples are left out."""
        with contextlib.suppress(OSError):
            return self.event_media.look()
        return False

    def _say_in_log(self, sentence: Optional[str]) -> None:
        if sentence:
            self._append(own_line(time.time(), "ERROR", sentence))

    def _say_of_uploads(self) -> None:
        for level, sentence in self.uploads.sentences():
            self._append(own_line(time.time(), level, sentence))

    def _has_ended(self) -> bool:
        """True when nobody is left who could write."""
        if self.paths.exit.exists():
            until = time.monotonic() + _LAUNCHER_SWEEPS_SECONDS
            while self._is_left() and time.monotonic() < until:  # the launcher is sweeping
                if not alive(read_state(self.paths), "launcher"):
                    sweep(self.paths.key)
                self._collect()
                time.sleep(_BUSY_SECONDS)
            return True
        if time.monotonic() - self._gone_checked < _UPKEEP_SECONDS:
            return False
        self._gone_checked = time.monotonic()
        state = read_state(self.paths)
        if alive(state, "launcher") or alive(state, "entrypoint"):
            return False
        sweep(self.paths.key)  # the launcher was killed and cannot
        return True

    def _write_exit(self) -> None:
        """Drain to the last byte, then the exit record."""
        while self._collect():
            pass
        self._keep_trying(self.collector.finish)
        until = time.monotonic() + _EVENT_MEDIA_SECONDS
        while self._look_at_event_media() and time.monotonic() < until:
            pass
        self._say_in_log(self.full_disk.look(at_the_end=True))
        self._say_of_uploads()
        self._append_samples(all_of_them=True)
        ended = read_exit(self.paths)
        if ended is None:
            # of a Slurm job, the launcher was killed with all else: Slurm's own state says why
            stopped = read_stop(self.paths) is not None or self.paths.is_slurms()
            ended = {"code": None, "signal": None, "ended_at": time.time(), "stopped": stopped}
        if self._left is None:
            self._is_left()
        kernel = _kernel_lines(self.paths) if ended["code"] else []
        self._append(exit_record(ended, self.outbox.first_failure, boot_id(), self._left or [], kernel))
        self.outbox.exited = True
        self.outbox.save_index()

    def _stop_refused(self, refusal: str) -> None:
        """The server will not hear of this run any more: its ranks end before anything else happens."""
        say(f"The server refused the token of {self.paths.key} ({refusal}). Stopping the ranks.")
        begin_stop(
            self.paths,
            {"grace_seconds": _REFUSED_GRACE_SECONDS, "reason": f"refused by the server, {refusal}"},
        )
        while not self._has_ended():
            self._collect()
            time.sleep(_BUSY_SECONDS)

    def _upkeep(self) -> None:
        """Once a second: record what is shipped, and free it on the disk when it is worth it."""
        now = time.monotonic()
        if now - self._upkeep_at < _UPKEEP_SECONDS:
            return
        self._upkeep_at = now
        if not self.paths.spec.exists():
            say(f"The folder of {self.paths.key} is gone, so its runner has nothing left to do.")
            os._exit(0)
        if not self.outbox.exited:
            self._say_in_log(self.full_disk.look())
            self._say_of_uploads()
            self._append_samples()
            self._look_at_event_media()
        self._save_shipped(finished=False)
        shipped = self.shipper.offset
        if self.outbox.freeable(shipped) >= _FREE_BYTES:
            try:
                self.outbox.free(shipped)
            except OSError as error:
                say(f"The sent part of the spool cannot be freed: {error}.")

    def _save_shipped(self, finished: bool) -> None:
        record: ShippedFile = {
            "offset": self.shipper.offset,
            "finished": finished,
            "refused": self.weather.refusal,
        }
        if record == self._shipped_saved:
            return
        try:
            write_json(self.paths.shipped, record)
            self._shipped_saved = record
        except OSError as error:
            say(f"{self.paths.shipped} cannot be written: {error}.")

    def _facts(self) -> Dict[str, Any]:
        state = "ended" if self.paths.exit.exists() else "running" if self.outbox.running else "starting"
        return {
            "state": state,
            "spool_bytes": self.outbox.size - self.outbox.freed,
            "unshipped_bytes": self.shipper.unshipped(),
            "dropped_bytes": self.outbox.dropped,
            "pulse": self.pulse.facts(),
            "preempt": self.paths.preempt.exists(),
            **({"disk_full": self.full_disk.where} if self.full_disk.where else {}),
        }

    def _link(self) -> Link:
        return Link(self.paths, self.spec, self.weather)

    def _start(self, body: Callable[[], None]) -> None:
        threading.Thread(target=_guarded, args=(body,), daemon=True).start()


def _guarded(body: Callable[[], None]) -> None:
    """A thread that breaks ends the runner, which is then started anew: better than one that ships nothing."""
    try:
        body()
    except BaseException as error:
        say(f"A thread of the runner failed: {error!r}.")
        import traceback

        traceback.print_exc()
        os._exit(1)


def run_runner(paths: RunPaths, make: Callable[[RunPaths], Runner] = Runner) -> int:
    """Exit code of the runner's process: 0 when nothing is left to do for this run."""
    lock: Optional[int] = try_lock(paths.runner_lock)
    if lock is None:
        return EXIT_ANOTHER_RUNS
    if read_shipped(paths)["finished"]:
        return 0
    update_state(paths, {"runner": cast(ProcessRef, reference(os.getpid()))})
    os.nice(_NICE)
    warm.cool_down()  # it has threads
    make(paths).run()
    return 0


def _kernel_lines(paths: RunPaths) -> List[List[Any]]:
    """The signs of faults in the kernel's log since the run was made. A log that hangs delays no end for long."""
    found: List[List[Any]] = []

    def look() -> None:
        from trainmaster.host import kernel_log  # only what fails pays for it

        with contextlib.suppress(OSError):
            age = time.time() - paths.spec.stat().st_mtime
            found.extend(kernel_log.of_last(max(0.0, age), _KERNEL_LINES))

    looking = threading.Thread(target=look, daemon=True)
    with contextlib.suppress(RuntimeError):  # where the account may not start another thread
        looking.start()
        looking.join(_KERNEL_SECONDS)
    return list(found)

"""One detached run as this process sees it: begun by all ranks together, ended by each for itself."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from typing import Any, List, Optional, cast

from trainmaster._info import ClusterInfo
from trainmaster.core import Context, DistributedContext, PreemptMode, TensorboardMode
from trainmaster.core._context import build
from trainmaster.core._distributed import single
from trainmaster.core._sign import sign_of
from trainmaster.experimental.core_v2 import _attempt
from trainmaster.experimental.core_v2._config import Config, Storage, experiment_config
from trainmaster.experimental.core_v2._farewell import Farewell, ProcessEnd, code_of_exception
from trainmaster.experimental.core_v2._folder import (
    LocalRank,
    has_no_runner,
    machine_name,
    make_folder,
    take_care_of_others,
)
from trainmaster.experimental.core_v2._streams import KeptStreams
from trainmaster.jsonfile import read_json, write_json
from trainmaster.paths import RunPaths
from trainmaster.processes import reference
from trainmaster.protocol import Spec
from trainmaster.runner.detached import spawn_in_session
from trainmaster.runner.state import read_server, read_shipped

logger = logging.getLogger("trainmaster.core")

_LOOK_SECONDS = 1.0
_RESTART_SECONDS = 5.0


def begin(
    config: Config,
    client: Optional[Any],
    distributed: Optional[DistributedContext],
    checkpoint_storage: Optional[Storage],
    preempt_mode: PreemptMode,
    tensorboard_mode: TensorboardMode,
) -> DetachedContext:
    """The context of a new run. All ranks call: rank 0 asks the server, each machine makes its folder.

    RuntimeError on the others when rank 0 or their machine's first rank cannot.
    """
    document = experiment_config(config, checkpoint_storage)
    distributed = distributed or _alone()
    places = distributed.allgather((distributed.cross_rank, distributed.local_size, machine_name()))
    machines = {member: (size, name) for member, size, name in places}
    slot_counts = [machines[member][0] for member in sorted(machines)]
    hosts = [machines[member][1] for member in sorted(machines)]
    attempt = _attempt.on_chief(
        distributed, lambda: _attempt.begin(_attempt.log_in(client), config, document, hosts)
    )
    own = LocalRank(distributed.rank, reference(os.getpid()), os.environ.get("CUDA_VISIBLE_DEVICES"))
    here = distributed.gather_local(own)
    paths, problem = None, ""
    if distributed.local_rank == 0:
        try:
            paths = make_folder(attempt, distributed.cross_rank, cast(List[LocalRank], here), slot_counts)
        except OSError as error:
            problem = f"The folder of the detached run cannot be created on {machine_name()}: {error}."
    paths, problem = distributed.broadcast_local((paths, problem))
    if paths is None:
        raise RuntimeError(problem)
    run = DetachedRun(paths, distributed)
    context = build(DetachedContext, run.info, distributed, None, preempt_mode, tensorboard_mode)
    context.belong_to(run)
    return context


def _alone() -> DistributedContext:
    """ValueError where a launcher has started several ranks: each would make an experiment of its own."""
    size = os.environ.get("WORLD_SIZE", "1")
    if size.isdigit() and int(size) > 1:
        raise ValueError(
            f"This is one of {size} ranks, so core_v2.init() needs distributed=..., for example "
            "core_v2.DistributedContext.from_torch_distributed()."
        )
    return single()


class DetachedRun:
    """This rank's part of the run in the folder `paths`."""

    def __init__(self, paths: RunPaths, distributed: DistributedContext) -> None:
        self.paths = paths
        self.info = ClusterInfo(cast(Spec, read_json(paths.spec)), read_server(paths), str(paths.root))
        self._rank = distributed.rank
        self._leads = distributed.local_rank == 0
        self._pid = os.getpid()
        self._ended = threading.Event()
        self._told_refusal = False
        self._runner: Optional[int] = None
        self._started_at = 0.0
        distributed._sign = sign_of(self.info, distributed.rank)
        self._streams = KeptStreams(paths, self._rank)
        if self._leads:
            self._start_runner()
            take_care_of_others(paths)
        threading.Thread(target=self._tend, name="detached run", daemon=True).start()

    def end(self, code: int) -> None:
        """Say how this rank has ended; the first one of a machine waits until the server has all. Once."""
        if self._ended.is_set() or os.getpid() != self._pid:
            return
        self._ended.set()
        self._streams.close()
        try:
            write_json(self.paths.rank_end(self._rank), {"code": code, "t": time.time()})
        except OSError as error:  # then it counts as killed once the process has ended
            logger.warning("The end of rank %d cannot be recorded in its run: %s", self._rank, error)
        if self._leads:
            farewell = Farewell(self.paths)
            try:
                farewell.wait()
            except KeyboardInterrupt:
                farewell.say_left()

    def _tend(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            with contextlib.suppress(OSError, ValueError):  # a full disk, say: the next look may be better
                self._streams.tend()
                if self._leads:
                    self._tend_runner()
                    self._tell_refusal()

    def _start_runner(self) -> None:
        self._started_at = time.monotonic()
        try:
            self._runner = spawn_in_session("detached", self.paths)
        except OSError as error:
            logger.warning(
                "The reports of this run stay on this machine, because their sender cannot be started: %s",
                error,
            )

    def _tend_runner(self) -> None:
        """A runner that was killed is started anew, and goes on where that one was."""
        if self._runner is not None:
            try:
                os.waitpid(self._runner, os.WNOHANG)
            except ChildProcessError:
                self._runner = None
        if time.monotonic() - self._started_at < _RESTART_SECONDS or read_shipped(self.paths)["finished"]:
            return
        if has_no_runner(self.paths):
            self._start_runner()

    def _tell_refusal(self) -> None:
        refusal = read_shipped(self.paths)["refused"]
        if refusal and not self._told_refusal:
            self._told_refusal = True
            logger.warning(
                "The server accepts no more reports of this run (%s). The training is not affected; usually the same "
                "external ids were started again, or the experiment was deleted.",
                refusal,
            )


class DetachedContext(Context):
    """The Core API's context of a detached run; its end is the run's."""

    _run: Optional[DetachedRun] = None
    _process: Optional[ProcessEnd] = None

    def belong_to(self, run: DetachedRun) -> None:
        self._run = run
        self._process = ProcessEnd(lambda: self._end(0))
        self.train._any_rank_reports = True

    def close(
        self, exc_type: object = None, exc_val: Optional[BaseException] = None, exc_tb: object = None
    ) -> None:
        """End the run: as an error where this is called while an exception is on its way or after a bad `sys.exit`."""
        self._end(code_of_exception(exc_val or sys.exc_info()[1]))

    def __exit__(self, kind: object, error: Optional[BaseException], trace: object) -> None:
        if error is not None and self._process is not None:
            self._process.code = code_of_exception(error)
        super().__exit__(kind, error, trace)

    def _end(self, code: int) -> None:
        run, process, self._run, self._process = self._run, self._process, None, None
        try:
            super().close()
        finally:
            if process is not None:
                process.forget()
            if run is not None:
                run.end(code or (process.code if process is not None else 0))

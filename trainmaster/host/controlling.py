"""`status`, `stop`, `preempt`, `server`, `remove`: what is asked and ordered of runs that exist."""

from __future__ import annotations

import contextlib
import shutil
import time
from typing import Any, Dict, List, Optional, Tuple

from trainmaster.host import kernel_log, launch_lock, old_bundles
from trainmaster.host.accounts import for_each_owner
from trainmaster.host.condition import Asked
from trainmaster.host.errors import VerbError, answer_each, objects_of
from trainmaster.host.launching import check_mounted
from trainmaster.host.measuring import measure
from trainmaster.jsonfile import make_json, read_object, write_json
from trainmaster.paths import RunPaths, Workdir
from trainmaster.processes import alive, boot_id, descendants, kill, marked, marker_of, of_run
from trainmaster.protocol import KEEPER_MARKER, ExitFile, ProcessRef, StopOrder, check_run_key, is_run_key
from trainmaster.runner.detached import start_detached
from trainmaster.runner.full_disk import FULL
from trainmaster.runner.state import ShippedFile, is_number, read_exit, read_shipped, read_state
from trainmaster.runner.stopping import begin_stop, order_stop, read_stop

#: by which a step of a Slurm job may outlive whoever asked for it
_LATE_SECONDS = 300.0
_NEEDS = 'This verb needs {"runs": {run key: {…}}}.'


def status(request: Dict[str, Any], workdir: Workdir) -> Dict[str, Any]:
    """How the named runs stand (all of this workdir without names); starts a runner anew where one is wanted.

    "stored": {run key: bytes} names runs of which the server has no more than so much of the outbox: a runner that had
    brought all of it, to a server that has been restored from a backup since, brings the rest once more.
    "accounts": {run key: name} says under which account a run is looked for whose folder is gone.
    The processes of a run of a Slurm job are on other machines that share this workdir: its folder is all that is
    looked at, and if it has not begun, it is "prepared". "elsewhere" names such runs, as their folders may be gone;
    "over" those whose job has surely ended, so that what is left to do for them is done here.
    """
    check_mounted(request, workdir)
    runs = dict.fromkeys(_keys(request, workdir))
    held = {key: launch_lock.held_seconds(workdir.lock(key)) for key in runs}
    starting = {key: seconds for key, seconds in held.items() if seconds is not None}
    more = {
        "stored": request.get("stored") or {},
        "starting": starting,
        "elsewhere": request.get("elsewhere") or [],
        "over": request.get("over") or [],
    }
    answers = for_each_owner("status", _status_of_own, runs, more, workdir, request.get("accounts"))
    answer: Dict[str, Any] = {"boot_id": boot_id(), "now": time.time(), "runs": answers}
    asked = Asked(request, workdir)
    if request.get("gpu_users"):
        answer["gpu_users"] = asked.gpu_users
    if isinstance(request.get("sample"), dict):
        answer["sample"] = measure(request["sample"], workdir, asked.gpu_sample)
    if isinstance(request.get("condition"), dict):
        with contextlib.suppress(Exception):  # how the runs stand is what was asked
            answer["condition"] = asked.condition()
    if isinstance(request.get("kernel"), dict):
        with contextlib.suppress(Exception):  # how the runs stand is what was asked
            answer["kernel"] = kernel_log.look(request["kernel"])
    return answer


def stop(request: Dict[str, Any], workdir: Workdir) -> Dict[str, Any]:
    """Start the stop sequence of each run, by {"grace_seconds", "reason"}; answers at once.

    With "elsewhere", and for a run of a Slurm job, it is left in the folder, for the node on which the run is.
    """
    more = {"elsewhere": bool(request.get("elsewhere"))}
    return {"runs": for_each_owner("stop", _stop_own, objects_of(request, _NEEDS), more, workdir)}


def preempt(request: Dict[str, Any], workdir: Workdir) -> Dict[str, Any]:
    """Ask each run to save and end, by {"reason"}."""
    return {"runs": for_each_owner("preempt", _preempt_own, objects_of(request, _NEEDS), {}, workdir)}


def server(request: Dict[str, Any], workdir: Workdir) -> Dict[str, Any]:
    """Tell the runners of the runs where the server is now."""
    address = request.get("server")
    if not isinstance(address, dict) or not isinstance(address.get("urls"), list):
        raise VerbError(
            "bad_request", 'The verb `server` needs {"server": {"urls": [...], "cert_sha256": …}}.'
        )
    runs = dict.fromkeys(_keys(request, workdir))
    return {"runs": for_each_owner("server", _server_of_own, runs, {"server": address}, workdir)}


def remove(request: Dict[str, Any], workdir: Workdir) -> Dict[str, Any]:
    """Remove the folders of runs that have ended and been shipped; with "force", of those not shipped as well.

    With "bundles" also the bundles that nothing uses any more, whose names the answer has. "jobs_since": when the
    oldest job was made that waits in Slurm or runs there, since it may use a bundle that nothing here names.
    "elsewhere": the runs are of Slurm jobs.
    """
    check_mounted(request, workdir)
    runs, force = dict.fromkeys(_keys(request, workdir)), {"force": bool(request.get("force"))}
    answers = for_each_owner("remove", _check_removable, runs, force, workdir)
    for key, answer in answers.items():
        if answer.get("removed"):
            _delete(workdir, key)
    if not request.get("bundles"):
        return {"runs": answers}
    old = old_bundles.candidates(workdir, request.get("jobs_since"))
    return {"runs": answers, "bundles": old and old_bundles.remove(workdir, old, status({}, workdir)["runs"])}


def _keys(request: Dict[str, Any], workdir: Workdir) -> List[str]:
    named = request.get("runs")
    if named is not None:
        return [check_run_key(key) for key in named]
    if not workdir.runs.is_dir():
        return []
    names = (entry.name for entry in workdir.runs.iterdir() if not entry.name.startswith("."))
    return sorted(name for name in names if is_run_key(name))  # a job may have made other folders there


def _status_of_own(request: Dict[str, Any], workdir: Workdir) -> Dict[str, Any]:
    processes, stored, starting = marked(), request.get("stored") or {}, request["starting"]
    elsewhere, over = set(request.get("elsewhere") or ()), set(request.get("over") or ())

    def status_of(key: str) -> Dict[str, Any]:
        if key in elsewhere or (key not in over and workdir.run(key).is_slurms()):
            return _status_elsewhere(workdir.run(key), stored.get(key))
        answer = _status_of(workdir, key, processes.get(key, []), stored.get(key))
        if key in starting and answer["state"] in ("absent", "incomplete"):
            answer.update(state="starting", starting_seconds=starting[key])
        return answer

    return answer_each(request["runs"], status_of)


def _status_of(
    workdir: Workdir, key: str, processes: List[ProcessRef], stored: Optional[int]
) -> Dict[str, Any]:
    paths = workdir.run(key)
    ended = read_exit(paths)
    answer: Dict[str, Any] = {"exit": ended, "pids": [process["pid"] for process in processes]}
    state = read_state(paths)
    if not paths.root.exists() or not state:
        processes = processes or _below_keepers(key)
        answer["pids"] = [process["pid"] for process in processes]
        prepared = paths.root.exists() or workdir.unfinished(key).exists()
        answer["state"] = "remains" if processes else "incomplete" if prepared else "absent"
        return answer
    waits = ended is None and (alive(state, "launcher") or alive(state, "entrypoint"))
    answer["state"] = "running" if processes or waits else "ended"
    answer["boot_id"], answer["bundle"] = state.get("boot_id"), state.get("bundle")
    if processes:
        answer["killed_seconds"] = _killed_seconds(paths, ended)
    shipped, _ = _shipped_of(paths, stored)
    answer.update(_spool_of(paths, shipped))
    if not shipped["finished"] and not alive(state, "runner") and not alive(state, "launcher"):
        start_detached("ship", paths)
        answer["runner_restarted"] = True
    return answer


def _status_elsewhere(paths: RunPaths, stored: Optional[int]) -> Dict[str, Any]:
    """By its folder alone. Whether the processes that it names are alive is for whoever runs their machine to say.

    Only after the runner there has said that it is done is one started here, to bring what is wanted again.
    """
    if not paths.root.exists():
        return {"exit": None, "pids": [], "state": "absent"}
    ended, begun = read_exit(paths), read_state(paths)
    state = "ended" if ended is not None else "running" if begun else "prepared"
    answer: Dict[str, Any] = {"exit": ended, "pids": [], "state": state, "preempt": paths.preempt.exists()}
    answer["bundle"] = begun.get("bundle")
    shipped, wanted_again = _shipped_of(paths, stored)
    answer.update(_spool_of(paths, shipped))
    if wanted_again:
        start_detached("ship", paths)
        answer["runner_restarted"] = True
    return answer


def _shipped_of(paths: RunPaths, stored: Optional[int]) -> Tuple[ShippedFile, bool]:
    """How much the server has, and whether it wants again what a runner that was done had brought (`stored`)."""
    shipped = read_shipped(paths)
    done = shipped["finished"] and shipped["refused"] is None
    if not isinstance(stored, int) or not done or stored >= _outbox_bytes(paths):
        return shipped, False
    shipped = {"offset": stored, "finished": False, "refused": None}
    write_json(paths.shipped, shipped)
    return shipped, True


def _outbox_bytes(paths: RunPaths) -> int:
    return paths.outbox.stat().st_size if paths.outbox.exists() else 0


def _spool_of(paths: RunPaths, shipped: ShippedFile) -> Dict[str, Any]:
    """How much of the run's output there is, and how much of it the server has."""
    size = _outbox_bytes(paths)
    return {
        "outbox_bytes": size,
        "spool_bytes": _spool_bytes(paths),
        "unshipped_bytes": max(0, size - shipped["offset"]),
        "finished": shipped["finished"],
        "refused": shipped["refused"],
    }


def _below_keepers(key: str) -> List[ProcessRef]:
    """What the launcher has started and what has dropped its marker: asked where the run's files do not say it."""
    found = [each for keeper in marked(KEEPER_MARKER).get(key, []) for each in descendants(keeper["pid"])]
    jobs = {each["pid"]: each for each in found if marker_of(each["pid"], KEEPER_MARKER) is None}
    return list(jobs.values())


def _spool_bytes(paths: RunPaths) -> int:
    """What the spool takes on the disk; its files come and go meanwhile."""
    total = 0
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for entry in paths.spool.iterdir():
            with contextlib.suppress(FileNotFoundError):
                total += entry.lstat().st_blocks * 512
    return total


def _killed_seconds(paths: RunPaths, ended: Optional[ExitFile]) -> Optional[float]:
    """For how long all that is left of the run has been sent SIGKILL; None while it may still run.

    That is from the deadline of its stop on, or else from the end of its entrypoint. The run itself could write both
    files: it can hasten its own end by that, and break nothing here.
    """
    order = read_stop(paths)
    since = order["deadline"] if order else ended["ended_at"] if ended else None
    seconds = time.time() - since if since is not None else -1.0
    return seconds if seconds >= 0 else None


def _stop_own(request: Dict[str, Any], workdir: Workdir) -> Dict[str, Any]:
    elsewhere = bool(request.get("elsewhere"))
    return answer_each(request["runs"], lambda key: _stop(workdir.run(key), request["runs"][key], elsewhere))


def _stop(paths: RunPaths, order: Dict[str, Any], elsewhere: bool) -> Dict[str, Any]:
    """By markers alone where the run has spoiled its folder, so that its grace cannot be kept there."""
    wanted: StopOrder = {
        "grace_seconds": float(order.get("grace_seconds", 30.0)),
        "reason": str(order.get("reason", "")),
    }
    if elsewhere or paths.is_slurms():
        there = paths.control.is_dir()
        if there:
            order_stop(paths, wanted)
        return {"stopping": there}
    try:
        if read_state(paths):
            begin_stop(paths, wanted)
            return {"stopping": True}
    except OSError as error:
        if error.errno in FULL:
            raise
    living = of_run(paths.key) or _below_keepers(paths.key)
    for process in living:
        kill(process, boot_id())
    if not living:
        return {"stopping": False, "message": f"The run {paths.key} is not running on this host."}
    return {"stopping": True}


def _preempt_own(request: Dict[str, Any], workdir: Workdir) -> Dict[str, Any]:
    def preempt_one(key: str) -> Dict[str, Any]:
        paths = workdir.run(key)
        if not paths.control.is_dir():
            return {"preempting": False, "message": f"The run {key} is not on this host."}
        make_json(paths.preempt, {"reason": str(request["runs"][key].get("reason", ""))})
        return {"preempting": True}

    return answer_each(request["runs"], preempt_one)


def _server_of_own(request: Dict[str, Any], workdir: Workdir) -> Dict[str, Any]:
    def tell(key: str) -> Dict[str, Any]:
        paths = workdir.run(key)
        if paths.root.is_dir() and not _is_older(request["server"], read_object(paths.server)):
            write_json(paths.server, request["server"])
        return {"written": paths.root.is_dir()}

    return answer_each(request["runs"], tell)


def _is_older(order: Dict[str, Any], found: Dict[str, Any]) -> bool:
    """Whether an order comes late, after a newer one. One from much before it means that the clock was set back."""
    before, after = order.get("told_at"), found.get("told_at")
    if not (is_number(before) and is_number(after)):
        return False
    return 0.0 < float(str(after)) - float(str(before)) < _LATE_SECONDS


def _check_removable(request: Dict[str, Any], workdir: Workdir) -> Dict[str, Any]:
    """{"removed": True} for runs that may go; with force their launcher and runner are ended here."""
    processes = marked()

    def check(key: str) -> Dict[str, Any]:
        paths = workdir.run(key)
        state = read_state(paths)
        message = None
        may_live = alive(state, "launcher") or (state and paths.is_slurms() and not request["force"])
        if processes.get(key) or (read_exit(paths) is None and may_live):
            message = f"The run {key} has not ended: stop it first."
        elif request["force"]:
            _end_own_processes(paths)
        elif state and not read_shipped(paths)["finished"]:
            message = f"The run {key} has output that the server does not have yet. Use force to discard it."
        return {"removed": False, "message": message} if message else {"removed": True}

    return answer_each(request["runs"], check)


def _end_own_processes(paths: RunPaths) -> None:
    state = read_state(paths)
    if alive(state, "launcher"):  # first, or it would start a new runner
        kill(state["launcher"], state["boot_id"])
    for process in marked(KEEPER_MARKER).get(paths.key, []):
        kill(process, boot_id())


def _delete(workdir: Workdir, key: str) -> None:
    """The rename comes first: a removal that is cut short leaves no half run under the run's name."""
    unfinished = workdir.unfinished(key)
    shutil.rmtree(unfinished, ignore_errors=True)
    root = workdir.run(key).root
    if root.exists():
        root.rename(unfinished)
        shutil.rmtree(unfinished, ignore_errors=True)
    for path in (workdir.run(key).revoked, workdir.lock(key)):
        path.unlink(missing_ok=True)

"""The states of commands in the words that submitit knows, asked for all jobs of a program at once."""

from __future__ import annotations

import argparse
import functools
from typing import Any, Dict, List, Optional, Tuple

from submitit.core import core

from trainmaster.client import Client

_PATH = "/api/v1/commands"
_SLOWEST_SECONDS = 30
#: Slurm's names, as submitit's own; all others than those of `unended` mean that the job is over
_STATES = {
    "QUEUED": "PENDING",
    "COMPLETED": "COMPLETED",
    "CANCELED": "CANCELLED",
    "STOPPING_KILLED": "COMPLETING",
    "ERROR": "FAILED",
}


@functools.lru_cache(maxsize=1)
def client() -> Client:
    """A connection of whoever is logged in on this machine, as the command line has it."""
    from trainmaster.cli.session import log_in  # hosts have no command line

    return log_in(argparse.Namespace(master=None, user=None))


def parts_of(job_id: str) -> Tuple[str, Optional[int]]:
    """`ID`, or `ID_N` of an element of an array."""
    whole, _, index = job_id.partition("_")
    return whole, int(index) if index else None


def records_of(whole: str, index: Optional[int]) -> List[Dict[str, Any]]:
    """The command of this ID; with an index, all elements of the array."""
    if index is None:
        return [dict(client().get(f"{_PATH}/{whole}")["command"])]
    return client().pages(_PATH, "commands", [("arrayId", whole)])


class Watcher(core.InfoWatcher):
    """One request for each command or array that has not ended, however many jobs ask."""

    def __init__(self) -> None:
        super().__init__(delay_s=_SLOWEST_SECONDS)

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """`UNKNOWN` until the server has said it."""
        return str(self.get_info(job_id, mode=mode).get("State") or "UNKNOWN")

    def _make_command(self) -> Optional[List[str]]:
        """The IDs to ask for, None if all jobs have ended."""
        return sorted({parts_of(each)[0] for each in self._registered - self._finished}) or None

    def update(self) -> None:
        """Ask the server. If it cannot be reached, states stay as they were."""
        import time

        for whole in self._make_command() or []:
            self._num_calls += 1
            index = next(
                parts_of(each)[1] for each in self._registered - self._finished if parts_of(each)[0] == whole
            )
            try:
                records = records_of(whole, index)
            except Exception as error:  # of whatever kind: submitit asks again
                core.logger.get_logger().warning(f"The state of {whole} is not known: {error}")
                continue
            for record in records:
                job_id = whole if index is None else f"{whole}_{record['arrayIndex']}"
                self._info_dict[job_id] = _info(job_id, record)
        self._last_status_check = time.time()
        self._finished |= {each for each in self._registered if self.is_done(each, mode="cache")}


def _info(job_id: str, record: Dict[str, Any]) -> Dict[str, str]:
    state = _STATES.get(str(record["phase"]), "RUNNING")
    if state == "FAILED" and "time limit" in str(record.get("ending")):
        state = "TIMEOUT"
    return {"JobID": job_id, "State": state, "NodeList": ",".join(record.get("hosts") or [])}

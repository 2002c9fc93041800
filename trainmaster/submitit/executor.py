"""`submitit.AutoExecutor(cluster="trainmaster")`: submitit's batch scripts, submitted by `trainmaster sbatch`."""

from __future__ import annotations

import os
import re
import sys
import uuid
from pathlib import Path
from typing import Any, Dict, List, Union

from submitit.core import core, utils
from submitit.slurm import slurm

from trainmaster.submitit.states import Watcher, client, parts_of, records_of

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SERVER = ("TRAINMASTER_MASTER", "DET_MASTER")


class TrainmasterJob(core.Job[core.R]):
    """A command, or an element of an array (`ID_N`)."""

    watcher = Watcher()

    def cancel(self, check: bool = True) -> None:
        """Kill it. With `check`, raises what the server refuses."""
        try:
            whole, index = parts_of(self.job_id)
            found = [each for each in records_of(whole, index) if index in (None, each.get("arrayIndex"))]
            for record in found:
                client().post(f"/api/v1/commands/{record['id']}/kill")
        except Exception:
            if check:
                raise

    def _interrupt(self, timeout: bool = False) -> None:
        raise NotImplementedError(
            "A signal cannot be sent to a command; it gets one before its time is over."
        )


class TrainmasterExecutor(slurm.SlurmExecutor):
    """Takes the parameters of submitit's Slurm executor, with the prefix `trainmaster_`.

    The folder, and the Python that submits, must be at the same path on the hosts.
    """

    job_class = TrainmasterJob

    def __init__(self, folder: Union[str, Path], *args: Any, **options: Any) -> None:
        self._requeues = 0
        super().__init__(folder, *args, **options)

    @classmethod
    def affinity(cls) -> int:
        """Chosen by itself only where the environment names a server and there is no Slurm."""
        return 2 if any(os.environ.get(name) for name in _SERVER) else 1

    def _internal_process_submissions(
        self, delayed_submissions: List[utils.DelayedSubmission]
    ) -> List[core.Job[Any]]:
        """One command for each submission, or one array for several."""
        can_continue = any(hasattr(each.function, "checkpoint") for each in delayed_submissions)
        self._requeues = self.max_num_timeout if can_continue else 0
        if len(delayed_submissions) == 1:
            one: List[core.Job[Any]] = core.PicklingExecutor._internal_process_submissions(
                self, delayed_submissions
            )
            return one
        folder = utils.JobPaths.get_first_id_independent_folder(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        pickles = []
        for delayed in delayed_submissions:
            pickles.append(folder / f"{uuid.uuid4().hex}.pkl")
            delayed.set_timeout(self.parameters.get("time", 5), self.max_num_timeout)
            delayed.dump(pickles[-1])
        self.parameters["map_count"] = len(pickles)
        try:
            first: core.Job[Any] = self._submit_command(self._submitit_command_str)
        finally:
            del self.parameters["map_count"]
        tasks = list(range(first.num_tasks))
        jobs = [
            TrainmasterJob(self.folder, f"{first.job_id}_{index}", tasks) for index in range(len(pickles))
        ]
        for number, job in enumerate(jobs):
            job.paths.move_temporary_file(pickles[number], "submitted_pickle")
        return list(jobs)

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        parameters: Dict[str, Any] = {"wckey": None, **self.parameters}
        text: str = slurm._make_sbatch_string(command=command, folder=self.folder, **parameters)
        return text.replace("export SUBMITIT_EXECUTOR=slurm", "export SUBMITIT_EXECUTOR=trainmaster")

    def _make_submission_command(self, submission_file_path: Path) -> List[str]:
        options = ["--parsable", "--requeues", str(self._requeues)]
        return [
            sys.executable,
            "-m",
            "trainmaster.cli.main",
            "sbatch",
            *options,
            str(submission_file_path),
        ]

    @staticmethod
    def _get_job_id_from_submission_command(string: Union[bytes, str]) -> str:
        text = string if isinstance(string, str) else string.decode()
        found = _ID.findall(text)
        if not found:
            raise utils.FailedSubmissionError(f"The answer to the submission has no ID: {text!r}.")
        return str(found[-1])

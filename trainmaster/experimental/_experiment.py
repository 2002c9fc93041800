"""Experiments, as scripts hold them."""

from __future__ import annotations

import base64
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Set, Union
from urllib.parse import quote

from trainmaster.experimental._checkpoint import Checkpoint
from trainmaster.experimental._resource import Resource
from trainmaster.experimental._session import Json, Session
from trainmaster.experimental._trial import Trial
from trainmaster.experimental._vocabulary import (
    ENDED,
    CheckpointSortBy,
    ExperimentState,
    OrderBy,
    TrialSortBy,
    checkpoint_query,
    metric_order,
)
from trainmaster.experimental._workspace import Workspace
from trainmaster.quantities import duration

_WORD_SECONDS = 60.0  # while it waits


@dataclasses.dataclass(init=False, repr=False, eq=False)
class Experiment(Resource):
    """One experiment. What it says of itself is of its last `reload`."""

    _NOUN, _ARGUMENT = "experiment", "experiment_id"

    config: Optional[Dict[str, Any]] = None
    state: Optional[ExperimentState] = None
    labels: Optional[Set[str]] = None
    archived: Optional[bool] = None
    name: Optional[str] = None
    progress: Optional[float] = None
    description: Optional[str] = None
    notes: Optional[str] = None
    project_id: Optional[int] = None
    workspace_id: Optional[int] = None

    def __init__(self, experiment_id: int, session: Session) -> None:
        super().__init__(session, experiment_id)
        self._id = experiment_id

    @property
    def id(self) -> int:
        return self._id

    def set_name(self, name: str) -> None:
        self._patch({"name": name})

    def set_description(self, description: str) -> None:
        self._patch({"description": description})

    def set_notes(self, notes: str) -> None:
        self._patch({"notes": notes})

    def set_labels(self, labels: Set[str]) -> None:
        """These labels, instead of those that it has."""
        self._patch({"labels": sorted(labels)})

    def set_priority(self, priority: int) -> None:
        """Its priority in the queue, 1 (first) to 99."""
        self._patch({"resources": {"priority": priority}})

    def set_weight(self, weight: float) -> None:
        """Its weight in a pool of fair shares."""
        self._patch({"resources": {"weight": weight}})

    def set_max_slots(self, max_slots: Optional[int]) -> None:
        """The most slots that it may hold at once; None: as many as there are."""
        self._patch({"resources": {"maxSlots": max_slots}})

    def add_label(self, label: str) -> None:
        """One that it has already stays."""
        self.labels = set(self._session.call("PUT", self._label(label))["labels"])

    def remove_label(self, label: str) -> None:
        """One that it does not have is no error."""
        self.labels = set(self._session.call("DELETE", self._label(label))["labels"])

    def activate(self) -> None:
        self._do("activate")

    def pause(self) -> None:
        """Its trials save, end, and go on later where they were."""
        self._do("pause")

    def cancel(self) -> None:
        """Its trials save and end."""
        self._do("cancel")

    def kill(self) -> None:
        """Its trials end now."""
        self._do("kill")

    def archive(self) -> None:
        self._do("archive")
        self.archived = True

    def unarchive(self) -> None:
        self._do("unarchive")
        self.archived = False

    def delete(self) -> None:
        """Delete it with all that it has stored, in the server's own time."""
        self._session.call("DELETE", self._path)

    def delete_tensorboard_files(self) -> None:
        """Delete the files that its trials have written for TensorBoard; metrics stay."""
        self._session.call("DELETE", f"{self._path}/tensorboard-files")

    def move_to_project(self, workspace_name: str, project_name: str) -> None:
        """NotFoundException when there is no such project."""
        project = Workspace(self._session, workspace_name=workspace_name).get_project(project_name)
        body = {"experimentId": self._id, "destinationProjectId": project.id}
        self._session.post(f"{self._path}/move", body)
        self.project_id, self.workspace_id = project.id, project.workspace_id

    def download_code(self, output_dir: Optional[str] = None) -> str:
        """Write the submitted code to exp-<id>_model_def.tar.gz (in `output_dir`, made if need be); that path."""
        archive = base64.b64decode(self._session.get(f"{self._path}/model_def")["b64Tgz"])
        folder = Path(output_dir).expanduser() if output_dir else Path()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"exp-{self._id}_model_def.tar.gz"
        path.write_bytes(archive)
        return str(path)

    def iter_trials(
        self,
        sort_by: TrialSortBy = TrialSortBy.ID,
        order_by: OrderBy = OrderBy.ASCENDING,
        limit: Optional[int] = None,
    ) -> Iterator[Trial]:
        """Its trials, asked for as they are needed, `limit` (else 100) at a time."""
        query = [("sortBy", sort_by.value), ("orderBy", order_by.value), ("limit", limit or 0)]
        offset = 0
        while True:
            page = self._session.get(f"{self._path}/trials", [*query, ("offset", offset)])
            yield from (Trial._of(self._session, row) for row in page["trials"])
            offset += len(page["trials"])
            if not page["trials"] or offset >= page["pagination"]["total"]:
                return

    def list_trials(
        self, sort_by: TrialSortBy = TrialSortBy.ID, order_by: OrderBy = OrderBy.ASCENDING
    ) -> List[Trial]:
        return list(self.iter_trials(sort_by, order_by))

    get_trials = list_trials  # its older name

    def await_first_trial(self, interval: float = 0.1) -> Trial:
        """Wait for its first trial, asking every `interval` seconds. RuntimeError when it ends without one."""
        while True:
            self.reload()
            found = next(self.iter_trials(TrialSortBy.START_TIME, limit=1), None)
            if found is not None:
                return found
            if self.state in ENDED:
                raise RuntimeError(f"Experiment {self._id} has ended in {self.state} without a trial.")
            time.sleep(interval)

    def wait(self, interval: float = 5.0) -> ExperimentState:
        """Wait for its end, asking every `interval` seconds; the state in which it has ended.

        ValueError when it is paused. The queue says why one waits: `trainmaster job explain`.
        """
        begin = said = time.monotonic()
        while True:
            self.reload()
            state = self.state
            assert state is not None
            if state in ENDED:
                return state
            if state is ExperimentState.PAUSED:
                raise ValueError(
                    f"Experiment {self._id} is paused; activate() it before waiting for it to end."
                )
            if time.monotonic() - said >= _WORD_SECONDS:
                said = time.monotonic()
                word = state.name.lower()
                print(f"Experiment {self._id} is {word}, {duration(said - begin)} so far.", file=sys.stderr)
            time.sleep(interval)

    def list_checkpoints(
        self,
        sort_by: Union[str, CheckpointSortBy, None] = None,
        order_by: Optional[OrderBy] = None,
        max_results: Optional[int] = None,
    ) -> List[Checkpoint]:
        """Its complete checkpoints: the best first by the searcher's metric, or as the two say together."""
        query = [*checkpoint_query(sort_by, order_by), ("states", "STATE_COMPLETED")]
        return Checkpoint._all(self._session, query, f"{self._path}/checkpoints", max_results or 0)

    def top_checkpoint(
        self, sort_by: Optional[str] = None, smaller_is_better: Optional[bool] = None
    ) -> Checkpoint:
        """The best checkpoint. AssertionError when there is none."""
        found = self.list_checkpoints(sort_by, metric_order(sort_by, smaller_is_better), max_results=1)
        if not found:
            raise AssertionError(f"Experiment {self._id} has no complete checkpoint.")
        return found[0]

    def top_n_checkpoints(
        self, limit: int, sort_by: Optional[str] = None, smaller_is_better: Optional[bool] = None
    ) -> List[Checkpoint]:
        """The best checkpoint of each of the `limit` best trials. AssertionError when there is none."""
        found: Dict[Optional[int], Checkpoint] = {}
        for checkpoint in self.list_checkpoints(sort_by, metric_order(sort_by, smaller_is_better)):
            found.setdefault(checkpoint.training.trial_id if checkpoint.training else None, checkpoint)
        if not found:
            raise AssertionError(f"Experiment {self._id} has no complete checkpoint.")
        return list(found.values())[:limit]

    def _do(self, action: str) -> None:
        self._session.post(f"{self._path}/{action}")

    def _patch(self, changes: Json) -> None:
        super()._patch({"id": self._id, **changes})

    def _label(self, label: str) -> str:
        return f"{self._path}/labels/{quote(label, safe='')}"

    def _hydrate(self, record: Json) -> None:
        super()._hydrate(record)
        self.state = ExperimentState(record["state"])
        self.labels = set(record["labels"]) if record.get("labels") else None

    def __repr__(self) -> str:
        return f"Experiment(id={self._id})"

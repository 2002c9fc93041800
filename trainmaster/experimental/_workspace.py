"""Workspaces and the projects in them, as scripts hold them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Dict, List, NamedTuple, Optional

from trainmaster.common.api import errors
from trainmaster.experimental._resource import Resource
from trainmaster.experimental._session import Json, Session

if TYPE_CHECKING:
    from trainmaster.experimental._experiment import Experiment


class ResourcePool(NamedTuple):
    """A pool, by name."""

    name: str


@dataclasses.dataclass(init=False, repr=False, eq=False)
class Project(Resource):
    """One project. What it says of itself is of its last `reload`."""

    _NOUN, _ARGUMENT = "project", "project_id"

    archived: Optional[bool] = None
    description: Optional[str] = None
    n_active_experiments: Optional[int] = None
    n_experiments: Optional[int] = None
    name: Optional[str] = None
    notes: Optional[List[Dict[str, str]]] = None
    workspace_id: Optional[int] = None
    username: Optional[str] = None
    key: Optional[str] = None

    def __init__(self, session: Session, project_id: int) -> None:
        super().__init__(session, project_id)
        self.id = project_id

    def list_experiments(self) -> List[Experiment]:
        from trainmaster.experimental._experiment import Experiment

        return Experiment._all(self._session, [("projectId", self.id)])

    def set_name(self, name: str) -> None:
        self._patch({"name": name})

    def set_description(self, description: str) -> None:
        self._patch({"description": description})

    def set_key(self, key: str) -> None:
        """1 to 5 letters and digits, of no other project."""
        self._patch({"key": key})

    def archive(self) -> None:
        self._session.post(f"{self._path}/archive")
        self.archived = True

    def unarchive(self) -> None:
        self._session.post(f"{self._path}/unarchive")
        self.archived = False

    def add_note(self, name: str, contents: str) -> None:
        """One more note behind those that the project has now."""
        note = {"name": name, "contents": contents}
        self.notes = self._session.post(f"{self._path}/notes", note)["notes"]

    def remove_note(self, name: str) -> None:
        """ValueError unless exactly one note has this name now."""
        self.reload()
        notes = self.notes or []
        kept = [note for note in notes if note["name"] != name]
        if len(kept) != len(notes) - 1:
            raise ValueError(f"{len(notes) - len(kept)} notes are named {name!r}; exactly one is required.")
        self.notes = self._session.call("PUT", f"{self._path}/notes", {"notes": kept})["notes"]

    def _hydrate(self, record: Json) -> None:
        super()._hydrate(record)
        self.n_active_experiments = record["numActiveExperiments"]
        self.n_experiments = record["numExperiments"]


@dataclasses.dataclass(init=False, repr=False, eq=False)
class Workspace(Resource):
    """One workspace, by id or by name (NotFoundException when there is none of that name)."""

    _NOUN, _ARGUMENT = "workspace", "workspace_id"

    name: Optional[str] = None

    def __init__(
        self, session: Session, workspace_id: Optional[int] = None, workspace_name: Optional[str] = None
    ) -> None:
        if (workspace_id is None) == (workspace_name is None):
            raise ValueError("Give either the id or the name of a workspace, not both.")
        self.name = workspace_name
        if workspace_id is None:
            rows = session.get("/api/v1/workspaces", [("nameCaseSensitive", workspace_name)])["workspaces"]
            if not rows:
                raise errors.NotFoundException(f"There is no workspace {workspace_name!r}.")
            workspace_id = int(rows[0]["id"])
        super().__init__(session, workspace_id)
        self.id = workspace_id

    def list_pools(self) -> List[ResourcePool]:
        """The pools that its experiments may use."""
        names = self._session.get(f"{self._path}/available-resource-pools")["resourcePools"]
        return [ResourcePool(name) for name in names]

    def create_project(self, name: str, description: Optional[str] = None) -> Project:
        """APIException when there is one of this name."""
        body = {"name": name, "description": description, "workspaceId": self.id}
        return Project._of(self._session, self._session.post(f"{self._path}/projects", body)["project"])

    def delete_project(self, name: str) -> None:
        """Only an empty one. NotFoundException, APIException."""
        self._session.call("DELETE", f"/api/v1/projects/{self.get_project(name).id}")

    def get_project(self, project_name: str) -> Project:
        """NotFoundException when the workspace has none of this name."""
        for project in self.list_projects(project_name):
            if project.name == project_name:
                return project
        raise errors.NotFoundException(f"There is no project {project_name!r} in this workspace.")

    def list_projects(self, name: Optional[str] = None) -> List[Project]:
        """All of them, or those of this name, in upper or lower case."""
        query = [("name", name)] if name else []
        return Project._all(self._session, query, f"{self._path}/projects")

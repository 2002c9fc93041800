"""The rooms of the console, in the groups of its side bar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from accounts.models import User
from commands.models import Command
from commands.states import END_STATES
from experiments import counts
from experiments.models import ExperimentCount
from hosts import registry
from hosts.models import ResourcePool
from jobs.models import Job
from jobs.states import JobState


@dataclass(frozen=True)
class Room:
    """`words`: what people also call it, for the search. `for_admins`: others do not see it."""

    name: str
    href: str
    count: Callable[[], int] | None = None
    words: str = ""
    for_admins: bool = False


def _experiments() -> int:
    return counts.total(ExperimentCount.objects.filter(archived=False))


GROUPS = (
    (
        "Work",
        (
            Room("Overview", "/overview", words="start home failed"),
            Room("Experiments", "/experiments", _experiments, "runs searches"),
            Room("Tasks", "/tasks", lambda: Command.objects.exclude(state__in=END_STATES).count(),
                 "commands shells notebooks tensorboards"),
            Room("Job Queue", "/jobs", lambda: Job.objects.filter(state=JobState.ACTIVE).count(), "waiting"),
            Room("Schedules", "/schedules", words="cron nightly recurring again"),
            Room("Workspaces", "/workspaces", words="projects"),
            Room("Templates", "/templates", words="configs"),
        ),
    ),
    (
        "Machines",
        (
            Room("Pools", "/pools", lambda: ResourcePool.objects.count(), "schedulers forecasts"),
            Room("Hosts", "/hosts", lambda: registry.present().count(), "machines gpus agents slots"),
            Room("Cluster", "/cluster", words="utilization idle"),
            Room("Usage", "/usage", words="slot hours history goodput"),
        ),
    ),
    (
        "Console",
        (
            Room("Groups", "/groups", words="departments teams guarantees quotas"),
            Room("Users", "/users", words="people accounts roles tokens", for_admins=True),
            Room("Audit", "/audit", words="who changed history events", for_admins=True),
            Room("Notifications", "/settings/notifications", words="webhooks slack mail rules"),
            Room("REST API", "/api/v1/docs", words="openapi"),
            Room("Documentation", "/docs/", words="help manual"),
        ),
    ),
)  # fmt: skip
#: pages without a place in the side bar's groups
OTHERS = (
    Room("Settings", "/settings", words="account profile password tokens"),
    Room("New experiment", "/experiments/new", words="create submit"),
    Room("New task", "/tasks/+new", words="create shell notebook command"),
    Room("Charts", "/compare", words="compare trials runs curves workspace"),
)


def side_bar(current: str = "", user: User | None = None) -> list[tuple[str, list[dict[str, Any]]]]:
    """The groups with their rooms as templates take them; without a user, nothing is counted."""
    return [
        (
            group,
            [
                {
                    "name": room.name,
                    "href": room.href,
                    "count": room.count() if user and room.count else None,
                    "current": room.name == current,
                }
                for room in rooms
                if _is_for(room, user)
            ],
        )
        for group, rooms in GROUPS
    ]


def _is_for(room: Room, user: User | None) -> bool:
    return not room.for_admins or (user is not None and user.is_admin)


def beside(_: HttpRequest) -> dict[str, Any]:
    """The side bar of pages that are shown without a view of ours, such as those of errors."""
    return {"rooms": side_bar}


def found(text: str, user: User) -> list[Room]:
    """Rooms and pages of the user that the text names; all for an empty text."""
    wanted = text.lower().split()
    return [
        room
        for room in (*(room for _, rooms in GROUPS for room in rooms), *OTHERS)
        if _is_for(room, user) and _is_called(room, wanted)
    ]


def _is_called(room: Room, wanted: list[str]) -> bool:
    names = f"{room.name} {room.words}".lower().split()
    return all(any(name.startswith(each) for name in names) for each in wanted)

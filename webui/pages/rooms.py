"""The rooms of the console, in the groups of its side bar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

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
    """`words`: what people also call it, for the search."""

    name: str
    href: str
    count: Callable[[], int] | None = None
    words: str = ""


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
            Room("Usage", "/usage", words="slot hours history"),
        ),
    ),
    (
        "Console",
        (
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
    Room("Compare trials", "/compare", words="curves"),
)


def side_bar(current: str = "", *, counted: bool = False) -> list[tuple[str, list[dict[str, Any]]]]:
    """The groups with their rooms as templates take them."""
    return [
        (
            group,
            [
                {
                    "name": room.name,
                    "href": room.href,
                    "count": room.count() if counted and room.count else None,
                    "current": room.name == current,
                }
                for room in rooms
            ],
        )
        for group, rooms in GROUPS
    ]


def beside(_: HttpRequest) -> dict[str, Any]:
    """The side bar of pages that are shown without a view of ours, such as those of errors: nothing is counted."""
    return {"rooms": side_bar}


def found(text: str) -> list[Room]:
    """Rooms and pages that are called so; all for an empty text."""
    every = [*(room for _, rooms in GROUPS for room in rooms), *OTHERS]
    wanted = text.lower().split()
    return [
        room
        for room in every
        if all(
            any(word.startswith(each) for word in f"{room.name} {room.words}".lower().split())
            for each in wanted
        )
    ]

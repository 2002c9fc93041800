"""What the search over the console finds: things by name, label, number or hyperparameter, and what to do with them.

`resnet`, `12`, `lr=0.01`, `host gpu1`, `pause 12`, `logs of exp 5`. Pages of the console itself are webui's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from django.db.models import Q

from accounts import rights
from accounts.models import User
from commands.models import Command
from commands.states import CommandState
from experiments import phases
from experiments.actions import ACTIONS
from experiments.filters import ExperimentFilters
from experiments.models import Experiment, Project, Template, Trial
from hosts import registry
from hosts.models import ResourcePool
from shown import tabs, tasks, words
from shown.words import Word

#: of each kind of thing
MOST_OF_A_KIND = 6
#: characters that are looked for
MOST_CHARACTERS = 200
_LARGEST_ID = 2**63 - 1
#: tasks that a text is compared with, the newest: their names have no index
_NEWEST_TASKS = 5_000
#: word -> action of experiments.actions
_VERBS = {name: name for name in ACTIONS} | {"resume": "activate", "stop": "cancel"}
#: what is asked for by the name of its tab; the overview is the thing itself
_EXPERIMENT_TABS = {*tabs.EXPERIMENT} - {"overview"}
_TRIAL_TABS = {*tabs.TRIAL} - {"overview"}
_TERMINAL = "terminal"  # of shells alone
_VIEWS = _EXPERIMENT_TABS | _TRIAL_TABS | {_TERMINAL}
_SYNONYMS = {"log": "logs", "curves": "metrics", "checkpoint": "checkpoints"}
_KINDS = {
    "exp": "Experiments", "experiment": "Experiments", "trial": "Trials", "task": "Tasks", "command": "Tasks",
    "cmd": "Tasks", "shell": "Tasks", "notebook": "Tasks", "tensorboard": "Tasks", "job": "",
    "host": "Hosts", "pool": "Pools", "project": "Projects", "template": "Templates",
}  # fmt: skip
_NAMED = re.compile(r"(?P<kind>[a-z]+?)s?\s+(?P<rest>\S.*)", re.IGNORECASE)


@dataclass(frozen=True)
class Hit:
    """Something that was found: a page (`href`), or with `does` what a form posted to `href` does.

    `asks`: the consequence that is confirmed first.
    """

    title: str
    detail: str
    href: str
    word: Word | None = None
    does: bool = False
    asks: str = ""


@dataclass(frozen=True)
class Wanted:
    """What a text asks for: the things that it names, of one kind (empty: of any), and what is to be done with them."""

    text: str
    kind: str = ""
    action: str = ""
    view: str = ""

    @property
    def number(self) -> int:
        """The id that the text is; 0, which no row has, for another text."""
        return min(int(self.text), _LARGEST_ID) if self.text.isdecimal() and self.text.isascii() else 0


Group = tuple[str, list[Hit]]


def find(user: User, text: str) -> list[Group]:
    """What the text finds by kind, what can be done first. At most MOST_OF_A_KIND of each kind, the newest first."""
    text = " ".join(text.split())[:MOST_CHARACTERS]
    if not text:
        return []
    wanted = _read(text)
    asks_for_more = wanted.action or wanted.view
    groups = [("Actions", list(_asked(user, wanted)) if asks_for_more else [])]
    # a thing may be called "config test"
    plain = Wanted(text) if asks_for_more else wanted
    groups += [(kind, look(plain)) for kind, look in _LOOKS.items() if plain.kind in ("", kind)]
    return [(name, hits) for name, hits in groups if hits]


def _read(text: str) -> Wanted:
    first, _, rest = text.partition(" ")
    word = _SYNONYMS.get(first.lower(), first.lower())
    action, view = _VERBS.get(word, ""), word if word in _VIEWS else ""
    if not rest or not (action or view):
        rest, action, view = text, "", ""
    rest = rest.removeprefix("of ") or rest
    named = _NAMED.fullmatch(rest)
    if named and (kind := _KINDS.get(named["kind"].lower())) is not None:
        return Wanted(named["rest"], kind, action, view)
    return Wanted(rest, "", action, view)


def _asked(user: User, wanted: Wanted) -> Iterator[Hit]:
    """The actions, or the pages of things, that are asked for."""
    if wanted.kind in ("", "Experiments") and wanted.view != _TERMINAL:
        for experiment in _experiments(wanted):
            yield from _of_experiment(user, experiment, wanted)
    if wanted.kind == "Trials" and wanted.view in _TRIAL_TABS:
        for trial in _trials(wanted):
            yield _view(f"trial {trial.pk}", trial.experiment.name, f"/trials/{trial.pk}", wanted.view)
    if wanted.kind in ("", "Tasks"):
        for command in _tasks(wanted):
            yield from _of_task(user, command, wanted)


def _of_experiment(user: User, experiment: Experiment, wanted: Wanted) -> Iterator[Hit]:
    called, address = f"experiment {experiment.pk}", f"/experiments/{experiment.pk}"
    if action := ACTIONS.get(wanted.action):
        if action.is_legal(experiment) and rights.may_change(user, experiment):
            has_page = action.name == "delete"  # which asks there
            title = f"{action.label} {called}"
            yield Hit(title, experiment.name, f"{address}/{action.name}", does=not has_page, asks=action.asks)
    elif wanted.view in _EXPERIMENT_TABS:
        yield _view(called, experiment.name, address, wanted.view)
    elif newest := experiment.trials.order_by("-pk").first():
        yield _view(f"{called}, trial {newest.pk}", experiment.name, f"/trials/{newest.pk}", wanted.view)


def _of_task(user: User, command: Command, wanted: Wanted) -> Iterator[Hit]:
    called, address = f"{command.kind.label.lower()} {command.short_id}", f"/commands/{command.pk}"
    if (tab := wanted.view.removesuffix("s")) in tabs.TASK:
        yield _view(called, command.description, address, tab)
    if wanted.view == _TERMINAL and rights.may_change(user, command):
        row = tasks.row(tasks.with_parts().get(pk=command.pk))
        if row.terminal_at:
            yield Hit(f"Terminal of {called}", command.description, row.terminal_at)
    is_killable = command.state == CommandState.ACTIVE and rights.may_change(user, command)
    if wanted.action == "kill" and is_killable:
        asks = tasks.kill_asks(command)
        yield Hit(f"Kill {called}", command.description, f"{address}/kill", does=True, asks=asks)


def _view(called: str, name: str, address: str, view: str) -> Hit:
    return Hit(f"{view.capitalize()} of {called}", name, f"{address}/{view}")


def _experiments(wanted: Wanted) -> list[Experiment]:
    filters = ExperimentFilters(text=wanted.text, number=wanted.number)
    rows = filters.of(Experiment.objects.select_related("owner")).order_by("-pk")[:MOST_OF_A_KIND]
    # what is called by its number comes first
    found = Experiment.objects.filter(pk=wanted.number).select_related("owner") if wanted.number else []
    return list({row.pk: row for row in [*found, *rows]}.values())[:MOST_OF_A_KIND]


def _trials(wanted: Wanted) -> Iterable[Trial]:
    return Trial.objects.filter(pk=wanted.number).select_related("experiment") if wanted.number else []


def _tasks(wanted: Wanted) -> Iterable[Command]:
    newest = Command.objects.order_by("-submitted_at", "-pk").values("pk")[:_NEWEST_TASKS]
    text = Q(description__icontains=wanted.text) | Q(task__id__startswith=wanted.text.lower())
    rows = Command.objects.filter(text, pk__in=newest).select_related("owner", "job", "task")
    return rows.order_by("-submitted_at", "-pk")[:MOST_OF_A_KIND]


def _experiment_hits(wanted: Wanted) -> list[Hit]:
    rows = _experiments(wanted)
    phase = phases.of_experiments(rows)
    hits = [
        Hit(
            f"{row.pk} {row.name}",
            " · ".join([row.owner.username, *row.labels, *(["archived"] if row.archived else [])]),
            f"/experiments/{row.pk}",
            words.state(phase[row.pk]),
        )
        for row in rows
    ]
    if len(hits) == MOST_OF_A_KIND:
        hits.append(Hit("All experiments that match", "", f"/experiments?{urlencode({'q': wanted.text})}"))
    return hits


def _trial_hits(wanted: Wanted) -> list[Hit]:
    rows = list(_trials(wanted))
    phase = phases.of_trials(rows)
    return [
        Hit(
            f"Trial {row.pk}",
            f"experiment {row.experiment_id} {row.experiment.name}",
            f"/trials/{row.pk}",
            words.state(phase[row.pk]),
        )
        for row in rows
    ]


def _task_hits(wanted: Wanted) -> list[Hit]:
    ids = [command.pk for command in _tasks(wanted)]
    rows = tasks.rows(tasks.with_parts().filter(pk__in=ids).order_by("-submitted_at", "-pk"))
    return [
        Hit(
            row.command.description,
            f"{row.kind.lower()} {row.command.short_id} · {row.command.owner.username}",
            f"/commands/{row.command.pk}",
            words.state(row.state),
        )
        for row in rows
    ]


def _host_hits(wanted: Wanted) -> list[Hit]:
    rows = registry.present().filter(name__icontains=wanted.text).select_related("pool").order_by("name")
    return [
        Hit(host.name, f"pool {host.pool.name}", f"/hosts/{host.name}", words.host_state(host.state))
        for host in rows[:MOST_OF_A_KIND]
    ]


def _pool_hits(wanted: Wanted) -> list[Hit]:
    names = ResourcePool.objects.filter(name__icontains=wanted.text).order_by("name")
    found = names.values_list("name", flat=True)[: MOST_OF_A_KIND // 2]
    return [
        hit
        for name in found
        for hit in (Hit(f"Queue of {name}", "", f"/jobs/{name}"), Hit(f"Pool {name}", "", f"/pools/{name}"))
    ]


def _project_hits(wanted: Wanted) -> list[Hit]:
    rows = Project.objects.filter(name__icontains=wanted.text).select_related("workspace").order_by("name")
    return [
        Hit(row.name, f"workspace {row.workspace.name}", f"/projects/{row.pk}")
        for row in rows[:MOST_OF_A_KIND]
    ]


def _template_hits(wanted: Wanted) -> list[Hit]:
    rows = (
        Template.objects.filter(name__icontains=wanted.text).order_by("name").values_list("name", flat=True)
    )
    return [Hit(name, "", f"/templates/{quote(name, safe='')}") for name in rows[:MOST_OF_A_KIND]]


_LOOKS: dict[str, Callable[[Wanted], list[Hit]]] = {
    "Experiments": _experiment_hits,
    "Trials": _trial_hits,
    "Tasks": _task_hits,
    "Hosts": _host_hits,
    "Pools": _pool_hits,
    "Projects": _project_hits,
    "Templates": _template_hits,
}

"""The rules of a resource pool as form fields, and their values in words. `hosts.pool_edits` checks the values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, cast

from django import forms
from django.forms.models import model_to_dict
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from hosts.models import ResourcePool
from hosts.pool_edits import ROLES
from scheduling import policies
from trainmaster import group_shares, pool_access, slurm_settings
from trainmaster.quantities import duration
from webui.forms import Form
from webui.query import LARGEST_ID, as_whole


def _whole_or_text(text: str | None) -> int | str | None:
    """The number that a text is. Another text stays as it is, for the one sentence about it."""
    number = as_whole(text or "", least=-LARGEST_ID)
    return (text or None) if number is None else number


class Rule(forms.CharField):
    """One line of text. `none`: what an empty one means."""

    def __init__(self, label: str, help_text: str, *, none: str = "", **more: Any) -> None:
        self.none = none
        super().__init__(label=label, help_text=help_text, required=False, **more)

    def words(self, value: object) -> str:
        """The value as the page of the pool says it."""
        return self.none or "none" if value in (None, "") else str(value)

    def widget_attrs(self, widget: forms.Widget) -> dict[str, Any]:
        return {"placeholder": self.none}


class Number(Rule):
    def __init__(self, label: str, help_text: str, *, is_seconds: bool = False, **more: Any) -> None:
        self.is_seconds = is_seconds
        super().__init__(label, f"{help_text} In seconds." if is_seconds else help_text, **more)

    def to_python(self, value: Any) -> Any:
        return _whole_or_text(super().to_python(value))

    def words(self, value: object) -> str:
        return (
            f"{value} s ({duration(float(str(value)))})"
            if self.is_seconds and value
            else super().words(value)
        )

    def widget_attrs(self, widget: forms.Widget) -> dict[str, Any]:
        return {**super().widget_attrs(widget), "inputmode": "numeric"}


class Choice(Rule):
    def __init__(self, label: str, help_text: str, choices: Mapping[str, str]) -> None:
        self.choices = choices
        super().__init__(label, help_text, widget=forms.Select(choices=list(choices.items())))

    def words(self, value: object) -> str:
        return self.choices.get(str(value), str(value))

    def widget_attrs(self, widget: forms.Widget) -> dict[str, Any]:
        return {}


class Switch(forms.BooleanField):
    def __init__(self, label: str, help_text: str) -> None:
        super().__init__(label=label, help_text=help_text, required=False)

    def words(self, value: object) -> str:
        return "yes" if value else "no"


class _RoleInputs(forms.Widget):
    """An input for each role, named `<field>.<role>`."""

    use_fieldset = True

    def value_from_datadict(self, data: Mapping[str, Any], files: Any, name: str) -> dict[str, str]:
        return {role: data.get(f"{name}.{role}", "").strip() for role in ROLES}

    def render(
        self, name: str, value: Any, attrs: Mapping[str, Any] | None = None, renderer: Any = None
    ) -> SafeString:
        line = '<label>{} <input type="text" inputmode="numeric" size="4" placeholder="1" name="{}.{}" value="{}">'
        of_role = ((role, name, role, (value or {}).get(role) or "") for role in ROLES)
        return format_html('<span class="floors">{}</span>', format_html_join("", line + "</label>", of_role))


class Floors(forms.Field):
    widget = _RoleInputs

    def __init__(self, label: str, help_text: str) -> None:
        super().__init__(label=label, help_text=help_text, required=False)

    def clean(self, value: Mapping[str, str]) -> dict[str, Any]:
        return {role: _whole_or_text(floor) for role, floor in value.items() if floor}

    def words(self, value: Mapping[str, object]) -> str:
        return ", ".join(f"{role} {floor}" for role, floor in value.items()) or "1 for everyone"


class MinRuntime(Rule):
    """`600`, or by priority `1=600 50=0`; words of the same."""

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if list(value) == ["1"]:
            return value["1"]
        return " ".join(f"{first}={value[first]}" for first in sorted(value, key=int))

    def to_python(self, value: Any) -> Any:
        pairs = (part.rpartition("=") for part in str(value or "").replace(",", " ").split())
        return {first.strip() or "1": _whole_or_text(seconds) for first, _, seconds in pairs}

    def words(self, value: object) -> str:
        by = sorted((int(first), seconds) for first, seconds in self.to_python(value).items())
        if not by:
            return super().words(None)
        if len(by) == 1 and by[0][0] == 1:
            return duration(float(by[0][1]))
        return ", ".join(f"{duration(float(seconds))} from priority {first}" for first, seconds in by)


class Groups(Rule):
    """`vision=guarantee:8,limit:12,weight:2`, one for each group."""

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(group_shares.written(value)) if isinstance(value, dict) else value

    def to_python(self, value: Any) -> Any:
        try:
            return group_shares.read(str(value or "").split())
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error

    def words(self, value: object) -> str:
        return super().words(str(value).replace("\n", "; ").replace("=", ": ").replace(",", ", "))


class OpenTo(Rule):
    """`group:vision workspace:3`; nothing: everyone."""

    def prepare_value(self, value: Any) -> Any:
        return pool_access.written(value) if isinstance(value, dict) else value

    def to_python(self, value: Any) -> Any:
        try:
            return pool_access.read(str(value or "").replace(",", " ").split())
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error


class Cluster(Rule):
    """`login=stars,partition=gpu`; nothing: a pool of hosts reached by SSH."""

    def prepare_value(self, value: Any) -> Any:
        return slurm_settings.written(value) if isinstance(value, dict) else value

    def to_python(self, value: Any) -> Any:
        try:
            return slurm_settings.merged({}, slurm_settings.read(str(value or "")))
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error


class PoolForm(Form):
    scheduler = Choice(
        "Scheduler",
        "Which job goes first. A change applies from the next pass on, also to running work.",
        dict(policies.DESCRIPTIONS),
    )
    preemption = Switch(
        "Preemption", "In a priority pool: running work may be stopped for work of a higher priority."
    )
    fitting = Choice(
        "Fit",
        "Where a request for part of a host is placed.",
        {"best": "best: the fullest host that still fits", "worst": "worst: the emptiest host"},
    )
    allow_heterogeneous_fits = Switch(
        "Gangs on hosts of unequal size", "If off, all hosts of a gang provide the same number of slots."
    )
    default_priority = Number("Default priority", "For jobs that name none: 1 to 99; 1 is highest.")
    priority_floor = Floors("Highest priority by role", "Users with the role cannot go above it. Empty: 1.")
    strict = Switch("Strict", "Only the owner of a job and admins can change it.")
    default_max_time_seconds = Number(
        "Default time limit",
        "For trials and commands whose config sets none.",
        none="no limit",
        is_seconds=True,
    )
    longest_max_time_seconds = Number(
        "Longest time limit", "The maximum that a config can request.", none="no limit", is_seconds=True
    )
    unpreemptible_slots = Number(
        "Slots for work that is not preemptible",
        "The maximum held in total by work with preemptible: false.",
        none="all slots",
    )
    min_runtime_seconds = MinRuntime(
        "Young work is left alone for",
        "Others do not stop it before it has run so long; users still can. In seconds, or from a priority on: "
        "1=600 50=60.",
        none="no time",
    )
    patience_seconds = Number(
        "Patience",
        "Hosts are reserved for a gang only once it should start within this time, plus the time since its submission; "
        "until then others start there. 0: only the time since its submission. Empty: from its turn on.",
        none="hosts are reserved from its turn on",
        is_seconds=True,
    )
    spare_hosts = Number(
        "Spare hosts",
        "How many hosts are kept free: only work whose own host failed, and burn-ins, run there. 0: none.",
        none="0",
    )
    open_to = OpenTo(
        "Who may use it",
        "Groups, with the teams in them, and workspaces by number: group:vision workspace:3.",
        none="everyone",
    )
    group_shares = Groups(
        "Groups",
        "Slots that a group gets whenever it asks, at most how many it may hold, and its weight for what is left over: "
        "vision=guarantee:8,limit:12,weight:2, one group a line.",
        none="not shared among groups",
        widget=forms.Textarea({"rows": 3}),
    )
    usage_half_life_seconds = Number(
        "Half-life of past use",
        "After this time, what a group has held counts half in its turn for slots without a guarantee. 0: not at all.",
        is_seconds=True,
    )
    aux_per_host = Number(
        "Runs without slots per host", "The maximum number of zero-slot runs at once on one host."
    )
    launch_error = Switch(
        "Refuse what never fits",
        "Commands, notebooks and trials on one host that are larger than every host of the pool are refused. "
        "Off: they wait until a larger host is added.",
    )
    host_lost_after_seconds = Number(
        "Silent hosts are lost after",
        "Their runs then start elsewhere. Needs several failed contacts while another host answers; "
        "time when this server was down does not count. Empty: only a user can declare a host lost.",
        none="never automatically",
        is_seconds=True,
    )
    hang_after_seconds = Number(
        "Look at hangs after",
        "A training that makes no progress for this time is looked at: the stacks of its ranks, and which rank is "
        "missing from which collective. Empty: never.",
        none="never",
        is_seconds=True,
    )
    hang_do = Choice(
        "If a training hangs",
        "Only a hang that two looks prove is ended. A config may say otherwise for its trials.",
        {
            "tell": "only tell it",
            "restart": "restart it",
            "restart_elsewhere": "restart it on other hosts",
        },
    )
    burn_in = Choice(
        "Burn in hosts",
        "A job of the lowest priority measures all slots in use of a host, once the host is free.",
        {
            "never": "only if an admin asks for it",
            "before_joining": "before they get work",
            "weekly": "once a week",
        },
    )
    burn_in_do = Choice(
        "If a burn-in finds less than half",
        "Of the median of at least three other hosts that have the same GPUs, or wrong results.",
        {"tell": "only tell it", "quarantine": "take the slot or the host out of use"},
    )
    network_interface = Rule(
        "Network interface",
        "The one that gangs use to communicate. Empty: each run detects it.",
        none="detected by each run",
    )
    shared_account = Switch(
        "Shared account",
        "Jobs run as the login account of the host, so they are not isolated from each other.",
    )
    allow_login_account = Switch(
        "Allow the login account",
        "Jobs of users without a linked Unix account run as the login account of the host even where that is root "
        "or may become root: each of them can read and end everything there. Off: such jobs are refused.",
    )
    slurm = Cluster(
        "Slurm cluster",
        "Such as login=stars,partition=gpu. Other settings: account, qos, slot_type, gpu_type, slots_per_node, folder, "
        "folder_is_shared, accounts, tunnel, max_fed, sbatch_args, ends.",
        none="none: hosts reached by SSH",
    )
    default_compute = Switch(
        "Default compute pool",
        "For work with slots that names no pool. Replaces the current default pool.",
    )
    default_aux = Switch(
        "Default aux pool", "For work without slots that names no pool. Replaces the current default pool."
    )
    description = Rule("Description", "Shown to users.")

    SECTIONS = {
        "Scheduling": ("scheduler", "preemption", "fitting", "allow_heterogeneous_fits", "default_priority"),
        "Permissions": ("open_to", "priority_floor", "strict"),
        "Groups": ("group_shares", "usage_half_life_seconds"),
        "Limits": (
            "default_max_time_seconds", "longest_max_time_seconds", "unpreemptible_slots",
            "min_runtime_seconds", "patience_seconds", "aux_per_host", "launch_error", "host_lost_after_seconds",
        ),
        "Hangs": ("hang_after_seconds", "hang_do"),
        "Burn-in": ("burn_in", "burn_in_do"),
        "Hosts": ("slurm", "spare_hosts", "network_interface", "shared_account", "allow_login_account"),
        "Default pool": ("default_compute", "default_aux", "description"),
    }  # fmt: skip

    @classmethod
    def of_pool(cls, pool: ResourcePool, data: Mapping[str, Any] | None = None) -> Self:
        """The form of a pool's rules, with what was sent."""
        return cls(data, initial=model_to_dict(pool, fields=cls.base_fields))

    @property
    def sections(self) -> dict[str, list[forms.BoundField]]:
        return {title: [self[name] for name in names] for title, names in self.SECTIONS.items()}

    def in_words(self) -> dict[str, list[tuple[str, str]]]:
        """Section -> label and value of each rule."""
        return {
            title: [(str(each.label), cast(Any, each.field).words(each.value())) for each in fields]
            for title, fields in self.sections.items()
        }


class NewPoolForm(PoolForm):
    name = Rule("Name", "Letters, digits, '.', '_' and '-'. It cannot be changed later, because configs use it.",
                widget=forms.TextInput({"maxlength": 64, "required": True, "autofocus": True}))  # fmt: skip

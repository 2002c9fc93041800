"""The rules of a resource pool as people read them: label, help, and what an empty value means."""

from __future__ import annotations

from dataclasses import dataclass

from scheduling import policies
from webui.templatetags.console import spell


@dataclass(frozen=True)
class Field:
    """One rule. `kind`: text, number, switch, choice or floors; `value` is what the form shows."""

    name: str
    label: str
    help: str
    kind: str = "number"
    none: str = ""  # what an empty number means
    unit: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    value: object = None
    error: str = ""

    @property
    def words(self) -> str:
        """The value as the record says it."""
        if self.kind == "switch":
            return "yes" if self.value else "no"
        if self.kind == "choice":
            return dict(self.choices).get(str(self.value), str(self.value))
        if self.kind == "floors":
            floors = self.value if isinstance(self.value, dict) else {}
            return ", ".join(f"{role} {floor}" for role, floor in floors.items()) or "1 for everybody"
        if self.value in (None, ""):
            return self.none or "none"
        spelt = f" ({spell(float(str(self.value)))})" if self.unit == "s" else ""
        return f"{self.value}{f' {self.unit}' if self.unit else ''}{spelt}"


SECTIONS: dict[str, list[Field]] = {
    "Scheduling": [
        Field(
            "scheduler",
            "Scheduler",
            "Who goes first. A change holds from the next pass on, for what runs too.",
            "choice",
            choices=policies.DESCRIPTIONS,
        ),
        Field(
            "preemption",
            "Preemption",
            "In a priority pool: running work of a lower priority may be stopped for a higher one.",
            "switch",
        ),
        Field(
            "fitting",
            "Fit",
            "Where a request for a part of a host goes.",
            "choice",
            choices=(
                ("best", "best: the fullest host that still fits"),
                ("worst", "worst: the emptiest host"),
            ),
        ),
        Field(
            "allow_heterogeneous_fits",
            "Gangs over hosts of unequal size",
            "Otherwise all hosts of a gang give the same number of slots.",
            "switch",
        ),
        Field(
            "default_priority",
            "Default priority",
            "Of jobs that name none: 1 to 99, 1 is the highest.",
        ),
    ],
    "Who may do what": [
        Field(
            "priority_floor",
            "Highest priority by role",
            "Nobody of the role goes above it; empty: 1.",
            "floors",
        ),
        Field(
            "strict",
            "Strict",
            "Only its owner and admins may change a job here.",
            "switch",
        ),
    ],
    "Limits": [
        Field(
            "default_max_time_seconds",
            "Default time limit",
            "Of a trial or command whose config gives none.",
            none="no limit",
            unit="s",
        ),
        Field(
            "longest_max_time_seconds",
            "Longest time limit",
            "The most that a config may ask for.",
            none="no limit",
            unit="s",
        ),
        Field(
            "unpreemptible_slots",
            "Slots for work that is not preemptible",
            "Held together at most by work with preemptible: false.",
            none="all of them",
        ),
        Field(
            "aux_per_host",
            "Runs without slots per host",
            "So many zero-slot runs at once on one host.",
        ),
        Field(
            "host_lost_after_seconds",
            "Silent hosts are lost after",
            "Their runs then start elsewhere. Needs several failed contacts while another host answers; "
            "time in which this server was away does not count. Empty: only a person declares a host lost.",
            none="never by itself",
            unit="s",
        ),
    ],
    "Hosts": [
        Field(
            "network_interface",
            "Network interface",
            "The one that gangs meet and talk over; empty: each run finds it.",
            "text",
            none="found by each run",
        ),
        Field(
            "shared_account",
            "Shared account",
            "Jobs run as the login account of the host: they are not isolated from each other.",
            "switch",
        ),
    ],
    "Default pool": [
        Field(
            "default_compute",
            "Default compute pool",
            "For work with slots that names no pool. The pool that was it hands it over.",
            "switch",
        ),
        Field(
            "default_aux",
            "Default aux pool",
            "For work without slots that names no pool. The pool that was it hands it over.",
            "switch",
        ),
        Field(
            "description",
            "Description",
            "For people.",
            "text",
        ),
    ],
}
